//! A ticket's row after a change: what follows from its status, what is written, what differs.

use rusqlite::params;
use serde_json::{Map, Value, json};

use crate::model::{Status, Ticket, text};
use crate::store::{StoreError, Writer};

/// Times and leftovers that follow from the status.
pub(super) fn stamp(before: &Ticket, after: &mut Ticket, now: i64, unblock: Option<&Value>) {
    if after.status == Status::Blocked {
        if let Some(unblock) = unblock {
            after.unblock = Some(unblock.to_string());
        }
    } else {
        after.unblock = None;
    }
    if after.status != before.status {
        after.completed_at = (after.status == Status::Done).then_some(now);
        after.cancelled_at = (after.status == Status::Cancelled).then_some(now);
        if after.status == Status::InProgress && after.started_at.is_none() {
            after.started_at = Some(now);
        }
    }
    let given_away = after.assignee_agent != before.assignee_agent;
    if after.status != Status::InProgress || given_away {
        after.checkout_run = None;
    }
    after.updated_at = now;
}

pub(super) fn save(w: &Writer<'_>, ticket: &Ticket) -> Result<(), StoreError> {
    w.prepare_cached(
        "UPDATE tickets SET title = ?, title_key = ?, description = ?, status = ?, priority = ?,
             assignee_agent = ?, assignee_user = ?, parent = ?, project = ?, goal = ?,
             billing_code = ?, unblock = ?, checkout_run = ?, started_at = ?, completed_at = ?,
             cancelled_at = ?, updated_at = ? WHERE id = ?",
    )?
    .execute(params![
        ticket.title,
        text::title_key(&ticket.title),
        ticket.description,
        ticket.status,
        ticket.priority,
        ticket.assignee_agent,
        ticket.assignee_user,
        ticket.parent,
        ticket.project,
        ticket.goal,
        ticket.billing_code,
        ticket.unblock,
        ticket.checkout_run,
        ticket.started_at,
        ticket.completed_at,
        ticket.cancelled_at,
        ticket.updated_at,
        ticket.id
    ])?;
    Ok(())
}

pub(super) fn differences(before: &Ticket, after: &Ticket) -> Map<String, Value> {
    let mut changes = Map::new();
    let mut field = |name: &str, from: Value, to: Value| {
        if from != to {
            changes.insert(name.to_owned(), json!({ "from": from, "to": to }));
        }
    };
    field("title", json!(before.title), json!(after.title));
    field(
        "description",
        json!(before.description),
        json!(after.description),
    );
    field("status", json!(before.status), json!(after.status));
    field("priority", json!(before.priority), json!(after.priority));
    field(
        "assigneeAgentId",
        json!(before.assignee_agent),
        json!(after.assignee_agent),
    );
    field(
        "assigneeUserId",
        json!(before.assignee_user),
        json!(after.assignee_user),
    );
    field("parentId", json!(before.parent), json!(after.parent));
    field("projectId", json!(before.project), json!(after.project));
    field("goalId", json!(before.goal), json!(after.goal));
    field(
        "billingCode",
        json!(before.billing_code),
        json!(after.billing_code),
    );
    field(
        "checkoutRunId",
        json!(before.checkout_run),
        json!(after.checkout_run),
    );
    field(
        "unblockDescriptor",
        json!(before.unblock),
        json!(after.unblock),
    );
    changes
}
