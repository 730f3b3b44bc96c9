//! Where this program prints: data to stdout, talk to stderr.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the one place of this program that prints"
)]

use std::io::Write as _;
use std::process::ExitCode;

/// Data, as it is. A closed pipe is the reader's wish, not an error.
pub(crate) fn data(text: &str) {
    let mut stdout = std::io::stdout().lock();
    // The reader closed the pipe: it has read what it wanted, and the exit code stays true.
    let _ = stdout.write_all(text.as_bytes());
    // The same.
    let _ = stdout.flush();
}

pub(crate) fn line(text: &str) {
    data(&format!("{text}\n"));
}

pub(crate) fn talk(text: &str) {
    // Without a place for complaints nobody can be told of that either; the exit code tells.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// An error with its causes and, where we know one, its remedy. Exit 2: could not tell.
pub(crate) fn could_not_tell(error: &dyn std::error::Error, hint: Option<&str>) -> ExitCode {
    let mut text = format!("portcullis-boundary: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    if let Some(hint) = hint {
        text.push_str(&format!("\n  hint: {hint}"));
    }
    talk(&text);
    ExitCode::from(2)
}
