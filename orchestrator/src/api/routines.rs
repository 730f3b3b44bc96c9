//! Routines of a company: everybody of it reads them, people make and start them.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::auth::{Caller, Person};
use super::body::Body;
use super::failure::Failure;
use super::{Shared, hooks};
use crate::model::hook::HookKind;
use crate::model::routine::{Routine, Slot};
use crate::model::time::iso;
use crate::store::agents;
use crate::store::routines::{self, RoutinePatch};

/// `GET /api/companies/{company}/routines`
pub(super) async fn list(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(company): Path<String>,
) -> Result<Json<Value>, Failure> {
    let body = board
        .store
        .read(move |db| {
            let company = agents::company(db, &company, actor.company())?;
            Ok(routines::list(db, &company.id)?
                .iter()
                .map(routine)
                .collect())
        })
        .await?;
    Ok(Json(body))
}

/// `POST /api/companies/{company}/routines`
pub(super) async fn create(
    State(board): State<Shared>,
    Person(actor): Person,
    Path(company): Path<String>,
    Body(new): Body<RoutinePatch>,
) -> Result<(StatusCode, Json<Value>), Failure> {
    let made = board
        .store
        .write(actor, move |w| {
            let company = agents::company(w, &company, None)?;
            routines::create(w, &company.id, new)
        })
        .await?;
    Ok((StatusCode::CREATED, Json(routine(&made))))
}

/// `GET /api/routines/{routine}`
pub(super) async fn show(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    let found = board
        .store
        .read(move |db| routines::get(db, &id, actor.company()))
        .await?;
    Ok(Json(routine(&found)))
}

/// `PATCH /api/routines/{routine}`
pub(super) async fn change(
    State(board): State<Shared>,
    Person(actor): Person,
    Path(id): Path<String>,
    Body(patch): Body<RoutinePatch>,
) -> Result<Json<Value>, Failure> {
    let changed = board
        .store
        .write(actor, move |w| routines::change(w, &id, patch))
        .await?;
    Ok(Json(routine(&changed)))
}

/// `GET /api/routines/{routine}/runs`: its newest slots and what became of each.
pub(super) async fn slots(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    let body = board
        .store
        .read(move |db| {
            let it = routines::get(db, &id, actor.company())?;
            Ok(routines::slots(db, &it.id, 200)?.iter().map(slot).collect())
        })
        .await?;
    Ok(Json(body))
}

/// `POST /api/routines/{routine}/run`
pub(super) async fn run(
    State(board): State<Shared>,
    Person(actor): Person,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<Value>), Failure> {
    let made = board
        .store
        .write(actor, move |w| routines::start(w, &id))
        .await?;
    Ok((StatusCode::ACCEPTED, Json(slot(&made))))
}

/// What `PUT` on a webhook says.
#[derive(Debug, Deserialize)]
pub(super) struct Open {
    /// How deliveries are proven.
    kind: HookKind,
}

/// `PUT /api/routines/{routine}/webhook`: a new secret, shown this once.
pub(super) async fn open_hook(
    State(board): State<Shared>,
    Person(actor): Person,
    Path(id): Path<String>,
    Body(Open { kind }): Body<Open>,
) -> Result<Json<Value>, Failure> {
    let routine = id.clone();
    let write = board
        .store
        .write(actor, move |w| routines::open(w, &routine, kind));
    let secret = write.await?;
    Ok(Json(
        json!({ "routineId": id, "kind": kind, "secret": secret, "path": hooks::path(&id) }),
    ))
}

/// `DELETE /api/routines/{routine}/webhook`
pub(super) async fn shut_hook(
    State(board): State<Shared>,
    Person(actor): Person,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    let write = board.store.write(actor, move |w| routines::shut(w, &id));
    write.await?;
    Ok(Json(json!({ "ok": true })))
}

fn routine(it: &Routine) -> Value {
    json!({ "id": it.id, "companyId": it.company, "name": it.name, "title": it.name,
            "description": it.description, "assigneeAgentId": it.assignee,
            "projectId": it.project, "priority": it.priority, "status": it.status,
            "cron": it.cron, "timezone": it.zone, "catchUp": it.catch_up, "overlap": it.overlap,
            "webhook": it.hook, "nextDueAt": it.next_due.map(iso), "createdAt": iso(it.created_at),
            "updatedAt": iso(it.updated_at) })
}

pub(super) fn slot(it: &Slot) -> Value {
    json!({ "id": it.id, "dueAt": iso(it.due_at), "trigger": it.trigger, "status": it.state,
            "reason": it.reason, "issueId": it.ticket })
}
