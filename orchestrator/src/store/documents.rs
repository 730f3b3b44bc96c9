//! Documents of a ticket. A write names the revision it builds on; a stale one is refused.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Deserialize;
use serde_json::json;

use super::journal::About;
use super::{StoreError, Writer, interactions, new_id, page, tickets};
use crate::model::{Document, Refusal, Revision, text};

/// How many documents a ticket may have.
const PER_TICKET: i64 = 100;

const REVISION: &str = "id, number, title, format, body, summary, author_type, author_agent, \
                        author_user, run, created_at";

/// What a client gives to write a document.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NewRevision {
    /// One line.
    pub title: Option<String>,
    /// `markdown`, the only format.
    pub format: Option<String>,
    /// The text.
    pub body: String,
    /// The revision this one replaces; required once there is one.
    pub base_revision_id: Option<String>,
    /// What changed.
    pub change_summary: Option<String>,
}

/// Writes a revision. `true` when the document is new.
pub fn put(
    w: &mut Writer<'_>,
    reference: &str,
    key: &str,
    new: NewRevision,
) -> Result<(Document, bool), StoreError> {
    let ticket = tickets::get(w, reference, w.actor.company())?;
    w.actor.clone().may_change(&ticket)?;
    let good = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_' || b == b'.';
    if key.is_empty() || key.len() > 64 || !key.bytes().all(good) {
        return Err(
            Refusal::invalid("a document key is 1 to 64 letters, digits, `-`, `_`, `.`").into(),
        );
    }
    let format = new.format.unwrap_or_else(|| "markdown".to_owned());
    if format != "markdown" {
        return Err(Refusal::invalid("format must be `markdown`").into());
    }
    let body = text::body("body", &new.body)?;
    let title = new
        .title
        .map(|t| text::line("title", &t, text::TITLE))
        .transpose()?;
    let summary = new
        .change_summary
        .map(|s| text::line("changeSummary", &s, text::TITLE))
        .transpose()?;
    let existing = find(w, &ticket.id, key)?;
    let (document, number) = match &existing {
        None if new.base_revision_id.is_some() => {
            return Err(
                Refusal::conflict("revision_conflict", "there is no revision to build on")
                    .with(json!({ "currentRevisionId": null }))
                    .into(),
            );
        }
        None => (create(w, &ticket.id, key)?, 1),
        Some(document) if new.base_revision_id.as_ref() == Some(&document.latest.id) => {
            (document.id.clone(), document.latest.number + 1)
        }
        Some(document) => {
            return Err(Refusal::conflict(
                "revision_conflict",
                "the document has changed since the revision this one builds on",
            )
            .with(json!({
                "currentRevisionId": document.latest.id,
                "currentRevisionNumber": document.latest.number,
                "baseRevisionId": new.base_revision_id,
            }))
            .into());
        }
    };
    let revision = new_id();
    w.execute(
        &format!(
            "INSERT INTO revisions (document, {REVISION}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        ),
        params![
            document,
            revision,
            number,
            title,
            format,
            body,
            summary,
            w.actor.kind(),
            w.actor.agent(),
            w.actor.user(),
            w.actor.run(),
            w.now
        ],
    )?;
    w.execute(
        "UPDATE tickets SET updated_at = ? WHERE id = ?",
        params![w.now, ticket.id],
    )?;
    let about = About::of(&ticket);
    let facts = json!({ "key": key, "revision": revision, "number": number, "bytes": body.len() });
    w.note("document.written", about, facts)?;
    interactions::outdate(w, &ticket, &document)?;
    Ok((get(w, &ticket.id, key)?, existing.is_none()))
}

/// The documents of a ticket, by key.
pub fn list(connection: &Connection, ticket: &str) -> Result<Vec<Document>, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT key FROM documents WHERE ticket = ? ORDER BY key")?;
    let keys = statement.query_map([ticket], |row| row.get(0))?;
    let keys: Vec<String> = keys.collect::<Result<_, _>>()?;
    let all = keys
        .iter()
        .filter_map(|key| find(connection, ticket, key).transpose());
    page(all, |document| document.latest.body.len())
}

/// One document with its newest revision.
pub fn get(connection: &Connection, ticket: &str, key: &str) -> Result<Document, StoreError> {
    find(connection, ticket, key)?.ok_or_else(|| Refusal::missing("document").into())
}

/// Every revision of a document, newest first.
pub fn revisions(
    connection: &Connection,
    ticket: &str,
    key: &str,
) -> Result<Vec<Revision>, StoreError> {
    let document = get(connection, ticket, key)?;
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {REVISION} FROM revisions WHERE document = ? ORDER BY number DESC LIMIT 500"
    ))?;
    let rows = statement.query_map([&document.id], revision_row)?;
    page(rows, |revision| revision.body.len())
}

fn create(w: &Writer<'_>, ticket: &str, key: &str) -> Result<String, StoreError> {
    let count: i64 = w.query_row(
        "SELECT count(*) FROM documents WHERE ticket = ?",
        [ticket],
        |row| row.get(0),
    )?;
    if count >= PER_TICKET {
        let error = format!("a ticket has at most {PER_TICKET} documents");
        return Err(Refusal::unprocessable("document_limit", error).into());
    }
    let id = new_id();
    w.execute(
        "INSERT INTO documents (id, ticket, key, created_at) VALUES (?, ?, ?, ?)",
        params![id, ticket, key, w.now],
    )?;
    Ok(id)
}

fn find(connection: &Connection, ticket: &str, key: &str) -> rusqlite::Result<Option<Document>> {
    let found: Option<(String, i64)> = connection
        .prepare_cached("SELECT id, created_at FROM documents WHERE ticket = ? AND key = ?")?
        .query_row([ticket, key], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((id, created_at)) = found else {
        return Ok(None);
    };
    let latest = connection
        .prepare_cached(&format!(
            "SELECT {REVISION} FROM revisions WHERE document = ? ORDER BY number DESC LIMIT 1"
        ))?
        .query_row([&id], revision_row)?;
    let (ticket, key) = (ticket.to_owned(), key.to_owned());
    Ok(Some(Document {
        id,
        ticket,
        key,
        latest,
        created_at,
    }))
}

fn revision_row(row: &Row<'_>) -> rusqlite::Result<Revision> {
    Ok(Revision {
        id: row.get(0)?,
        number: row.get(1)?,
        title: row.get(2)?,
        format: row.get(3)?,
        body: row.get(4)?,
        summary: row.get(5)?,
        author_type: row.get(6)?,
        author_agent: row.get(7)?,
        author_user: row.get(8)?,
        run: row.get(9)?,
        created_at: row.get(10)?,
    })
}
