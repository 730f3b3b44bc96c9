//! The control socket: HTTP/1.1 and JSON over a unix socket, for the orchestrator and the command
//! line. Who is asking is told by the kernel (SO_PEERCRED) and must be listed in `[[control.peer]]`.
//!
//! | request | answer |
//! |---|---|
//! | `PUT /v1/runs/{run}` (`OpenRun`) | `OpenedRun`; idempotent for the same epoch |
//! | `POST /v1/runs/{run}/extend` `{"epoch":n}` | the run's view |
//! | `DELETE /v1/runs/{run}?epoch=n` | `{"closed":bool}`; live streams are cut at once |
//! | `GET /v1/runs` | list of run views |
//! | `GET /v1/allowances` | list of what askers have taken, and may |
//! | `GET /v1/status` | what [`custody::Status`] says |
//! | `POST /v1/reload` | what changed; 422 with the diagnostics when something is broken |
//! | `POST /v1/canaries` | every credential's canary is sent now: `{"credentials":[...]}` as in status |
//! | `GET /v1/metrics` | what [`crate::metrics`] says |
//! | `GET /v1/checkpoint` | the last checkpoint of the audit log; 404 while there is none |
//! | `GET /v1/holds`, `GET /v1/holds/{id}` | requests that wait for a person |
//! | `POST /v1/holds/{id}/approve` (`{"digest":"..."}`), `.../deny` (`{"reason":"..."}`) | the hold, decided |
//! | `GET /v1/events` | audit lines from now on |
//! | `GET /v1/audit?run=ID` or `?id=ID` | audit lines from the log |
//!
//! Errors are `{"error": "a sentence", "code": "a_stable_word"}`.

mod answer;
pub mod client;
pub(crate) mod command;
pub mod custody;
mod holds;
mod stream;
mod turned;

use std::convert::Infallible;
use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use policy::grant::OpenRun;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use zeroize::{Zeroize, Zeroizing};

use crate::config::Peer;
use crate::entrance;
use crate::gate::Gate;
use answer::{Answer, error, json};
use command::{Command, Extend};
use custody::Custody;

/// A head that takes longer than this is given up.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// A body that takes longer than this is given up.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections of uids that are not listed, which are told so and nothing else.
const STRANGERS: usize = 16;

/// Binds the control socket, or one for agents. Anybody may connect; who may do what is decided by uid.
///
/// # Errors
/// What the system said.
pub fn bind(path: &Path) -> std::io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Ok(()) => {}
        Err(problem) if problem.kind() == ErrorKind::NotFound => {}
        Err(problem) => return Err(problem),
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// Serves until `stop` becomes true. A connection in the middle of an answer is dropped then.
pub async fn serve(
    listener: UnixListener,
    custody: Arc<Custody>,
    gate: Arc<Gate>,
    mut stop: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(custody.config.limits.control_connections));
    let strangers = Arc::new(Semaphore::new(STRANGERS));
    let turned_away = Arc::new(Semaphore::new(turned::PLACES));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(problem) if entrance::is_dead(&problem) => return entrance::gone(&problem),
            Err(problem) => {
                tracing::error!("control socket: accept failed: {problem}");
                // Out of descriptors, most likely: wait for some to be returned.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let uid = match stream.peer_cred() {
            Ok(credentials) => credentials.uid(),
            Err(problem) => {
                tracing::error!("control socket: the kernel does not say who connected: {problem}");
                continue;
            }
        };
        // Whoever is not listed must not be able to take the places of those who are.
        let listed = custody.config.control.peers.contains_key(&uid);
        let among = if listed { &places } else { &strangers };
        let Ok(place) = Arc::clone(among).try_acquire_owned() else {
            if listed {
                tracing::warn!("control socket: too many connections, one was turned away");
                if let Ok(place) = Arc::clone(&turned_away).try_acquire_owned() {
                    tokio::spawn(turned::away(stream, place));
                }
            }
            continue;
        };
        let (custody, gate) = (Arc::clone(&custody), Arc::clone(&gate));
        let mut stop = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = connection(stream, uid, custody, gate) => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
            drop(place);
        });
    }
}

