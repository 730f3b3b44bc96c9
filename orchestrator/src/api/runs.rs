//! Runs: reading them, their output, stopping them.

use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom};

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::auth::{Caller, Person};
use super::failure::Failure;
use super::tickets::number;
use super::{Shared, render};
use crate::model::{Actor, Refusal, Run};
use crate::store::{StoreError, agents, runs, tickets};

/// How much of a log one answer carries.
const PAGE: u64 = 1024 * 1024;

/// `GET /api/heartbeat-runs?issueId=&live=true&limit=`
pub(super) async fn list(
    State(board): State<Shared>,
    _person: Person,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<Value>, Failure> {
    answer(&board, None, &query).await
}

/// `GET /api/companies/{company}/heartbeat-runs`
pub(super) async fn of_company(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(company): Path<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<Value>, Failure> {
    let company = board
        .store
        .read(move |db| Ok(agents::company(db, &company, actor.company())?.id))
        .await?;
    answer(&board, Some(company), &query).await
}

/// `GET /api/heartbeat-runs/{run}`
pub(super) async fn show(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    let run = board
        .store
        .read(move |db| visible(runs::get(db, &id)?, &actor))
        .await?;
    Ok(Json(render::run(&run)))
}

/// `GET /api/heartbeat-runs/{run}/log?offset=`: the log's lines from a byte offset on. The header
/// `x-next-offset` says where the next page begins, `x-run-live` whether more may come.
pub(super) async fn log(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Response, Failure> {
    let offset: u64 = match query.get("offset") {
        Some(text) => text
            .parse()
            .map_err(|_nan| Refusal::invalid("offset must be a number"))?,
        None => 0,
    };
    let run = board
        .store
        .read(move |db| {
            let run = visible(runs::get(db, &id)?, &actor)?;
            match actor.run() {
                Some(own) if own != run.id => Err(Refusal::forbidden(
                    "not_your_run",
                    "a run may read its own log only",
                )
                .into()),
                Some(_) | None => Ok(run),
            }
        })
        .await?;
    let path = board.runs.join(&run.id).join("output.ndjson");
    let page = tokio::task::spawn_blocking(move || -> std::io::Result<Vec<u8>> {
        let mut file = match std::fs::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        file.seek(SeekFrom::Start(offset))?;
        let mut page = Vec::new();
        file.take(PAGE).read_to_end(&mut page)?;
        // Whole lines only, so that every page is NDJSON; a line longer than a page comes in parts.
        if let Some(end) = page.iter().rposition(|byte| *byte == b'\n') {
            page.truncate(end + 1);
        } else if (page.len() as u64) < PAGE {
            page.clear();
        }
        Ok(page)
    });
    let page = page
        .await
        .map_err(|_panic| Refusal::new(503, "log_unavailable", "the log cannot be read"))?
        .map_err(|error| {
            Refusal::new(
                503,
                "log_unavailable",
                format!("the log cannot be read: {error}"),
            )
        })?;
    let next = (offset + page.len() as u64).to_string();
    let live = if run.status.is_live() {
        "true"
    } else {
        "false"
    };
    let headers = [
        (CONTENT_TYPE.as_str(), "application/x-ndjson"),
        ("x-next-offset", next.as_str()),
        ("x-run-live", live),
    ];
    Ok((headers, page).into_response())
}

/// `POST /api/heartbeat-runs/{run}/cancel`
pub(super) async fn cancel(
    State(board): State<Shared>,
    Person(actor): Person,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    let run = board
        .store
        .write(actor, move |w| runs::ask_cancel(w, &id))
        .await?;
    Ok(Json(render::run(&run)))
}

async fn answer(
    board: &Shared,
    company: Option<String>,
    query: &HashMap<String, String>,
) -> Result<Json<Value>, Failure> {
    let limit = number(query, "limit", 100, 1..=500)?;
    let live = query.get("live").is_some_and(|value| value == "true");
    let issue = query.get("issueId").cloned();
    let body = board
        .store
        .read(move |db| {
            let ticket = match issue {
                Some(id) => Some(tickets::get(db, &id, company.as_deref())?.id),
                None => None,
            };
            let list = if live {
                let mut all = runs::holding(db)?;
                all.retain(|run| {
                    company.as_ref().is_none_or(|id| *id == run.company)
                        && (ticket.is_none() || ticket == run.ticket)
                });
                all
            } else {
                runs::list(db, company.as_deref(), ticket.as_deref(), limit)?
            };
            Ok(list.iter().map(render::run).collect())
        })
        .await?;
    Ok(Json(body))
}

fn visible(run: Run, actor: &Actor) -> Result<Run, StoreError> {
    if actor.company().is_none_or(|own| own == run.company) {
        return Ok(run);
    }
    Err(Refusal::missing("run").with(json!(null)).into())
}
