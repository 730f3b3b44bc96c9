//! Attachments of a ticket: who has which file. The bytes are in [`super::files`].

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::json;

use super::files::Files;
use super::journal::About;
use super::{Store, StoreError, Writer, new_id, tickets};
use crate::model::output::Attachment;
use crate::model::{Actor, Refusal, Ticket, text};

/// How many files a ticket may have, how many one run may attach, and their bytes.
const PER_TICKET: i64 = 200;
const PER_RUN: i64 = 50;
const BYTES_PER_RUN: i64 = 60 << 20;

const ATTACHMENT: &str = "id, ticket, name, claimed_type, size, sha256, created_by_agent, \
                          created_by_user, created_by_run, created_at";

/// A file to attach.
#[derive(Debug, Clone)]
pub struct NewAttachment {
    /// What the client calls it.
    pub name: String,
    /// What the client says it is.
    pub claimed_type: Option<String>,
    /// Bytes.
    pub size: i64,
    /// Its hash.
    pub sha256: String,
}

/// Whether the actor may attach so many bytes to the ticket.
pub fn may_attach(
    connection: &Connection,
    actor: &Actor,
    ticket: &Ticket,
    size: i64,
) -> Result<(), StoreError> {
    actor.may_change(ticket)?;
    let there: i64 = connection.query_row(
        "SELECT count(*) FROM attachments WHERE ticket = ?",
        [&ticket.id],
        |row| row.get(0),
    )?;
    if there >= PER_TICKET {
        let error = format!("a ticket has at most {PER_TICKET} attachments");
        return Err(Refusal::unprocessable("attachment_limit", error).into());
    }
    let Some(run) = actor.run() else {
        return Ok(());
    };
    let (count, bytes): (i64, i64) = connection.query_row(
        "SELECT count(*), ifnull(sum(size), 0) FROM attachments WHERE created_by_run = ?",
        [run],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    if count >= PER_RUN || bytes + size > BYTES_PER_RUN {
        let error = format!(
            "one run may attach {PER_RUN} files and {} MiB",
            BYTES_PER_RUN >> 20
        );
        return Err(Refusal::forbidden("run_attachment_limit", error).into());
    }
    Ok(())
}

/// Attaches a file whose bytes are kept already.
pub fn create(
    w: &mut Writer<'_>,
    reference: &str,
    company: &str,
    new: NewAttachment,
) -> Result<Attachment, StoreError> {
    let ticket = tickets::get(w, reference, Some(company))?;
    may_attach(w, &w.actor, &ticket, new.size)?;
    let it = Attachment {
        id: new_id(),
        ticket: ticket.id.clone(),
        name: plain(&new.name)?,
        claimed_type: new.claimed_type.filter(|it| it.len() <= text::NAME),
        size: new.size,
        sha256: new.sha256,
        created_by_agent: w.actor.agent().map(str::to_owned),
        created_by_user: w.actor.user().map(str::to_owned),
        created_by_run: w.actor.run().map(str::to_owned),
        created_at: w.now,
    };
    w.execute(
        &format!("INSERT INTO attachments ({ATTACHMENT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"),
        params![
            it.id,
            it.ticket,
            it.name,
            it.claimed_type,
            it.size,
            it.sha256,
            it.created_by_agent,
            it.created_by_user,
            it.created_by_run,
            it.created_at
        ],
    )?;
    let facts = json!({ "attachment": it.id, "name": it.name, "sha256": it.sha256,
                        "bytes": it.size });
    w.note("attachment.added", About::of(&ticket), facts)?;
    Ok(it)
}

/// The attachment with this id; `within` limits an agent to its own company.
pub fn get(
    connection: &Connection,
    id: &str,
    within: Option<&str>,
) -> Result<Attachment, StoreError> {
    connection
        .prepare_cached(&format!(
            "SELECT {ATTACHMENT} FROM attachments WHERE id = ?1 AND (?2 IS NULL OR ?2 =
                 (SELECT company FROM tickets WHERE tickets.id = attachments.ticket))"
        ))?
        .query_row(params![id, within], attachment_row)
        .optional()?
        .ok_or_else(|| Refusal::missing("attachment").into())
}

/// The attachments of a ticket, oldest first.
pub fn list(connection: &Connection, ticket: &str) -> Result<Vec<Attachment>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {ATTACHMENT} FROM attachments WHERE ticket = ? ORDER BY created_at, id"
    ))?;
    let rows = statement.query_map([ticket], attachment_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Takes an attachment off its ticket: who attached it, or a person.
pub fn remove(w: &mut Writer<'_>, id: &str) -> Result<Attachment, StoreError> {
    let company = w.actor.company().map(str::to_owned);
    let it = get(w, id, company.as_deref())?;
    if w.actor.agent().is_some() && w.actor.agent() != it.created_by_agent.as_deref() {
        let error = "only who attached a file, or a person, may remove it";
        return Err(Refusal::forbidden("attachment_not_yours", error).into());
    }
    w.execute("DELETE FROM attachments WHERE id = ?", [&it.id])?;
    let ticket = tickets::get(w, &it.ticket, None)?;
    let facts = json!({ "attachment": it.id, "name": it.name, "sha256": it.sha256 });
    w.note("attachment.removed", About::of(&ticket), facts)?;
    Ok(it)
}

/// Whether an attachment has the bytes of a hash.
pub fn used(connection: &Connection, sha256: &str) -> Result<bool, StoreError> {
    Ok(connection
        .prepare_cached("SELECT count(*) > 0 FROM attachments WHERE sha256 = ?")?
        .query_row([sha256], |row| row.get(0))?)
}

/// Removes kept bytes that no attachment has, as a crash between the bytes and their row leaves them.
/// At start, before anybody can attach.
///
/// # Errors
/// The database or the directory cannot be read.
pub async fn sweep(store: &Store, files: &Files) -> Result<usize, SweepError> {
    let known = store.read(|db| {
        let mut statement = db.prepare("SELECT DISTINCT sha256 FROM attachments")?;
        let rows = statement.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<Result<HashSet<String>, _>>()?)
    });
    Ok(files.sweep(&known.await?)?)
}

/// Why unreferenced bytes stay.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// What is referenced cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The directory cannot be read, or a file not removed.
    #[error("the directory of attachments cannot be swept")]
    Io(#[from] std::io::Error),
}

/// A name without directories, and without what steers a header or a terminal.
fn plain(name: &str) -> Result<String, Refusal> {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let last: String = text::printable(last)
        .chars()
        .map(|c| if c.is_control() || c == '"' { '_' } else { c })
        .take(text::NAME)
        .collect();
    let last = last.trim();
    if matches!(last, "" | "." | "..") {
        return Ok("file".to_owned());
    }
    text::line("filename", last, text::NAME)
}

fn attachment_row(row: &Row<'_>) -> rusqlite::Result<Attachment> {
    Ok(Attachment {
        id: row.get(0)?,
        ticket: row.get(1)?,
        name: row.get(2)?,
        claimed_type: row.get(3)?,
        size: row.get(4)?,
        sha256: row.get(5)?,
        created_by_agent: row.get(6)?,
        created_by_user: row.get(7)?,
        created_by_run: row.get(8)?,
        created_at: row.get(9)?,
    })
}
