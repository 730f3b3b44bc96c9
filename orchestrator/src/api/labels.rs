//! Labels of a company: everybody of it reads them, people make them.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde_json::Value;

use super::auth::{Caller, Person};
use super::body::Body;
use super::failure::Failure;
use super::{Shared, render};
use crate::store::agents;
use crate::store::labels::{self, NewLabel};

/// `GET /api/companies/{company}/labels`
pub(super) async fn list(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(company): Path<String>,
) -> Result<Json<Value>, Failure> {
    let body = board
        .store
        .read(move |db| {
            let company = agents::company(db, &company, actor.company())?;
            let all = labels::list(db, &company.id)?;
            Ok(all.iter().map(render::label).collect())
        })
        .await?;
    Ok(Json(body))
}

/// `POST /api/companies/{company}/labels`
pub(super) async fn create(
    State(board): State<Shared>,
    Person(actor): Person,
    Path(company): Path<String>,
    Body(new): Body<NewLabel>,
) -> Result<(StatusCode, Json<Value>), Failure> {
    let made = board
        .store
        .write(actor, move |w| {
            let company = agents::company(w, &company, None)?;
            labels::create(w, &company.id, &new)
        })
        .await?;
    Ok((StatusCode::CREATED, Json(render::label(&made))))
}

/// `DELETE /api/labels/{label}`: answers with the label that was.
pub(super) async fn remove(
    State(board): State<Shared>,
    Person(actor): Person,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    let removed = board
        .store
        .write(actor, move |w| labels::remove(w, &id))
        .await?;
    Ok(Json(render::label(&removed)))
}
