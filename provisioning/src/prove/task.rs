//! One attempt as the process that makes it is told, and what it reports.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::kind::{Inside, Kind};

/// What an attempt is told. Nothing here is secret: it stands in the command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    pub kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    #[serde(default)]
    pub port: u16,
    /// The interface of a link-local address.
    #[serde(default)]
    pub interface: u32,
    /// Whose address is claimed as our own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// The port of that address; 0 for any.
    #[serde(default)]
    pub source_port: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<Inside>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathBuf>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// A process, a user or a group, as the kind needs it.
    #[serde(default)]
    pub number: u32,
    /// How long an answer is waited for.
    pub patience_ms: u64,
}

impl Task {
    /// A task without details.
    #[must_use]
    pub fn new(kind: Kind, patience_ms: u64) -> Self {
        Self {
            kind,
            address: None,
            port: 0,
            interface: 0,
            source: None,
            source_port: 0,
            inside: None,
            paths: Vec::new(),
            names: Vec::new(),
            number: 0,
            patience_ms,
        }
    }
}

/// What the kernel or a peer said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The peer answered.
    Answered,
    /// A connection was made, and nothing came back over it.
    Connected,
    /// The kernel took it; nobody answered.
    Sent,
    /// The kernel granted what was asked for.
    Granted,
    /// An error: see `errno`.
    Refused,
    /// No answer in time.
    TimedOut,
    /// There is nothing of that name here.
    Absent,
    /// The attempt could not be made at all.
    Unable,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub outcome: Outcome,
    /// The kernel's name of the error, e.g. `ECONNREFUSED`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// What was found: paths that opened, variables that are there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found: Vec<String>,
    #[serde(default)]
    pub ms: u64,
}

impl Report {
    #[must_use]
    pub fn new(outcome: Outcome, detail: impl Into<String>) -> Self {
        Self {
            outcome,
            errno: None,
            detail: detail.into(),
            found: Vec::new(),
            ms: 0,
        }
    }

    /// What an error means.
    #[must_use]
    pub fn of_error(error: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        let outcome = match error.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => Outcome::TimedOut,
            ErrorKind::NotFound => Outcome::Absent,
            _ if error.raw_os_error().is_some_and(is_unknown_here) => Outcome::Absent,
            _ => Outcome::Refused,
        };
        let errno = match error.raw_os_error() {
            // A connect that ran into SO_SNDTIMEO says EINPROGRESS.
            Some(code) if nix::errno::Errno::from_raw(code) == nix::errno::Errno::EINPROGRESS => {
                return Self::new(Outcome::TimedOut, "");
            }
            Some(code) => format!("{:?}", nix::errno::Errno::from_raw(code)),
            None => error.to_string(),
        };
        Self {
            errno: (outcome != Outcome::TimedOut).then_some(errno),
            ..Self::new(outcome, "")
        }
    }

    /// What was looked for, and what of it was found.
    #[must_use]
    pub fn of_found(found: Vec<String>) -> Self {
        let outcome = if found.is_empty() {
            Outcome::Absent
        } else {
            Outcome::Granted
        };
        Self {
            found,
            ..Self::new(outcome, "")
        }
    }

    /// In words: `refused (ECONNREFUSED) after 2 ms`.
    #[must_use]
    pub fn words(&self) -> String {
        let outcome = match self.outcome {
            Outcome::Answered => "answered",
            Outcome::Connected => "connected",
            Outcome::Sent => "sent, no answer",
            Outcome::Granted => "granted",
            Outcome::Refused => "refused",
            Outcome::TimedOut => "no answer in time",
            Outcome::Absent => "nothing there",
            Outcome::Unable => "could not be tried",
        };
        let mut text = outcome.to_owned();
        if let Some(errno) = &self.errno {
            text.push_str(&format!(" ({errno})"));
        }
        if !self.detail.is_empty() {
            text.push_str(&format!(": {}", self.detail));
        }
        if !self.found.is_empty() {
            text.push_str(&format!(": {}", self.found.join(", ")));
        }
        text
    }
}

/// Whether an error says that this kernel has no such protocol, for anybody.
fn is_unknown_here(code: i32) -> bool {
    use nix::errno::Errno;
    matches!(
        Errno::from_raw(code),
        Errno::EPROTONOSUPPORT | Errno::EAFNOSUPPORT | Errno::ESOCKTNOSUPPORT
    )
}
