//! Connections beyond the limit, which are told so at once.

use std::convert::Infallible;
use std::time::Duration;

use http::StatusCode;
use http::header::{CONNECTION, HeaderValue};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::sync::OwnedSemaphorePermit;

use super::answer::error;

/// So many are told at once, each for at most [`TOLD`]; more are closed without a word.
pub(super) const PLACES: usize = 64;
const TOLD: Duration = Duration::from_secs(2);

/// Answers the first request with the reason, whatever it is.
pub(super) async fn away(stream: UnixStream, _place: OwnedSemaphorePermit) {
    let service = service_fn(async |_request| {
        let text = "as many connections are open as control_connections in [limits] allows: ask again when one has ended";
        let mut answer = error(StatusCode::TOO_MANY_REQUESTS, "limit_reached", text);
        let close = HeaderValue::from_static("close");
        answer.headers_mut().insert(CONNECTION, close);
        Ok::<_, Infallible>(answer)
    });
    let served = hyper::server::conn::http1::Builder::new()
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(TOLD, served).await {
        Ok(Ok(())) => {}
        Ok(Err(problem)) => tracing::debug!("control socket: {problem}"),
        Err(_late) => tracing::debug!("control socket: one that was turned away asked nothing"),
    }
}
