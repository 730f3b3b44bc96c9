//! What a person should know although the boundary stands as configured.

use std::fmt;

use serde_json::{Value, json};

/// A warning with what it is about, for scripts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    pub about: About,
    /// A sentence for people, with a `hint:` line where there is a remedy.
    pub text: String,
}

/// What a warning is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// This machine passes on packets for others.
    Forwarding,
    /// Another table does what opens nothing, and may be in the way.
    Foreign,
    /// Rules that cannot be read through nftables.
    Unreadable,
    /// No account is named whose rights could be looked at.
    Unnamed,
}

impl About {
    /// One word for scripts.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            About::Forwarding => "forwarding",
            About::Foreign => "foreign",
            About::Unreadable => "unreadable",
            About::Unnamed => "unnamed",
        }
    }
}

impl Warning {
    /// `{"kind": "forwarding", "text": "..."}`.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({"kind": self.about.as_str(), "text": self.text})
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
