//! Changing tickets: who may, what must hold, who is woken.

use rusqlite::params;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::{ancestors, blocked_by_it, blockers, get, guard, live_run, unresolved_blockers};
use crate::model::{Actor, AgentStatus, Comment, Priority, Reason, Refusal, Status, Ticket, text};
use crate::store::comments::{self, NewComment};
use crate::store::journal::About;
use crate::store::wakes::{self, Ask};
use crate::store::{StoreError, Writer, agents, runs};

/// A change; absent fields stay as they are, `null` clears.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Patch {
    /// One line.
    pub title: Option<String>,
    /// Markdown.
    #[serde(deserialize_with = "given")]
    pub description: Option<Option<String>>,
    /// New status.
    pub status: Option<Status>,
    /// New priority.
    pub priority: Option<Priority>,
    /// An agent's id or name.
    #[serde(deserialize_with = "given")]
    pub assignee_agent_id: Option<Option<String>>,
    /// A person's name.
    #[serde(deserialize_with = "given")]
    pub assignee_user_id: Option<Option<String>>,
    /// UUID or identifier.
    #[serde(deserialize_with = "given")]
    pub parent_id: Option<Option<String>>,
    /// Kept.
    #[serde(deserialize_with = "given")]
    pub project_id: Option<Option<String>>,
    /// Kept.
    #[serde(deserialize_with = "given")]
    pub goal_id: Option<Option<String>>,
    /// Kept.
    #[serde(deserialize_with = "given")]
    pub billing_code: Option<Option<String>>,
    /// Replaces the blockers.
    pub blocked_by_issue_ids: Option<Vec<String>>,
    /// Who must act, when the status becomes `blocked`.
    pub unblock_descriptor: Option<Value>,
    /// Written together with the change.
    pub comment: Option<String>,
    /// Reopen a finished ticket.
    pub reopen: bool,
    /// As `reopen`.
    pub resume: bool,
    /// A person stops the live run.
    pub interrupt: bool,
}

/// What a change did.
#[derive(Debug, Clone)]
pub struct Update {
    /// The ticket after it.
    pub ticket: Ticket,
    /// `{field: {from, to}}` of what differs.
    pub changes: Map<String, Value>,
    /// The comment that came with it.
    pub comment: Option<Comment>,
}

/// Applies a change.
pub fn update(w: &mut Writer<'_>, id: &str, patch: Patch) -> Result<Update, StoreError> {
    let before = get(w, id, w.actor.company().map(str::to_owned).as_deref())?;
    w.actor.clone().may_change(&before)?;
    let live = live_run(w, &before.id)?;
    if let (Some(mine), Some(holder)) = (w.actor.run(), &live)
        && mine != holder
    {
        return Err(
            Refusal::conflict("issue_locked", "Another agent's run owns this task")
                .with(json!({ "issueId": before.id, "executionRunId": holder }))
                .into(),
        );
    }
    let mut after = edited(w, &before, &patch)?;
    let replaced = match &patch.blocked_by_issue_ids {
        Some(ids) => set_blockers(w, &before.company, &before.id, ids)?,
        None => None,
    };
    after.status = next_status(w, &before, &after, &patch)?;
    guards(w, &before, &after, &patch)?;
    stamp(
        &before,
        &mut after,
        w.now,
        patch.unblock_descriptor.as_ref(),
    );
    let mut changes = differences(&before, &after);
    if let Some((from, to)) = replaced {
        changes.insert(
            "blockedByIssueIds".into(),
            json!({ "from": from, "to": to }),
        );
    }
    if !changes.is_empty() {
        save(w, &after)?;
        let about = About {
            company: Some(&after.company),
            ticket: Some(&after.id),
            run: None,
        };
        w.note("ticket.changed", about, json!({ "changes": changes }))?;
    }
    let comment = match &patch.comment {
        Some(body) => Some(comments::write(w, &after, NewComment::of(body), false)?),
        None => None,
    };
    let again = live.is_none() && asked_again(w, &after, &patch);
    wake(w, &before, &after, comment.as_ref(), again)?;
    if let Some(run) = live {
        stop_run(w, &before, &after, &run, patch.interrupt)?;
    }
    Ok(Update {
        ticket: get(w, &after.id, None)?,
        changes,
        comment,
    })
}

/// The orchestrator sets a ticket aside and says who must act.
pub fn park(w: &mut Writer<'_>, ticket: &Ticket, why: &str) -> Result<(), StoreError> {
    let owner = ticket
        .created_by_user
        .clone()
        .unwrap_or_else(|| "board".to_owned());
    let unblock = json!({ "owner": { "type": "user", "id": owner }, "action": why });
    let mut after = ticket.clone();
    after.status = Status::Blocked;
    after.checkout_run = None;
    stamp(ticket, &mut after, w.now, Some(&unblock));
    let changes = differences(ticket, &after);
    save(w, &after)?;
    let about = About {
        company: Some(&after.company),
        ticket: Some(&after.id),
        run: None,
    };
    w.note(
        "ticket.parked",
        about,
        json!({ "why": why, "owner": owner, "changes": changes }),
    )?;
    let body = format!(
        "{why}\n\nThis ticket is parked. {owner} must act: comment on it or assign it again to go on."
    );
    comments::write(w, &after, NewComment::of(&body), false)?;
    Ok(())
}

