//! Patterns of hosts.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::authority::{DnsName, Host};
use crate::suffix;

/// A host, or `*.suffix` for one or more labels below a suffix and never the suffix itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostPattern {
    /// Exactly this host.
    Exact(Host),
    /// Every name below this one.
    Below(DnsName),
}

impl HostPattern {
    /// Parses `host` or `*.suffix`. Suffixes that strangers share (`*.com`, `*.co.uk`,
    /// `*.github.io`) are refused.
    ///
    /// # Errors
    /// The reason, as a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(suffix) = text.strip_prefix("*.") else {
            if text == "*" {
                return Err(String::from("`*` would cover every host there is"));
            }
            if text.contains('*') {
                return Err(format!(
                    "`{text}`: `*` may only stand as the whole first label"
                ));
            }
            return Host::parse(text)
                .map(Self::Exact)
                .map_err(|error| error.to_string());
        };
        if suffix.contains('*') {
            return Err(format!(
                "`{text}`: `*` may only stand as the whole first label"
            ));
        }
        let name = DnsName::parse(suffix).map_err(|error| error.to_string())?;
        if suffix::is_shared(name.as_str()) {
            return Err(format!(
                "`{text}` covers names that belong to strangers: anybody can have one below `{name}`"
            ));
        }
        Ok(Self::Below(name))
    }

    /// Whether the host is covered.
    #[must_use]
    pub fn matches(&self, host: &Host) -> bool {
        match self {
            Self::Exact(exact) => exact == host,
            Self::Below(suffix) => host
                .as_name()
                .is_some_and(|name| is_below(name, suffix.as_str())),
        }
    }

    /// Whether every host of `other` is covered by this pattern.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Exact(host)) => self.matches(host),
            (Self::Exact(_), Self::Below(_)) => false,
            (Self::Below(wide), Self::Below(narrow)) => {
                wide == narrow || is_below(narrow.as_str(), wide.as_str())
            }
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) => host.fmt(f),
            Self::Below(suffix) => write!(f, "*.{suffix}"),
        }
    }
}

impl Serialize for HostPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn is_below(name: &str, suffix: &str) -> bool {
    name.strip_suffix(suffix)
        .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}
