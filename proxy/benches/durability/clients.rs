//! Clients that ask one thing after the other on connections that they keep.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::Barrier;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::load::{Clock, Load};
use super::processors::{self, Side};
use super::stand::{Stand, Way};
use super::trust::trusting;

/// What came of it, and of the log.
pub(crate) struct Recorded {
    pub(crate) load: Load,
    /// How often the log was synced for each request.
    pub(crate) syncs: f64,
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

    /// So many of them at once for so long.
    pub(crate) fn load(&self, stand: &Stand, count: usize, span: Duration) -> Recorded {
        self.runtime.block_on(load(stand, count, span))
    }
}

async fn load(stand: &Stand, count: usize, span: Duration) -> Recorded {
    let config = Arc::new(trusting(stand.ca(), &[]));
    let ready = Arc::new(Barrier::new(count + 1));
    let clients: Vec<_> = (0..count)
        .map(|_| {
            let (config, ready) = (Arc::clone(&config), Arc::clone(&ready));
            tokio::spawn(client(stand.address, stand.way, config, ready, span))
        })
        .collect();
    ready.wait().await;
    let (clock, syncs) = (Clock::start(), stand.syncs());
    let mut took: Vec<Duration> = Vec::new();
    for client in clients {
        took.extend(client.await.unwrap());
    }
    let load = clock.stop(took);
    let syncs = f64::from(u32::try_from(stand.syncs() - syncs).unwrap()) / load.requests;
    Recorded { load, syncs }
}

/// One of them; how long each of its requests took.
async fn client(
    gate: std::net::SocketAddr,
    way: Way,
    config: Arc<ClientConfig>,
    ready: Arc<Barrier>,
    span: Duration,
) -> Vec<Duration> {
    let host = way.host();
    let mut stream = tunnel(gate, host, config).await;
    let request = format!(
        "GET /v1/items/7?page=2 HTTP/1.1\r\nHost: {host}\r\nUser-Agent: sdk/1.0\r\n\
         Accept: application/json\r\nAuthorization: Bearer placeholder\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    // Every answer is as long as the first one.
    let length = answer(&mut stream).await;
    let mut buffer = vec![0; length];
    ready.wait().await;
    let until = Instant::now() + span;
    let mut took = Vec::new();
    let mut asked = Instant::now();
    while asked < until {
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.read_exact(&mut buffer).await.unwrap();
        let now = Instant::now();
        took.push(now - asked);
        asked = now;
    }
    assert!(buffer.starts_with(b"HTTP/1.1 200 "));
    took
}

async fn tunnel(
    gate: std::net::SocketAddr,
    host: &str,
    config: Arc<ClientConfig>,
) -> TlsStream<TcpStream> {
    let mut stream = TcpStream::connect(gate).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let connect = format!("CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n");
    stream.write_all(connect.as_bytes()).await.unwrap();
    answer(&mut stream).await;
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let connector = TlsConnector::from(config);
    connector.connect(name, stream).await.unwrap()
}

/// Reads one answer, which must be a good one, and says how long it was.
async fn answer<IO: AsyncRead + AsyncWrite + Unpin>(stream: &mut IO) -> usize {
    let mut bytes = Vec::new();
    loop {
        assert!(stream.read_buf(&mut bytes).await.unwrap() > 0);
        let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        let Some((head, _)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        assert!(head.starts_with("http/1.1 200 "), "{head}");
        let length = head.split("content-length: ").nth(1);
        let length = length.and_then(|rest| rest.lines().next());
        let whole = head.len() + 4 + length.map_or(0, |length| length.parse().unwrap());
        if bytes.len() >= whole {
            return whole;
        }
    }
}
