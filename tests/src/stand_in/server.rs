//! The web server that the API stand-ins share: TLS, HTTP/1.1 and, where asked for, HTTP/2.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::mpsc;

use super::listener::Listen;

/// What a stand-in answers with.
pub type Body = BoxBody<Bytes, io::Error>;

/// Serves until the process ends; `answer` is asked for each request. Errors are those of binding.
pub async fn serve<A, F>(listen: &Listen, answer: A) -> io::Result<()>
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let bound = listen.bind().await?;
    loop {
        let Ok((stream, _)) = bound.tcp.accept().await else {
            continue;
        };
        let (tls, answer) = (bound.tls.clone(), answer.clone());
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else {
                return;
            };
            let second = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let service = service_fn(move |request| {
                let answer = answer(request);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            let io = TokioIo::new(stream);
            // A client that goes away in mid-request is none of our business.
            let _gone = if second {
                let builder = http2::Builder::new(TokioExecutor::new());
                builder.serve_connection(io, service).await
            } else {
                let server = http1::Builder::new().serve_connection(io, service);
                server.with_upgrades().await
            };
        });
    }
}

/// A text with a status.
pub fn text(status: StatusCode, text: impl Into<String>) -> Response<Body> {
    whole(status, "text/plain; charset=utf-8", text.into().into())
}

/// A JSON document.
pub fn json(status: StatusCode, value: &serde_json::Value) -> Response<Body> {
    whole(status, "application/json", value.to_string().into())
}

/// A body that is there at once.
pub fn whole(status: StatusCode, kind: &'static str, bytes: Bytes) -> Response<Body> {
    let body = Full::new(bytes).map_err(|never| match never {});
    let mut response = Response::new(body.boxed());
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// A body whose frames come through a channel; it ends when the sender goes.
pub fn channel() -> (mpsc::Sender<io::Result<Frame<Bytes>>>, Body) {
    let (sender, receiver) = mpsc::channel(4);
    (sender, Receiver(receiver).boxed())
}

/// The request's body, to its end.
pub async fn collect(body: Incoming) -> Bytes {
    body.collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default()
}

/// A channel's receiving half as a body.
struct Receiver(mpsc::Receiver<io::Result<Frame<Bytes>>>);

impl hyper::body::Body for Receiver {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(context)
    }
}
