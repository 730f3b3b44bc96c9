//! A web server that records every decrypted byte it is sent and answers by path.
//!
//! Connection `n` (from 1) is recorded in `DIR/NNNN.bytes`, written as the bytes arrive, so that a
//! test can look at a request that never ended. The answer never repeats a header *value*: what the
//! gate injected is seen in the record, not by the client.
//!
//! | path | answer |
//! |---|---|
//! | `/status/CODE` | that status, a short text |
//! | `/redirect/HOST/PATH` | 302 to `https://HOST/PATH` |
//! | `/bytes/N` | N bytes with a length |
//! | `/drip/N` | chunked, N lines, one each 50 ms |
//! | `/echo` | the request's body, as it arrives |
//! | `/names` | JSON list of the request's header names |
//! | `/challenge` | 401 with a Basic challenge |
//! | anything else | 200, `recorded` |

use std::convert::Infallible;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::listener::Listen;

type Body = BoxBody<Bytes, hyper::Error>;

/// Serves until the process ends, recording into `dir`. Errors are those of binding and of `dir`.
pub async fn serve(dir: PathBuf, listen: &Listen) -> io::Result<()> {
    fs::create_dir_all(&dir)?;
    let count = Arc::new(AtomicUsize::new(0));
    let bound = listen.bind().await?;
    loop {
        let Ok((stream, _)) = bound.tcp.accept().await else {
            continue;
        };
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        // Made at accept: a connection that sends nothing is seen as an empty record.
        let record = File::create(dir.join(format!("{number:04}.bytes")))?;
        let tls = bound.tls.clone();
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else {
                return;
            };
            let stream = TokioIo::new(Recording {
                inner: stream,
                record,
            });
            let service = service_fn(|request| async { Ok::<_, Infallible>(answer(request)) });
            // A client that goes away in mid-request is what some tests are about.
            let _gone = http1::Builder::new()
                .serve_connection(stream, service)
                .await;
        });
    }
}

fn answer(request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let mut segments = path.trim_start_matches('/').splitn(2, '/');
    let first = segments.next().unwrap_or_default();
    let rest = segments.next().unwrap_or_default();
    match first {
        "status" => {
            let status = rest
                .parse()
                .ok()
                .and_then(|code| StatusCode::from_u16(code).ok());
            text(status.unwrap_or(StatusCode::BAD_REQUEST), "as asked\n")
        }
        "redirect" => {
            let mut response = text(StatusCode::FOUND, "elsewhere\n");
            if let Ok(location) = header::HeaderValue::from_str(&format!("https://{rest}")) {
                response.headers_mut().insert(header::LOCATION, location);
            }
            response
        }
        "bytes" => text(StatusCode::OK, &"x".repeat(rest.parse().unwrap_or(0))),
        "drip" => Response::new(drip(rest.parse().unwrap_or(0)).boxed()),
        "echo" => Response::new(request.into_body().boxed()),
        "names" => {
            let names: Vec<_> = request
                .headers()
                .keys()
                .map(header::HeaderName::as_str)
                .collect();
            text(StatusCode::OK, &format!("{}\n", serde_json::json!(names)))
        }
        "challenge" => {
            let mut response = text(StatusCode::UNAUTHORIZED, "stand-in: credential required\n");
            let challenge = header::HeaderValue::from_static("Basic realm=\"stand-in\"");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, challenge);
            response
        }
        _ => text(StatusCode::OK, "recorded\n"),
    }
}

fn text(status: StatusCode, text: &str) -> Response<Body> {
    let body = Full::new(Bytes::copy_from_slice(text.as_bytes()));
    let mut response = Response::new(body.map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    response
}

/// A body of `lines` lines, one each 50 ms.
fn drip(lines: usize) -> Drip {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        for line in 0..lines {
            if sender
                .send(Bytes::from(format!("line {line}\n")))
                .await
                .is_err()
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    Drip(receiver)
}

struct Drip(tokio::sync::mpsc::Receiver<Bytes>);

impl hyper::body::Body for Drip {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.0
            .poll_recv(context)
            .map(|line| line.map(|line| Ok(Frame::data(line))))
    }
}

/// A stream that keeps a copy of what is read from it.
struct Recording<S> {
    inner: S,
    record: File,
}

impl<S: AsyncRead + Unpin> AsyncRead for Recording<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        if let Poll::Ready(Ok(())) = polled {
            self.record.write_all(&buffer.filled()[before..])?;
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Recording<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
