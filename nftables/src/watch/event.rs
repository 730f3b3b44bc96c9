//! What the watcher tells.

use std::time::Duration;

use crate::boundary::BoundaryError;
use crate::foreign::shown;
use crate::netlink::{Author, Place};
use crate::verify::Difference;

/// What the watcher tells its caller.
#[derive(Debug)]
pub enum Event {
    /// The rules were as they should be when watching began.
    Standing { hash: String },
    /// Rules differed and were put back.
    Reasserted {
        differences: Vec<Difference>,
        /// Who changed rules since the last look; nobody is known for routes.
        authors: Vec<Author>,
        cause: Cause,
    },
    /// Somebody changed other tables, and nothing that matters here.
    Elsewhere {
        authors: Vec<Author>,
        places: Vec<Place>,
    },
    /// Another ruleset is due: an exception lapsed, or a user's ranges changed.
    Renewed { hash: String },
    /// Somebody applied another ruleset, and the configuration agrees.
    Adopted { hash: String },
    /// Another table does something that opens nothing but deserves a look.
    Warning { text: String },
    /// The boundary could not be checked or put back. The status file says so.
    Failed { error: BoundaryError },
    /// After a failure: it stands again.
    Recovered { hash: String },
}

/// What made the watcher look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The kernel told of a change; so long after that the rules stood again, read back.
    Notice { after: Duration },
    /// The look that comes in any case.
    Look,
}

impl Cause {
    /// One word for scripts.
    pub fn as_str(self) -> &'static str {
        match self {
            Cause::Notice { .. } => "notice",
            Cause::Look => "look",
        }
    }

    /// Milliseconds from the kernel's notice until the rules stood again.
    pub fn after_ms(self) -> Option<u64> {
        match self {
            Cause::Notice { after } => Some(u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
            Cause::Look => None,
        }
    }
}

impl Event {
    /// The word of [`Event::Elsewhere`].
    pub(super) const ELSEWHERE: &'static str = "elsewhere";

    /// One word for scripts.
    pub fn kind(&self) -> &'static str {
        match self {
            Event::Standing { .. } => "standing",
            Event::Reasserted { .. } => "reasserted",
            Event::Elsewhere { .. } => Self::ELSEWHERE,
            Event::Renewed { .. } => "renewed",
            Event::Adopted { .. } => "adopted",
            Event::Warning { .. } => "warning",
            Event::Failed { .. } => "failed",
            Event::Recovered { .. } => "recovered",
        }
    }

    /// Whether the rules in force had become others.
    pub(super) fn is_drift(&self) -> bool {
        matches!(
            self,
            Event::Reasserted { .. } | Event::Renewed { .. } | Event::Adopted { .. }
        )
    }

    /// What made the watcher put rules back.
    pub fn cause(&self) -> Option<Cause> {
        match self {
            Event::Reasserted { cause, .. } => Some(*cause),
            Event::Standing { .. }
            | Event::Elsewhere { .. }
            | Event::Renewed { .. }
            | Event::Adopted { .. }
            | Event::Warning { .. }
            | Event::Failed { .. }
            | Event::Recovered { .. } => None,
        }
    }

    /// A sentence for people; more lines name what differed.
    pub fn text(&self) -> String {
        let short = |hash: &str| hash.get(..12).unwrap_or_default().to_owned();
        match self {
            Event::Standing { hash } => format!("ruleset {} stands", short(hash)),
            Event::Renewed { hash } => {
                format!("another ruleset was due, {} loaded", short(hash))
            }
            Event::Adopted { hash } => format!(
                "ruleset {} was applied and is what the configuration means now",
                short(hash)
            ),
            Event::Recovered { hash } => format!("ruleset {} stands again", short(hash)),
            Event::Warning { text } => format!("warning: {text}"),
            Event::Failed { error } => format!("NOT PROVEN: {}", chain(error)),
            Event::Elsewhere { authors, places } => {
                let places: Vec<String> = places.iter().map(shown).collect();
                format!(
                    "{} changed {}; the boundary stands",
                    listed(authors),
                    places.join(", ")
                )
            }
            Event::Reasserted {
                differences,
                authors,
                cause,
            } => {
                let mut text = "rules had changed and were put back".to_owned();
                if let Some(ms) = cause.after_ms() {
                    text.push_str(&format!(" {ms} ms after the kernel told"));
                }
                if !authors.is_empty() {
                    text.push_str(&format!(" (changed by {})", listed(authors)));
                }
                for difference in differences {
                    text.push_str(&format!("\n  {difference}"));
                }
                text
            }
        }
    }
}

fn listed(authors: &[Author]) -> String {
    let names: Vec<String> = authors.iter().map(ToString::to_string).collect();
    names.join(", ")
}

/// An error and its causes on one line.
pub(super) fn chain(error: &BoundaryError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
