//! Companies and the agents that work in them.

use serde::{Deserialize, Serialize};

use super::adapter::Adapter;
use super::time::Millis;
use super::{given, words};

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

/// What an agent may set others to. A wake that one agent writes for another puts words before it that
/// no person wrote, so nobody but a coordinator may, unless a person says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct May {
    /// Create tickets.
    pub create: bool,
    /// Assign tickets to other agents.
    pub assign: bool,
    /// Wake other agents by what it writes.
    pub wake: bool,
}

impl May {
    /// The role whose agents may all of it unless a person says otherwise.
    pub const COORDINATOR: &str = "coordinator";

    /// What a role and a person's word, where there is one, amount to.
    #[must_use]
    pub fn of(role: &str, said: Permissions) -> Self {
        let usual = role.eq_ignore_ascii_case(Self::COORDINATOR);
        Self {
            create: said.may_create.unwrap_or(usual),
            assign: said.may_assign.unwrap_or(usual),
            wake: said.may_wake.unwrap_or(usual),
        }
    }
}

/// What a person says about it; what is left out follows the role.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Permissions {
    /// See [`May::create`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub may_create: Option<bool>,
    /// See [`May::assign`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub may_assign: Option<bool>,
    /// See [`May::wake`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub may_wake: Option<bool>,
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
    /// What a person said about what it may.
    pub permissions: Permissions,
    /// When it was created.
    pub created_at: Millis,
    /// When it was last changed.
    pub updated_at: Millis,
}

impl Agent {
    /// What it may set others to.
    #[must_use]
    pub fn may(&self) -> May {
        May::of(&self.role, self.permissions)
    }
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
    /// What it may set others to; by its role when absent.
    #[serde(default)]
    pub permissions: Permissions,
}

/// What a person changes of an agent; absent fields stay as they are, `null` clears.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AgentPatch {
    /// Pause, resume, terminate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<AgentStatus>,
    /// Free word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// For people.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub title: Option<Option<String>>,
    /// Policy profile at the gate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The agent it reports to, by id.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub reports_to: Option<Option<String>>,
    /// How its runs are started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter: Option<Adapter>,
    /// What it may spend in a month.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub budget_monthly_cents: Option<Option<i64>>,
    /// What it may set others to; replaces what was said before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Permissions>,
}
