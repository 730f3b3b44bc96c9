//! Comments: writing one may wake the assignee and whoever is mentioned, never its author.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::json;

use super::journal::About;
use super::tickets::{self, Patch};
use super::wakes::{self, Ask};
use super::{StoreError, Writer, agents, interactions, new_id};
use crate::model::{Comment, Reason, Refusal, Ticket, mention, text};

/// How many comments one run may write on tickets that are not its own.
const FOREIGN_PER_RUN: i64 = 20;
/// How many comments one run may write in all.
const PER_RUN: i64 = 500;

const COMMENT: &str =
    "id, seq, ticket, author_type, author_agent, author_user, run, body, created_at";

/// A comment to write.
#[derive(Debug, Clone, Default)]
pub struct NewComment {
    /// Markdown.
    pub body: String,
    /// The same key on the same ticket answers with the same comment.
    pub client_key: Option<String>,
}

impl NewComment {
    /// Just a text.
    #[must_use]
    pub fn of(body: &str) -> Self {
        Self {
            body: body.to_owned(),
            client_key: None,
        }
    }
}

/// Which comments to list.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// Only those after this comment, which itself is left out.
    pub after: Option<String>,
    /// Oldest first; newest first otherwise.
    pub ascending: bool,
    /// At most this many; 1 to 500.
    pub limit: u32,
}

/// Writes a comment as an act of its own: wakes the assignee, and reopens if asked to.
pub fn post(
    w: &mut Writer<'_>,
    reference: &str,
    new: NewComment,
    reopen: bool,
    interrupt: bool,
) -> Result<Comment, StoreError> {
    let ticket = tickets::get(w, reference, w.actor.company())?;
    if let Some(key) = &new.client_key
        && let Some(earlier) = by_key(w, &ticket.id, &w.actor.own_key(key))?
    {
        return Ok(earlier);
    }
    if (reopen && ticket.status.is_terminal()) || interrupt {
        let patch = Patch {
            comment: Some(new.body),
            reopen: reopen && ticket.status.is_terminal(),
            interrupt,
            ..Patch::default()
        };
        let update = tickets::update(w, &ticket.id, patch)?;
        return update
            .comment
            .ok_or_else(|| Refusal::missing("comment").into());
    }
    write(w, &ticket, new, true)
}

/// Writes a comment. `wake` also wakes the assignee; mentions always wake.
pub(super) fn write(
    w: &mut Writer<'_>,
    ticket: &Ticket,
    new: NewComment,
    wake: bool,
) -> Result<Comment, StoreError> {
    let body = text::body("body", &new.body)?;
    if body.trim().is_empty() {
        return Err(Refusal::invalid("body must not be empty").into());
    }
    let key = new
        .client_key
        .map(|k| text::line("clientRequestId", &k, 255))
        .transpose()?
        .map(|k| w.actor.own_key(&k));
    within_limits(w, ticket)?;
    let id = new_id();
    w.prepare_cached(
        "INSERT INTO comments (id, ticket, author_type, author_agent, author_user, run, body,
                               client_key, created_at)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )?
    .execute(params![
        id,
        ticket.id,
        w.actor.kind(),
        w.actor.agent(),
        w.actor.user(),
        w.actor.run(),
        body,
        key,
        w.now
    ])?;
    w.prepare_cached("UPDATE tickets SET updated_at = ? WHERE id = ?")?
        .execute(params![w.now, ticket.id])?;
    let about = About::of(ticket);
    w.note(
        "comment.written",
        about,
        json!({ "comment": id, "bytes": body.len() }),
    )?;
    if w.actor.user().is_some() {
        interactions::supersede(w, ticket)?;
    }
    let mentioned = mention::agents(&body);
    if wake
        && let Some(assignee) = &ticket.assignee_agent
        && !mentioned.contains(assignee)
    {
        let mut ask = Ask::about(assignee, &ticket.id, Reason::Commented);
        ask.comment = Some(id.clone());
        wakes::admit(w, ask)?;
    }
    for agent in mentioned {
        if agents::get(w, &agent, Some(&ticket.company)).is_ok() {
            let mut ask = Ask::about(&agent, &ticket.id, Reason::Mentioned);
            ask.comment = Some(id.clone());
            wakes::admit(w, ask)?;
        }
    }
    get(w, &ticket.id, &id)
}

