//! A client's TLS that trusts one authority.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

/// It offers `protocols`, or none.
pub(crate) fn trusting(ca: CertificateDer<'static>, protocols: &[&str]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(ca).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let named = protocols.iter().map(|name| name.as_bytes().to_vec());
    config.alpn_protocols = named.collect();
    config
}
