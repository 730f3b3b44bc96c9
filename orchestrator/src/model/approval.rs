//! Approvals: what an agent asks for and a person decides.

use serde_json::Value;

use super::time::Millis;
use super::words;

words! {
    /// What is asked for.
    ApprovalKind {
        /// A new agent; approving makes it.
        Hire = "hire_agent",
        /// Other settings for an agent: its command, profile, role, permissions; approving makes them so.
        Change = "change_agent",
        /// A wake that one agent writes for another; approving makes it a person's.
        Wake = "wake_agent",
        /// A plan for the company.
        Strategy = "approve_ceo_strategy",
        /// More than the budget allows.
        Budget = "budget_override_required",
        /// Anything else.
        Board = "request_board_approval",
    }
}

words! {
    /// Where an approval stands.
    ApprovalStatus {
        /// Waits for a person.
        Pending = "pending",
        /// Waits for its requester to ask better.
        Revision = "revision_requested",
        /// Yes.
        Approved = "approved",
        /// No.
        Rejected = "rejected",
        /// Kept for clients.
        Cancelled = "cancelled",
    }
}

/// One approval.
#[derive(Debug, Clone, PartialEq)]
pub struct Approval {
    /// UUID.
    pub id: String,
    /// Its company.
    pub company: String,
    /// What is asked for.
    pub kind: ApprovalKind,
    /// Where it stands.
    pub status: ApprovalStatus,
    /// The details.
    pub payload: Value,
    /// SHA-256 of kind and payload: a person approves exactly this.
    pub fingerprint: String,
    /// Who asks.
    pub requested_by_agent: Option<String>,
    /// Who asks.
    pub requested_by_user: Option<String>,
    /// The run that asked.
    pub requested_by_run: Option<String>,
    /// What the person said.
    pub note: Option<String>,
    /// Who decided: `user:NAME`.
    pub decided_by: Option<String>,
    /// When.
    pub decided_at: Option<Millis>,
    /// The agent that approving made.
    pub made_agent: Option<String>,
    /// When it was asked for.
    pub created_at: Millis,
    /// When it was last changed.
    pub updated_at: Millis,
}