/// One comment of a ticket.
pub fn get(connection: &Connection, ticket: &str, id: &str) -> Result<Comment, StoreError> {
    connection
        .prepare_cached(&format!(
            "SELECT {COMMENT} FROM comments WHERE ticket = ? AND id = ?"
        ))?
        .query_row([ticket, id], comment_row)
        .optional()?
        .ok_or_else(|| Refusal::missing("comment").into())
}

/// The comments of a ticket.
pub fn list(
    connection: &Connection,
    ticket: &str,
    page: &Page,
) -> Result<Vec<Comment>, StoreError> {
    let after = match &page.after {
        Some(id) => get(connection, ticket, id)?.seq,
        None => 0,
    };
    let order = if page.ascending { "ASC" } else { "DESC" };
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COMMENT} FROM comments WHERE ticket = ? AND seq > ? ORDER BY seq {order} LIMIT ?"
    ))?;
    let rows = statement.query_map(
        params![ticket, after, page.limit.clamp(1, 500)],
        comment_row,
    )?;
    super::page(rows, |comment| comment.body.len())
}

/// How many comments a ticket has, and the newest.
pub fn cursor(connection: &Connection, ticket: &str) -> Result<(i64, Option<Comment>), StoreError> {
    let total = connection
        .prepare_cached("SELECT count(*) FROM comments WHERE ticket = ?")?
        .query_row([ticket], |row| row.get(0))?;
    let newest = list(
        connection,
        ticket,
        &Page {
            limit: 1,
            ..Page::default()
        },
    )?
    .pop();
    Ok((total, newest))
}

fn by_key(connection: &Connection, ticket: &str, key: &str) -> Result<Option<Comment>, StoreError> {
    Ok(connection
        .prepare_cached(&format!(
            "SELECT {COMMENT} FROM comments WHERE ticket = ? AND client_key = ?"
        ))?
        .query_row([ticket, key], comment_row)
        .optional()?)
}

fn within_limits(w: &Writer<'_>, ticket: &Ticket) -> Result<(), StoreError> {
    let Some(run) = w.actor.run() else {
        return Ok(());
    };
    let (all, foreign): (i64, i64) = w
        .prepare_cached(
            "SELECT count(*), count(*) FILTER (WHERE comments.ticket IS NOT runs.ticket
                    AND tickets.checkout_run IS NOT runs.id)
             FROM comments JOIN runs ON runs.id = comments.run
                           JOIN tickets ON tickets.id = comments.ticket
             WHERE comments.run = ?",
        )?
        .query_row([run], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let own = ticket.checkout_run.as_deref() == Some(run)
        || ticket.assignee_agent.as_deref() == w.actor.agent();
    if all >= PER_RUN {
        let error = format!("one run may write {PER_RUN} comments");
        return Err(Refusal::forbidden("run_comment_limit", error).into());
    }
    if !own && foreign >= FOREIGN_PER_RUN {
        let error = format!("one run may write {FOREIGN_PER_RUN} comments on tickets of others");
        return Err(Refusal::forbidden("cross_issue_limit", error).into());
    }
    Ok(())
}

fn comment_row(row: &Row<'_>) -> rusqlite::Result<Comment> {
    Ok(Comment {
        id: row.get(0)?,
        seq: row.get(1)?,
        ticket: row.get(2)?,
        author_type: row.get(3)?,
        author_agent: row.get(4)?,
        author_user: row.get(5)?,
        run: row.get(6)?,
        body: row.get(7)?,
        created_at: row.get(8)?,
    })
}
