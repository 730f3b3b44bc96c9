//! What only people do: companies, agents, wakes; and how they see why things happen.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::auth::{Caller, Person};
use super::body::Body;
use super::failure::Failure;
use super::tickets::number;
use super::{Shared, render};
use crate::model::agent::{AgentPatch, NewAgent};
use crate::model::time::iso;
use crate::model::{Refusal, given};
use crate::scheduler::admission::Admission;
use crate::store::{agents, costs, journal, tickets, wakes};
use crate::timeline;

/// What creating a company takes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NewCompany {
    name: String,
    #[serde(default)]
    issue_prefix: Option<String>,
}

/// `GET /api/companies`; a run sees its own.
pub(super) async fn companies(
    State(board): State<Shared>,
    Caller(actor): Caller,
) -> Result<Json<Value>, Failure> {
    let body = board
        .store
        .read(move |db| {
            let all = agents::companies(db)?;
            let seen = all
                .iter()
                .filter(|c| actor.company().is_none_or(|own| own == c.id));
            Ok(seen.map(render::company).collect())
        })
        .await?;
    Ok(Json(body))
}

/// `GET /api/companies/{company}`
pub(super) async fn company(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(company): Path<String>,
) -> Result<Json<Value>, Failure> {
    let body = board
        .store
        .read(move |db| {
            Ok(render::company(&agents::company(
                db,
                &company,
                actor.company(),
            )?))
        })
        .await?;
    Ok(Json(body))
}

/// `POST /api/companies`
pub(super) async fn create_company(
    State(board): State<Shared>,
    Person(actor): Person,
    Body(new): Body<NewCompany>,
) -> Result<(StatusCode, Json<Value>), Failure> {
    let company = board
        .store
        .write(actor, move |w| {
            agents::create_company(w, &new.name, new.issue_prefix.as_deref())
        })
        .await?;
    Ok((StatusCode::CREATED, Json(render::company(&company))))
}

/// What may be changed of a company.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CompanyPatch {
    #[serde(deserialize_with = "given")]
    budget_monthly_cents: Option<Option<i64>>,
}

/// `PATCH /api/companies/{company}`: what it may spend in a month; `null` takes the bound away.
pub(super) async fn change_company(
    State(board): State<Shared>,
    Person(actor): Person,
    Path(company): Path<String>,
    Body(patch): Body<CompanyPatch>,
) -> Result<Json<Value>, Failure> {
    let company = board
        .store
        .write(actor, move |w| {
            let company = agents::company(w, &company, None)?;
            if let Some(cents) = patch.budget_monthly_cents {
                costs::set_company_budget(w, &company.id, cents)?;
            }
            Ok(company)
        })
        .await?;
    Ok(Json(render::company(&company)))
}

/// `POST /api/companies/{company}/agents`
pub(super) async fn create_agent(
    State(board): State<Shared>,
    Person(actor): Person,
    Path(company): Path<String>,
    Body(new): Body<NewAgent>,
) -> Result<(StatusCode, Json<Value>), Failure> {
    let agent = board
        .store
        .write(actor, move |w| {
            let company = agents::company(w, &company, None)?;
            agents::create(w, &company.id, new)
        })
        .await?;
    Ok((StatusCode::CREATED, Json(render::agent(&agent, true))))
}

/// `PATCH /api/agents/{id}`: pause, resume, terminate; other settings.
pub(super) async fn change_agent(
    State(board): State<Shared>,
    Person(actor): Person,
    Path(id): Path<String>,
    Body(raw): Body<Value>,
) -> Result<Json<Value>, Failure> {
    let patch: AgentPatch = serde_json::from_value(raw)
        .map_err(|error| Refusal::invalid(format!("the body does not fit: {error}")))?;
    let agent = board
        .store
        .write(actor, move |w| agents::change(w, &id, patch))
        .await?;
    Ok(Json(render::agent(&agent, true)))
}

/// What a wake takes. Other fields of the contract are accepted and ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WakeUp {
    issue_id: Option<String>,
    payload: Value,
}

