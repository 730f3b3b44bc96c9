//! Tickets: list, create, read, change, check out, release.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use rusqlite::Connection;
use serde::Deserialize;
use serde_json::{Value, json};

use super::auth::Caller;
use super::body::Body;
use super::failure::Failure;
use super::{Shared, render};
use crate::model::time::iso;
use crate::model::{Actor, Refusal, Status};
use crate::store::tickets::{self, Filter, NewTicket, Patch};
use crate::store::{StoreError, agents, attachments, comments, labels};

type Parameters = Query<HashMap<String, String>>;

/// What no request may change, however it spells it.
const FIXED: [&str; 10] = [
    "id",
    "identifier",
    "companyId",
    "issueNumber",
    "checkoutRunId",
    "executionRunId",
    "createdByAgentId",
    "createdByUserId",
    "createdByRunId",
    "createdAt",
];

/// The longest text to search for, in bytes.
const QUERY: usize = 500;

/// `GET /api/companies/{company}/issues`
pub(super) async fn list(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(company): Path<String>,
    Query(query): Parameters,
) -> Result<Json<Value>, Failure> {
    let mut filter = Filter {
        limit: 500,
        ..Filter::default()
    };
    if let Some(csv) = query.get("status") {
        filter.statuses = statuses(csv.split(','))?;
    }
    let text = |name: &str| query.get(name).filter(|value| !value.is_empty()).cloned();
    filter.assignee_agent = text("assigneeAgentId");
    filter.assignee_user = text("assigneeUserId");
    filter.project = text("projectId");
    filter.goal = text("goalId");
    let label = text("labelId");
    filter.text = text("q");
    if filter.text.as_ref().is_some_and(|text| text.len() > QUERY) {
        return Err(Refusal::invalid(format!("q is longer than {QUERY} bytes")).into());
    }
    filter.limit = number(&query, "limit", 500, 1..=500)?;
    filter.offset = number(&query, "offset", 0, 0..=10_000_000)?;
    let parent = text("parentId");
    let body = board
        .store
        .read(move |db| {
            let company = agents::company(db, &company, actor.company())?;
            if let Some(parent) = parent {
                filter.parent = Some(tickets::get(db, &parent, Some(&company.id))?.id);
            }
            if let Some(label) = label {
                filter.label = Some(labels::get(db, &label, Some(&company.id))?.id);
            }
            if filter.assignee_agent.as_deref() == Some("me") {
                filter.assignee_agent = actor.agent().map(str::to_owned);
            }
            let rows = tickets::list(db, &company.id, &filter)?;
            rows.iter()
                .map(|row| render::row(db, row))
                .collect::<Result<Value, _>>()
        })
        .await?;
    Ok(Json(body))
}

/// `POST /api/companies/{company}/issues`: 201, or 200 with `deduplicated` for a repeat.
pub(super) async fn create(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(company): Path<String>,
    Body(new): Body<NewTicket>,
) -> Result<Response, Failure> {
    let (body, status) = board
        .store
        .write(actor, move |w| {
            let company = agents::company(w, &company, w.actor.company())?;
            let created = tickets::create(w, &company.id, new)?;
            let mut body = render::whole(w, &created.ticket)?;
            match created.deduplicated {
                Some(reason) => {
                    body["deduplicated"] = json!(true);
                    body["deduplicationReason"] = json!(reason);
                    Ok((body, StatusCode::OK))
                }
                None => Ok((body, StatusCode::CREATED)),
            }
        })
        .await?;
    Ok((status, Json(body)).into_response())
}

/// `GET /api/issues/{id}`
pub(super) async fn show(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    let body = board
        .store
        .read(move |db| render::whole(db, &tickets::get(db, &id, actor.company())?))
        .await?;
    Ok(Json(body))
}

/// `PATCH /api/issues/{id}`
pub(super) async fn update(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    Body(raw): Body<Value>,
) -> Result<Json<Value>, Failure> {
    let patch: Patch = serde_json::from_value(raw.clone())
        .map_err(|error| Refusal::invalid(format!("the body does not fit: {error}")))?;
    let minimal = headers
        .get_all("prefer")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| {
            value
                .split([',', ';'])
                .any(|part| part.trim() == "return=minimal")
        });
    let body = board
        .store
        .write(actor, move |w| {
            let before = tickets::get(w, &id, w.actor.company())?;
            fixed(&render::row(w, &before)?, &raw)?;
            let update = tickets::update(w, &before.id, patch)?;
            let mut body = if minimal {
                json!({ "id": update.ticket.id, "identifier": update.ticket.identifier,
                        "status": update.ticket.status, "updatedAt": iso(update.ticket.updated_at) })
            } else {
                render::whole(w, &update.ticket)?
            };
            body["changes"] = Value::Object(update.changes);
            body["comment"] = update.comment.as_ref().map_or(Value::Null, render::comment);
            Ok(body)
        })
        .await?;
    Ok(Json(body))
}

