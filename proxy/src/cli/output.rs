//! The only place that prints.

#![allow(
    clippy::print_stderr,
    reason = "the command line talks to people on stderr"
)]

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use serde::Serialize;

/// What a command found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    /// 0
    Yes,
    /// 1
    No,
    /// 2
    CouldNotTell,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Yes => Self::from(0),
            Exit::No => Self::from(1),
            Exit::CouldNotTell => Self::from(2),
        }
    }
}

/// Data, with a line end. False when nobody reads any more.
pub(super) fn say(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).is_ok()
}

/// A value as JSON, on one line.
pub(super) fn say_json(value: &impl Serialize) -> Result<(), Exit> {
    said(serde_json::to_string(value))
}

/// A value as JSON for people, on many lines.
pub(super) fn say_pretty(value: &impl Serialize) -> Result<(), Exit> {
    said(serde_json::to_string_pretty(value))
}

fn said(text: serde_json::Result<String>) -> Result<(), Exit> {
    say(&text.map_err(|problem| fail(&problem))?);
    Ok(())
}

/// Talk.
pub(super) fn tell(text: &str) {
    eprintln!("{text}");
}

/// An error with everything that caused it, and what follows from it.
pub(super) fn fail(error: &dyn Error) -> Exit {
    tell(&format!("error: {}", chain(error)));
    Exit::CouldNotTell
}

/// `what: why: why that`
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = inner.source();
    }
    text
}
