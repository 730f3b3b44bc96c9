//! HTTP to whoever runs guests: one request on one connection, and its answer whole.
//!
//! What is sent may be a file of any size, which is read as it goes. What comes back has a bound.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body, Frame, SizeHint};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

/// The longest answer that is taken.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How long one answer may take: an image is unpacked meanwhile.
const PATIENCE: Duration = Duration::from_secs(900);
const PIECE: usize = 256 * 1024;

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum HttpError {
    #[error("cannot reach {at}")]
    Connect {
        at: String,
        #[source]
        source: io::Error,
    },
    #[error("talking to {at} failed: {what}")]
    Talk { at: String, what: String },
    #[error("{at} did not answer within {} seconds", PATIENCE.as_secs())]
    Patience { at: String },
    #[error("cannot read what is to be sent")]
    Read(#[source] io::Error),
}

/// What is sent, in this order.
#[derive(Debug)]
pub enum Part {
    Bytes(Vec<u8>),
    File(PathBuf),
}

/// One request.
#[derive(Debug)]
pub struct Ask {
    pub method: Method,
    /// Path and query.
    pub target: String,
    pub fields: Vec<(HeaderName, HeaderValue)>,
    pub body: Vec<Part>,
}

/// Its answer.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub body: Bytes,
}

/// Asks whoever listens on a unix socket.
///
/// # Errors
/// [`HttpError`]
pub fn over_unix(socket: &Path, ask: Ask) -> Result<Answer, HttpError> {
    let at = socket.display().to_string();
    block(&at, async {
        let stream = UnixStream::connect(socket)
            .await
            .map_err(|source| HttpError::Connect {
                at: at.clone(),
                source,
            })?;
        exchange(stream, "localhost", &at, ask).await
    })
}

/// Runs to its end, within [`PATIENCE`].
pub(super) fn block<T>(
    at: &str,
    asking: impl Future<Output = Result<T, HttpError>>,
) -> Result<T, HttpError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| HttpError::Connect {
            at: at.to_owned(),
            source,
        })?;
    runtime.block_on(async {
        tokio::time::timeout(PATIENCE, asking)
            .await
            .map_err(|_| HttpError::Patience { at: at.to_owned() })?
    })
}

/// One request on a connection that is there.
pub(super) async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    host: &str,
    at: &str,
    ask: Ask,
) -> Result<Answer, HttpError> {
    let talk = |what: &dyn std::fmt::Display| HttpError::Talk {
        at: at.to_owned(),
        what: what.to_string(),
    };
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|problem| talk(&problem))?;
    let driver = tokio::spawn(connection);
    let mut request = Request::builder()
        .method(ask.method)
        .uri(ask.target)
        .header(http::header::HOST, host);
    for (name, value) in ask.fields {
        request = request.header(name, value);
    }
    let sent = Sent::open(ask.body).map_err(HttpError::Read)?;
    let request = request.body(sent).map_err(|problem| talk(&problem))?;
    let answer = sender
        .send_request(request)
        .await
        .map_err(|problem| talk(&problem))?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX)
        .collect()
        .await
        .map_err(|problem| talk(&problem))?
        .to_bytes();
    driver.abort();
    Ok(Answer { status, body })
}

/// The parts as a body of known length.
struct Sent {
    parts: std::collections::VecDeque<Open>,
    left: u64,
}

enum Open {
    Bytes(Vec<u8>),
    File(File, u64),
}

impl Sent {
    fn open(parts: Vec<Part>) -> io::Result<Self> {
        let mut left = 0;
        let mut open = std::collections::VecDeque::new();
        for part in parts {
            let part = match part {
                Part::Bytes(bytes) => {
                    left += bytes.len() as u64;
                    Open::Bytes(bytes)
                }
                Part::File(path) => {
                    let file = File::open(path)?;
                    let length = file.metadata()?.len();
                    left += length;
                    Open::File(file, length)
                }
            };
            open.push_back(part);
        }
        Ok(Self { parts: open, left })
    }

    /// The next piece. A file that is shorter than it was is an error: the length has been said.
    fn next(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            match self.parts.pop_front()? {
                Open::Bytes(bytes) if bytes.is_empty() => {}
                Open::Bytes(bytes) => return Some(Ok(bytes.into())),
                Open::File(_, 0) => {}
                Open::File(mut file, length) => {
                    let mut piece = vec![0; PIECE.min(usize::try_from(length).unwrap_or(PIECE))];
                    return Some(match file.read(&mut piece) {
                        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                        Ok(read) => {
                            piece.truncate(read);
                            self.parts
                                .push_front(Open::File(file, length - read as u64));
                            Ok(piece.into())
                        }
                        Err(problem) => Err(problem),
                    });
                }
            }
        }
    }
}

impl Body for Sent {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Poll::Ready(self.next().map(|piece| {
            piece.map(|piece| {
                self.left = self.left.saturating_sub(piece.len() as u64);
                Frame::data(piece)
            })
        }))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
