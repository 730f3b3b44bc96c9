//! Who am I, what is mine to do, who else is there.

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use super::auth::Caller;
use super::failure::Failure;
use super::{Shared, render};
use crate::model::time::iso;
use crate::model::{Actor, Refusal};
use crate::store::{agents, costs, tickets};

/// `GET /api/agents/me`
pub(super) async fn me(
    State(board): State<Shared>,
    Caller(actor): Caller,
) -> Result<Json<Value>, Failure> {
    let (id, now) = (own_id(&actor)?, board.store.now());
    let body = board
        .store
        .read(move |db| {
            let agent = agents::get(db, &id, None)?;
            let mut body = render::agent(&agent, false);
            body["spentMonthlyCents"] = json!(costs::of_agent_this_month(db, &agent.id, now)?);
            let budgets = costs::budgets(db, &agent.company, &agent.id, now)?;
            let own = budgets.iter().find(|it| it.whose == "the agent");
            body["budgetMonthlyCents"] = json!(own.map_or(0, |it| it.limit));
            body["chainOfCommand"] = render::chain_of_command(db, &agent)?;
            body["orgChainHealth"] = json!({ "status": "healthy" });
            Ok(body)
        })
        .await?;
    Ok(Json(body))
}

/// `GET /api/agents/me/inbox-lite`
pub(super) async fn inbox(
    State(board): State<Shared>,
    Caller(actor): Caller,
) -> Result<Json<Value>, Failure> {
    let id = own_id(&actor)?;
    let body = board
        .store
        .read(move |db| {
            let mut list = Vec::new();
            for ticket in tickets::inbox(db, &id)? {
                let unresolved = tickets::unresolved_blockers(db, &ticket.id)?;
                let ids: Vec<&str> = unresolved.iter().map(|b| b.id.as_str()).collect();
                list.push(json!({
                    "id": ticket.id,
                    "identifier": ticket.identifier,
                    "title": ticket.title,
                    "status": ticket.status,
                    "priority": ticket.priority,
                    "projectId": ticket.project,
                    "goalId": ticket.goal,
                    "parentId": ticket.parent,
                    "updatedAt": iso(ticket.updated_at),
                    "activeRun": render::active_run(db, &ticket.id)?,
                    "activeRecoveryAction": null,
                    "dependencyReady": ids.is_empty(),
                    "unresolvedBlockerCount": ids.len(),
                    "unresolvedBlockerIssueIds": ids,
                }));
            }
            Ok(Value::Array(list))
        })
        .await?;
    Ok(Json(body))
}

/// `GET /api/agents/{id}`
pub(super) async fn show(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    let body = board
        .store
        .read(move |db| {
            let agent = agents::get(db, &id, actor.company())?;
            let mut body = render::agent(&agent, actor.agent().is_none());
            body["chainOfCommand"] = render::chain_of_command(db, &agent)?;
            Ok(body)
        })
        .await?;
    Ok(Json(body))
}

/// `GET /api/companies/{company}/agents`
pub(super) async fn list(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(company): Path<String>,
) -> Result<Json<Value>, Failure> {
    let body = board
        .store
        .read(move |db| {
            let company = agents::company(db, &company, actor.company())?;
            let all = agents::list(db, Some(&company.id))?;
            Ok(all
                .iter()
                .map(|a| render::agent(a, actor.agent().is_none()))
                .collect())
        })
        .await?;
    Ok(Json(body))
}

fn own_id(actor: &Actor) -> Result<String, Refusal> {
    let id = actor.agent().map(str::to_owned);
    id.ok_or_else(|| Refusal::unauthorised("only an agent's run has a `me`"))
}
