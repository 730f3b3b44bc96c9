//! Lists of entries and refs, each line a problem of its own when it is wrong.

use crate::path::Slashes;
use crate::pattern::{Entry, RefGlob};
use crate::service::{DENY, Refs, SEGMENT};
use crate::source::document::{Field, Place, Problems, Table, did_you_mean};

/// Reads `encoded_slash`.
pub(super) fn encoded_slash(table: &mut Table<'_>, problems: &mut Problems) -> Slashes {
    let Some(field) = table.string("encoded_slash", problems) else {
        return Slashes::Refused;
    };
    if field.value != SEGMENT {
        problems.add(
            &field.place,
            format!("`{}` is not what an encoded slash can be", field.value),
            did_you_mean(&field.value, std::iter::once(SEGMENT)),
        );
    }
    // Taken for opened even so: a wrong word is one problem, not one for each line of `allow`.
    Slashes::Segment
}

/// Whether a line of `allow` writes an encoded slash only where the service opens it.
pub(super) fn check_slashes(entry: &Entry, slashes: Slashes) -> Result<(), (String, String)> {
    if slashes == Slashes::Segment || !entry.has_encoded_slash() {
        return Ok(());
    }
    let remedy = String::from("add `encoded_slash = \"segment\"` to the service");
    Err((
        format!("`{entry}` has an encoded slash, which the service does not open"),
        remedy,
    ))
}

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
pub(super) fn allow(
    table: &mut Table<'_>,
    slashes: Slashes,
    problems: &mut Problems,
) -> Option<Vec<Entry>> {
    let lines = table.strings("allow", problems)?;
    refuse_empty(&lines, problems);
    Some(parse_entries(lines, problems, |entry| {
        check_slashes(entry, slashes)?;
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
    Some(parse_entries(lines, problems, |entry| {
        if !entry.has_encoded_slash() {
            return Ok(());
        }
        let remedy = String::from("write it with slashes; git sends no encoded ones");
        Err((format!("`{entry}` has an encoded slash"), remedy))
    }))
}

/// Reads `refs`, `create_refs`, `update_refs` and `delete_refs`, with the place of the first that is
/// there.
pub(super) fn refs(table: &mut Table<'_>, problems: &mut Problems) -> Option<Field<Refs>> {
    let both = globs(table, "refs", problems);
    let create = globs(table, "create_refs", problems);
    let update = globs(table, "update_refs", problems);
    let delete = globs(table, "delete_refs", problems);
    let forward = force(table, problems);
    let first = [&both, &create, &update, &delete]
        .into_iter()
        .flatten()
        .next();
    let Some(first) = first else {
        if let Some(place) = forward {
            problems.add(
                &place,
                String::from("`force` has no effect without refs that a push may move"),
                String::from("add `refs` or `update_refs`, or remove `force`"),
            );
        }
        return None;
    };
    let place = first.place.clone();
    let list =
        |field: Option<Field<Vec<RefGlob>>>| field.map_or_else(Vec::new, |field| field.value);
    Some(Field {
        value: Refs {
            both: list(both),
            create: list(create),
            update: list(update),
            delete: list(delete),
            forward: forward.is_some(),
        },
        place,
    })
}

/// Reads `force`; its place where it denies.
fn force(table: &mut Table<'_>, problems: &mut Problems) -> Option<Place> {
    let field = table.string("force", problems)?;
    match field.value.as_str() {
        DENY => return Some(field.place),
        "allow" => {}
        other => {
            let problem = format!("`{other}` is nothing that `force` can say");
            let remedy = did_you_mean(other, [DENY, "allow"].into_iter());
            problems.add(&field.place, problem, remedy);
        }
    }
    None
}

fn globs(table: &mut Table<'_>, key: &str, problems: &mut Problems) -> Option<Field<Vec<RefGlob>>> {
    let lines = table.strings(key, problems)?;
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

pub(super) fn refuse_empty(lines: &Field<Vec<Field<String>>>, problems: &mut Problems) {
    if lines.value.is_empty() {
        let problem = String::from("an empty list has no effect");
        problems.add(
            &lines.place,
            problem,
            String::from("fill it, or remove the key"),
        );
    }
}
