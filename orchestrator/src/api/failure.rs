//! Errors as clients see them: `{error, code, details?}`.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use crate::gate_client::chain;
use crate::model::Refusal;
use crate::store::StoreError;

/// A request that was not done.
#[derive(Debug)]
pub(super) enum Failure {
    /// The board says no.
    Refused(Refusal),
    /// The board cannot.
    Store(StoreError),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Refused(refusal) => Self::Refused(refusal),
            other => Self::Store(other),
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let refusal = match self {
            Self::Refused(refusal) => refusal,
            Self::Store(error) => {
                tracing::error!(error = chain(&error), "a request could not be served");
                Refusal::new(
                    503,
                    "store_unavailable",
                    "the board's database cannot be used now; nothing was changed",
                )
            }
        };
        let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
        (status, Json(refusal.body())).into_response()
    }
}