/// Resolves an assignee within the company. Work may be given to a paused agent; it waits.
pub(super) fn assignee(
    w: &Writer<'_>,
    company: &str,
    reference: Option<&str>,
) -> Result<Option<String>, StoreError> {
    let Some(reference) = reference else {
        return Ok(None);
    };
    let agent = agents::get(w, reference, Some(company))?;
    if agent.status == AgentStatus::Terminated {
        let error = format!("agent `{}` is terminated", agent.name);
        return Err(Refusal::unprocessable("agent_terminated", error).into());
    }
    Ok(Some(agent.id))
}

/// The ids of the blockers before and after a replacement.
type Replaced = (Vec<String>, Vec<String>);

/// Replaces the blockers of a ticket. `None` when nothing changed.
pub(super) fn set_blockers(
    w: &mut Writer<'_>,
    company: &str,
    ticket: &str,
    references: &[String],
) -> Result<Option<Replaced>, StoreError> {
    if references.len() > 100 {
        return Err(Refusal::invalid("blockedByIssueIds holds at most 100 tickets").into());
    }
    let from: Vec<String> = blockers(w, ticket)?.into_iter().map(|b| b.id).collect();
    let mut to: Vec<String> = Vec::new();
    for reference in references {
        let blocker = get(w, reference, Some(company))?;
        if blocker.id == ticket || guard::closes_circle(w, ticket, &blocker.id)? {
            return Err(Refusal::unprocessable(
                "blocker_cycle",
                format!("{} waits for this ticket itself", blocker.identifier),
            )
            .into());
        }
        if !to.contains(&blocker.id) {
            to.push(blocker.id);
        }
    }
    if from.len() == to.len() && from.iter().all(|id| to.contains(id)) {
        return Ok(None);
    }
    w.execute("DELETE FROM blockers WHERE ticket = ?", [ticket])?;
    for blocker in &to {
        w.execute(
            "INSERT INTO blockers (ticket, blocker) VALUES (?, ?)",
            [ticket, blocker],
        )?;
    }
    Ok(Some((from, to)))
}

fn edited(w: &Writer<'_>, before: &Ticket, patch: &Patch) -> Result<Ticket, StoreError> {
    let mut after = before.clone();
    if let Some(title) = &patch.title {
        after.title = text::title(title)?;
    }
    if let Some(description) = &patch.description {
        after.description = description
            .as_deref()
            .map(|d| text::body("description", d))
            .transpose()?;
    }
    if let Some(priority) = patch.priority {
        after.priority = priority;
    }
    let label = |field: &str, value: &Option<String>| {
        value
            .as_deref()
            .map(|v| text::line(field, v, text::NAME))
            .transpose()
    };
    if let Some(user) = &patch.assignee_user_id {
        after.assignee_user = label("assigneeUserId", user)?;
        if after.assignee_user.is_some() && patch.assignee_agent_id.is_none() {
            after.assignee_agent = None;
        }
    }
    if let Some(agent) = &patch.assignee_agent_id {
        after.assignee_agent = assignee(w, &before.company, agent.as_deref())?;
        if after.assignee_agent.is_some() && patch.assignee_user_id.is_none() {
            after.assignee_user = None;
        }
    }
    if after.assignee_agent.is_some() && after.assignee_user.is_some() {
        return Err(Refusal::invalid("a ticket has one assignee: an agent or a person").into());
    }
    if let Some(parent) = &patch.parent_id {
        after.parent = match parent {
            Some(reference) => Some(new_parent(w, before, reference)?),
            None => None,
        };
    }
    if let Some(project) = &patch.project_id {
        after.project = label("projectId", project)?;
    }
    if let Some(goal) = &patch.goal_id {
        after.goal = label("goalId", goal)?;
    }
    if let Some(code) = &patch.billing_code {
        after.billing_code = label("billingCode", code)?;
    }
    Ok(after)
}

fn new_parent(w: &Writer<'_>, ticket: &Ticket, reference: &str) -> Result<String, StoreError> {
    let parent = get(w, reference, Some(&ticket.company))?;
    let circle = parent.id == ticket.id
        || ancestors(w, &parent)?
            .iter()
            .any(|ancestor| ancestor.id == ticket.id);
    if circle {
        let error = format!("{} is part of this ticket itself", parent.identifier);
        return Err(Refusal::unprocessable("parent_cycle", error).into());
    }
    Ok(parent.id)
}

fn next_status(
    w: &Writer<'_>,
    before: &Ticket,
    after: &Ticket,
    patch: &Patch,
) -> Result<Status, StoreError> {
    if let Some(status) = patch.status {
        return Ok(status);
    }
    if (patch.reopen || patch.resume) && before.status.is_terminal() {
        return Ok(Status::Todo);
    }
    let moved = after.assignee_agent.is_some() && after.assignee_agent != before.assignee_agent;
    if moved && before.status == Status::InProgress {
        return Ok(Status::Todo);
    }
    // A person who gives a parked ticket to an agent, the same one included, asks it to go on.
    if asked_again(w, after, patch)
        && before.status == Status::Blocked
        && unresolved_blockers(w, &before.id)?.is_empty()
    {
        return Ok(Status::Todo);
    }
    Ok(before.status)
}