/// `GET /api/issues/{id}/heartbeat-context`
pub(super) async fn context(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
    Query(query): Parameters,
) -> Result<Json<Value>, Failure> {
    let wake = query.get("wakeCommentId").cloned();
    let body = board
        .store
        .read(move |db| {
            let ticket = tickets::get(db, &id, actor.company())?;
            let (total, newest) = comments::cursor(db, &ticket.id)?;
            let wake = match wake {
                Some(id) => render::comment(&comments::get(db, &ticket.id, &id)?),
                None => Value::Null,
            };
            Ok(json!({
                "issue": render::row(db, &ticket)?,
                "ancestors": render::briefs(&tickets::ancestors(db, &ticket)?),
                "blockedBy": render::briefs(&tickets::blockers(db, &ticket.id)?),
                "project": render::project_of(db, &ticket)?,
                "goal": render::goal_of(db, &ticket)?,
                "commentCursor": {
                    "totalComments": total,
                    "latestCommentId": newest.as_ref().map(|c| c.id.clone()),
                    "latestCommentAt": newest.as_ref().map(|c| iso(c.created_at)),
                },
                "wakeComment": wake,
                "attachments": attachments::list(db, &ticket.id)?.iter().map(render::attachment).collect::<Value>(),
                "continuationSummary": null,
                "planReviewContext": null,
                "documentReviewContext": null,
                "currentExecutionWorkspace": null,
            }))
        })
        .await?;
    Ok(Json(body))
}

/// What `checkout` takes.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Checkout {
    agent_id: Option<String>,
    expected_statuses: Option<Vec<String>>,
}

/// `POST /api/issues/{id}/checkout`
pub(super) async fn checkout(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
    Body(wanted): Body<Checkout>,
) -> Result<Json<Value>, Failure> {
    let expected = match &wanted.expected_statuses {
        Some(list) => statuses(list.iter().map(String::as_str))?,
        None => vec![
            Status::Backlog,
            Status::Todo,
            Status::InReview,
            Status::Blocked,
        ],
    };
    let body = board
        .store
        .write(actor, move |w| {
            let ticket = tickets::checkout(w, &id, wanted.agent_id.as_deref(), &expected)?;
            render::row(w, &ticket)
        })
        .await?;
    Ok(Json(body))
}

/// `POST /api/issues/{id}/release`
pub(super) async fn release(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    let body = board
        .store
        .write(actor, move |w| {
            let ticket = tickets::release(w, &id)?;
            render::row(w, &ticket)
        })
        .await?;
    Ok(Json(body))
}

/// A number in a query string.
pub(super) fn number(
    query: &HashMap<String, String>,
    name: &str,
    default: u32,
    range: std::ops::RangeInclusive<u32>,
) -> Result<u32, Refusal> {
    let Some(text) = query.get(name) else {
        return Ok(default);
    };
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| {
        Refusal::invalid(format!(
            "{name} must be {} to {}",
            range.start(),
            range.end()
        ))
    })
}

fn statuses<'a>(words: impl Iterator<Item = &'a str>) -> Result<Vec<Status>, Refusal> {
    let mut found = words
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .map(|word| {
            Status::parse(word).ok_or_else(|| {
                let all: Vec<&str> = Status::ALL.iter().map(|s| s.as_str()).collect();
                Refusal::invalid(format!(
                    "`{word}` is no status; they are {}",
                    all.join(", ")
                ))
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    found.sort_unstable_by_key(|status| status.as_str());
    found.dedup();
    Ok(found)
}

/// A client may send back what it read; it may not change who made it or who holds it.
fn fixed(row: &Value, raw: &Value) -> Result<(), StoreError> {
    for field in FIXED {
        if let Some(wanted) = raw.get(field)
            && *wanted != row[field]
        {
            let error = format!("{field} cannot be changed");
            return Err(Refusal::unprocessable("immutable_field", error).into());
        }
    }
    Ok(())
}

/// What belongs to one ticket of the actor's company, each part as it is shown.
pub(super) async fn belongings<T: 'static>(
    board: &Shared,
    actor: Actor,
    ticket: String,
    list: fn(&Connection, &str) -> Result<Vec<T>, StoreError>,
    show: fn(&T) -> Value,
) -> Result<Json<Value>, Failure> {
    let body = board
        .store
        .read(move |db| {
            let ticket = tickets::get(db, &ticket, actor.company())?;
            Ok(list(db, &ticket.id)?.iter().map(show).collect())
        })
        .await?;
    Ok(Json(body))
}
