//! An upstream and a client built on hyper, which speak HTTP/1.1 or HTTP/2.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use super::stand::Stand;
use super::upstream::{Identity, identity};

pub(crate) type Body = BoxBody<Bytes, Infallible>;

/// What the upstream saw of a request.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) version: Version,
    pub(crate) uri: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: usize,
    pub(crate) trailers: Option<HeaderMap>,
}

pub(crate) struct Modern {
    pub(crate) address: SocketAddr,
    pub(crate) ca: String,
    pub(crate) pin: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<Mutex<usize>>,
    resumed: Arc<Mutex<usize>>,
}

impl Modern {
    /// A server whose certificate names `host` and which offers these protocols by ALPN.
    pub(crate) async fn start(host: &str, protocols: &[&str]) -> Self {
        let Identity {
            mut config,
            ca,
            pin,
        } = identity(host);
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let this = Self {
            address: listener.local_addr().unwrap(),
            ca,
            pin,
            seen: Arc::default(),
            connections: Arc::default(),
            resumed: Arc::default(),
        };
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let (seen, connections, resumed) = (
            Arc::clone(&this.seen),
            Arc::clone(&this.connections),
            Arc::clone(&this.resumed),
        );
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, seen) = (acceptor.clone(), Arc::clone(&seen));
                let (connections, resumed) = (Arc::clone(&connections), Arc::clone(&resumed));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    *connections.lock().unwrap() += 1;
                    let kind = stream.get_ref().1.handshake_kind();
                    if kind == Some(rustls::HandshakeKind::Resumed) {
                        *resumed.lock().unwrap() += 1;
                    }
                    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    let service = service_fn(move |request| answer(request, Arc::clone(&seen)));
                    let io = TokioIo::new(stream);
                    // How a connection ends is not this server's affair.
                    if http2 {
                        let builder =
                            hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        let _ = builder.serve_connection(io, service).await;
                    } else {
                        let builder = hyper::server::conn::http1::Builder::new();
                        let _ = builder.serve_connection(io, service).await;
                    }
                });
            }
        });
        this
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }

    /// How many of them resumed a TLS session.
    pub(crate) fn resumed(&self) -> usize {
        *self.resumed.lock().unwrap()
    }

    /// A policy with one credentialed service at this upstream, with these lines more.
    pub(crate) fn policy(&self, host: &str, more: &str) -> String {
        format!(
            "version = 1\n[[service]]\nid = \"api\"\nkind = \"http\"\nhost = \"{host}\"\naddress = \"{}\"\n\
             ca_file = \"CA_FILE\"\ncredential = \"api\"\nallow = [\"* /v1/**\"]\n{more}\n",
            self.address
        )
    }

    /// A gate before this upstream.
    pub(crate) fn stand(&self, policy: &str) -> Stand {
        self.stand_with_limits(policy, "idle_timeout_seconds = 60")
    }

    pub(crate) fn stand_with_limits(&self, policy: &str, limits: &str) -> Stand {
        let like = super::upstream::Upstream {
            address: self.address,
            log: Arc::default(),
            ca: self.ca.clone(),
            pin: String::new(),
        };
        Stand::with_limits(&like, policy, limits)
    }
}

