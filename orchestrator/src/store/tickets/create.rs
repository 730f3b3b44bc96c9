//! Creating tickets: limits, repeats, and the wake of the assignee.

use rusqlite::{OptionalExtension, params};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{blockers, get, guard, nesting, patch};
use crate::model::{Priority, Reason, Refusal, Status, Ticket, text};
use crate::store::journal::About;
use crate::store::wakes::{self, Ask};
use crate::store::{StoreError, Writer, labels, new_id};

/// How many tickets one run may create.
const PER_RUN: i64 = 20;
/// An open ticket with the same parent and title is the same one for this long.
const SAME_TITLE_MS: i64 = 48 * 3600 * 1000;

/// What a client gives to create a ticket.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NewTicket {
    /// One line.
    pub title: String,
    /// Markdown.
    pub description: Option<String>,
    /// `todo` when absent.
    pub status: Option<Status>,
    /// `medium` when absent.
    pub priority: Option<Priority>,
    /// An agent's id or name.
    pub assignee_agent_id: Option<String>,
    /// A person's name.
    pub assignee_user_id: Option<String>,
    /// UUID or identifier.
    pub parent_id: Option<String>,
    /// A project of the company.
    pub project_id: Option<String>,
    /// A goal of the company.
    pub goal_id: Option<String>,
    /// Ids or names.
    pub label_ids: Vec<String>,
    /// Kept.
    pub billing_code: Option<String>,
    /// UUIDs or identifiers.
    pub blocked_by_issue_ids: Vec<String>,
    /// Who must act, when the status is `blocked`.
    pub unblock_descriptor: Option<Value>,
    /// The same key answers with the same ticket.
    pub idempotency_key: Option<String>,
    /// Create even if one with this title is open.
    pub allow_duplicate: bool,
}

/// A created ticket, or the one that was there already.
#[derive(Debug, Clone)]
pub struct Created {
    /// The ticket.
    pub ticket: Ticket,
    /// Why no new one was made.
    pub deduplicated: Option<&'static str>,
}

