//! `audit export`: records as CSV. What an agent chose must stay text in a spreadsheet, so a cell
//! that would be taken for a formula begins with an apostrophe.

use std::ops::ControlFlow;

use clap::Args;
use serde_json::Value;

use super::super::output::{Exit, say};
use super::{FilterArgs, SourceArg, unreadable};
use crate::audit::query::Reader;

const COLUMNS: [&str; 33] = [
    "seq",
    "time",
    "kind",
    "id",
    "company",
    "agent",
    "ticket",
    "run",
    "profile",
    "entrance",
    "peer_uid",
    "scheme",
    "authority",
    "method",
    "path",
    "verdict",
    "code",
    "rule",
    "policy_hash",
    "credential",
    "facts",
    "address",
    "status",
    "bytes_in",
    "bytes_out",
    "ms",
    "ms_head",
    "tokens_in",
    "tokens_out",
    "cost_microusd",
    "hold",
    "decider",
    "reason",
];

#[derive(Debug, Args)]
pub(in crate::cli) struct TableArgs {
    #[command(flatten)]
    source: SourceArg,
    #[command(flatten)]
    filter: FilterArgs,
}

/// 0 when something matched, 1 when nothing did.
pub(super) fn export(args: &TableArgs) -> Exit {
    let files = match args.source.files() {
        Ok(files) => files,
        Err(exit) => return exit,
    };
    let filter = args.filter.filter();
    let mut exit = Exit::No;
    if !say(&COLUMNS.join(",")) {
        return exit;
    }
    let mut reader = Reader::new(&files, &filter);
    let read = reader.each(|line, _| {
        exit = Exit::Yes;
        let row = serde_json::from_str(line).map(|record: Value| row(&record));
        match row.is_ok_and(|row| say(&row)) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    let exit = super::remark(&reader, exit);
    match read {
        Ok(()) => exit,
        Err(problem) => unreadable(&args.source.shown(), &problem),
    }
}

fn row(record: &Value) -> String {
    let cells: Vec<String> = COLUMNS
        .iter()
        .map(|column| match &record[*column] {
            Value::Null => String::new(),
            Value::String(text) => cell(text),
            other @ (Value::Bool(_) | Value::Number(_)) => other.to_string(),
            other @ (Value::Array(_) | Value::Object(_)) => cell(&other.to_string()),
        })
        .collect();
    cells.join(",")
}

/// A cell of text, quoted, that no spreadsheet takes for a formula and that stays in its row.
fn cell(text: &str) -> String {
    let formula = text.trim_start().starts_with([
        '=', '+', '-', '@', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}',
    ]) || text.starts_with(['\t', '\r', '\n']);
    let mut quoted = String::with_capacity(text.len() + 3);
    quoted.push('"');
    if formula {
        quoted.push('\'');
    }
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\"\""),
            c if c.is_control() => quoted.extend(c.escape_unicode()),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text_and_in_its_cell() {
        for (text, wanted) in [
            ("plain", "\"plain\""),
            ("a,\"b\"", "\"a,\"\"b\"\"\""),
            ("=HYPERLINK(\"x\")", "\"'=HYPERLINK(\"\"x\"\")\""),
            ("+1", "\"'+1\""),
            ("-1", "\"'-1\""),
            ("@SUM(A1)", "\"'@SUM(A1)\""),
            (" =1", "\"' =1\""),
            ("\t=1", "\"'\\u{9}=1\""),
            ("a\r\n=1", "\"a\\u{d}\\u{a}=1\""),
        ] {
            assert_eq!(cell(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn a_row_has_every_column() {
        let record = serde_json::json!({"seq": 7, "method": "=1", "facts": {"push": []}});
        let row = row(&record);
        assert!(row.starts_with("7,,,"), "{row}");
        assert!(
            row.contains("\"'=1\"") && row.contains("\"{\"\"push\"\":[]}\""),
            "{row}"
        );
    }
}
