//! Clients that ask one thing after the other on connections that they keep.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::Barrier;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::processors::{self, Side, processor_time};
use super::stand::{Stand, Way};

/// What came of it.
pub(crate) struct Load {
    requests: f64,
    seconds: f64,
    /// Microseconds of the gate's threads for each request.
    pub(crate) cpu_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// How often the log was synced for each request.
    pub(crate) syncs: f64,
}

impl Load {
    /// Requests in a second.
    pub(crate) fn rate(&self) -> f64 {
        self.requests / self.seconds
    }
}

pub(crate) struct Clients {
    runtime: Runtime,
}

impl Clients {
    /// They run on this thread, which stays on the last processor.
    pub(crate) fn new() -> Self {
        processors::keep_on(Side::Others);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        Self { runtime }
    }

    /// So many of them at once for so long.
    pub(crate) fn load(&self, stand: &Stand, count: usize, span: Duration) -> Load {
        self.runtime.block_on(load(stand, count, span))
    }
}

async fn load(stand: &Stand, count: usize, span: Duration) -> Load {
    let config = Arc::new(trusting(stand));
    let ready = Arc::new(Barrier::new(count + 1));
    let clients: Vec<_> = (0..count)
        .map(|_| {
            let (config, ready) = (Arc::clone(&config), Arc::clone(&ready));
            tokio::spawn(client(stand.address, stand.way, config, ready, span))
        })
        .collect();
    ready.wait().await;
    let (begun, cpu, syncs) = (Instant::now(), processor_time(), stand.syncs());
    let mut took: Vec<Duration> = Vec::new();
    for client in clients {
        took.extend(client.await.unwrap());
    }
    let (seconds, cpu) = (
        begun.elapsed().as_secs_f64(),
        processor_time().saturating_sub(cpu),
    );
    took.sort_unstable();
    let at = |part: usize| took[(took.len() - 1) * part / 100].as_secs_f64() * 1e6;
    let requests = f64::from(u32::try_from(took.len()).unwrap());
    Load {
        requests,
        seconds,
        cpu_us: cpu.as_secs_f64() * 1e6 / requests,
        p50_us: at(50),
        p99_us: at(99),
        syncs: f64::from(u32::try_from(stand.syncs() - syncs).unwrap()) / requests,
    }
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

fn trusting(stand: &Stand) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(stand.ca()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}
