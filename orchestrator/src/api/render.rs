//! Rows as JSON: camelCase, ISO-8601 times, the field names clients know.

mod approval;
mod asked;
mod output;
mod plan;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::model::time::{Millis, iso};
use crate::model::{Agent, Comment, Company, Document, Refusal, Revision, Run, Ticket};
use crate::store::{StoreError, agents, labels, runs, tickets};

pub(super) use approval::{approval, remark};
pub(super) use asked::interaction;
pub(super) use output::{attachment, work_product};
pub(super) use plan::{goal, goal_of, label, project, project_of};

fn ticket(ticket: &Ticket, execution: Option<&str>) -> Value {
    let unblock: Option<Value> = ticket
        .unblock
        .as_deref()
        .and_then(|text| serde_json::from_str(text).ok());
    json!({
        "id": ticket.id,
        "companyId": ticket.company,
        "issueNumber": ticket.number,
        "identifier": ticket.identifier,
        "title": ticket.title,
        "description": ticket.description,
        "status": ticket.status,
        "priority": ticket.priority,
        "workMode": "standard",
        "assigneeAgentId": ticket.assignee_agent,
        "assigneeUserId": ticket.assignee_user,
        "parentId": ticket.parent,
        "projectId": ticket.project,
        "goalId": ticket.goal,
        "billingCode": ticket.billing_code,
        "unblockDescriptor": unblock,
        "checkoutRunId": ticket.checkout_run,
        "executionRunId": execution,
        "createdByAgentId": ticket.created_by_agent,
        "createdByUserId": ticket.created_by_user,
        "createdByRunId": ticket.created_by_run,
        "startedAt": ticket.started_at.map(iso),
        "completedAt": ticket.completed_at.map(iso),
        "cancelledAt": ticket.cancelled_at.map(iso),
        "createdAt": iso(ticket.created_at),
        "updatedAt": iso(ticket.updated_at),
    })
}

/// The row with its live run and its labels.
pub(super) fn row(db: &Connection, row: &Ticket) -> Result<Value, StoreError> {
    let mut body = ticket(row, tickets::live_run(db, &row.id)?.as_deref());
    let labels = labels::of_ticket(db, &row.id)?;
    body["labelIds"] = labels.iter().map(|label| label.id.as_str()).collect();
    body["labels"] = labels.iter().map(label).collect();
    Ok(body)
}

/// The row with everything around it.
pub(super) fn whole(db: &Connection, it: &Ticket) -> Result<Value, StoreError> {
    let mut body = row(db, it)?;
    body["ancestors"] = briefs(&tickets::ancestors(db, it)?);
    body["blockedBy"] = briefs(&tickets::blockers(db, &it.id)?);
    body["blocks"] = briefs(&tickets::blocked_by_it(db, &it.id)?);
    body["project"] = project_of(db, it)?;
    body["goal"] = goal_of(db, it)?;
    for empty in ["executionPolicy", "executionState"] {
        body[empty] = Value::Null;
    }
    body["relatedWork"] = json!({ "inbound": [], "outbound": [] });
    Ok(body)
}

pub(super) fn briefs(list: &[Ticket]) -> Value {
    list.iter()
        .map(|t| {
            json!({ "id": t.id, "identifier": t.identifier, "title": t.title, "status": t.status,
                    "priority": t.priority, "assigneeAgentId": t.assignee_agent,
                    "assigneeUserId": t.assignee_user })
        })
        .collect()
}

pub(super) fn comment(comment: &Comment) -> Value {
    json!({
        "id": comment.id,
        "issueId": comment.ticket,
        "authorType": comment.author_type,
        "authorAgentId": comment.author_agent,
        "authorUserId": comment.author_user,
        "createdByRunId": comment.run,
        "body": comment.body,
        "presentation": null,
        "metadata": null,
        "createdAt": iso(comment.created_at),
        "updatedAt": iso(comment.created_at),
    })
}

pub(super) fn document(document: &Document) -> Value {
    json!({
        "id": document.id,
        "issueId": document.ticket,
        "key": document.key,
        "title": document.latest.title,
        "format": document.latest.format,
        "body": document.latest.body,
        "latestRevisionId": document.latest.id,
        "latestRevisionNumber": document.latest.number,
        "createdAt": iso(document.created_at),
        "updatedAt": iso(document.latest.created_at),
    })
}

pub(super) fn revision(revision: &Revision) -> Value {
    json!({
        "id": revision.id,
        "revisionNumber": revision.number,
        "title": revision.title,
        "format": revision.format,
        "body": revision.body,
        "changeSummary": revision.summary,
        "createdByAgentId": revision.author_agent,
        "createdByUserId": revision.author_user,
        "createdByRunId": revision.run,
        "createdAt": iso(revision.created_at),
    })
}

pub(super) fn company(company: &Company) -> Value {
    json!({
        "id": company.id,
        "name": company.name,
        "issuePrefix": company.prefix,
        "status": "active",
        "createdAt": iso(company.created_at),
    })
}

/// An agent as others see it. How it is started is for people alone.
pub(super) fn agent(agent: &Agent, person: bool) -> Value {
    let may = agent.may();
    let mut body = json!({
        "id": agent.id,
        "companyId": agent.company,
        "name": agent.name,
        "role": agent.role,
        "title": agent.title,
        "status": agent.status,
        "reportsTo": agent.reports_to,
        "adapterType": agent.adapter.kind(),
        "profile": agent.profile,
        "budgetMonthlyCents": 0,
        "spentMonthlyCents": 0,
        "permissions": { "canCreateAgents": false, "mayCreate": may.create, "mayAssign": may.assign,
                         "mayWake": may.wake, "canAssignTasks": may.assign },
        "createdAt": iso(agent.created_at),
        "updatedAt": iso(agent.updated_at),
    });
    if person {
        body["adapterConfig"] = json!(agent.adapter);
    }
    body
}

/// The agents above an agent, nearest first.
pub(super) fn chain_of_command(db: &Connection, agent: &Agent) -> Result<Value, StoreError> {
    let mut chain = Vec::new();
    let mut next = agent.reports_to.clone();
    while let Some(id) = next {
        if chain.len() == 16 {
            break;
        }
        match agents::get(db, &id, Some(&agent.company)) {
            Ok(boss) => {
                chain.push(json!({ "id": boss.id, "name": boss.name, "role": boss.role,
                                   "title": boss.title }));
                next = boss.reports_to;
            }
            Err(StoreError::Refused(Refusal { status: 404, .. })) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(Value::Array(chain))
}

pub(super) fn run(run: &Run) -> Value {
    let time = |at: Option<Millis>| at.map(iso);
    json!({
        "id": run.id,
        "companyId": run.company,
        "agentId": run.agent,
        "issueId": run.ticket,
        "wakeId": run.wake,
        "status": run.status,
        "live": run.status.is_live(),
        "corrective": run.corrective,
        "cancelRequested": run.cancel,
        "exit": run.outcome.as_ref().and_then(|o| o.exit),
        "reason": run.outcome.as_ref().map(|o| o.reason.clone()),
        "createdAt": iso(run.created_at),
        "startedAt": time(run.started_at),
        "finishedAt": time(run.ended_at),
    })
}

/// The live run of a ticket, briefly.
pub(super) fn active_run(db: &Connection, id: &str) -> Result<Value, StoreError> {
    match tickets::live_run(db, id)? {
        Some(id) => {
            let live = runs::get(db, &id)?;
            Ok(json!({ "id": live.id, "status": live.status, "agentId": live.agent }))
        }
        None => Ok(Value::Null),
    }
}