/// Creates a ticket and wakes its assignee.
pub fn create(w: &mut Writer<'_>, company: &str, new: NewTicket) -> Result<Created, StoreError> {
    patch::may(w, "may_create", |may| may.create)?;
    let title = text::title(&new.title)?;
    let description = new
        .description
        .map(|d| text::body("description", &d))
        .transpose()?;
    let key = new
        .idempotency_key
        .map(|k| text::line("idempotencyKey", &k, 255))
        .transpose()?
        .map(|k| w.actor.own_key(&k));
    let label = |field: &str, value: Option<String>| {
        value.map(|v| text::line(field, &v, text::NAME)).transpose()
    };
    let parent = new
        .parent_id
        .map(|p| get(w, &p, Some(company)))
        .transpose()?;
    let parent_id = parent.as_ref().map(|p| p.id.clone());
    if let Some(key) = &key
        && let Some(ticket) = same_key(w, company, key)?
    {
        return Ok(Created {
            ticket,
            deduplicated: Some("idempotency_key"),
        });
    }
    let title_key = text::title_key(&title);
    if !new.allow_duplicate
        && !title_key.is_empty()
        && let Some(ticket) = same_title(w, company, parent_id.as_deref(), &title_key)?
    {
        return Ok(Created {
            ticket,
            deduplicated: Some("recent_open_issue_same_title"),
        });
    }
    limits(w, parent.as_ref())?;
    let assignee = patch::assignee(w, company, new.assignee_agent_id.as_deref())?;
    patch::may_give(w, None, assignee.as_deref())?;
    let status = new.status.unwrap_or(Status::Todo);
    if assignee.is_some() && new.assignee_user_id.is_some() {
        return Err(Refusal::invalid("a ticket has one assignee: an agent or a person").into());
    }
    let user = label("assigneeUserId", new.assignee_user_id)?;
    // The database would refuse it before the guards see it.
    if status == Status::InProgress && assignee.is_none() && user.is_none() {
        return Err(Refusal::unprocessable(
            "assignee_required",
            "a ticket in progress needs an assignee",
        )
        .into());
    }
    let unblock = new.unblock_descriptor.as_ref();
    let (number, prefix): (i64, String) = w
        .prepare_cached(
            "UPDATE companies SET next_ticket = next_ticket + 1 WHERE id = ?
             RETURNING next_ticket - 1, prefix",
        )?
        .query_row([company], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let id = new_id();
    let stamp = |wanted: Status| (status == wanted).then_some(w.now);
    w.prepare_cached(
        "INSERT INTO tickets (id, company, number, identifier, title, title_key, description,
             status, priority, assignee_agent, assignee_user, parent, project, goal, billing_code,
             unblock, idempotency_key, created_by_agent, created_by_user, created_by_run,
             started_at, completed_at, cancelled_at, created_at, updated_at)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )?
    .execute(params![
        id,
        company,
        number,
        format!("{prefix}-{number}"),
        title,
        title_key,
        description,
        status,
        new.priority.unwrap_or(Priority::Medium),
        assignee,
        user,
        parent_id,
        patch::project_of(w, company, new.project_id.as_deref())?,
        patch::goal_of(w, company, new.goal_id.as_deref())?,
        label("billingCode", new.billing_code)?,
        unblock
            .filter(|_| status == Status::Blocked)
            .map(Value::to_string),
        key,
        w.actor.agent().map(str::to_owned),
        w.actor.user().map(str::to_owned),
        w.actor.run().map(str::to_owned),
        stamp(Status::InProgress),
        stamp(Status::Done),
        stamp(Status::Cancelled),
        w.now,
        w.now
    ])?;
    let about = About {
        company: Some(company),
        ticket: Some(&id),
        run: None,
    };
    let blockers = blockers::replace(w, company, &id, &new.blocked_by_issue_ids)?;
    let labels = labels::replace(w, company, &id, &new.label_ids)?;
    let facts = json!({ "identifier": format!("{prefix}-{number}"), "title": title,
                        "status": status, "assignee": assignee, "parent": parent_id,
                        "blockedBy": blockers.map(|(_none, given)| given),
                        "labels": labels.map(|(_none, given)| given),
                        "bytes": description.as_ref().map(String::len) });
    w.note("ticket.created", about, facts)?;
    let ticket = get(w, &id, None)?;
    guard::judge(w, None, &ticket, true, unblock)?;
    if let Some(agent) = &ticket.assignee_agent {
        wakes::admit(w, Ask::about(agent, &id, Reason::Assigned))?;
    }
    Ok(Created {
        ticket,
        deduplicated: None,
    })
}

fn same_key(w: &Writer<'_>, company: &str, key: &str) -> Result<Option<Ticket>, StoreError> {
    let id: Option<String> = w
        .prepare_cached("SELECT id FROM tickets WHERE company = ? AND idempotency_key = ?")?
        .query_row(params![company, key], |row| row.get(0))
        .optional()?;
    id.map(|id| get(w, &id, None)).transpose()
}

fn same_title(
    w: &Writer<'_>,
    company: &str,
    parent: Option<&str>,
    key: &str,
) -> Result<Option<Ticket>, StoreError> {
    let id: Option<String> = w
        .prepare_cached(
            "SELECT id FROM tickets WHERE company = ? AND title_key = ? AND created_at > ?
               AND ifnull(parent, '') = ifnull(?, '') AND status NOT IN ('done', 'cancelled')
             ORDER BY created_at LIMIT 1",
        )?
        .query_row(
            params![company, key, w.now - SAME_TITLE_MS, parent],
            |row| row.get(0),
        )
        .optional()?;
    id.map(|id| get(w, &id, None)).transpose()
}

/// A run that makes tickets without end is a loop, whatever it means to do.
fn limits(w: &Writer<'_>, parent: Option<&Ticket>) -> Result<(), StoreError> {
    if let Some(parent) = parent {
        nesting::within_depth(w, parent, 0)?;
    }
    if let Some(run) = w.actor.run() {
        let made: i64 = w
            .prepare_cached("SELECT count(*) FROM tickets WHERE created_by_run = ?")?
            .query_row([run], |row| row.get(0))?;
        if made >= PER_RUN {
            let error =
                format!("one run may create {PER_RUN} tickets; say in a comment what is left");
            return Err(Refusal::forbidden("run_ticket_limit", error).into());
        }
    }
    Ok(())
}
