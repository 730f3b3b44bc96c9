//! The other end of the control socket, for the command line.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

/// The longest answer that is taken.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
const PATIENCE: Duration = Duration::from_secs(30);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens, or the socket may not be used.
    #[error("cannot reach the gate at {path}")]
    Connect {
        /// The control socket.
        path: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The connection broke.
    #[error("talking to the gate failed: {0}")]
    Talk(String),
    /// No answer in time.
    #[error("the gate did not answer within {} seconds", PATIENCE.as_secs())]
    Patience,
}

/// One request; the answer's status and body.
///
/// # Errors
/// [`ClientError`]
pub async fn ask(
    socket: &Path,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> Result<(StatusCode, Bytes), ClientError> {
    let asking = async {
        let stream = UnixStream::connect(socket)
            .await
            .map_err(|source| ClientError::Connect {
                path: socket.display().to_string(),
                source,
            })?;
        exchange(stream, method, path, body).await
    };
    tokio::time::timeout(PATIENCE, asking)
        .await
        .map_err(|_| ClientError::Patience)?
}

/// As [`ask`], on a connection that was made before, possibly as somebody else.
///
/// # Errors
/// [`ClientError`]
pub async fn ask_on(
    connected: std::os::unix::net::UnixStream,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> Result<(StatusCode, Bytes), ClientError> {
    let talk = |problem: std::io::Error| ClientError::Talk(problem.to_string());
    connected.set_nonblocking(true).map_err(talk)?;
    let stream = UnixStream::from_std(connected).map_err(talk)?;
    tokio::time::timeout(PATIENCE, exchange(stream, method, path, body))
        .await
        .map_err(|_| ClientError::Patience)?
}

async fn exchange(
    stream: UnixStream,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> Result<(StatusCode, Bytes), ClientError> {
    let talk = |problem: &dyn std::fmt::Display| ClientError::Talk(problem.to_string());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|e| talk(&e))?;
    let driver = tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::HOST, "portcullis")
        .body(Full::new(Bytes::from(body)))
        .map_err(|problem| talk(&problem))?;
    let response = sender
        .send_request(request)
        .await
        .map_err(|problem| talk(&problem))?;
    let status = response.status();
    let whole = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
        .collect()
        .await;
    let whole = whole.map_err(|problem| talk(&problem))?.to_bytes();
    driver.abort();
    Ok((status, whole))
}
