//! Comments of a ticket.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use super::auth::Caller;
use super::body::Body;
use super::failure::Failure;
use super::tickets::number;
use super::{Shared, render};
use crate::model::Refusal;
use crate::store::comments::{self, NewComment, Page};
use crate::store::tickets;

/// What `POST` takes.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Written {
    body: String,
    reopen: bool,
    resume: bool,
    interrupt: bool,
    client_request_id: Option<String>,
}

/// `GET /api/issues/{id}/comments?after=&order=&limit=`; `after` itself is left out.
pub(super) async fn list(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<Value>, Failure> {
    let ascending = match query.get("order").map(String::as_str) {
        Some("asc") => true,
        Some("desc") | None => false,
        Some(other) => {
            return Err(
                Refusal::invalid(format!("order is `{other}`, must be asc or desc")).into(),
            );
        }
    };
    let after = query
        .get("after")
        .or_else(|| query.get("afterCommentId"))
        .cloned();
    let limit = number(&query, "limit", 500, 1..=500)?;
    let page = Page {
        after,
        ascending,
        limit,
    };
    let body = board
        .store
        .read(move |db| {
            let ticket = tickets::get(db, &id, actor.company())?;
            let list = comments::list(db, &ticket.id, &page)?;
            Ok(list.iter().map(render::comment).collect())
        })
        .await?;
    Ok(Json(body))
}

/// `GET /api/issues/{id}/comments/{comment}`
pub(super) async fn show(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path((id, comment)): Path<(String, String)>,
) -> Result<Json<Value>, Failure> {
    let body = board
        .store
        .read(move |db| {
            let ticket = tickets::get(db, &id, actor.company())?;
            Ok(render::comment(&comments::get(db, &ticket.id, &comment)?))
        })
        .await?;
    Ok(Json(body))
}

/// `POST /api/issues/{id}/comments`
pub(super) async fn post(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
    Body(written): Body<Written>,
) -> Result<(StatusCode, Json<Value>), Failure> {
    let new = NewComment {
        body: written.body,
        client_key: written.client_request_id,
    };
    let reopen = written.reopen || written.resume;
    let body = board
        .store
        .write(actor, move |w| {
            let comment = comments::post(w, &id, new, reopen, written.interrupt)?;
            Ok(render::comment(&comment))
        })
        .await?;
    Ok((StatusCode::CREATED, Json(body)))
}
