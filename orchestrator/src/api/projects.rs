//! Projects of a company: everybody of it reads them, people make them.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde_json::Value;

use super::auth::{Caller, Person};
use super::body::Body;
use super::failure::Failure;
use super::{Shared, render};
use crate::store::agents;
use crate::store::projects::{self, ProjectPatch};

/// `GET /api/companies/{company}/projects`
pub(super) async fn list(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(company): Path<String>,
) -> Result<Json<Value>, Failure> {
    let body = board
        .store
        .read(move |db| {
            let company = agents::company(db, &company, actor.company())?;
            let all = projects::list(db, &company.id)?;
            Ok(all.iter().map(render::project).collect())
        })
        .await?;
    Ok(Json(body))
}

/// `POST /api/companies/{company}/projects`
pub(super) async fn create(
    State(board): State<Shared>,
    Person(actor): Person,
    Path(company): Path<String>,
    Body(new): Body<ProjectPatch>,
) -> Result<(StatusCode, Json<Value>), Failure> {
    let made = board
        .store
        .write(actor, move |w| {
            let company = agents::company(w, &company, None)?;
            projects::create(w, &company.id, &new)
        })
        .await?;
    Ok((StatusCode::CREATED, Json(render::project(&made))))
}

/// `GET /api/projects/{project}`
pub(super) async fn show(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    let found = board
        .store
        .read(move |db| projects::get(db, &id, actor.company()))
        .await?;
    Ok(Json(render::project(&found)))
}

/// `PATCH /api/projects/{project}`
pub(super) async fn change(
    State(board): State<Shared>,
    Person(actor): Person,
    Path(id): Path<String>,
    Body(patch): Body<ProjectPatch>,
) -> Result<Json<Value>, Failure> {
    let changed = board
        .store
        .write(actor, move |w| projects::change(w, &id, &patch))
        .await?;
    Ok(Json(render::project(&changed)))
}
