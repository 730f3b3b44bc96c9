//! The command's voice: standard output carries data, standard error carries talk.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this module is where the command speaks"
)]

use std::error::Error;
use std::io::Write as _;

/// A line of talk.
pub fn say(line: &str) {
    eprintln!("{line}");
}

/// The beginning of a line of talk, finished by [`say`].
pub fn say_part(text: &str) {
    eprint!("{text}");
    let _ = std::io::stderr().flush();
}

/// Data, as it is. A reader that went away is no failure of ours.
pub fn data(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes());
    if !text.ends_with('\n') {
        let _ = out.write_all(b"\n");
    }
}

/// Data as it is, without a line end of ours.
pub fn data_part(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

/// An error with its causes, one line each; hints stay on lines of their own.
pub fn error(error: &dyn Error) {
    say(&format!("portcullis: {}", chain(error)));
}

/// The error and what caused it, joined.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let words = next.to_string();
        if !text.contains(&words) {
            let (head, hint) = match text.split_once('\n') {
                Some((head, hint)) => (head.to_owned(), format!("\n{hint}")),
                None => (text, String::new()),
            };
            text = format!("{head}: {words}{hint}");
        }
        cause = next.source();
    }
    text
}
