//! What a change of status must bring along: who reviews, who unblocks.

use serde_json::{Value, json};

use super::unresolved_blockers;
use crate::model::{Actor, Refusal, Status, Ticket};
use crate::store::{StoreError, Writer, approvals, interactions};

/// The states an actor may put a ticket in next, with what each needs.
#[must_use]
pub(super) fn legal_next(ticket: &Ticket, actor: &Actor) -> Value {
    let mut next = vec![json!({ "status": Status::Done })];
    next.push(json!({
        "status": Status::InReview,
        "requires": "a reviewer in the same request: assigneeUserId (a person), or, where you may \
                     assign, assigneeAgentId (another agent); or a pending interaction or approval that somebody \
                     else answers",
    }));
    next.push(json!({
        "status": Status::Blocked,
        "requires": "blockedByIssueIds with a ticket that is not done, or unblockDescriptor \
                     {\"owner\": WHO, \"action\": WHAT}, or a pending interaction or approval",
    }));
    next.push(json!({ "status": Status::Cancelled }));
    next.push(json!({ "status": Status::Todo }));
    if ticket.assignee_agent.as_deref() == actor.agent() || actor.agent().is_none() {
        next.push(json!({ "status": Status::InProgress, "requires": "an assignee" }));
    }
    next.retain(|state| state["status"] != json!(ticket.status));
    Value::Array(next)
}

/// Judges a ticket as it would be after a change (or its creation, without `before`), blockers
/// included. What a status needs must hold whenever anything it rests on changes.
pub(super) fn judge(
    w: &Writer<'_>,
    before: Option<&Ticket>,
    after: &Ticket,
    blockers_changed: bool,
    unblock: Option<&Value>,
) -> Result<(), StoreError> {
    let unblock = unblock.filter(|value| !value.is_null());
    if let Some(descriptor) = unblock {
        descriptor_ok(&w.actor, descriptor)?;
    }
    let entered = before.is_none_or(|before| before.status != after.status);
    let moved = before.is_none_or(|before| {
        before.assignee_agent != after.assignee_agent || before.assignee_user != after.assignee_user
    });
    match after.status {
        Status::InProgress => in_progress(&w.actor, after, entered),
        Status::InReview if entered || moved => in_review(w, after),
        Status::Blocked if (entered || blockers_changed) && unblock.is_none() => {
            blocked(w, after, entered)
        }
        Status::Blocked
        | Status::InReview
        | Status::Backlog
        | Status::Todo
        | Status::Done
        | Status::Cancelled => Ok(()),
    }
}

/// Work in progress is somebody's, and an agent's begins with a checkout.
fn in_progress(actor: &Actor, after: &Ticket, entered: bool) -> Result<(), StoreError> {
    if after.assignee_agent.is_none() && after.assignee_user.is_none() {
        return Err(Refusal::unprocessable(
            "assignee_required",
            "a ticket in progress needs an assignee",
        )
        .with(json!({ "legalNextStates": legal_next(after, actor) }))
        .into());
    }
    match actor.run() {
        Some(run) if entered => {
            let checkout = format!("POST /api/issues/{}/checkout", after.id);
            Err(Refusal::conflict(
                "checkout_required",
                "an agent enters in_progress through checkout",
            )
            .with(json!({ "runId": run, "checkout": checkout }))
            .into())
        }
        Some(_) | None => Ok(()),
    }
}

/// Whether a ticket that waits still knows for whom, after a question on it was taken back.
pub(in crate::store) fn still_waits(w: &Writer<'_>, ticket: &Ticket) -> Result<(), StoreError> {
    match ticket.status {
        Status::InReview => in_review(w, ticket),
        Status::Blocked => blocked(w, ticket, false),
        Status::Backlog | Status::Todo | Status::InProgress | Status::Done | Status::Cancelled => {
            Ok(())
        }
    }
}

/// A status change by an agent into `in_review` names somebody else who reviews, or rests on a
/// question that somebody else answers.
fn in_review(w: &Writer<'_>, after: &Ticket) -> Result<(), StoreError> {
    let actor = &w.actor;
    let Some(agent) = actor.agent() else {
        return Ok(());
    };
    let person = after.assignee_user.is_some();
    let other = after
        .assignee_agent
        .as_deref()
        .is_some_and(|assignee| assignee != agent);
    if person || other || awaited(w, after)? {
        return Ok(());
    }
    Err(Refusal::unprocessable(
        "invalid_issue_disposition",
        "in_review needs a live review path: nobody but you would see this ticket",
    )
    .with(json!({ "status": Status::InReview, "legalNextStates": legal_next(after, actor) }))
    .into())
}

/// Whether somebody else will answer a question about the ticket, and the asker will hear of it.
fn awaited(w: &Writer<'_>, ticket: &Ticket) -> Result<bool, StoreError> {
    Ok(interactions::awaited(w, &ticket.id, &w.actor)? || approvals::awaited(w, &ticket.id)?)
}

/// A ticket that is blocked says what it waits for, or who must do what.
fn blocked(w: &Writer<'_>, after: &Ticket, entered: bool) -> Result<(), StoreError> {
    let said = !entered && after.unblock.is_some();
    if said || !unresolved_blockers(w, &after.id)?.is_empty() {
        return Ok(());
    }
    if matches!(w.actor, Actor::User { .. }) || awaited(w, after)? {
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
