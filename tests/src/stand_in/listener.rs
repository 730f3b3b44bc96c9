//! The part both stand-ins share: a TLS listener that announces its address once it listens.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Where to listen and with which certificate.
#[derive(Clone, Debug)]
pub struct Listen {
    /// Address to bind; port 0 takes a free one.
    pub address: SocketAddr,
    /// Certificate chain, PEM.
    pub cert: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
    /// Offer HTTP/2 beside HTTP/1.1.
    pub http2: bool,
    /// Gets the bound `address:port` and a newline once connections are accepted.
    pub ready: Option<PathBuf>,
}

/// A bound listener together with the acceptor for its connections.
#[allow(
    missing_debug_implementations,
    reason = "the acceptor holds a private key"
)]
pub struct Bound {
    /// The socket.
    pub tcp: TcpListener,
    /// Offers what was asked for by ALPN.
    pub tls: TlsAcceptor,
    /// What was bound, with the real port.
    pub address: SocketAddr,
}

impl Listen {
    /// Binds, loads the certificate, and announces the address.
    pub async fn bind(&self) -> io::Result<Bound> {
        let tls = acceptor(&self.cert, &self.key, self.http2)?;
        let tcp = TcpListener::bind(self.address).await?;
        let address = tcp.local_addr()?;
        if let Some(ready) = &self.ready {
            announce(ready, address)?;
        }
        Ok(Bound { tcp, tls, address })
    }
}

fn acceptor(cert: &Path, key: &Path, http2: bool) -> io::Result<TlsAcceptor> {
    let chain = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable(cert, error))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, error))?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| unreadable(cert, error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    if http2 {
        config.alpn_protocols.insert(0, b"h2".to_vec());
    }
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Writes beside and renames, so that a reader never sees half an address.
fn announce(path: &Path, address: SocketAddr) -> io::Result<()> {
    let beside = path.with_extension("part");
    fs::write(&beside, format!("{address}\n"))?;
    fs::rename(beside, path)
}

fn unreadable(path: &Path, error: impl std::fmt::Display) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{}: {error}", path.display()),
    )
}
