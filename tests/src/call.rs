//! A tonic client of the echo server in `stand_in::grpc`, through a proxy's tunnel.

use std::error::Error;
use std::fmt::Write as _;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use http::Uri;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{Service, tokio_stream};
use tonic::transport::Endpoint;
use tonic::{Request, Status};

type Fault = Box<dyn Error + Send + Sync>;

/// Calls `method` at `host` (port 443), then every streaming kind, through the proxy at `gate`
/// (`ADDRESS:PORT`), trusting `roots`. The text is what came back; the error a refusal's message.
pub async fn echo(gate: &str, host: &str, roots: &Path, method: &str) -> Result<String, Fault> {
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(roots)? {
        store.add(certificate?)?;
    }
    let mut config = ClientConfig::builder()
        .with_root_certificates(store)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let connector = Tunnel {
        gate: gate.to_owned(),
        host: host.to_owned(),
        tls: TlsConnector::from(Arc::new(config)),
    };
    let endpoint = Endpoint::from_shared(format!("https://{host}"))?;
    let endpoint = endpoint.timeout(Duration::from_secs(60));
    let mut client = Grpc::new(endpoint.connect_with_connector(connector).await?);
    let path = |method: &str| PathAndQuery::try_from(method.to_owned());
    let parts = || tokio_stream::iter([Bytes::from_static(b"x"), Bytes::from_static(b"y")]);
    let mut said = String::new();

    client.ready().await?;
    let one = client
        .unary(Request::new(Bytes::from_static(b"one")), path(method)?, Raw)
        .await?;
    writeln!(said, "{}", text(&one.into_inner()))?;
    client.ready().await?;
    let more = Request::new(Bytes::from_static(b"more"));
    let streamed = path("/echo.Echo/ServerStream")?;
    let mut stream = client
        .server_streaming(more, streamed, Raw)
        .await?
        .into_inner();
    while let Some(message) = stream.message().await? {
        writeln!(said, "stream {}", text(&message))?;
    }
    client.ready().await?;
    let counted = client
        .client_streaming(Request::new(parts()), path("/echo.Echo/ClientStream")?, Raw)
        .await?;
    writeln!(said, "count {}", text(&counted.into_inner()))?;
    client.ready().await?;
    let mut both = client
        .streaming(Request::new(parts()), path("/echo.Echo/Both")?, Raw)
        .await?
        .into_inner();
    while let Some(message) = both.message().await? {
        writeln!(said, "both {}", text(&message))?;
    }
    Ok(said)
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Opens TLS to one host inside a proxy's tunnel.
struct Tunnel {
    gate: String,
    host: String,
    tls: TlsConnector,
}

impl Service<Uri> for Tunnel {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (gate, host, tls) = (self.gate.clone(), self.host.clone(), self.tls.clone());
        Box::pin(async move {
            #[allow(clippy::disallowed_methods, reason = "this is a client, not the gate")]
            let mut stream = TcpStream::connect(&gate).await?;
            let ask = format!("CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n");
            stream.write_all(ask.as_bytes()).await?;
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await?);
            }
            if !head.starts_with(b"HTTP/1.1 200") {
                return Err(io::Error::other(
                    String::from_utf8_lossy(&head).into_owned(),
                ));
            }
            let name = ServerName::try_from(host).map_err(io::Error::other)?;
            Ok(TokioIo::new(tls.connect(name, stream).await?))
        })
    }
}

/// Messages as they are.
#[derive(Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = buffer.remaining();
        Ok(Some(buffer.copy_to_bytes(length)))
    }
}
