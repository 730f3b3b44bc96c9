//! What a grant may take: limits that the gate holds its requests to.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::money::Usd;

/// Whose requests are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// One run; of a client that is no run, its agent.
    Run,
    /// A ticket of a company.
    Ticket,
    /// An agent of a company.
    Agent,
    /// A project of a company.
    Project,
    /// A company.
    Company,
}

/// What may be taken together. What is absent is not bounded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Whose requests are counted together.
    pub per: Scope,
    /// US dollars for models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd: Option<Usd>,
    /// Tokens that models read and write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Requests of any kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// Bytes of bodies, both ways.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Seconds from the first request on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// What was taken is forgotten each time so many seconds are over, counted from the beginning of
    /// 1970; never, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_seconds: Option<u64>,
}

impl Scope {
    /// All of them, from the narrowest.
    pub const ALL: [Self; 5] = [
        Self::Run,
        Self::Ticket,
        Self::Agent,
        Self::Project,
        Self::Company,
    ];

    /// As configurations write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Ticket => "ticket",
            Self::Agent => "agent",
            Self::Project => "project",
            Self::Company => "company",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
