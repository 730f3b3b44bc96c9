//! Errors as clients see them: `{error, code, details?}`.

use axum::Json;
use axum::body::to_bytes;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
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

/// What the router's own parts refuse in plain text (a path or a query that is no text) in the form of
/// every other refusal.
pub(super) async fn in_form(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(CONTENT_TYPE);
    let plain = kind.is_none_or(|value| value.as_bytes().starts_with(b"text/plain"));
    if !plain || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let said = to_bytes(response.into_body(), 4096)
        .await
        .unwrap_or_default();
    let said = String::from_utf8_lossy(&said).into_owned();
    Failure::from(Refusal::new(status.as_u16(), "bad_request", said)).into_response()
}
