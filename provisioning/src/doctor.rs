//! `portcullis doctor`: one screen that says what is well and what is not, with the command that repairs each.
//!
//! It changes nothing. What was refused to whom comes first: a user of the host that the boundary shuts out by mistake
//! looks like a broken network otherwise. Each check is a fact, a verdict and a command; no question to a part takes
//! longer than [`PATIENCE`], so that a part that hangs is said to hang.

mod boundary;
mod finding;
mod gate;
mod host;
mod log;

use std::fmt::Write as _;

use serde::Serialize;

use crate::instance::Instance;
use crate::process::{self, Call, ProcessError};

pub use finding::{Finding, Verdict};

/// How long one question to a part of the product may take, in seconds.
pub const PATIENCE: u32 = 30;

/// Everything that was looked at.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The worst verdict.
    pub verdict: Verdict,
    pub name: String,
    pub prefix: String,
    /// Whom the boundary refused, in sentences, most in the last minute first.
    pub refused: Vec<String>,
    pub checks: Vec<Finding>,
}

impl Report {
    /// Looks at everything. Needs root.
    #[must_use]
    pub fn gather(instance: &Instance) -> Self {
        let (refused, counters) = boundary::counters(instance);
        let mut checks: Vec<Finding> = counters.into_iter().collect();
        checks.extend(boundary::checks(instance));
        checks.extend(gate::checks(instance));
        checks.extend(log::checks(instance));
        checks.extend(host::checks(instance));
        Self::of(instance, refused, checks)
    }

    fn of(instance: &Instance, refused: Vec<String>, checks: Vec<Finding>) -> Self {
        let verdict = Verdict::worst(checks.iter().map(|check| check.verdict));
        Self {
            verdict,
            name: instance.layout.name().to_owned(),
            prefix: instance.layout.prefix().display().to_string(),
            refused,
            checks,
        }
    }

    /// One JSON object.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// For a person.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for sentence in &self.refused {
            let _ = writeln!(text, "{sentence}");
        }
        text.push('\n');
        for check in &self.checks {
            text.push_str(&check.text());
        }
        let count = |verdict| {
            let of = self.checks.iter().filter(|check| check.verdict == verdict);
            of.count()
        };
        let _ = write!(
            text,
            "\n{} at {}: {} well, {} to know, {} wrong, {} could not be told",
            self.name,
            self.prefix,
            count(Verdict::Ok),
            count(Verdict::Note),
            count(Verdict::Bad),
            count(Verdict::Unknown),
        );
        text
    }
}

/// What a bounded call came to: its exit status, or `None` when it had to be ended; what it wrote to standard output
/// and to standard error.
type Outcome = (Option<i32>, String, String);

/// A call that ends after [`PATIENCE`].
fn bounded(call: impl Fn(Call) -> Call) -> Result<Outcome, ProcessError> {
    ended(call(Call::bounded(PATIENCE)))
}

fn ended(call: Call) -> Result<Outcome, ProcessError> {
    let (status, out, err) = call.outcome()?;
    Ok((process::in_time(status), out, err))
}

/// The first line of what a program said, without the `error: ` in front of it.
fn first_line(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty());
    let line = line.unwrap_or("it failed without a word").trim();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests;
