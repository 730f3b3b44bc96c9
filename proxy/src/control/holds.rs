//! `/v1/holds`: what waits for a person, and deciding about it.

use http::StatusCode;
use policy::record::redact_target;

use super::answer::{Answer, error, json};
use super::command::Deciding;
use crate::config::Peer;
use crate::gate::Gate;
use crate::holds::{Decide, HoldError, View};

/// The longest reason that an agent is told.
const MOST_REASON: usize = 300;
/// A digest may be given by its beginning, of this length at least.
const LEAST_DIGEST: usize = 8;

pub(super) fn list(gate: &Gate) -> Answer {
    json(
        StatusCode::OK,
        &serde_json::json!({ "holds": gate.holds.list() }),
    )
}

pub(super) fn show(gate: &Gate, id: &str) -> Answer {
    match gate.holds.show(id) {
        Some(view) => json(StatusCode::OK, &view),
        None => HoldError::NotFound.into(),
    }
}

/// Takes a decision, and says so in the log.
pub(super) fn decide(gate: &Gate, id: &str, body: &[u8], approve: bool, peer: &Peer) -> Answer {
    let body: &[u8] = if body.is_empty() { b"{}" } else { body };
    let deciding: Deciding = match serde_json::from_slice(body) {
        Ok(deciding) => deciding,
        Err(problem) => return super::malformed(&problem),
    };
    let decide = if approve {
        Decide::Approve
    } else {
        match deciding.reason.as_deref().map(str::trim) {
            Some(reason) if reason.len() > MOST_REASON || reason.chars().any(char::is_control) => {
                return error(
                    StatusCode::BAD_REQUEST,
                    "bad_request",
                    &format!("a reason is one line of at most {MOST_REASON} bytes"),
                );
            }
            reason => Decide::Deny {
                reason: reason
                    .filter(|reason| !reason.is_empty())
                    .map(str::to_owned),
            },
        }
    };
    let digest = match whole(gate, id, deciding.digest) {
        Ok(digest) => digest,
        Err(problem) => return problem.into(),
    };
    let decided = gate
        .holds
        .decide(id, decide, &peer.user, peer.admin, digest.as_deref());
    match decided {
        Ok(view) => {
            gate.audit.event(&summary(&view, &peer.user));
            json(StatusCode::OK, &view)
        }
        Err(problem) => problem.into(),
    }
}

/// The whole digest of which somebody gave the beginning.
fn whole(gate: &Gate, id: &str, given: Option<String>) -> Result<Option<String>, HoldError> {
    let Some(given) = given else {
        return Ok(None);
    };
    let view = gate.holds.show(id).ok_or(HoldError::NotFound)?;
    if given.len() >= LEAST_DIGEST && view.digest.starts_with(&given) {
        Ok(Some(view.digest))
    } else {
        Err(HoldError::OtherDigest)
    }
}

fn summary(view: &View, user: &str) -> String {
    format!(
        "hold {} {} by {user}: {} {} {}",
        view.id,
        view.state,
        view.method,
        view.authority,
        redact_target(&view.target)
    )
}

impl From<HoldError> for Answer {
    fn from(problem: HoldError) -> Self {
        let (status, code) = match &problem {
            HoldError::NotFound => (StatusCode::NOT_FOUND, "hold_not_found"),
            HoldError::NotYours { .. } => (StatusCode::FORBIDDEN, "not_yours"),
            HoldError::OtherDigest => (StatusCode::CONFLICT, "other_digest"),
            HoldError::Decided(_) => (StatusCode::CONFLICT, "hold_decided"),
        };
        error(status, code, &problem.to_string())
    }
}
