//! The upstream: TLS, and 1 KiB for whatever is asked.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::Side;

/// What both services of the policy are called.
pub(crate) const HOSTS: [&str; 2] = ["api.example.com", "bare.example.com"];

static ANSWER: [u8; 1024] = [b'x'; 1024];

pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    /// PEM of the CA that signed its certificate.
    pub(crate) ca: String,
}

impl Origin {
    /// Starts it on a thread of its own, which is never stopped.
    pub(crate) fn start() -> Self {
        let (config, ca) = identity();
        let (sender, address) = std::sync::mpsc::channel();
        let serving = move || {
            super::keep_on(Side::Others);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
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
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let service = service_fn(|_: Request<Incoming>| async {
                let body = Full::new(Bytes::from_static(&ANSWER));
                Ok::<_, Infallible>(Response::new(body))
            });
            // However a connection ends, there will be others.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
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
