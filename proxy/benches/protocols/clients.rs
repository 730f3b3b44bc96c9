//! Clients of either version, that ask one thing after the other on connections that they keep.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, StatusCode, Version};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::Barrier;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::load::{Clock, Load};
use super::processors::{self, Side};
use super::trust::trusting;

/// Where clients go and what they ask for.
#[derive(Clone)]
pub(crate) struct Aim {
    pub(crate) proxy: SocketAddr,
    pub(crate) ca: CertificateDer<'static>,
    pub(crate) host: &'static str,
    pub(crate) path: &'static str,
    pub(crate) http2: bool,
}

pub(crate) struct Clients {
    runtime: Runtime,
}

impl Clients {
    /// They run on this thread, which stays on the last processor.
    pub(crate) fn new() -> Self {
        Self {
            runtime: processors::runtime_on(Side::Others),
        }
    }

    /// So many connections at once for so long, each with one request at a time.
    pub(crate) fn load(&self, aim: &Aim, count: usize, span: Duration) -> Load {
        self.runtime.block_on(async {
            let ready = Arc::new(Barrier::new(count + 1));
            let asking = |_| tokio::spawn(client(aim.clone(), Arc::clone(&ready), span));
            let clients: Vec<_> = (0..count).map(asking).collect();
            ready.wait().await;
            let clock = Clock::start();
            let mut took = Vec::new();
            for client in clients {
                took.extend(client.await.unwrap());
            }
            clock.stop(took)
        })
    }

    /// One after the other for so long: a connection, and a CONNECT that is refused.
    pub(crate) fn refused(&self, proxy: SocketAddr, span: Duration) -> Load {
        self.runtime.block_on(async {
            let clock = Clock::start();
            let mut took = Vec::new();
            while clock.elapsed() < span {
                let asked = Instant::now();
                let mut stream = TcpStream::connect(proxy).await.unwrap();
                let answer = connect(&mut stream, "unlisted.example.com").await;
                assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
                took.push(asked.elapsed());
            }
            clock.stop(took)
        })
    }
}

/// One of them; how long each of its requests took.
async fn client(aim: Aim, ready: Arc<Barrier>, span: Duration) -> Vec<Duration> {
    let mut sender = Sender::open(&aim).await;
    sender.ask(&aim).await;
    ready.wait().await;
    let until = Instant::now() + span;
    let mut took = Vec::new();
    let mut asked = Instant::now();
    while asked < until {
        sender.ask(&aim).await;
        let now = Instant::now();
        took.push(now - asked);
        asked = now;
    }
    took
}

enum Sender {
    Http1(http1::SendRequest<Empty<Bytes>>),
    Http2(http2::SendRequest<Empty<Bytes>>),
}

impl Sender {
    async fn open(aim: &Aim) -> Self {
        let stream = TokioIo::new(tunnel(aim).await);
        if aim.http2 {
            let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                .initial_stream_window_size(1 << 20)
                .initial_connection_window_size(4 << 20)
                .handshake(stream)
                .await
                .unwrap();
            tokio::spawn(connection);
            Self::Http2(sender)
        } else {
            let (sender, connection) = http1::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            Self::Http1(sender)
        }
    }

    /// One request, and all of its answer.
    async fn ask(&mut self, aim: &Aim) {
        let request = Request::get(match self {
            Self::Http1(_) => aim.path.to_owned(),
            Self::Http2(_) => format!("https://{}{}", aim.host, aim.path),
        })
        .header("user-agent", "sdk/1.0")
        .header("accept", "application/json")
        .header("authorization", "Bearer placeholder");
        let response = match self {
            Self::Http1(sender) => {
                let request = request.header("host", aim.host);
                sender.ready().await.unwrap();
                sender
                    .send_request(request.body(Empty::new()).unwrap())
                    .await
            }
            Self::Http2(sender) => {
                let request = request.version(Version::HTTP_2);
                sender.ready().await.unwrap();
                sender
                    .send_request(request.body(Empty::new()).unwrap())
                    .await
            }
        }
        .unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            frame.unwrap();
        }
    }
}

async fn tunnel(aim: &Aim) -> TlsStream<TcpStream> {
    let mut stream = TcpStream::connect(aim.proxy).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let answer = connect(&mut stream, aim.host).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let protocol = if aim.http2 { "h2" } else { "http/1.1" };
    let config = trusting(aim.ca.clone(), &[protocol]);
    let name = ServerName::try_from(aim.host).unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector.connect(name, stream).await.unwrap();
    let agreed = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    assert_eq!(agreed, aim.http2);
    stream
}

/// The head of the answer to a CONNECT.
async fn connect(stream: &mut TcpStream, host: &str) -> String {
    let connect = format!("CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n");
    stream.write_all(connect.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
        assert!(stream.read_buf(&mut bytes).await.unwrap() > 0);
    }
    String::from_utf8(bytes).unwrap()
}
