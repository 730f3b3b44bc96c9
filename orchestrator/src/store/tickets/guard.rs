//! What a change of status must bring along: who reviews, who unblocks.

use rusqlite::Connection;
use serde_json::{Value, json};

use super::unresolved_blockers;
use crate::model::{Actor, Refusal, Status, Ticket};
use crate::store::{StoreError, Writer};

/// The states an actor may put a ticket in next, with what each needs.
#[must_use]
pub fn legal_next(ticket: &Ticket, actor: &Actor) -> Value {
    let mut next = vec![json!({ "status": Status::Done })];
    next.push(json!({
        "status": Status::InReview,
        "requires": "a reviewer in the same request: assigneeUserId (a person), or \
                     assigneeAgentId (another agent)",
    }));
    next.push(json!({
        "status": Status::Blocked,
        "requires": "blockedByIssueIds with a ticket that is not done, or unblockDescriptor \
                     {\"owner\": WHO, \"action\": WHAT}",
    }));
    next.push(json!({ "status": Status::Cancelled }));
    next.push(json!({ "status": Status::Todo }));
    if ticket.assignee_agent.as_deref() == actor.agent() || actor.agent().is_none() {
        next.push(json!({ "status": Status::InProgress, "requires": "an assignee" }));
    }
    next.retain(|state| state["status"] != json!(ticket.status));
    Value::Array(next)
}

/// A status change by an agent into `in_review` names somebody else who reviews.
pub(super) fn in_review(actor: &Actor, after: &Ticket) -> Result<(), Refusal> {
    let Some(agent) = actor.agent() else {
        return Ok(());
    };
    let person = after.assignee_user.is_some();
    let other = after
        .assignee_agent
        .as_deref()
        .is_some_and(|assignee| assignee != agent);
    if person || other {
        return Ok(());
    }
    Err(Refusal::unprocessable(
        "invalid_issue_disposition",
        "in_review needs a live review path: nobody but you would see this ticket",
    )
    .with(json!({ "status": Status::InReview, "legalNextStates": legal_next(after, actor) })))
}

/// A ticket that enters `blocked` says what it waits for, or who must do what.
pub(super) fn blocked(
    w: &Writer<'_>,
    after: &Ticket,
    unblock: Option<&Value>,
) -> Result<(), StoreError> {
    if let Some(descriptor) = unblock.filter(|value| !value.is_null()) {
        return Ok(descriptor_ok(&w.actor, descriptor)?);
    }
    if !unresolved_blockers(w, &after.id)?.is_empty() {
        return Ok(());
    }
    if matches!(w.actor, Actor::User { .. }) {
        return Ok(());
    }
    Err(Refusal::unprocessable(
        "invalid_issue_disposition",
        "blocked needs an unresolved blocker or an unblockDescriptor: nobody would know who must act",
    )
    .with(json!({ "status": Status::Blocked, "legalNextStates": legal_next(after, &w.actor) }))
    .into())
}

/// `{"owner": "board" | NAME | {"type","id"} | {"agentId"} | {"userId"}, "action": TEXT}`. An agent
/// may name itself or a person; naming another agent would be giving it orders.
fn descriptor_ok(actor: &Actor, descriptor: &Value) -> Result<(), Refusal> {
    let action = descriptor["action"].as_str().unwrap_or_default();
    let owner = &descriptor["owner"];
    if action.trim().is_empty() || action.len() > 2000 || owner.is_null() {
        return Err(Refusal::unprocessable(
            "invalid_unblock_descriptor",
            "unblockDescriptor needs `owner` (who) and `action` (what, at most 2,000 bytes)",
        ));
    }
    if owner.to_string().len() > 500 {
        return Err(Refusal::invalid("unblockDescriptor.owner is too long"));
    }
    let Some(own) = actor.agent() else {
        return Ok(());
    };
    let agent = match owner {
        Value::Object(_) => {
            let id = owner["agentId"].as_str().or_else(|| owner["id"].as_str());
            let is_agent = owner["type"] == "agent" || owner.get("agentId").is_some();
            if is_agent { id } else { None }
        }
        Value::String(name) => name.strip_prefix("agent:"),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    };
    match agent {
        Some(other) if other != own => Err(Refusal::forbidden(
            "unblock_owner_not_self",
            "an agent may name itself or a person as the one who unblocks, not another agent",
        )),
        Some(_) | None => Ok(()),
    }
}

/// Whether `ticket` waiting for `blocker` closes a circle.
pub(super) fn closes_circle(
    connection: &Connection,
    ticket: &str,
    blocker: &str,
) -> Result<bool, StoreError> {
    Ok(connection
        .prepare_cached(
            "WITH RECURSIVE waits(id) AS (
                 SELECT ?1 UNION
                 SELECT blockers.blocker FROM blockers JOIN waits ON blockers.ticket = waits.id)
             SELECT count(*) > 0 FROM waits WHERE id = ?2",
        )?
        .query_row([blocker, ticket], |row| row.get(0))?)
}
