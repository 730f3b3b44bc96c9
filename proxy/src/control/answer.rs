//! Answers of the control socket, and which status and code each failure has.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use serde::Serialize;

use super::command::CommandError;
use crate::runs::RunError;

/// What a handler returns.
pub(super) type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    match serde_json::to_vec(value) {
        Ok(mut text) => {
            text.push(b'\n');
            let mut answer = Response::new(Full::new(Bytes::from(text)).boxed_unsync());
            *answer.status_mut() = status;
            let json = HeaderValue::from_static("application/json");
            answer.headers_mut().insert(CONTENT_TYPE, json);
            answer
        }
        Err(problem) => {
            tracing::error!("control socket: an answer could not be written: {problem}");
            let mut answer = Response::new(Full::default().boxed_unsync());
            *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            answer
        }
    }
}

pub(super) fn text(text: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(text)).boxed_unsync());
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, plain);
    answer
}

pub(super) fn error(status: StatusCode, code: &str, text: &str) -> Answer {
    json(status, &serde_json::json!({ "error": text, "code": code }))
}

impl From<RunError> for Answer {
    fn from(problem: RunError) -> Self {
        let (status, code) = match &problem {
            RunError::Mismatch { .. }
            | RunError::Lease { .. }
            | RunError::OwnUid
            | RunError::NobodysRun
            | RunError::Unmapped => (StatusCode::BAD_REQUEST, "bad_request"),
            RunError::Profile { .. } => (StatusCode::FORBIDDEN, "profile_not_allowed"),
            RunError::Inline { .. } => (StatusCode::FORBIDDEN, "inline_not_allowed"),
            RunError::NotYours { .. } => (StatusCode::FORBIDDEN, "not_yours"),
            RunError::Policy(_) => (StatusCode::UNPROCESSABLE_ENTITY, "policy_invalid"),
            RunError::Ended { .. } => (StatusCode::CONFLICT, "run_ended"),
            RunError::TokenTaken => (StatusCode::CONFLICT, "token_taken"),
            RunError::Conflict { .. } => (StatusCode::CONFLICT, "run_conflict"),
            RunError::NotOpen { .. } => (StatusCode::NOT_FOUND, "run_not_open"),
            RunError::Full { .. } => (StatusCode::TOO_MANY_REQUESTS, "limit_reached"),
            RunError::Token(_) | RunError::Socket { .. } => {
                (StatusCode::INTERNAL_SERVER_ERROR, "run_not_made")
            }
            RunError::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
        };
        if status.is_server_error() {
            tracing::error!("control socket: {problem}");
        }
        error(status, code, &problem.to_string())
    }
}

impl From<CommandError> for Answer {
    fn from(problem: CommandError) -> Self {
        let (status, code) = match &problem {
            CommandError::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            CommandError::Method => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            CommandError::Run(_) | CommandError::Query(_) => {
                (StatusCode::BAD_REQUEST, "bad_request")
            }
        };
        error(status, code, &problem.to_string())
    }
}
