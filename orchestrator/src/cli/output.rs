//! The one place that prints: data to stdout, talk to stderr.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use serde_json::Value;

use super::CliError;
use crate::model::text::printable;

/// Prints a line of data. A closed pipe is the reader's choice and no error.
pub(super) fn line(text: &str) {
    let _unread = writeln!(std::io::stdout().lock(), "{text}");
}

/// Prints to stderr.
pub(super) fn talk(text: &str) {
    let _unread = writeln!(std::io::stderr().lock(), "{text}");
}

/// Prints bytes as they are.
pub(super) fn bytes(bytes: &[u8]) -> Result<ExitCode, CliError> {
    match std::io::stdout().lock().write_all(bytes) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(CliError::io("writing to stdout", error))
        }
        Ok(()) | Err(_) => Ok(ExitCode::SUCCESS),
    }
}

/// Prints what a run wrote: as it is to a file or pipe, without what steers a terminal to one.
pub(super) fn foreign(text: &str) -> Result<ExitCode, CliError> {
    if std::io::stdout().is_terminal() {
        let lines: Vec<&str> = text.split("\r\n").collect();
        return bytes(printable(&lines.join("\n")).as_bytes());
    }
    bytes(text.as_bytes())
}

/// Prints JSON or text.
pub(super) fn either(json: bool, value: &Value, text: impl FnOnce() -> String) {
    if json {
        line(&value.to_string());
    } else {
        line(text().trim_end_matches('\n'));
    }
}

/// A table of a list's fields, with a heading; columns as wide as their widest value.
pub(super) fn table(list: &Value, columns: &[(&str, &str)]) -> String {
    let heading = columns
        .iter()
        .map(|(title, _)| (*title).to_owned())
        .collect();
    let mut rows: Vec<Vec<String>> = vec![heading];
    for entry in list.as_array().into_iter().flatten() {
        rows.push(
            columns
                .iter()
                .map(|(_, field)| cell(&entry[*field]))
                .collect(),
        );
    }
    let widths: Vec<usize> = (0..columns.len())
        .map(|i| {
            rows.iter()
                .map(|row| row[i].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let lines: Vec<String> = rows
        .iter()
        .map(|row| {
            let cells = row
                .iter()
                .zip(&widths)
                .map(|(text, width)| format!("{text:<width$}"));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        })
        .collect();
    lines.join("\n")
}

/// `field: value` lines of an object; nulls and empty lists are left out.
pub(super) fn fields(value: &Value) -> String {
    let mut lines = Vec::new();
    for (name, value) in value.as_object().into_iter().flatten() {
        let empty = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        if !empty {
            // A further line of a text must not pass for a field.
            lines.push(format!("{name}: {}", cell(value).replace('\n', "\n    ")));
        }
    }
    lines.join("\n")
}

/// A value for a terminal: control characters that others wrote do not reach it.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    };
    printable(&text)
}
