//! Companies and the agents that work in them.

use serde::{Deserialize, Serialize};

use super::adapter::Adapter;
use super::time::Millis;
use super::words;

/// A tenant. Agents see nothing outside their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Company {
    /// UUID.
    pub id: String,
    /// For people.
    pub name: String,
    /// Two to six capital letters, unique: the first half of ticket identifiers.
    pub prefix: String,
    /// When it was created.
    pub created_at: Millis,
}

words! {
    /// Whether an agent may be given runs.
    AgentStatus {
        /// May run.
        Active = "active",
        /// Keeps its tickets and wakes; nothing starts.
        Paused = "paused",
        /// Never runs again.
        Terminated = "terminated",
    }
}

/// Somebody who works on tickets. Only people change agents.
#[derive(Debug, Clone, PartialEq)]
pub struct Agent {
    /// UUID.
    pub id: String,
    /// Its company.
    pub company: String,
    /// Unique in the company.
    pub name: String,
    /// Free word such as `engineer`.
    pub role: String,
    /// For people.
    pub title: Option<String>,
    /// Whether it may run.
    pub status: AgentStatus,
    /// The policy profile its runs are opened with at the gate.
    pub profile: String,
    /// The agent it reports to.
    pub reports_to: Option<String>,
    /// How its runs are started.
    pub adapter: Adapter,
    /// When it was created.
    pub created_at: Millis,
    /// When it was last changed.
    pub updated_at: Millis,
}

/// What a person gives to create an agent.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewAgent {
    /// Unique in the company.
    pub name: String,
    /// Free word; `general` when absent.
    #[serde(default)]
    pub role: Option<String>,
    /// For people.
    #[serde(default)]
    pub title: Option<String>,
    /// Policy profile at the gate; `default` when absent.
    #[serde(default)]
    pub profile: Option<String>,
    /// The agent it reports to, by id.
    #[serde(default)]
    pub reports_to: Option<String>,
    /// How its runs are started.
    pub adapter: Adapter,
}
