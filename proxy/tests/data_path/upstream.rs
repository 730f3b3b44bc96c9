//! A TLS server that keeps the raw bytes of every connection, and answers by path.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Everything that arrived, one buffer per connection.
pub(crate) type Log = Arc<Mutex<Vec<Vec<u8>>>>;

pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    pub(crate) log: Log,
    /// PEM of the CA that signed the server's certificate.
    pub(crate) ca: String,
    /// `sha256/BASE64` of the server's public key.
    pub(crate) pin: String,
}

impl Upstream {
    /// Starts a server whose certificate names `host`.
    pub(crate) async fn start(host: &str) -> Self {
        Self::serve(identity(host)).await
    }

    /// Starts a server that proves itself so.
    pub(crate) async fn serve(identity: Identity) -> Self {
        let Identity { config, ca, pin } = identity;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let log = Log::default();
        tokio::spawn(accept(
            listener,
            TlsAcceptor::from(Arc::new(config)),
            Arc::clone(&log),
        ));
        Self {
            address,
            log,
            ca,
            pin,
        }
    }

    /// All bytes of all connections, as text.
    pub(crate) fn text(&self) -> String {
        let log = self.log.lock().unwrap();
        log.iter()
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .collect()
    }

    pub(crate) fn connections(&self) -> usize {
        self.log.lock().unwrap().len()
    }

    pub(crate) fn is_untouched(&self) -> bool {
        self.text().is_empty()
    }
}

/// How a server proves itself.
pub(crate) struct Identity {
    pub(crate) config: ServerConfig,
    pub(crate) ca: String,
    pub(crate) pin: String,
}

/// A certificate for `host` and the CA that signed it.
pub(crate) fn identity(host: &str) -> Identity {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec![host.to_owned()]).unwrap();
    let certificate = leaf.signed_by(&key, &issuer).unwrap();
    let spki = Sha256::digest(rcgen::PublicKeyData::subject_public_key_info(&key));
    let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    use base64::Engine as _;
    let pin = base64::engine::general_purpose::STANDARD.encode(spki);
    Identity {
        config,
        ca: issuer.pem(),
        pin: format!("sha256/{pin}"),
    }
}

/// The same server without TLS: its address and its log.
pub(crate) async fn plain() -> (SocketAddr, Log) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let log = Log::default();
    let kept = Arc::clone(&log);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let index = {
                let mut log = log.lock().unwrap();
                log.push(Vec::new());
                log.len() - 1
            };
            let log = Arc::clone(&log);
            tokio::spawn(async move { converse(stream, &log, index).await });
        }
    });
    (address, kept)
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, log: Log) {
    while let Ok((stream, _)) = listener.accept().await {
        let index = {
            let mut log = log.lock().unwrap();
            log.push(Vec::new());
            log.len() - 1
        };
        let (acceptor, log) = (acceptor.clone(), Arc::clone(&log));
        tokio::spawn(async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                converse(stream, &log, index).await;
            }
        });
    }
}

/// Reads requests by their own framing and answers each by its path.
async fn converse<IO>(mut stream: IO, log: &Log, index: usize)
where
    IO: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let mut pending = Vec::new();
    loop {
        let Some(head) = read_until(&mut stream, &mut pending, b"\r\n\r\n", log, index).await
        else {
            return;
        };
        let head = String::from_utf8_lossy(&head).into_owned();
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let lower = head.to_ascii_lowercase();
        let mut received = 0;
        let interim = b"HTTP/1.1 100 Continue\r\n\r\n";
        if path == "/v1/asked"
            && lower.contains("expect: 100-continue")
            && (stream.write_all(interim).await.is_err() || stream.flush().await.is_err())
        {
            return;
        }
        if path == "/v1/unwanted" {
            let answer = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n";
            // A client that is gone has its answer or does not want it.
            let _ = stream.write_all(answer).await;
            let _ = stream.flush().await;
            let _ = stream.shutdown().await;
            return;
        }
        if let Some(length) = lower.split("content-length: ").nth(1) {
            let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
            while pending.len() < length - received {
                received += pending.len();
                pending.clear();
                if !more(&mut stream, &mut pending, log, index, length < 65_536).await {
                    return;
                }
            }
            pending.drain(..length - received);
            received = length;
        } else if lower.contains("transfer-encoding: chunked") {
            while let Some(line) = read_until(&mut stream, &mut pending, b"\r\n", log, index).await
            {
                let size = String::from_utf8_lossy(&line);
                let size = usize::from_str_radix(size.trim(), 16).unwrap();
                received += size;
                while pending.len() < size + 2 {
                    if !more(&mut stream, &mut pending, log, index, true).await {
                        return;
                    }
                }
                pending.drain(..size + 2);
                if size == 0 {
                    break;
                }
            }
        }
        if !answer(&mut stream, &path, &head, received).await {
            return;
        }
    }
}

