//! One HTTP/1.1 request over a unix socket: how this room talks to the gate and, as a command line,
//! to the orchestrator itself.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;

/// The most that is read of an answer.
const ANSWER: usize = 64 * 1024 * 1024;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why there was no answer.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Nobody listens.
    #[error("{path}: nobody answers")]
    Away {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
    /// The conversation broke off.
    #[error("the answer broke off")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It took too long.
    #[error("no answer within {} seconds", PATIENCE.as_secs())]
    Slow,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// The whole body.
    pub body: Bytes,
}

impl Answer {
    /// The body as JSON; `Null` when it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

/// Sends one request on a connection of its own.
///
/// # Errors
/// See [`SocketError`]. Any status is an answer, not an error.
pub async fn request(
    path: &Path,
    method: http::Method,
    target: &str,
    body: Option<Vec<u8>>,
) -> Result<Answer, SocketError> {
    tokio::time::timeout(PATIENCE, exchange(path, method, target, body))
        .await
        .map_err(|_elapsed| SocketError::Slow)?
}

async fn exchange(
    path: &Path,
    method: http::Method,
    target: &str,
    body: Option<Vec<u8>>,
) -> Result<Answer, SocketError> {
    let stream = UnixStream::connect(path)
        .await
        .map_err(|source| SocketError::Away {
            path: path.to_owned(),
            source,
        })?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let pump = tokio::spawn(connection);
    let mut request = http::Request::builder()
        .method(method)
        .uri(target)
        .header("host", "localhost");
    if body.is_some() {
        request = request.header("content-type", "application/json");
    }
    let request = request
        .body(Full::new(Bytes::from(body.unwrap_or_default())))
        .map_err(broken)?;
    let response = sender.send_request(request).await.map_err(broken)?;
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), ANSWER)
        .collect()
        .await
        .map_err(SocketError::Broken)?;
    drop(sender);
    pump.abort();
    Ok(Answer {
        status,
        body: body.to_bytes(),
    })
}

fn broken(error: impl std::error::Error + Send + Sync + 'static) -> SocketError {
    SocketError::Broken(Box::new(error))
}
