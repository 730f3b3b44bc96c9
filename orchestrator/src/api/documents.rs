//! Documents of a ticket.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde_json::Value;

use super::auth::Caller;
use super::body::Body;
use super::failure::Failure;
use super::tickets::belongings;
use super::{Shared, render};
use crate::store::documents::{self, NewRevision};
use crate::store::tickets;

/// `GET /api/issues/{id}/documents`
pub(super) async fn list(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    belongings(&board, actor, id, documents::list, render::document).await
}

/// `GET /api/issues/{id}/documents/{key}`
pub(super) async fn show(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path((id, key)): Path<(String, String)>,
) -> Result<Json<Value>, Failure> {
    let body = board
        .store
        .read(move |db| {
            let ticket = tickets::get(db, &id, actor.company())?;
            Ok(render::document(&documents::get(db, &ticket.id, &key)?))
        })
        .await?;
    Ok(Json(body))
}

/// `GET /api/issues/{id}/documents/{key}/revisions`
pub(super) async fn revisions(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path((id, key)): Path<(String, String)>,
) -> Result<Json<Value>, Failure> {
    let body = board
        .store
        .read(move |db| {
            let ticket = tickets::get(db, &id, actor.company())?;
            let all = documents::revisions(db, &ticket.id, &key)?;
            Ok(all.iter().map(render::revision).collect())
        })
        .await?;
    Ok(Json(body))
}

/// `PUT /api/issues/{id}/documents/{key}`: 201 for a new document, 200 for a new revision, 409 when
/// the base revision is missing or stale.
pub(super) async fn put(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path((id, key)): Path<(String, String)>,
    Body(new): Body<NewRevision>,
) -> Result<(StatusCode, Json<Value>), Failure> {
    let (body, created) = board
        .store
        .write(actor, move |w| {
            let (document, created) = documents::put(w, &id, &key, new)?;
            Ok((render::document(&document), created))
        })
        .await?;
    let status = if created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, Json(body)))
}
