//! The loopback port for a scraper: who it is is asked of the kernel, and who is not listed is told
//! so and nothing else.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::render;
use crate::control::custody::Custody;
use crate::entrance;
use crate::identify;

/// Scrapers at one time.
const MOST: usize = 8;
/// A whole scrape takes no longer.
const PATIENCE: Duration = Duration::from_secs(10);
const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves until it is dropped.
pub async fn serve(listener: TcpListener, uids: Vec<u32>, custody: Arc<Custody>) {
    let places = Places::default();
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(problem) if entrance::is_dead(&problem) => return entrance::gone(&problem),
            Err(problem) => {
                tracing::error!("metrics: accept failed: {problem}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Strangers have places of their own, so that they cannot take those of the others.
        let allowed = is_listed(&stream, peer, &uids);
        let Some(place) = places.take(allowed) else {
            continue;
        };
        let custody = Arc::clone(&custody);
        tokio::spawn(async move {
            // Whoever takes longer is let go.
            let _ = tokio::time::timeout(PATIENCE, connection(stream, allowed, custody)).await;
            drop(place);
        });
    }
}

/// Connections at one time, of those who are listed and of those who are not.
struct Places {
    listed: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
}

impl Default for Places {
    fn default() -> Self {
        let places = || Arc::new(Semaphore::new(MOST));
        Self {
            listed: places(),
            strangers: places(),
        }
    }
}

impl Places {
    /// A place among one's like, if there is one.
    fn take(&self, listed: bool) -> Option<OwnedSemaphorePermit> {
        let places = if listed {
            &self.listed
        } else {
            &self.strangers
        };
        Arc::clone(places).try_acquire_owned().ok()
    }
}

fn is_listed(stream: &TcpStream, peer: SocketAddr, uids: &[u32]) -> bool {
    let owner = stream
        .local_addr()
        .map_err(identify::IdentifyError::Kernel)
        .and_then(|own| identify::tcp_owner(peer, own));
    match owner {
        Ok(uid) => uids.contains(&uid),
        Err(problem) => {
            tracing::warn!("metrics: {problem}");
            false
        }
    }
}

async fn connection(stream: TcpStream, allowed: bool, custody: Arc<Custody>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer(&request, allowed, &custody);
        async move { Ok::<_, Infallible>(answer) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(problem) = served {
        tracing::debug!("metrics: {problem}");
    }
}

fn answer(request: &Request<Incoming>, allowed: bool, custody: &Custody) -> Response<Full<Bytes>> {
    let (status, text) = if !allowed {
        (
            StatusCode::FORBIDDEN,
            "not listed in [metrics] users\n".to_owned(),
        )
    } else if request.method() != Method::GET || request.uri().path() != "/metrics" {
        (StatusCode::NOT_FOUND, "GET /metrics\n".to_owned())
    } else {
        match render(custody) {
            Ok(text) => (StatusCode::OK, text),
            Err(problem) => (StatusCode::INTERNAL_SERVER_ERROR, problem.to_string()),
        }
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let kind = http::HeaderValue::from_static(TYPE);
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_take_no_place_of_those_who_are_listed() {
        let places = Places::default();
        let strangers: Vec<_> = (0..100).map_while(|_| places.take(false)).collect();
        assert_eq!(strangers.len(), MOST, "they are bounded too");
        let listed: Vec<_> = (0..100).map_while(|_| places.take(true)).collect();
        assert_eq!(listed.len(), MOST);
        drop(strangers);
        assert!(places.take(true).is_none() && places.take(false).is_some());
    }
}