async fn answer(
    request: Request<Incoming>,
    log: Arc<Mutex<Vec<Seen>>>,
) -> Result<Response<Body>, Infallible> {
    let (parts, mut body) = request.into_parts();
    let index = {
        let mut log = log.lock().unwrap();
        log.push(Seen {
            version: parts.version,
            uri: parts.uri.to_string(),
            headers: parts.headers.clone(),
            body: 0,
            trailers: None,
        });
        log.len() - 1
    };
    let path = parts.uri.path();
    if path.starts_with("/v1/hang") || path == "/v1/bidi" {
        let echo = path == "/v1/bidi";
        let (sender, frames) = streamed();
        tokio::spawn(async move {
            let mut open = sender.send(Frame::data(Bytes::from("first"))).await.is_ok();
            while let Some(Ok(frame)) = body.frame().await {
                if let Ok(data) = frame.into_data()
                    && echo
                {
                    open &= sender.send(Frame::data(data)).await.is_ok();
                }
            }
            if echo && open {
                let mut fields = HeaderMap::new();
                fields.insert("grpc-status", "0".parse().unwrap());
                // Nobody has to read it.
                let _ = sender.send(Frame::trailers(fields)).await;
                return;
            }
            // Open until nobody reads any more.
            sender.closed().await;
        });
        return Ok(Response::new(frames));
    }
    if path.starts_with("/v1/echo/") {
        return Ok(echo(&parts, body).await);
    }
    let mut length = 0;
    let mut trailers = None;
    while let Some(Ok(frame)) = body.frame().await {
        match frame.into_data() {
            Ok(data) => length += data.len(),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    {
        let mut log = log.lock().unwrap();
        log[index].body = length;
        log[index].trailers = trailers;
    }
    if parts.method == http::Method::HEAD {
        let mut response = Response::new(full(Vec::new()));
        response.headers_mut().insert("content-length", 10.into());
        return Ok(response);
    }
    if path == "/v1/part" {
        return Ok(part(&parts.headers));
    }
    let mut response = match path {
        "/v1/trailers" => {
            let (sender, frames) = streamed();
            tokio::spawn(async move {
                let mut fields = HeaderMap::new();
                fields.insert("grpc-status", "0".parse().unwrap());
                fields.insert("set-cookie", "s=1".parse().unwrap());
                for frame in [Frame::data(Bytes::from("message")), Frame::trailers(fields)] {
                    // Nobody has to read it.
                    let _ = sender.send(frame).await;
                }
            });
            let mut response = Response::new(frames);
            let name = "grpc-status".parse().unwrap();
            response.headers_mut().insert("trailer", name);
            response
        }
        "/v1/large" => Response::new(full(vec![b'x'; 8 << 20])),
        "/v1/none" | "/v1/same" => Response::new(full(Vec::new())),
        _ => Response::new(full(format!("received {length}").into_bytes())),
    };
    match path {
        "/v1/none" => *response.status_mut() = StatusCode::NO_CONTENT,
        "/v1/same" => *response.status_mut() = StatusCode::NOT_MODIFIED,
        _ => {}
    }
    Ok(response)
}

/// Ten bytes, or the part of them that is asked for.
fn part(fields: &HeaderMap) -> Response<Body> {
    let field = |name: &str| fields.get(name).map(|value| value.to_str().unwrap());
    let same = field("if-range").is_none_or(|tag| tag == "\"first\"");
    let (status, range, body) = match field("range").filter(|_| same) {
        Some("bytes=2-4") => (206, Some("bytes 2-4/10"), "234"),
        Some("bytes=-1") => (206, Some("bytes 9-9/10"), "9"),
        Some(_) => (416, Some("bytes */10"), ""),
        None => (200, None, "0123456789"),
    };
    let mut response = Response::new(full(body.as_bytes().to_vec()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    let fields = response.headers_mut();
    fields.insert("etag", "\"first\"".parse().unwrap());
    fields.insert("accept-ranges", "bytes".parse().unwrap());
    if let Some(range) = range {
        fields.insert("content-range", range.parse().unwrap());
    }
    response
}

/// Repeats the body in chunks of so many bytes (`/v1/echo/SIZE`) and the field `x-say`; encoded as
/// the field `x-encoded` says that it is. `x-say-behind` is repeated behind the body.
async fn echo(parts: &http::request::Parts, body: Incoming) -> Response<Body> {
    let size = parts.uri.path().rsplit('/').next().unwrap();
    let size: usize = size.parse().unwrap();
    // Whoever breaks its request off gets nothing of it.
    let bytes = body
        .collect()
        .await
        .map_or_else(|_| Bytes::new(), |all| all.to_bytes());
    let field = |name: &str| parts.headers.get(name).cloned();
    let behind = field("x-say-behind");
    let (sender, frames) = streamed();
    tokio::spawn(async move {
        for chunk in bytes.chunks(size) {
            let frame = Frame::data(Bytes::copy_from_slice(chunk));
            if sender.send(frame).await.is_err() {
                return;
            }
        }
        if let Some(value) = behind {
            let fields = HeaderMap::from_iter([("x-said".parse().unwrap(), value)]);
            // Nobody has to read it.
            let _ = sender.send(Frame::trailers(fields)).await;
        }
    });
    let mut response = Response::new(frames);
    for (to, from) in [("x-said", "x-say"), ("content-encoding", "x-encoded")] {
        if let Some(value) = field(from) {
            response.headers_mut().insert(to, value);
        }
    }
    response
}

fn streamed() -> (mpsc::Sender<Frame<Bytes>>, Body) {
    let (sender, frames) = mpsc::channel(4);
    (sender, Streamed(frames).boxed())
}

/// A body made elsewhere, frame by frame.
struct Streamed(mpsc::Receiver<Frame<Bytes>>);

impl hyper::body::Body for Streamed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|frame| frame.map(Ok))
    }
}

/// A request's body that the test sends frame by frame.
pub(crate) fn sent() -> (mpsc::Sender<Frame<Bytes>>, Body) {
    streamed()
}

pub(crate) fn full(bytes: Vec<u8>) -> Body {
    Full::new(Bytes::from(bytes)).boxed()
}

/// A client in a tunnel.
pub(crate) enum Client {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

impl Client {
    /// Opens a tunnel to `host` as the agent with this uid, offering these protocols, and speaks the
    /// one that the gate chose.
    pub(crate) async fn open(stand: &Stand, uid: u32, host: &str, protocols: &[&str]) -> Self {
        let tls = stand.tunnel_offering(uid, host, protocols).await.unwrap();
        Self::over(tls).await
    }

    pub(crate) async fn over(
        tls: tokio_rustls::client::TlsStream<tokio::io::DuplexStream>,
    ) -> Self {
        Self::try_over(tls).await.unwrap()
    }

    /// The same where the gate may be gone already.
    pub(crate) async fn try_over(
        tls: tokio_rustls::client::TlsStream<tokio::io::DuplexStream>,
    ) -> hyper::Result<Self> {
        let http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
        let io = TokioIo::new(tls);
        Ok(if http2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
            tokio::spawn(connection);
            Self::Http2(sender)
        } else {
            let (sender, connection) = http1::handshake(io).await?;
            tokio::spawn(connection);
            Self::Http1(sender)
        })
    }

    /// Another user of the same connection.
    pub(crate) fn clone_of_http2(&self) -> Self {
        match self {
            Self::Http2(sender) => Self::Http2(sender.clone()),
            Self::Http1(_) => panic!("HTTP/2 was agreed on"),
        }
    }

    pub(crate) fn is_http2(&self) -> bool {
        matches!(self, Self::Http2(_))
    }

    pub(crate) async fn send(
        &mut self,
        request: Request<Body>,
    ) -> hyper::Result<Response<Incoming>> {
        let patience = Duration::from_secs(20);
        let answer = async {
            match self {
                Self::Http1(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
                Self::Http2(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
            }
        };
        tokio::time::timeout(patience, answer)
            .await
            .expect("the gate answers")
    }

    /// A request in the form that the connection's protocol wants.
    pub(crate) fn request(&self, method: &str, host: &str, path: &str) -> http::request::Builder {
        let builder = Request::builder().method(method);
        if self.is_http2() {
            builder.uri(format!("https://{host}{path}"))
        } else {
            builder.uri(path).header("host", host)
        }
    }

    /// A GET, and all of its answer.
    pub(crate) async fn get(&mut self, host: &str, path: &str) -> (StatusCode, HeaderMap, String) {
        let request = self.request("GET", host, path).body(full(Vec::new()));
        whole(self.send(request.unwrap()).await.unwrap()).await
    }
}

/// A client of HTTP/2 that lets an answer send so many bytes and shows all the time that it is there;
/// and its connection.
pub(crate) async fn reading_no_further(
    tls: tokio_rustls::client::TlsStream<tokio::io::DuplexStream>,
    window: u32,
) -> (
    http2::SendRequest<Body>,
    tokio::task::JoinHandle<hyper::Result<()>>,
) {
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(window)
        .keep_alive_interval(Duration::from_millis(50))
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(tls))
        .await
        .unwrap();
    (sender, tokio::spawn(connection))
}

/// Reads an answer to its end.
pub(crate) async fn whole(response: Response<Incoming>) -> (StatusCode, HeaderMap, String) {
    let (parts, body) = response.into_parts();
    let collected = body.collect().await.unwrap();
    let text = String::from_utf8_lossy(&collected.to_bytes()).into_owned();
    (parts.status, parts.headers, text)
}
