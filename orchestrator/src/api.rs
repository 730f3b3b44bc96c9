//! The board as HTTP: paths, fields and codes of the published contract.
//!
//! Two sockets serve the same routes. On the *board* socket only the gate may connect; who asks is
//! decided by the bearer token that the gate injects, which is a live run's or nobody's. On the *API*
//! socket people connect; who asks is decided by the kernel (`SO_PEERCRED`). A request's own words
//! about its author are never believed. People's routes answer 403 to runs.

mod absent;
mod agents;
mod approvals;
mod attachments;
mod auth;
mod body;
mod comments;
mod costs;
mod documents;
mod failure;
mod goals;
mod hooks;
mod interactions;
mod labels;
mod listen;
mod multipart;
mod openapi;
mod operators;
mod overview;
mod projects;
mod render;
mod routes;
mod routines;
mod runs;
mod tickets;
mod work_products;

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use serde_json::{Value, json};

pub use auth::Entrance;
pub use hooks::hooks;
pub use listen::{Peer, bind, serve, serve_hooks};
pub use openapi::document;
pub use routes::ROUTES;

use crate::gate_client::GateClient;
use crate::model::Refusal;
use crate::store::Store;
use crate::store::files::Files;
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
    /// Where attachments are.
    pub files: Files,
    /// Which slices of host ids runs may have.
    pub slices: Arc<[i64]>,
}

type Shared = Arc<Board>;

/// The routes, as one entrance serves them.
pub fn router(board: Arc<Board>, entrance: Entrance) -> Router {
    routes::table()
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

async fn openapi() -> axum::Json<Value> {
    axum::Json(document())
}

async fn health() -> axum::Json<Value> {
    axum::Json(json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") }))
}