/// `POST /api/agents/{id}/wakeup`: 202 with what became of it.
pub(super) async fn wake(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
    Body(wake): Body<WakeUp>,
) -> Result<(StatusCode, Json<Value>), Failure> {
    if wake.payload.to_string().len() > 16 * 1024 {
        return Err(Refusal::invalid("payload is longer than 16 KiB").into());
    }
    let body = board
        .store
        .write(actor, move |w| {
            let agent = agents::get(w, &id, w.actor.company())?;
            if w.actor.agent().is_some_and(|own| own != agent.id) {
                return Err(Refusal::forbidden(
                    "wake_other_agent",
                    "an agent may only invoke itself",
                )
                .into());
            }
            let named = wake
                .issue_id
                .or_else(|| wake.payload["issueId"].as_str().map(str::to_owned));
            let ticket = match named {
                Some(id) => Some(tickets::get(w, &id, Some(&agent.company))?.id),
                None => None,
            };
            Ok(
                match wakes::on_demand(w, &agent.id, ticket, wake.payload)? {
                    Admission::Queue => json!({ "status": "queued" }),
                    Admission::MergeInto(into) => json!({ "status": "merged", "wakeId": into }),
                    Admission::MergeIntoRun(run) => json!({ "status": "merged", "runId": run }),
                    Admission::Ask => json!({ "status": "waits_for_approval" }),
                    Admission::Refuse { gate, fact } => {
                        json!({ "status": "skipped", "gate": gate, "reason": fact })
                    }
                },
            )
        })
        .await?;
    Ok((StatusCode::ACCEPTED, Json(body)))
}

/// `GET /api/companies/{company}/activity?limit=`
pub(super) async fn activity(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(company): Path<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<Value>, Failure> {
    let limit = number(&query, "limit", 100, 1..=500)?;
    let body = board
        .store
        .read(move |db| {
            let company = agents::company(db, &company, actor.company())?;
            let list = journal::of_company(db, &company.id, limit)?;
            Ok(list
                .iter()
                .map(|e| {
                    json!({ "seq": e.seq, "createdAt": iso(e.at), "action": e.kind,
                            "actor": e.actor, "issueId": e.ticket, "runId": e.run,
                            "details": e.facts })
                })
                .collect())
        })
        .await?;
    Ok(Json(body))
}

/// `GET /api/anchors?limit=`: checkpoints of the gate's audit log, oldest first. `limit` does not leave
/// out the last one of a log that another was begun in place of.
pub(super) async fn anchors(
    State(board): State<Shared>,
    _person: Person,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<Value>, Failure> {
    let limit = number(&query, "limit", 10_000, 1..=100_000)?;
    let body = board
        .store
        .read(move |db| {
            let shown = |at, facts: &Value| {
                json!({ "anchoredAt": iso(at), "log": crate::anchor::log_of(facts),
                        "seq": facts["seq"], "statement": facts["statement"],
                        "key": facts["key"], "signature": facts["signature"] })
            };
            let list = journal::of_kind(db, crate::anchor::KIND, limit)?;
            let former = journal::of_kind(db, crate::anchor::FELL_BACK, limit)?;
            let former = former
                .iter()
                .filter(|e| e.facts["former"]["statement"].is_string())
                .map(|e| {
                    shown(
                        e.facts["formerAt"].as_i64().unwrap_or(e.at),
                        &e.facts["former"],
                    )
                });
            let list = list.iter().map(|e| shown(e.at, &e.facts));
            Ok(former.chain(list).collect())
        })
        .await?;
    Ok(Json(body))
}

/// `GET /api/issues/{id}/timeline`
pub(super) async fn timeline(
    State(board): State<Shared>,
    _person: Person,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    Ok(Json(
        timeline::of_ticket(&board.store, &board.gate, &id).await?,
    ))
}

/// `GET /api/issues/{id}/why`: every gate between this ticket and a run, with its fact.
pub(super) async fn why(
    State(board): State<Shared>,
    Person(actor): Person,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    let readiness = board.gate.readiness().await;
    let (now, slices) = (board.store.now(), Arc::clone(&board.slices));
    let body = board
        .store
        .read(move |db| {
            timeline::why(
                db,
                &tickets::get(db, &id, actor.company())?,
                &slices,
                readiness,
                now,
            )
        })
        .await?;
    Ok(Json(body))
}
