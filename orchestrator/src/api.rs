//! The board as HTTP: paths, fields and codes of the published contract.
//!
//! Two sockets serve the same routes. On the *board* socket only the gate may connect; who asks is
//! decided by the bearer token that the gate injects, which is a live run's or nobody's. On the *API*
//! socket people connect; who asks is decided by the kernel (`SO_PEERCRED`). A request's own words
//! about its author are never believed. People's routes answer 403 to runs.

mod agents;
mod auth;
mod body;
mod comments;
mod documents;
mod failure;
mod listen;
mod operators;
mod render;
mod runs;
mod tickets;

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use serde_json::{Value, json};

pub use auth::Entrance;
pub use listen::{Peer, bind, serve};

use crate::gate_client::GateClient;
use crate::model::Refusal;
use crate::store::Store;
use failure::Failure;

/// The largest body that is read.
pub const BODY: usize = 1024 * 1024;

/// What the routes work with.
#[derive(Debug)]
pub struct Board {
    /// The database.
    pub store: Store,
    /// The gate, for timelines.
    pub gate: GateClient,
    /// Where run logs are.
    pub runs: PathBuf,
    /// Which slices of host ids runs may have.
    pub slices: Arc<[i64]>,
}

type Shared = Arc<Board>;

/// The routes, as one entrance serves them.
pub fn router(board: Arc<Board>, entrance: Entrance) -> Router {
    let issue = Router::new()
        .route("/", get(tickets::show).patch(tickets::update))
        .route("/heartbeat-context", get(tickets::context))
        .route("/checkout", post(tickets::checkout))
        .route("/release", post(tickets::release))
        .route("/comments", get(comments::list).post(comments::post))
        .route("/comments/{comment}", get(comments::show))
        .route("/documents", get(documents::list))
        .route("/documents/{key}", get(documents::show).put(documents::put))
        .route("/documents/{key}/revisions", get(documents::revisions))
        .route("/timeline", get(operators::timeline))
        .route("/why", get(operators::why));
    let api = Router::new()
        .route("/health", get(health))
        .route("/anchors", get(operators::anchors))
        .route("/agents/me", get(agents::me))
        .route("/agents/me/inbox-lite", get(agents::inbox))
        .route(
            "/agents/{id}",
            get(agents::show).patch(operators::change_agent),
        )
        .route("/agents/{id}/wakeup", post(operators::wake))
        .route("/agents/{id}/heartbeat/invoke", post(operators::wake))
        .route(
            "/companies",
            get(operators::companies).post(operators::create_company),
        )
        .route("/companies/{company}", get(operators::company))
        .route(
            "/companies/{company}/agents",
            get(agents::list).post(operators::create_agent),
        )
        .route(
            "/companies/{company}/issues",
            get(tickets::list).post(tickets::create),
        )
        .route("/companies/{company}/activity", get(operators::activity))
        .route("/companies/{company}/heartbeat-runs", get(runs::of_company))
        .route("/heartbeat-runs", get(runs::list))
        .route("/heartbeat-runs/{run}", get(runs::show))
        .route("/heartbeat-runs/{run}/log", get(runs::log))
        .route("/heartbeat-runs/{run}/cancel", post(runs::cancel))
        .nest("/issues/{id}", issue);
    Router::new()
        .nest("/api", api)
        .fallback(|| async { Failure::from(Refusal::missing("route")) })
        .method_not_allowed_fallback(|| async {
            Failure::from(Refusal::new(
                405,
                "method_not_allowed",
                "this path has other methods",
            ))
        })
        .layer(axum::middleware::from_fn_with_state(
            Arc::clone(&board),
            auth::admit,
        ))
        .layer(axum::Extension(entrance))
        .layer(DefaultBodyLimit::max(BODY))
        .with_state(board)
}

async fn health() -> axum::Json<Value> {
    axum::Json(json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") }))
}
