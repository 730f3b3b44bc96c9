//! Attachments: files come as a form, lie under their hash, and leave as bytes of no type.

use std::io;

use axum::Json;
use axum::body::to_bytes;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::http::header::{
    CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::auth::Caller;
use super::failure::Failure;
use super::tickets::belongings;
use super::{Shared, multipart, render};
use crate::model::{Actor, Refusal};
use crate::store::attachments::{self, NewAttachment};
use crate::store::{agents, tickets};

/// The largest file.
const FILE: usize = 10 * 1024 * 1024;
/// What a form adds around it.
const FORM: usize = 64 * 1024;

/// `GET /api/issues/{issue}/attachments`
pub(super) async fn list(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    belongings(&board, actor, id, attachments::list, render::attachment).await
}

/// `POST /api/companies/{company}/issues/{issue}/attachments`: a form with the field `file`.
pub(super) async fn create(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path((company, issue)): Path<(String, String)>,
    request: Request,
) -> Result<(StatusCode, Json<Value>), Failure> {
    // Who may not attach is not listened to.
    let asking = actor.clone();
    let (company, ticket) = board
        .store
        .read(move |db| {
            let company = agents::company(db, &company, asking.company())?;
            let ticket = tickets::get(db, &issue, Some(&company.id))?;
            attachments::may_attach(db, &asking, &ticket, 0)?;
            Ok((company.id, ticket))
        })
        .await?;
    let form = request.headers().get(CONTENT_TYPE);
    let form = form
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .to_owned();
    let body = to_bytes(request.into_body(), FILE + FORM)
        .await
        .map_err(|_cut| too_large())?;
    let part = multipart::part(&form, &body, "file")?;
    if part.bytes.len() > FILE {
        return Err(too_large().into());
    }
    let size = i64::try_from(part.bytes.len()).unwrap_or(i64::MAX);
    let (asking, about) = (actor.clone(), ticket.clone());
    board
        .store
        .read(move |db| attachments::may_attach(db, &asking, &about, size))
        .await?;
    let name = part.filename.clone().unwrap_or_default();
    let claimed_type = part.content_type.clone();
    let (files, range) = (board.files.clone(), body.slice_ref(part.bytes));
    let sha256 = blocking(move || files.keep(&range)).await?;
    let new = NewAttachment {
        name,
        claimed_type,
        size,
        sha256,
    };
    let files = board.files.clone();
    let made = board
        .store
        .write(actor, move |w| {
            // Whoever removed the last attachment with these bytes may have been faster.
            if !files.has(&new.sha256) {
                return Err(unavailable("the file is gone; send it again").into());
            }
            attachments::create(w, &ticket.id, &company, new)
        })
        .await?;
    Ok((StatusCode::CREATED, Json(render::attachment(&made))))
}

/// `GET /api/attachments/{attachment}`
pub(super) async fn show(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    let found = board
        .store
        .read(move |db| attachments::get(db, &id, actor.company()))
        .await?;
    Ok(Json(render::attachment(&found)))
}

/// `GET /api/attachments/{attachment}/content`: bytes to save, never a page to show.
pub(super) async fn content(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let found = board
        .store
        .read(move |db| attachments::get(db, &id, actor.company()))
        .await?;
    let (files, hash) = (board.files.clone(), found.sha256.clone());
    let bytes = blocking(move || files.read(&hash)).await?;
    let name = crate::operator_client::encode(&found.name);
    let headers = [
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
        (
            CONTENT_DISPOSITION,
            format!("attachment; filename*=UTF-8''{name}"),
        ),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (
            CONTENT_SECURITY_POLICY,
            "default-src 'none'; sandbox".to_owned(),
        ),
    ];
    Ok((headers, bytes).into_response())
}

/// `DELETE /api/attachments/{attachment}`: answers with the attachment that was.
pub(super) async fn remove(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    let files = board.files.clone();
    let gone = board
        .store
        .write(actor, move |w| attachments::remove(w, &id))
        .await?;
    let hash = gone.sha256.clone();
    // On the writer's thread, so that nobody attaches the same bytes meanwhile.
    board
        .store
        .write(Actor::System, move |w| {
            if attachments::used(w, &hash)? {
                return Ok(());
            }
            let removed = files.remove(&hash);
            Ok(removed.map_err(|error| unavailable(&error.to_string()))?)
        })
        .await?;
    Ok(Json(render::attachment(&gone)))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_panic| unavailable("it was given up"))?
        .map_err(|error| unavailable(&error.to_string()))
}

fn unavailable(why: &str) -> Refusal {
    let error = format!("the file cannot be used: {why}");
    Refusal::new(503, "attachment_unavailable", error)
}

fn too_large() -> Refusal {
    let error = format!("a file has at most {} MiB", FILE >> 20);
    Refusal::new(413, "attachment_too_large", error)
}
