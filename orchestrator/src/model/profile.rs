//! What the configuration says about a policy profile beyond its policy, which is the gate's.

use super::words;

words! {
    /// What becomes of a wake that one agent writes for another.
    AgentWakes {
        /// It is a wake.
        Allow = "allow",
        /// A person is asked.
        Approve = "approve",
        /// It is none.
        Refuse = "refuse",
    }
}

/// `[profile.NAME]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// Wakes from other agents.
    pub agent_wakes: AgentWakes,
    /// How many of its runs may be live at once; any number when absent.
    pub concurrent: Option<i64>,
    /// When no run of it starts, as written.
    pub quiet: Option<String>,
}

impl Profile {
    /// The name under which the bound of all profiles together is kept.
    pub const EVERY: &str = "*";

    /// What a profile is that the configuration does not name.
    #[must_use]
    pub fn plain(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            agent_wakes: AgentWakes::Allow,
            concurrent: None,
            quiet: None,
        }
    }
}
