//! Runs: one process of one agent, in one container, with one token.

use serde::{Deserialize, Serialize};

use super::time::Millis;
use super::words;
use crate::container::{Evidence, Exit};

words! {
    /// Where a run stands. The first three are *live*: they hold the ticket and the agent.
    RunStatus {
        /// Claimed; its container is being started.
        Starting = "starting",
        /// Its process runs.
        Running = "running",
        /// Its token is dead; its container is not yet proven gone.
        Ending = "ending",
        /// Exit code 0.
        Succeeded = "succeeded",
        /// Anything else.
        Failed = "failed",
        /// A person stopped it, or its time was up.
        Cancelled = "cancelled",
        /// The orchestrator lost it.
        Lost = "lost",
    }
}

impl RunStatus {
    /// Holds its ticket and its agent.
    #[must_use]
    pub fn is_live(self) -> bool {
        matches!(self, Self::Starting | Self::Running | Self::Ending)
    }
}

/// Why a run came to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The final status.
    pub status: RunStatus,
    /// How the process ended, if it was seen.
    pub exit: Option<Exit>,
    /// A sentence for people.
    pub reason: String,
    /// Start again later instead of parking the ticket: nothing of the run ever began.
    #[serde(default)]
    pub retry: bool,
}

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// UUID.
    pub id: String,
    /// The company.
    pub company: String,
    /// Whose run.
    pub agent: String,
    /// For which ticket.
    pub ticket: Option<String>,
    /// The wake it answers.
    pub wake: String,
    /// Where it stands.
    pub status: RunStatus,
    /// Whether it is the one corrective run.
    pub corrective: bool,
    /// The lease's generation at the gate.
    pub epoch: i64,
    /// Which slice of host ids it has.
    pub slice: i64,
    /// The slice is not yet free for another run.
    pub slice_held: bool,
    /// A person asked to stop it.
    pub cancel: bool,
    /// Proof of what was started.
    pub evidence: Option<Evidence>,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// When it was claimed.
    pub created_at: Millis,
    /// When its process began.
    pub started_at: Option<Millis>,
    /// When it was over.
    pub ended_at: Option<Millis>,
}
