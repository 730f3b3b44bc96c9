//! The upstream: TLS with the protocols that it is given, and 1 KiB for whatever is asked but
//! [`LARGE`], for which it has 1 MiB.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::processors::{self, Side};

/// What both services of the policy are called.
pub(crate) const HOSTS: [&str; 2] = ["api.example.com", "bare.example.com"];

/// A path with a long answer.
pub(crate) const LARGE: &str = "/v1/large";

const SHORT_BYTES: usize = 1024;
const LONG_BYTES: usize = 1 << 20;

pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    /// PEM of the CA that signed its certificate.
    pub(crate) ca: String,
}

impl Origin {
    /// Starts it on a thread of its own, which is never stopped. It agrees on one of `protocols`.
    pub(crate) fn start(protocols: &[&str]) -> Self {
        let (mut config, ca) = identity();
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        let (sender, address) = std::sync::mpsc::channel();
        let serving = move || {
            let runtime = processors::runtime_on(Side::Others);
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                sender.send(listener.local_addr().unwrap()).unwrap();
                serve(listener, TlsAcceptor::from(Arc::new(config))).await;
            });
        };
        std::thread::Builder::new()
            .name("origin".to_owned())
            .spawn(serving)
            .unwrap();
        Self {
            address: address.recv().unwrap(),
            ca,
        }
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor) {
    let text = text();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (acceptor, text) = (acceptor.clone(), text.clone());
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let service = service_fn(move |request: Request<Incoming>| {
                let long = request.uri().path() == LARGE;
                let body = text.slice(..if long { LONG_BYTES } else { SHORT_BYTES });
                async move { Ok::<_, Infallible>(Response::new(Full::new(body))) }
            });
            let stream = TokioIo::new(stream);
            // However a connection ends, there will be others.
            let _ = if http2 {
                http2::Builder::new(TokioExecutor::new())
                    .serve_connection(stream, service)
                    .await
            } else {
                http1::Builder::new()
                    .serve_connection(stream, service)
                    .await
            };
        });
    }
}

/// Letters and digits in no order, as in what is encoded.
fn text() -> Bytes {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let letter = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        LETTERS[usize::try_from(state >> 58).unwrap()]
    };
    (0..LONG_BYTES).map(letter).collect::<Vec<u8>>().into()
}

fn identity() -> (ServerConfig, String) {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(HOSTS.map(str::to_owned)).unwrap();
    let certificate = leaf.signed_by(&key, &issuer).unwrap();
    let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    (config, issuer.pem())
}
