//! Work products of a ticket.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde_json::Value;

use super::auth::Caller;
use super::body::Body;
use super::failure::Failure;
use super::tickets::belongings;
use super::{Shared, render};
use crate::store::work_products::{self, ProductPatch};

/// `GET /api/issues/{issue}/work-products`
pub(super) async fn list(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    belongings(&board, actor, id, work_products::list, render::work_product).await
}

/// `POST /api/issues/{issue}/work-products`
pub(super) async fn create(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
    Body(new): Body<ProductPatch>,
) -> Result<(StatusCode, Json<Value>), Failure> {
    let made = board
        .store
        .write(actor, move |w| work_products::create(w, &id, new))
        .await?;
    Ok((StatusCode::CREATED, Json(render::work_product(&made))))
}

/// `PATCH /api/work-products/{product}`
pub(super) async fn change(
    State(board): State<Shared>,
    Caller(actor): Caller,
    Path(id): Path<String>,
    Body(patch): Body<ProductPatch>,
) -> Result<Json<Value>, Failure> {
    let changed = board
        .store
        .write(actor, move |w| work_products::change(w, &id, patch))
        .await?;
    Ok(Json(render::work_product(&changed)))
}
