//! Lists of entries and refs, each line a problem of its own when it is wrong.

use crate::pattern::{Entry, RefGlob};
use crate::source::document::{Field, Problems, Table};

/// Reads `deny`.
pub(super) fn deny(table: &mut Table<'_>, problems: &mut Problems) -> Vec<Entry> {
    let Some(lines) = table.strings("deny", problems) else {
        return Vec::new();
    };
    refuse_empty(&lines, problems);
    let entries = parse_entries(lines, problems, |entry| {
        if !entry.has_query() {
            return Ok(());
        }
        let remedy = String::from("deny the path; a query can be written in many ways");
        Err((format!("`{entry}` denies by query"), remedy))
    });
    entries.into_iter().map(Entry::loosened).collect()
}

/// Reads `allow`.
pub(super) fn allow(table: &mut Table<'_>, problems: &mut Problems) -> Option<Vec<Entry>> {
    let lines = table.strings("allow", problems)?;
    refuse_empty(&lines, problems);
    Some(parse_entries(lines, problems, |entry| {
        if !entry.names_a_push() {
            return Ok(());
        }
        let remedy = String::from("move it to `push`, and say under `refs` what may be pushed");
        Err((format!("`{entry}` never opens a push"), remedy))
    }))
}

/// Reads `push`.
pub(super) fn push(table: &mut Table<'_>, problems: &mut Problems) -> Option<Vec<Entry>> {
    let lines = table.strings("push", problems)?;
    refuse_empty(&lines, problems);
    Some(parse_entries(lines, problems, |_| Ok(())))
}

/// Reads `refs`.
pub(super) fn refs(table: &mut Table<'_>, problems: &mut Problems) -> Option<Field<Vec<RefGlob>>> {
    let lines = table.strings("refs", problems)?;
    refuse_empty(&lines, problems);
    let mut globs = Vec::new();
    for line in &lines.value {
        match RefGlob::parse(&line.value) {
            Ok(glob) => globs.push(glob),
            Err((problem, remedy)) => problems.add(&line.place, problem, remedy),
        }
    }
    Some(Field {
        value: globs,
        place: lines.place,
    })
}

/// Parses each line and checks it; what is wrong is told and left out.
pub(super) fn parse_entries(
    lines: Field<Vec<Field<String>>>,
    problems: &mut Problems,
    check: impl Fn(&Entry) -> Result<(), (String, String)>,
) -> Vec<Entry> {
    let mut entries = Vec::new();
    for line in lines.value {
        match Entry::parse(&line.value).and_then(|entry| check(&entry).map(|()| entry)) {
            Ok(entry) => entries.push(entry),
            Err((problem, remedy)) => problems.add(&line.place, problem, remedy),
        }
    }
    entries
}

fn refuse_empty(lines: &Field<Vec<Field<String>>>, problems: &mut Problems) {
    if lines.value.is_empty() {
        let problem = String::from("an empty list has no effect");
        problems.add(
            &lines.place,
            problem,
            String::from("fill it, or remove the key"),
        );
    }
}
