//! Who asks: a live run (by token, through the gate) or a person (by uid).

use axum::extract::{ConnectInfo, FromRequestParts, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use nix::unistd::{Uid, User};
use serde_json::json;

use super::failure::{Failure, in_form};
use super::{Peer, Shared};
use crate::model::{Actor, Refusal};
use crate::store::runs;

/// Which socket a request came in by, and which uids may use it.
#[derive(Debug, Clone)]
pub enum Entrance {
    /// The gate brings agents' requests.
    Board {
        /// The gate's uid.
        proxy: u32,
    },
    /// People.
    Operators {
        /// Their uids.
        uids: Vec<u32>,
    },
}

/// The author of a request.
#[derive(Debug, Clone)]
pub(super) struct Caller(pub(super) Actor);

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Failure> {
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| Refusal::unauthorised("a run token is needed").into())
    }
}

/// A person; runs are refused before their body is looked at.
#[derive(Debug, Clone)]
pub(super) struct Person(pub(super) Actor);

impl<S: Send + Sync> FromRequestParts<S> for Person {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        match Caller::from_request_parts(parts, state).await?.0 {
            Actor::Agent { .. } => Err(Refusal::forbidden(
                "operators_only",
                "only people may do this, on the API socket",
            )
            .into()),
            person @ (Actor::User { .. } | Actor::System) => Ok(Self(person)),
        }
    }
}

/// Finds out who asks. Every route but `health` needs somebody.
pub(super) async fn admit(
    State(board): State<Shared>,
    axum::Extension(entrance): axum::Extension<Entrance>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    mut request: Request,
    next: Next,
) -> Result<Response, Failure> {
    let actor = match &entrance {
        Entrance::Operators { uids } if uids.contains(&peer.uid) => Some(Actor::User {
            name: name_of(peer.uid),
        }),
        Entrance::Board { proxy } if *proxy == peer.uid => match bearer(&request) {
            Some(token) => {
                let now = board.store.now();
                Some(
                    board
                        .store
                        .read(move |db| runs::by_token(db, &token, now))
                        .await?,
                )
            }
            None => None,
        },
        Entrance::Operators { .. } | Entrance::Board { .. } => {
            let error = format!("uid {} may not use this socket", peer.uid);
            return Err(Refusal::forbidden("peer_not_allowed", error).into());
        }
    };
    match actor {
        Some(actor) => {
            same_run(&request, &actor)?;
            request.extensions_mut().insert(Caller(actor));
        }
        None if request.uri().path() == "/api/health" => {}
        None => return Err(Refusal::unauthorised("a run token is needed").into()),
    }
    Ok(in_form(next.run(request).await).await)
}

fn bearer(request: &Request) -> Option<String> {
    let value = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && token.len() <= 512).then(|| token.trim().to_owned())
}

/// The run id that a client states may be left out; it may not be another's.
fn same_run(request: &Request, actor: &Actor) -> Result<(), Refusal> {
    let (Some(stated), Some(run)) = (request.headers().get("x-paperclip-run-id"), actor.run())
    else {
        return Ok(());
    };
    if stated.as_bytes() == run.as_bytes() {
        return Ok(());
    }
    Err(Refusal::unprocessable(
        "agent_jwt_run_id_mismatch",
        "X-Paperclip-Run-Id is not the run of this token",
    )
    .with(json!({ "runId": run })))
}

fn name_of(uid: u32) -> String {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => user.name,
        Ok(None) | Err(_) => format!("uid-{uid}"),
    }
}
