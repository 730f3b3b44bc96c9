//! What clients of the contract ask for and this board does not have: an empty list, or a 403 that
//! says where it is instead.

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use super::Shared;
use super::auth::Caller;
use super::failure::Failure;
use crate::model::Refusal;
use crate::store::agents;

/// Nothing of the caller's own.
pub(super) async fn own_nothing(Caller(_actor): Caller) -> Json<Value> {
    Json(json!([]))
}

/// Nothing of a company.
pub(super) async fn nothing(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(company): Path<String>,
) -> Result<Json<Value>, Failure> {
    board
        .store
        .read(move |db| agents::company(db, &company, actor.company()))
        .await?;
    Ok(Json(json!([])))
}

/// Not for a company.
pub(super) async fn never(
    board: State<Shared>,
    caller: Caller,
    company: Path<String>,
) -> Result<Json<Value>, Failure> {
    let found = nothing(board, caller, company).await;
    found.and_then(|_empty| Err(not_here().into()))
}

/// Not for an agent.
pub(super) async fn never_of_agent(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(agent): Path<String>,
) -> Result<Json<Value>, Failure> {
    board
        .store
        .read(move |db| agents::get(db, &agent, actor.company()))
        .await?;
    Err(not_here().into())
}

fn not_here() -> Refusal {
    Refusal::forbidden(
        "not_part_of_this_board",
        "this board does not do that: credentials live at the gate, which injects them; a run's token is \
         its own and ends with it; skills and tools are what people put into an agent's bundle",
    )
}
