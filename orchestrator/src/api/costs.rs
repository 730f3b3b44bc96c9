//! Costs: reporting them, and their sums.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use rusqlite::Connection;
use serde_json::Value;

use super::Shared;
use super::auth::Caller;
use super::body::Body;
use super::failure::Failure;
use crate::model::{Actor, Refusal, time};
use crate::store::costs::{self, NewCost, Span};
use crate::store::{StoreError, agents};

type Parameters = Query<HashMap<String, String>>;

/// `POST /api/companies/{company}/cost-events`
pub(super) async fn record(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(company): Path<String>,
    Body(raw): Body<Value>,
) -> Result<(StatusCode, Json<Value>), Failure> {
    let made = board
        .store
        .write(actor, move |w| {
            let within = w.actor.company().map(str::to_owned);
            let company = agents::company(w, &company, within.as_deref())?;
            let new: NewCost = serde_json::from_value(raw)
                .map_err(|error| Refusal::invalid(format!("the body does not fit: {error}")))?;
            costs::record(w, &company.id, new)
        })
        .await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// `GET /api/companies/{company}/costs/summary?from=&to=`
pub(super) async fn summary(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(company): Path<String>,
    Query(query): Parameters,
) -> Result<Json<Value>, Failure> {
    sums(&board, actor, company, &query, costs::summary).await
}

/// `GET /api/companies/{company}/costs/by-agent?from=&to=`
pub(super) async fn by_agent(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(company): Path<String>,
    Query(query): Parameters,
) -> Result<Json<Value>, Failure> {
    sums(&board, actor, company, &query, |db, company, span| {
        Ok(Value::Array(costs::by_agent(db, company, span)?))
    })
    .await
}

/// `GET /api/companies/{company}/costs/by-project?from=&to=`
pub(super) async fn by_project(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(company): Path<String>,
    Query(query): Parameters,
) -> Result<Json<Value>, Failure> {
    sums(&board, actor, company, &query, |db, company, span| {
        Ok(Value::Array(costs::by_project(db, company, span)?))
    })
    .await
}

async fn sums(
    board: &Shared,
    actor: Actor,
    company: String,
    query: &HashMap<String, String>,
    of: fn(&Connection, &str, Span) -> Result<Value, StoreError>,
) -> Result<Json<Value>, Failure> {
    let at = |name: &str| match query.get(name).filter(|text| !text.is_empty()) {
        Some(text) => time::parse(text)
            .map(Some)
            .ok_or_else(|| Refusal::invalid(format!("{name} must be an RFC 3339 time"))),
        None => Ok(None),
    };
    let span = Span {
        from: at("from")?,
        to: at("to")?,
    };
    let body = board
        .store
        .read(move |db| {
            let company = agents::company(db, &company, actor.company())?;
            of(db, &company.id, span)
        })
        .await?;
    Ok(Json(body))
}