/// A person names an agent as the assignee.
fn asked_again(w: &Writer<'_>, after: &Ticket, patch: &Patch) -> bool {
    matches!(w.actor, Actor::User { .. })
        && after.assignee_agent.is_some()
        && matches!(patch.assignee_agent_id, Some(Some(_)))
}

fn guards(
    w: &Writer<'_>,
    before: &Ticket,
    after: &Ticket,
    patch: &Patch,
) -> Result<(), StoreError> {
    if after.status == Status::InProgress
        && after.assignee_agent.is_none()
        && after.assignee_user.is_none()
    {
        return Err(Refusal::unprocessable(
            "assignee_required",
            "a ticket in progress needs an assignee",
        )
        .with(json!({ "legalNextStates": guard::legal_next(before, &w.actor) }))
        .into());
    }
    if let Some(run) = w.actor.run()
        && after.status == Status::InProgress
        && before.status != Status::InProgress
    {
        return Err(Refusal::conflict(
            "checkout_required",
            "an agent enters in_progress through checkout",
        )
        .with(
            json!({ "runId": run, "checkout": format!("POST /api/issues/{}/checkout", before.id) }),
        )
        .into());
    }
    if after.status == Status::InReview && before.status != Status::InReview {
        guard::in_review(&w.actor, after)?;
    }
    if after.status == Status::Blocked && before.status != Status::Blocked {
        guard::blocked(w, after, patch.unblock_descriptor.as_ref())?;
    }
    Ok(())
}

/// Times and leftovers that follow from the status.
fn stamp(before: &Ticket, after: &mut Ticket, now: i64, unblock: Option<&Value>) {
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
    if after.status != Status::InProgress {
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

/// One wake at most for the assignee, then the tickets that waited for this one.
fn wake(
    w: &mut Writer<'_>,
    before: &Ticket,
    after: &Ticket,
    comment: Option<&Comment>,
    again: bool,
) -> Result<(), StoreError> {
    let was_shut = before.status.is_terminal()
        || matches!(
            before.status,
            Status::Backlog | Status::Blocked | Status::InReview
        );
    let is_open = matches!(after.status, Status::Todo | Status::InProgress);
    if let Some(agent) = &after.assignee_agent {
        let reason = if after.assignee_agent != before.assignee_agent || again {
            Some(Reason::Assigned)
        } else if before.status.is_terminal() && is_open && comment.is_some() {
            Some(Reason::Reopened)
        } else if was_shut && is_open {
            Some(Reason::StatusChanged)
        } else {
            comment.map(|_| Reason::Commented)
        };
        if let Some(reason) = reason {
            let mut ask = Ask::about(agent, &after.id, reason);
            ask.comment = comment.map(|c| c.id.clone());
            wakes::admit(w, ask)?;
        }
    }
    if after.status == Status::Done && before.status != Status::Done {
        free_waiting(w, after)?;
    }
    Ok(())
}

/// A ticket whose last blocker is done goes on. The cause is the board's, not the finisher's.
fn free_waiting(w: &mut Writer<'_>, done: &Ticket) -> Result<(), StoreError> {
    for waiting in blocked_by_it(w, &done.id)? {
        if waiting.status.is_terminal() || !unresolved_blockers(w, &waiting.id)?.is_empty() {
            continue;
        }
        let author = std::mem::replace(&mut w.actor, Actor::System);
        let mut after = waiting.clone();
        if waiting.status == Status::Blocked && waiting.unblock.is_none() {
            after.status = Status::Todo;
            stamp(&waiting, &mut after, w.now, None);
            save(w, &after)?;
            let about = About {
                company: Some(&after.company),
                ticket: Some(&after.id),
                run: None,
            };
            let facts = json!({ "changes": differences(&waiting, &after), "blocker": done.id });
            w.note("ticket.changed", about, facts)?;
        }
        let woken = match &after.assignee_agent {
            Some(agent) => {
                wakes::admit(w, Ask::about(agent, &after.id, Reason::BlockersResolved)).map(|_| ())
            }
            None => Ok(()),
        };
        w.actor = author;
        woken?;
    }
    Ok(())
}

/// A person who takes a ticket away from a run, or interrupts it, stops the run.
fn stop_run(
    w: &mut Writer<'_>,
    before: &Ticket,
    after: &Ticket,
    run: &str,
    interrupt: bool,
) -> Result<(), StoreError> {
    if !matches!(w.actor, Actor::User { .. }) {
        return Ok(());
    }
    let taken = before.assignee_agent != after.assignee_agent;
    let closed = after.status.is_terminal() && !before.status.is_terminal();
    if taken || closed || interrupt {
        runs::ask_cancel(w, run)?;
    }
    Ok(())
}

/// Tells `null` (clear it) from absent (leave it).
fn given<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Option<String>>, D::Error> {
    Option::<String>::deserialize(d).map(Some)
}
