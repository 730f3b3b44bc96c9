//! Approvals: agents ask, people decide.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::auth::{Caller, Person};
use super::body::Body;
use super::failure::Failure;
use super::{Shared, render};
use crate::model::approval::{ApprovalKind, ApprovalStatus};
use crate::model::{Actor, Refusal};
use crate::store::agents;
use crate::store::approvals::{self, NewApproval, Verdict};

/// `GET /api/companies/{company}/approvals?status=`
pub(super) async fn list(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(company): Path<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<Value>, Failure> {
    let status = match query.get("status").filter(|word| !word.is_empty()) {
        Some(word) => Some(
            ApprovalStatus::parse(word)
                .ok_or_else(|| Refusal::invalid(format!("`{word}` is no status of approvals")))?,
        ),
        None => None,
    };
    let body = board
        .store
        .read(move |db| {
            let company = agents::company(db, &company, actor.company())?;
            let all = approvals::list(db, &company.id, status)?;
            Ok(all.iter().map(render::approval).collect())
        })
        .await?;
    Ok(Json(body))
}

/// `POST /api/companies/{company}/approvals`
pub(super) async fn create(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(company): Path<String>,
    Body(raw): Body<Value>,
) -> Result<(StatusCode, Json<Value>), Failure> {
    let made = asked(&board, actor, company, move || {
        serde_json::from_value(raw)
            .map_err(|error| Refusal::invalid(format!("the body does not fit: {error}")))
    })
    .await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// `POST /api/companies/{company}/agent-hires`: nobody is hired before a person approves it.
pub(super) async fn hire(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(company): Path<String>,
    Body(raw): Body<Value>,
) -> Result<(StatusCode, Json<Value>), Failure> {
    let made = asked(&board, actor, company, move || {
        let mut payload = raw;
        let issues = payload
            .as_object_mut()
            .and_then(|map| map.remove("sourceIssueIds"));
        let issue_ids = match issues {
            Some(list) => serde_json::from_value(list)
                .map_err(|_error| Refusal::invalid("sourceIssueIds must be a list of ids"))?,
            None => Vec::new(),
        };
        Ok(NewApproval {
            kind: ApprovalKind::Hire,
            payload,
            issue_ids,
        })
    })
    .await?;
    Ok((
        StatusCode::CREATED,
        Json(json!({ "agent": null, "approval": made })),
    ))
}

/// `GET /api/approvals/{approval}`
pub(super) async fn show(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    let found = board
        .store
        .read(move |db| approvals::get(db, &id, actor.company()))
        .await?;
    Ok(Json(render::approval(&found)))
}

/// `GET /api/approvals/{approval}/issues`
pub(super) async fn issues(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    let body = board
        .store
        .read(move |db| {
            let approval = approvals::get(db, &id, actor.company())?;
            let all = approvals::linked(db, &approval.id)?;
            all.iter()
                .map(|ticket| render::row(db, ticket))
                .collect::<Result<Value, _>>()
        })
        .await?;
    Ok(Json(body))
}

/// `GET /api/approvals/{approval}/comments`
pub(super) async fn comments(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    let body = board
        .store
        .read(move |db| {
            let approval = approvals::get(db, &id, actor.company())?;
            let all = approvals::comments(db, &approval.id)?;
            Ok(all.iter().map(render::remark).collect())
        })
        .await?;
    Ok(Json(body))
}

/// What a comment and a decision take.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Said {
    body: String,
    decision_note: Option<String>,
    fingerprint: Option<String>,
    payload: Option<Value>,
}

/// `POST /api/approvals/{approval}/comments`
pub(super) async fn comment(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
    Body(said): Body<Said>,
) -> Result<(StatusCode, Json<Value>), Failure> {
    let comment = board
        .store
        .write(actor, move |w| approvals::comment(w, &id, &said.body))
        .await?;
    Ok((StatusCode::CREATED, Json(render::remark(&comment))))
}

/// `POST /api/approvals/{approval}/approve`
pub(super) async fn approve(
    State(board): State<Shared>,
    Person(actor): Person,
    Path(id): Path<String>,
    Body(said): Body<Said>,
) -> Result<Json<Value>, Failure> {
    decided(&board, actor, id, Verdict::Approve, said).await
}

/// `POST /api/approvals/{approval}/reject`
pub(super) async fn reject(
    State(board): State<Shared>,
    Person(actor): Person,
    Path(id): Path<String>,
    Body(said): Body<Said>,
) -> Result<Json<Value>, Failure> {
    decided(&board, actor, id, Verdict::Reject, said).await
}

/// `POST /api/approvals/{approval}/request-revision`
pub(super) async fn revise(
    State(board): State<Shared>,
    Person(actor): Person,
    Path(id): Path<String>,
    Body(said): Body<Said>,
) -> Result<Json<Value>, Failure> {
    decided(&board, actor, id, Verdict::Revise, said).await
}

/// `POST /api/approvals/{approval}/resubmit`
pub(super) async fn resubmit(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
    Body(said): Body<Said>,
) -> Result<Json<Value>, Failure> {
    let again = board
        .store
        .write(actor, move |w| approvals::resubmit(w, &id, said.payload))
        .await?;
    Ok(Json(render::approval(&again)))
}

async fn asked(
    board: &Shared,
    actor: Actor,
    company: String,
    new: impl FnOnce() -> Result<NewApproval, Refusal> + Send + 'static,
) -> Result<Value, Failure> {
    let made = board
        .store
        .write(actor, move |w| {
            let company = agents::company(w, &company, w.actor.company())?;
            approvals::create(w, &company.id, &new()?)
        })
        .await?;
    Ok(render::approval(&made))
}

async fn decided(
    board: &Shared,
    actor: Actor,
    id: String,
    verdict: Verdict,
    said: Said,
) -> Result<Json<Value>, Failure> {
    let made = board
        .store
        .write(actor, move |w| {
            let (note, seen) = (said.decision_note.as_deref(), said.fingerprint.as_deref());
            approvals::decide(w, &id, verdict, note, seen)
        })
        .await?;
    Ok(Json(render::approval(&made)))
}
