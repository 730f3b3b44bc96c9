//! A company at a glance: the dashboard, and who reports to whom.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Map, Value, json};

use super::Shared;
use super::auth::Caller;
use super::failure::Failure;
use crate::model::approval::ApprovalStatus;
use crate::model::{Agent, AgentStatus, Status};
use crate::store::costs::{self, Span};
use crate::store::{agents, approvals, runs, tickets};

/// How deep a tree of agents is shown.
const DEPTH: usize = 16;

/// `GET /api/companies/{company}/dashboard`
pub(super) async fn dashboard(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(company): Path<String>,
) -> Result<Json<Value>, Failure> {
    let now = board.store.now();
    let body = board
        .store
        .read(move |db| {
            let company = agents::company(db, &company, actor.company())?;
            let all = agents::list(db, Some(&company.id))?;
            let of = |status| all.iter().filter(|agent| agent.status == status).count();
            let holding = runs::holding(db)?;
            let live = holding
                .iter()
                .filter(|run| run.company == company.id && run.status.is_live());
            let counts: HashMap<Status, i64> = tickets::counts(db, &company.id)?;
            let mut tasks = Map::new();
            for status in Status::ALL {
                let count = counts.get(status).copied().unwrap_or(0);
                tasks.insert(status.as_str().to_owned(), json!(count));
            }
            let open: i64 = counts
                .iter()
                .filter(|(status, _)| !status.is_terminal())
                .map(|(_, count)| count)
                .sum();
            tasks.insert("open".to_owned(), json!(open));
            let mut spent = 0;
            for agent in &all {
                spent += costs::of_agent_this_month(db, &agent.id, now)?;
            }
            let waiting = approvals::list(db, &company.id, Some(ApprovalStatus::Pending))?;
            let ever = costs::summary(db, &company.id, Span::default())?;
            Ok(json!({
                "companyId": company.id,
                "agents": { "active": of(AgentStatus::Active), "paused": of(AgentStatus::Paused),
                            "terminated": of(AgentStatus::Terminated), "running": live.count() },
                "tasks": tasks,
                "costs": { "monthSpendCents": spent, "monthBudgetCents": 0,
                           "monthUtilizationPercent": 0, "totalSpendCents": ever["spendCents"] },
                "pendingApprovals": waiting.len(),
            }))
        })
        .await?;
    Ok(Json(body))
}

/// `GET /api/companies/{company}/org`: trees of agents, by who reports to whom.
pub(super) async fn org(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(company): Path<String>,
) -> Result<Json<Value>, Failure> {
    let body = board
        .store
        .read(move |db| {
            let company = agents::company(db, &company, actor.company())?;
            let mut all = agents::list(db, Some(&company.id))?;
            all.retain(|agent| agent.status != AgentStatus::Terminated);
            let there = |id: &String| all.iter().any(|agent| agent.id == *id);
            let tops = all
                .iter()
                .filter(|agent| !agent.reports_to.as_ref().is_some_and(there));
            Ok(tops.map(|agent| tree(agent, &all, DEPTH)).collect())
        })
        .await?;
    Ok(Json(body))
}

fn tree(agent: &Agent, all: &[Agent], depth: usize) -> Value {
    let beneath = all
        .iter()
        .filter(|other| depth > 0 && other.reports_to.as_ref() == Some(&agent.id));
    let reports: Vec<Value> = beneath.map(|other| tree(other, all, depth - 1)).collect();
    json!({ "id": agent.id, "name": agent.name, "role": agent.role, "title": agent.title,
            "status": agent.status, "reports": reports })
}
