//! Is there a value in an entry, and is it still what it was?

use super::{Opened, SecretError};
use crate::credential::{chain, flaw_of, shape};
use crate::store::{EntryName, Form, StoreError, value};

/// How many former versions are looked at.
const VERSIONS_MAX: usize = 50;

/// What was found about one entry.
pub(super) struct Review {
    pub(super) problem: Option<String>,
    pub(super) warnings: Vec<String>,
}

/// What a value is, as far as two versions should agree on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    form: Form,
    kind: &'static str,
    lines: &'static str,
}

impl Shape {
    fn of(text: &[u8], whole: bool) -> Option<Self> {
        let (found, form) = value(text, whole).ok()?;
        Some(Self {
            form,
            kind: shape::recognise(&found),
            lines: lines(text),
        })
    }
}

/// How many lines, in classes that tell nothing more.
pub(super) fn lines(text: &[u8]) -> &'static str {
    match text
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .count()
    {
        0 => "none",
        1 => "one",
        2..=9 => "a few",
        _ => "many",
    }
}

pub(super) fn entry(opened: &Opened, entry: &EntryName) -> Review {
    let whole = opened.whole(entry);
    let text = match opened.store.text(entry) {
        Ok(text) => text,
        Err(problem) => {
            return Review {
                problem: Some(chain(&problem)),
                warnings: lost(opened, entry).into_iter().collect(),
            };
        }
    };
    let found = match value(&text, whole) {
        Ok(found) => found,
        Err(problem) => {
            let name = entry.clone();
            return Review {
                problem: Some(StoreError::Void { name, problem }.to_string()),
                warnings: lost(opened, entry).into_iter().collect(),
            };
        }
    };
    let problem = opened.user(entry).and_then(|credential| {
        let flaw = flaw_of(&credential.kind, &found.0)?;
        Some(format!(
            "credential {}: the value in {entry} {flaw}\n  hint: {}",
            credential.name,
            flaw.hint()
        ))
    });
    Review {
        problem,
        warnings: changed(opened, entry, &text).into_iter().collect(),
    }
}

/// A warning where a former version holds a value and the present one does not.
fn lost(opened: &Opened, entry: &EntryName) -> Option<String> {
    let id = newest_other(opened, entry).ok().flatten()?;
    Some(format!(
        "shrank to nothing: the version {} holds a value; `portcullis secret restore {entry}` brings it back",
        id.get(..16).unwrap_or(&id)
    ))
}

/// A warning where the newest other version has another shape.
fn changed(opened: &Opened, entry: &EntryName, text: &[u8]) -> Option<String> {
    let whole = opened.whole(entry);
    let now = Shape::of(text, whole)?;
    let id = newest_other(opened, entry).ok().flatten()?;
    let former = opened.store.version(entry, &id).ok()?;
    let before = Shape::of(&former, whole)?;
    if before == now {
        return None;
    }
    let difference = if before.kind != now.kind {
        format!("it was {}, it is {}", before.kind, now.kind)
    } else if before.form != now.form {
        format!("it was {}, it is {}", before.form.word(), now.form.word())
    } else {
        format!("it had lines: {}, it has: {}", before.lines, now.lines)
    };
    Some(format!("changed its shape: {difference}"))
}

/// The newest version that holds a value other than the present one.
pub(super) fn newest_other(
    opened: &Opened,
    entry: &EntryName,
) -> Result<Option<String>, SecretError> {
    let present = opened.store.text(entry).ok();
    for version in opened.store.history(entry)?.into_iter().take(VERSIONS_MAX) {
        let Ok(text) = opened.store.version(entry, &version.id) else {
            continue;
        };
        let same = present.as_ref().is_some_and(|present| **present == *text);
        if !same && value(&text, opened.whole(entry)).is_ok() {
            return Ok(Some(version.id));
        }
    }
    Ok(None)
}

/// A word about one version.
pub(super) fn version(opened: &Opened, entry: &EntryName, id: &str) -> String {
    match opened.store.version(entry, id) {
        Ok(text) => match value(&text, opened.whole(entry)) {
            Ok((found, _)) => shape::recognise(&found).to_owned(),
            Err(problem) => format!("EMPTY: it {problem}"),
        },
        Err(StoreError::NoVersion { .. }) => "removed".to_owned(),
        Err(_) => "unreadable".to_owned(),
    }
}