async fn connection(stream: UnixStream, uid: u32, custody: Arc<Custody>, gate: Arc<Gate>) {
    let peer = custody.config.control.peers.get(&uid).cloned();
    let service = service_fn(move |request| {
        let (custody, gate, peer) = (Arc::clone(&custody), Arc::clone(&gate), peer.clone());
        async move {
            Ok::<_, Infallible>(match peer {
                Some(peer) => handle(request, &custody, &gate, &peer).await,
                None => error(
                    StatusCode::FORBIDDEN,
                    "peer_unknown",
                    &format!("uid {uid} is not listed in [[control.peer]]"),
                ),
            })
        }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(problem) = served {
        tracing::debug!("control socket: {problem}");
    }
}

async fn handle(
    request: Request<Incoming>,
    custody: &Arc<Custody>,
    gate: &Arc<Gate>,
    peer: &Peer,
) -> Answer {
    let command = match Command::parse(request.method(), request.uri()) {
        Ok(command) => command,
        Err(refused) => return refused.into(),
    };
    let most = custody.config.limits.control_body_bytes;
    let mut body = match read(request.into_body(), most).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    match command {
        Command::Open(id) => {
            let parsed: Result<OpenRun, _> = serde_json::from_slice(&body);
            // It may hold a token.
            body.zeroize();
            match parsed {
                Ok(open) => match custody.runs.open(&id, open, peer).await {
                    Ok(opened) => json(StatusCode::OK, &opened),
                    Err(problem) => problem.into(),
                },
                Err(problem) => malformed(&problem),
            }
        }
        Command::Extend(id) => match serde_json::from_slice::<Extend>(&body) {
            Ok(extend) => {
                match custody
                    .runs
                    .extend(&id, extend.epoch, extend.lease_seconds, peer)
                {
                    Ok(view) => json(StatusCode::OK, &view),
                    Err(problem) => problem.into(),
                }
            }
            Err(problem) => malformed(&problem),
        },
        Command::Close { run, epoch } => match custody.runs.close(&run, epoch, peer) {
            Ok(closed) => json(StatusCode::OK, &serde_json::json!({ "closed": closed })),
            Err(problem) => problem.into(),
        },
        Command::Runs => json(StatusCode::OK, &custody.runs.views()),
        Command::Allowances => json(StatusCode::OK, &gate.allowance_view()),
        Command::Status => {
            let mut status = custody.status();
            status.allowances = gate.allowance_view();
            json(StatusCode::OK, &status)
        }
        Command::Reload | Command::Canaries if !peer.admin => error(
            StatusCode::FORBIDDEN,
            "admin_required",
            &format!(
                "{} may not do that: see admin in [[control.peer]]",
                peer.user
            ),
        ),
        Command::Reload => reload(custody).await,
        Command::Canaries => canaries(gate, peer).await,
        Command::Metrics => match crate::metrics::render(custody) {
            Ok(shown) => answer::text(shown),
            Err(problem) => error(
                StatusCode::INTERNAL_SERVER_ERROR,
                "metrics_failed",
                &problem.to_string(),
            ),
        },
        Command::Checkpoint => match custody.audit.checkpoint() {
            Some(line) => answer::text(format!("{line}\n")),
            None => error(
                StatusCode::NOT_FOUND,
                "no_checkpoint",
                "the audit log has no checkpoint yet",
            ),
        },
        Command::Holds => holds::list(gate),
        Command::Hold(id) => holds::show(gate, &id),
        Command::Approve(id) => holds::decide(gate, &id, &body, true, peer),
        Command::Deny(id) => holds::decide(gate, &id, &body, false, peer),
        Command::Events => stream::events(&custody.audit),
        Command::Audit(filter) => stream::log(&custody.audit, filter),
    }
}

async fn reload(custody: &Arc<Custody>) -> Answer {
    let working = Arc::clone(custody);
    match tokio::task::spawn_blocking(move || working.reload()).await {
        Ok(report) if report.is_whole() => json(StatusCode::OK, &report),
        Ok(report) => json(
            StatusCode::UNPROCESSABLE_ENTITY,
            &serde_json::json!({
                "error": report.to_string(), "code": "reload_incomplete", "report": report,
            }),
        ),
        Err(problem) => error(
            StatusCode::INTERNAL_SERVER_ERROR,
            "reload_failed",
            &problem.to_string(),
        ),
    }
}

/// Tries the credentials, for whoever wants to know before an agent does.
async fn canaries(gate: &Arc<Gate>, peer: &Peer) -> Answer {
    if let Err(problem) = gate.boundary.check() {
        return error(
            StatusCode::SERVICE_UNAVAILABLE,
            "boundary_not_proven",
            &format!("{problem}; no credential is held and nothing is sent"),
        );
    }
    crate::credential::try_now(gate, &peer.user).await;
    json(
        StatusCode::OK,
        &serde_json::json!({ "credentials": gate.vault.view() }),
    )
}

async fn read(body: Incoming, most: usize) -> Result<Zeroizing<Vec<u8>>, Answer> {
    if body.size_hint().lower() > u64::try_from(most).unwrap_or(u64::MAX) {
        return Err(too_large(most));
    }
    let whole = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, most).collect());
    match whole.await {
        Ok(Ok(collected)) => Ok(Zeroizing::new(collected.to_bytes().into())),
        Ok(Err(problem)) if problem.is::<LengthLimitError>() => Err(too_large(most)),
        Ok(Err(problem)) => Err(error(
            StatusCode::BAD_REQUEST,
            "bad_request",
            &problem.to_string(),
        )),
        Err(_) => Err(error(
            StatusCode::REQUEST_TIMEOUT,
            "bad_request",
            "the body did not arrive in time",
        )),
    }
}

fn too_large(most: usize) -> Answer {
    error(
        StatusCode::PAYLOAD_TOO_LARGE,
        "too_large",
        &format!("the body is longer than {most} bytes (limits.control_body_bytes)"),
    )
}

fn malformed(problem: &serde_json::Error) -> Answer {
    error(
        StatusCode::BAD_REQUEST,
        "bad_request",
        &format!("the body is not understood: {problem}"),
    )
}