/// A number that no answer had before.
fn next() -> u32 {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// What a token endpoint says: all is well, or what the path names.
fn oauth(path: &str) -> String {
    let number = next();
    let (access, refresh) = (format!("access-{number}"), format!("refresh-{number}"));
    let (status, body) = match path {
        "/oauth/no" => ("400 Bad Request", r#"{"error":"invalid_grant"}"#.to_owned()),
        "/oauth/down" => ("503 Service Unavailable", String::new()),
        other => {
            let (access, refresh, lasts) = match other {
                "/oauth/newline" => (format!("{access}\\nX-Evil: 1"), refresh, "3600"),
                "/oauth/control" => (access, format!("{refresh}\\u0001"), "3600"),
                "/oauth/text" => (access, refresh, "\"3600\""),
                "/oauth/fraction" => (access, refresh, "3600.0"),
                "/oauth/nonsense" => (access, refresh, "{\"in\":[]}"),
                _ => (access, refresh, "3600"),
            };
            let body = format!(
                "{{\"access_token\":\"{access}\",\"refresh_token\":\"{refresh}\",\"expires_in\":{lasts}}}"
            );
            ("200 OK", body)
        }
    };
    format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn answer<IO>(stream: &mut IO, path: &str, head: &str, received: usize) -> bool
where
    IO: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let text = match path {
        "/v1/echo-head" => {
            let auth = head.lines().find(|line| line.starts_with("authorization")).unwrap_or_default();
            format!("HTTP/1.1 200 OK\r\nX-Echo: {auth}\r\nSet-Cookie: s=1\r\nAlt-Svc: h3=\":1\"\r\nContent-Length: 2\r\n\r\nok")
        }
        "/v1/unauthorized" | "/v1/unauthorized/info/refs" => "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "/v1/whoami" if head.to_ascii_lowercase().contains("\r\nauthorization: ") => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nme".to_owned(),
        "/v1/whoami" => "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "/app/installations/34/access_tokens" => {
            let body = format!("{{\"token\":\"ghs_minted-{}\",\"expires_at\":\"2099-01-01T00:00:00Z\"}}", next());
            format!("HTTP/1.1 201 Created\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        }
        "/app/installations/35/access_tokens" => {
            let body = r#"{"token":"ghs_minted\nX-Evil: 1","expires_at":"2099-01-01T00:00:00Z"}"#;
            format!("HTTP/1.1 201 Created\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        }
        login if login.starts_with("/oauth/") => {
            if login == "/oauth/slow" {
                tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            }
            oauth(login)
        }
        "/v1/upgrade" => "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nraw".to_owned(),
        "/v1/few" => "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nfew".to_owned(),
        "/v1/interim" => format!("{}HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(5000)),
        "/v1/head" => "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n".to_owned(),
        "/v1/empty" => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
        "/v1/redirect" => "HTTP/1.1 302 Found\r\nLocation: https://evil.example/\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "/v1/close" => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_owned(),
        "/v1/socket" => {
            let agreed = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                Sec-WebSocket-Accept: x\r\nSec-WebSocket-Extensions: permessage-deflate\r\nSet-Cookie: s=1\r\n\r\n";
            if stream.write_all(agreed.as_bytes()).await.is_err() || stream.flush().await.is_err() {
                return false;
            }
            let mut buffer = [0; 4096];
            while let Ok(read) = stream.read(&mut buffer).await {
                if read == 0 || stream.write_all(&buffer[..read]).await.is_err() || stream.flush().await.is_err() {
                    break;
                }
            }
            let _ = stream.write_all(b"goodbye").await;
            let _ = stream.shutdown().await;
            return false;
        }
        "/v1/slow" => {
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate".to_owned()
        }
        "/v1/hang" | "/v1/hang/a" | "/v1/hang/b" => {
            let start = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n";
            if stream.write_all(start.as_bytes()).await.is_err() || stream.flush().await.is_err() {
                return false;
            }
            let mut nothing = [0; 1];
            // Ends when the gate closes the connection.
            let _ = stream.read(&mut nothing).await;
            return false;
        }
        "/v1/large" => {
            let size = 20 * 1024 * 1024;
            let start = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n");
            if stream.write_all(start.as_bytes()).await.is_err() {
                return false;
            }
            let block = vec![b'x'; 64 * 1024];
            for _ in 0..size / block.len() {
                if stream.write_all(&block).await.is_err() {
                    return false;
                }
            }
            return stream.flush().await.is_ok();
        }
        _ => {
            let body = format!("received {received}");
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        }
    };
    let sent = stream.write_all(text.as_bytes()).await.is_ok() && stream.flush().await.is_ok();
    if path == "/v1/close" {
        // The response said nothing of it: this is how a kept connection goes stale.
        let _ = stream.shutdown().await;
        return false;
    }
    sent
}

async fn read_until<IO>(
    stream: &mut IO,
    pending: &mut Vec<u8>,
    end: &[u8],
    log: &Log,
    index: usize,
) -> Option<Vec<u8>>
where
    IO: tokio::io::AsyncRead + Unpin,
{
    loop {
        if let Some(at) = pending.windows(end.len()).position(|window| window == end) {
            return Some(pending.drain(..at + end.len()).collect());
        }
        if !more(stream, pending, log, index, true).await {
            return None;
        }
    }
}

async fn more<IO>(
    stream: &mut IO,
    pending: &mut Vec<u8>,
    log: &Log,
    index: usize,
    keep: bool,
) -> bool
where
    IO: tokio::io::AsyncRead + Unpin,
{
    let mut buffer = vec![0; 64 * 1024];
    match stream.read(&mut buffer).await {
        Ok(read) if read > 0 => {
            pending.extend_from_slice(&buffer[..read]);
            if keep {
                log.lock().unwrap()[index].extend_from_slice(&buffer[..read.min(4096)]);
            }
            true
        }
        _ => false,
    }
}
