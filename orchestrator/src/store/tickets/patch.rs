//! What a client may change of a ticket, and the ticket as it would be then.

use serde::Deserialize;
use serde_json::Value;

use super::{nesting, unresolved_blockers};
use crate::model::agent::May;
use crate::model::{Actor, AgentStatus, Priority, Refusal, Status, Ticket, given, text};
use crate::store::{StoreError, Writer, agents, goals, projects};

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
    /// A project of the company.
    #[serde(deserialize_with = "given")]
    pub project_id: Option<Option<String>>,
    /// A goal of the company.
    #[serde(deserialize_with = "given")]
    pub goal_id: Option<Option<String>>,
    /// Kept.
    #[serde(deserialize_with = "given")]
    pub billing_code: Option<Option<String>>,
    /// Replaces the labels; ids or names.
    pub label_ids: Option<Vec<String>>,
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

/// The ticket with the patch applied, its status aside.
pub(super) fn edited(w: &Writer<'_>, before: &Ticket, patch: &Patch) -> Result<Ticket, StoreError> {
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
        may_give(
            w,
            before.assignee_agent.as_deref(),
            after.assignee_agent.as_deref(),
        )?;
        if after.assignee_agent.is_some() && patch.assignee_user_id.is_none() {
            after.assignee_user = None;
        }
    }
    if after.assignee_agent.is_some() && after.assignee_user.is_some() {
        return Err(Refusal::invalid("a ticket has one assignee: an agent or a person").into());
    }
    if let Some(parent) = &patch.parent_id {
        after.parent = match parent {
            Some(reference) => Some(nesting::new_parent(w, before, reference)?),
            None => None,
        };
    }
    if let Some(project) = &patch.project_id {
        after.project = project_of(w, &before.company, project.as_deref())?;
    }
    if let Some(goal) = &patch.goal_id {
        after.goal = goal_of(w, &before.company, goal.as_deref())?;
    }
    if let Some(code) = &patch.billing_code {
        after.billing_code = label("billingCode", code)?;
    }
    Ok(after)
}

/// The status the patch asks for, or the one that follows from the rest of it.
pub(super) fn next_status(
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
pub(super) fn asked_again(w: &Writer<'_>, after: &Ticket, patch: &Patch) -> bool {
    matches!(w.actor, Actor::User { .. })
        && after.assignee_agent.is_some()
        && matches!(patch.assignee_agent_id, Some(Some(_)))
}

/// Whether whoever acts may do this. People and the board may.
pub(super) fn may(
    w: &Writer<'_>,
    code: &'static str,
    allowed: fn(May) -> bool,
) -> Result<(), StoreError> {
    let Some(agent) = w.actor.agent() else {
        return Ok(());
    };
    if allowed(agents::get(w, agent, None)?.may()) {
        return Ok(());
    }
    let error = match code {
        "may_create" => {
            "this agent creates no tickets: say in a comment what is needed, or suggest tickets with a \
             suggest_tasks interaction; do not try again"
        }
        _ => {
            "this agent gives no tickets to other agents: leave it to a person (assigneeUserId), or say \
             in a comment who should have it; do not try again"
        }
    };
    Err(Refusal::forbidden(code, error).into())
}

/// Whether whoever acts may give a ticket to this agent. Taking one is not giving it.
pub(super) fn may_give(
    w: &Writer<'_>,
    before: Option<&str>,
    after: Option<&str>,
) -> Result<(), StoreError> {
    if after.is_none() || after == before || after == w.actor.agent() {
        return Ok(());
    }
    may(w, "may_assign", |may| may.assign)
}

/// Resolves a project within the company.
pub(super) fn project_of(
    w: &Writer<'_>,
    company: &str,
    id: Option<&str>,
) -> Result<Option<String>, StoreError> {
    id.map(|id| Ok(projects::get(w, id, Some(company))?.id))
        .transpose()
}

/// Resolves a goal within the company.
pub(super) fn goal_of(
    w: &Writer<'_>,
    company: &str,
    id: Option<&str>,
) -> Result<Option<String>, StoreError> {
    id.map(|id| Ok(goals::get(w, id, Some(company))?.id))
        .transpose()
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
