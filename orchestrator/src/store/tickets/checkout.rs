//! Checking a ticket out and giving it back. One lock column, one conditional update.

use rusqlite::params;
use serde_json::json;

use super::{Ticket, get, live_run, patch, unresolved_blockers};
use crate::model::{Actor, Reason, Refusal, Status};
use crate::store::journal::About;
use crate::store::wakes::{self, Ask};
use crate::store::{StoreError, Writer, runs};

/// Checks a ticket out for the calling run, or, when a person asks, for an agent (which wakes it).
///
/// The order of the checks is the order clients rely on: 403 for somebody else, 422 for unresolved
/// blockers, then one conditional update that either wins or answers 409.
pub fn checkout(
    w: &mut Writer<'_>,
    reference: &str,
    agent: Option<&str>,
    expected: &[Status],
) -> Result<Ticket, StoreError> {
    let actor = w.actor.clone();
    let ticket = get(w, reference, actor.company())?;
    let agent = match (&actor, agent) {
        (Actor::Agent { agent: own, .. }, Some(named)) if named != own => {
            return Err(Refusal::forbidden(
                "checkout_as_other_agent",
                "an agent may only check out as itself",
            )
            .into());
        }
        (Actor::Agent { agent: own, .. }, _) => own.clone(),
        (Actor::User { .. } | Actor::System, Some(named)) => {
            patch::assignee(w, &ticket.company, Some(named))?
                .ok_or_else(|| Refusal::missing("agent"))?
        }
        (Actor::User { .. } | Actor::System, None) => {
            return Err(Refusal::invalid("agentId is required").into());
        }
    };
    if let Some(run) = actor.run()
        && ticket.checkout_run.as_deref() == Some(run)
    {
        return Ok(ticket);
    }
    let unresolved = unresolved_blockers(w, &ticket.id)?;
    if !unresolved.is_empty() {
        let list: Vec<_> = unresolved
            .iter()
            .map(|b| json!({ "id": b.id, "identifier": b.identifier, "status": b.status }))
            .collect();
        return Err(Refusal::unprocessable(
            "issue_blocked",
            "this ticket waits for tickets that are not done",
        )
        .with(json!({ "issueId": ticket.id, "unresolvedBlockers": list }))
        .into());
    }
    let holder = live_run(w, &ticket.id)?;
    let held = holder
        .as_deref()
        .is_some_and(|run| Some(run) != actor.run());
    let others = ticket.assignee_user.is_some()
        || ticket
            .assignee_agent
            .as_ref()
            .is_some_and(|assignee| *assignee != agent);
    let expected_ok = expected.contains(&ticket.status)
        || (ticket.status == Status::InProgress && ticket.assignee_agent.as_ref() == Some(&agent));
    if held || others || !expected_ok || ticket.status.is_terminal() {
        return Err(conflict(&ticket, holder).into());
    }
    let changed = w
        .prepare_cached(
            "UPDATE tickets SET status = 'in_progress', assignee_agent = ?2, checkout_run = ?3,
                 started_at = ifnull(started_at, ?4), updated_at = ?4, unblock = NULL
             WHERE id = ?1 AND (checkout_run IS NULL OR checkout_run IS ?3
                 OR checkout_run NOT IN (SELECT id FROM runs
                        WHERE status IN ('starting', 'running', 'ending')))",
        )?
        .execute(params![ticket.id, agent, actor.run(), w.now])?;
    if changed == 0 {
        return Err(conflict(&ticket, holder).into());
    }
    let about = About::of(&ticket);
    w.note(
        "ticket.checked_out",
        about,
        json!({ "agent": agent, "from": ticket.status }),
    )?;
    if actor.agent().is_none() {
        wakes::admit(w, Ask::about(&agent, &ticket.id, Reason::CheckedOut))?;
    }
    get(w, &ticket.id, None)
}

/// Gives a ticket back: clears the lock and the assignee, `in_progress` becomes `todo`. A finished
/// ticket stays finished.
pub fn release(w: &mut Writer<'_>, reference: &str) -> Result<Ticket, StoreError> {
    let actor = w.actor.clone();
    let ticket = get(w, reference, actor.company())?;
    let holder = live_run(w, &ticket.id)?;
    if let Actor::Agent { agent, run, .. } = &actor {
        let mine = ticket.assignee_agent.as_ref() == Some(agent)
            && holder.as_ref().is_none_or(|holder| holder == run);
        if !mine {
            return Err(Refusal::conflict(
                "issue_release_conflict",
                "only the run that works on a ticket may release it",
            )
            .with(json!({ "issueId": ticket.id, "assigneeAgentId": ticket.assignee_agent }))
            .into());
        }
    }
    let status = match ticket.status {
        Status::InProgress => Status::Todo,
        other => other,
    };
    w.execute(
        "UPDATE tickets SET status = ?, assignee_agent = NULL, assignee_user = NULL,
             checkout_run = NULL, updated_at = ? WHERE id = ?",
        params![status, w.now, ticket.id],
    )?;
    let about = About::of(&ticket);
    w.note(
        "ticket.released",
        about,
        json!({ "from": ticket.status, "to": status }),
    )?;
    if let (Actor::User { .. }, Some(run)) = (&actor, holder) {
        runs::ask_cancel(w, &run)?;
    }
    get(w, &ticket.id, None)
}

fn conflict(ticket: &Ticket, holder: Option<String>) -> Refusal {
    Refusal::conflict("issue_checkout_conflict", "Issue checkout conflict").with(json!({
        "issueId": ticket.id,
        "status": ticket.status,
        "assigneeAgentId": ticket.assignee_agent,
        "checkoutRunId": ticket.checkout_run,
        "executionRunId": holder,
    }))
}
