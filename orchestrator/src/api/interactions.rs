//! Interactions of a ticket: asking, answering, taking back.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde_json::Value;

use super::auth::Caller;
use super::body::Body;
use super::failure::Failure;
use super::{Shared, render};
use crate::model::{Actor, Refusal};
use crate::store::interactions::{self, Answer, NewInteraction};
use crate::store::tickets;

/// `GET /api/issues/{issue}/interactions`
pub(super) async fn list(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    let body = board
        .store
        .read(move |db| {
            let ticket = tickets::get(db, &id, actor.company())?;
            let all = interactions::list(db, &ticket.id)?;
            Ok(all
                .iter()
                .map(|it| render::interaction(it, &ticket))
                .collect())
        })
        .await?;
    Ok(Json(body))
}

/// `GET /api/issues/{issue}/interactions/{interaction}`
pub(super) async fn show(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path((id, interaction)): Path<(String, String)>,
) -> Result<Json<Value>, Failure> {
    let body = board
        .store
        .read(move |db| {
            let ticket = tickets::get(db, &id, actor.company())?;
            let it = interactions::get(db, &ticket.id, &interaction)?;
            Ok(render::interaction(&it, &ticket))
        })
        .await?;
    Ok(Json(body))
}

/// `POST /api/issues/{issue}/interactions`: 201, 200 for a repeat, 409 for another question under the
/// same key.
pub(super) async fn create(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
    Body(raw): Body<Value>,
) -> Result<(StatusCode, Json<Value>), Failure> {
    let (body, new) = board
        .store
        .write(actor, move |w| {
            let ticket = tickets::get(w, &id, w.actor.company())?;
            let new: NewInteraction = serde_json::from_value(raw)
                .map_err(|error| Refusal::invalid(format!("the body does not fit: {error}")))?;
            let (it, new) = interactions::create(w, &ticket.id, new)?;
            Ok((render::interaction(&it, &ticket), new))
        })
        .await?;
    let status = if new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, Json(body)))
}

/// `POST .../accept`
pub(super) async fn accept(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(ids): Path<(String, String)>,
    Body(body): Body<Value>,
) -> Result<Json<Value>, Failure> {
    answer(&board, actor, ids, Answer::Accept, body).await
}

/// `POST .../reject`
pub(super) async fn reject(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(ids): Path<(String, String)>,
    Body(body): Body<Value>,
) -> Result<Json<Value>, Failure> {
    answer(&board, actor, ids, Answer::Reject, body).await
}

/// `POST .../respond`
pub(super) async fn respond(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(ids): Path<(String, String)>,
    Body(body): Body<Value>,
) -> Result<Json<Value>, Failure> {
    answer(&board, actor, ids, Answer::Respond, body).await
}

/// `POST .../verdicts`
pub(super) async fn verdicts(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(ids): Path<(String, String)>,
    Body(body): Body<Value>,
) -> Result<Json<Value>, Failure> {
    answer(&board, actor, ids, Answer::Verdicts, body).await
}

/// `POST .../withdraw`
pub(super) async fn withdraw(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path((id, interaction)): Path<(String, String)>,
    Body(body): Body<Value>,
) -> Result<Json<Value>, Failure> {
    let body = board
        .store
        .write(actor, move |w| {
            let ticket = tickets::get(w, &id, w.actor.company())?;
            let reason = body["reason"].as_str();
            let it = interactions::withdraw(w, &ticket.id, &interaction, reason)?;
            Ok(render::interaction(&it, &ticket))
        })
        .await?;
    Ok(Json(body))
}

async fn answer(
    board: &Shared,
    actor: Actor,
    (id, interaction): (String, String),
    answer: Answer,
    body: Value,
) -> Result<Json<Value>, Failure> {
    let body = board
        .store
        .write(actor, move |w| {
            let ticket = tickets::get(w, &id, w.actor.company())?;
            let it = interactions::resolve(w, &ticket.id, &interaction, answer, &body)?;
            Ok(render::interaction(&it, &ticket))
        })
        .await?;
    Ok(Json(body))
}
