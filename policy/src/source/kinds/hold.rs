//! `hold`, `hold_by` and `hold_seconds`.

use super::lines::{parse_entries, refuse_empty};
use crate::hold::{Holding, MOST_SECONDS, SECONDS};
use crate::pattern::Entry;
use crate::source::document::{Problems, Table};

/// The longest name of an account.
const MOST_NAME: usize = 64;

/// Reads what a service says about holds.
pub(super) fn read(table: &mut Table<'_>, problems: &mut Problems) -> Option<Holding> {
    let lines = table.strings("hold", problems);
    let by = table.strings("hold_by", problems);
    let seconds = table.number("hold_seconds", MOST_SECONDS, problems);
    let Some(lines) = lines else {
        let idle = [
            by.as_ref().map(|field| &field.place),
            seconds.as_ref().map(|field| &field.place),
        ];
        for place in idle.into_iter().flatten() {
            problems.add(
                place,
                String::from("it has no effect without `hold`"),
                String::from("add `hold = [\"POST /v1/releases\"]`, or remove the key"),
            );
        }
        return None;
    };
    refuse_empty(&lines, problems);
    let entries = parse_entries(lines, problems, |entry| {
        if !entry.has_query() {
            return Ok(());
        }
        let remedy = String::from("hold the path; a query can be written in many ways");
        Err((format!("`{entry}` holds by query"), remedy))
    });
    let mut names = Vec::new();
    if let Some(by) = by {
        refuse_empty(&by, problems);
        for name in by.value {
            let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '@');
            if name.value.is_empty()
                || name.value.len() > MOST_NAME
                || !name.value.chars().all(good)
            {
                problems.add(
                    &name.place,
                    format!("`{}` is no name of an account", name.value),
                    String::from("name accounts that [[control.peer]] lists, such as `ann`"),
                );
            } else {
                names.push(name.value);
            }
        }
    }
    Some(Holding {
        entries: entries.into_iter().map(Entry::loosened).collect(),
        by: names,
        seconds: seconds.map_or(SECONDS, |field| field.value),
    })
}
