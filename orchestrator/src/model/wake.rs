//! Wakes: somebody asked for an agent's attention. A wake is not a run; wakes merge.

use serde_json::Value;

use super::time::Millis;
use super::words;

words! {
    /// Why an agent is woken. The names are those clients know.
    Reason {
        /// A ticket was assigned to it.
        Assigned = "issue_assigned",
        /// A person checked a ticket out for it.
        CheckedOut = "issue_checked_out",
        /// Somebody else commented on its ticket, or answered an interaction on it.
        Commented = "issue_commented",
        /// A comment mentions it.
        Mentioned = "issue_comment_mentioned",
        /// A comment reopened its ticket.
        Reopened = "issue_reopened_via_comment",
        /// Somebody else made its ticket ready.
        StatusChanged = "issue_status_changed",
        /// The last blocker of its ticket is done.
        BlockersResolved = "issue_blockers_resolved",
        /// A question on a ticket is put to it.
        InteractionPending = "interaction_pending",
        /// A person approved what it asked for.
        Approved = "approval_approved",
        /// A person did not approve what it asked for.
        Rejected = "approval_rejected",
        /// A person wants it to ask better.
        RevisionRequested = "approval_revision_requested",
        /// A person asked for it.
        OnDemand = "on_demand",
        /// Its run ended without a disposition; the one corrective run.
        Corrective = "finish_successful_run_handoff",
    }
}

words! {
    /// What became of a wake.
    WakeState {
        /// Waits for a run. At most one per agent and ticket.
        Queued = "queued",
        /// A run was started for it.
        Started = "started",
        /// It became part of one that was queued already.
        Merged = "merged",
        /// It will not lead to a run; the note says why.
        Dropped = "dropped",
    }
}

impl Reason {
    /// An answer to what the agent itself asked a person.
    #[must_use]
    pub fn is_verdict(self) -> bool {
        matches!(
            self,
            Self::Approved | Self::Rejected | Self::RevisionRequested
        )
    }
}

/// One wake.
#[derive(Debug, Clone, PartialEq)]
pub struct Wake {
    /// UUID.
    pub id: String,
    /// Order of arrival.
    pub seq: i64,
    /// The company.
    pub company: String,
    /// Who is woken.
    pub agent: String,
    /// For what, if for something.
    pub ticket: Option<String>,
    /// Why; the first reason when others merged into it.
    pub reason: Reason,
    /// Ids of the comments that woke, oldest first.
    pub comments: Vec<String>,
    /// What the caller added.
    pub payload: Value,
    /// What became of it.
    pub state: WakeState,
    /// The wake it merged into.
    pub merged_into: Option<String>,
    /// The run it led to.
    pub run: Option<String>,
    /// Whether its run is the one corrective run.
    pub corrective: bool,
    /// Who asked: `user:NAME`, `agent:ID` or `system`.
    pub actor: String,
    /// The run that wrote it, if one did.
    pub by_run: Option<String>,
    /// Not before this time.
    pub not_before: Millis,
    /// Why it was dropped or merged.
    pub note: Option<String>,
    /// How many runs in a row led to it; 0 when a person asked.
    pub depth: i64,
    /// When it arrived.
    pub created_at: Millis,
}
