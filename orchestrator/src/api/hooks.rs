//! The entrance of webhooks: one route, and nothing of the board besides.
//!
//! Anybody may connect; what counts is the proof that a delivery carries. Whoever has none learns
//! nothing: an unknown routine, one without a webhook and a wrong proof are one answer.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

use super::failure::Failure;
use super::routines::slot;
use super::{Board, Shared};
use crate::model::hook::{self, Delivery, HookKind};
use crate::model::{Actor, Refusal};
use crate::store::routines;

/// The largest body.
const BODY: usize = 256 * 1024;
/// How long a body may take.
const WITHIN: Duration = Duration::from_secs(10);

/// The route, as the entrance serves it.
pub fn hooks(board: Arc<Board>) -> Router {
    Router::new()
        .route("/api/routine-triggers/public/{routine}/fire", post(fire))
        .fallback(|| async { Failure::from(Refusal::missing("route")) })
        .with_state(board)
}

/// Where a routine's deliveries go.
#[must_use]
pub(super) fn path(routine: &str) -> String {
    format!("/api/routine-triggers/public/{routine}/fire")
}

async fn fire(
    State(board): State<Shared>,
    Path(id): Path<String>,
    request: Request,
) -> Result<(StatusCode, Json<Value>), Failure> {
    let (head, body) = request.into_parts();
    let body = tokio::time::timeout(WITHIN, axum::body::to_bytes(body, BODY));
    let body = match body.await {
        Ok(Ok(body)) => body,
        Ok(Err(_too_long)) => {
            let error = format!("a body is at most {} KiB", BODY >> 10);
            return Err(Refusal::new(413, "body_unreadable", error).into());
        }
        Err(_elapsed) => {
            return Err(Refusal::new(408, "body_unreadable", "the body did not come").into());
        }
    };
    let routine = id.clone();
    let key = board.store.read(move |db| routines::key(db, &routine));
    let key = key.await?;
    let known = key.is_some();
    // Who asks about an unknown routine waits as long as who asks about a known one.
    let (kind, key) = key.unwrap_or((HookKind::Hmac, b"nobody's".to_vec()));
    let delivery = Delivery {
        authorization: text(&head.headers, "authorization"),
        timestamp: text(&head.headers, "x-paperclip-timestamp"),
        signature: text(&head.headers, "x-paperclip-signature"),
        hub_signature: text(&head.headers, "x-hub-signature-256"),
        idempotency_key: text(&head.headers, "idempotency-key").filter(|key| key.len() <= 200),
        body: &body,
    };
    let proof = match hook::prove(kind, &key, &delivery, board.store.now()) {
        Ok(proof) if known => proof,
        verdict => {
            let why = verdict.err().unwrap_or("there is no such webhook");
            tracing::info!(
                routine = id.escape_debug().to_string(),
                why,
                "a delivery is not proven"
            );
            return Err(Refusal::unauthorised("this delivery is not proven").into());
        }
    };
    let said = String::from_utf8_lossy(&body).replace('\0', "\u{fffd}");
    let write = board.store.write(Actor::System, move |w| {
        routines::deliver(w, &id, proof.as_deref(), &said)
    });
    let (made, again) = write.await?;
    let status = if again {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    };
    let mut answer = slot(&made);
    answer["repeated"] = json!(again);
    Ok((status, Json(answer)))
}

/// A header that is there once, in letters.
fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (Some(only), None) => only.to_str().ok(),
        (_, _) => None,
    }
}
