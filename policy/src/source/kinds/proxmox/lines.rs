//! `allow` of kind `proxmox`: what a line opens of the operations whose parameters are known.

use super::operations::{ALL, Operation, Word};
use super::scope::Scope;
use crate::path::Slashes;
use crate::pattern::{Entry, Method, text_matches};
use crate::source::document::{Field, Problems, Table};
use crate::source::kinds::lines::{check_slashes, parse_entries};

/// What the lines open.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// Reading, as it stands there.
    pub(super) plain: Vec<Entry>,
    /// Operations, each at the path that it has in common with a line.
    pub(super) operations: Vec<(Operation, String)>,
}

/// Methods that change nothing.
const READING: [&str; 2] = ["GET", "HEAD"];

/// Reads `allow`.
pub(super) fn read(
    table: &mut Table<'_>,
    slashes: Slashes,
    scope: &Scope,
    also: &[Word],
    problems: &mut Problems,
) -> Option<Listed> {
    let lines = table.strings("allow", problems)?;
    crate::source::kinds::lines::refuse_empty(&lines, problems);
    let mut listed = Listed::default();
    for line in lines.value {
        let place = line.place.clone();
        let one = Field {
            value: vec![line],
            place: place.clone(),
        };
        let entries = parse_entries(one, problems, |entry| {
            check_slashes(entry, slashes)?;
            if entry.starts_with(&["api2", "json"]) {
                return Ok(());
            }
            let remedy =
                String::from("begin the path with /api2/json/; other formats of the API stay shut");
            Err((format!("`{entry}` is not below /api2/json"), remedy))
        });
        for entry in &entries {
            if let Err((problem, remedy)) = open(entry, scope, also, &mut listed) {
                problems.add(&place, problem, remedy);
            }
        }
    }
    Some(listed)
}

fn open(
    entry: &Entry,
    scope: &Scope,
    also: &[Word],
    listed: &mut Listed,
) -> Result<(), (String, String)> {
    let covers = |name: &str| Method::parse(name).is_some_and(|method| entry.covers_method(method));
    let reading: Vec<&str> = READING.into_iter().filter(|name| covers(name)).collect();
    let writes = Method::names().any(|name| !READING.contains(&name) && covers(name));
    if writes && entry.has_query() {
        let remedy =
            String::from("leave the query away: parameters are looked at wherever they stand");
        return Err((format!("`{entry}` writes with a query"), remedy));
    }
    if !reading.is_empty() && !scope.bounds_paths() {
        let line = format!("{} {}", reading.join(","), entry.pattern());
        listed.plain.extend(Entry::parse(&line).ok());
    }
    let path = entry.pattern().split('?').next().unwrap_or_default();
    let line: Vec<&str> = path.split('/').skip(1).collect();
    let mut shut = None;
    let before = listed.operations.len() + listed.plain.len();
    for operation in ALL.iter().filter(|one| covers(one.method)) {
        let own: Vec<&str> = ["api2", "json"]
            .into_iter()
            .chain(operation.path.split('/'))
            .collect();
        let mut common = Vec::new();
        meet(&line, &own, &mut Vec::new(), &mut common);
        if common.is_empty() || (operation.word == Word::Read && !scope.bounds_paths()) {
            continue;
        }
        match operation.word {
            Word::Console if !also.contains(&Word::Console) => shut = Some("console"),
            Word::AgentExec if !also.contains(&Word::AgentExec) => shut = Some("agent-exec"),
            Word::Read | Word::Power | Word::Operator | Word::Console | Word::AgentExec => {
                let at = |path: String| (*operation, path);
                listed.operations.extend(common.into_iter().map(at));
            }
        }
    }
    if listed.operations.len() + listed.plain.len() > before || (!writes && !scope.bounds_paths()) {
        return Ok(());
    }
    Err(match shut {
        Some(word) => (
            format!("`{entry}` is opened by a word of its own"),
            format!("add `also = [\"{word}\"]`"),
        ),
        None => (
            format!("`{entry}` is no operation that the gate can look into"),
            String::from(
                "write a path as the API viewer has it, or open it by a service of kind http without the scope of this one",
            ),
        ),
    })
}

/// Every path that a line and an operation have in common. The operation has as many segments as it has.
fn meet(line: &[&str], own: &[&str], path: &mut Vec<String>, common: &mut Vec<String>) {
    match (line.split_first(), own.split_first()) {
        (None, None) => {
            let found = format!("/{}", path.join("/"));
            if !common.contains(&found) {
                common.push(found);
            }
        }
        (Some((&"**", rest)), _) => {
            meet(rest, own, path, common);
            if let Some((first, more)) = own.split_first() {
                path.push(wide(first).to_owned());
                meet(line, more, path, common);
                path.pop();
            }
        }
        (Some((have, rest)), Some((want, more))) => {
            let both = match wide(want) {
                "*" => *have,
                word if text_matches(have, word) => word,
                _ => return,
            };
            path.push(both.to_owned());
            meet(rest, more, path, common);
            path.pop();
        }
        (Some(_), None) | (None, Some(_)) => {}
    }
}

fn wide(segment: &str) -> &str {
    if segment.starts_with('{') {
        "*"
    } else {
        segment
    }
}
