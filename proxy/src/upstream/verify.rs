//! How an upstream proves itself: by the system's roots, by the CA that a service names instead of
//! them, or by the digest of its public key. There is no way to skip verification; a pin replaces
//! the chain but not the handshake signature.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use policy::UpstreamTls;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256};

use super::UpstreamError;

/// Client configurations, one for each way of verifying that the policies name. Also the pool's
/// notion of "same TLS".
#[derive(Debug)]
pub(super) struct Verifiers {
    provider: Arc<CryptoProvider>,
    system: RootCertStore,
    built: Mutex<HashMap<Trust, Built>>,
}

/// A way of verifying, as a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Trust {
    ca_file: Option<String>,
    pin: Option<[u8; 32]>,
}

/// A configuration, and which version of its CA file it was built from.
#[derive(Debug)]
struct Built {
    config: Arc<ClientConfig>,
    version: Option<(u64, i64, i64, u64)>,
}

impl Trust {
    pub(super) fn of(tls: &UpstreamTls) -> Self {
        Self {
            ca_file: tls.ca_file.clone(),
            pin: tls.pin.map(|pin| pin.0),
        }
    }
}

impl Verifiers {
    /// Loads the system's roots once. A machine without any still reaches services with a CA or a
    /// pin of their own.
    pub(super) fn new(provider: Arc<CryptoProvider>) -> Self {
        let mut system = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!(%error, "a system root certificate could not be read");
        }
        let (_, ignored) = system.add_parsable_certificates(found.certs);
        if system.is_empty() {
            tracing::warn!(
                ignored,
                "the system has no root certificates: only services with ca_file or pin are reachable"
            );
        }
        Self {
            provider,
            system,
            built: Mutex::default(),
        }
    }

    /// The configuration for `trust`, built on first use and again when its CA file has changed. A
    /// file that cannot be read is an error each time, so that a repaired one needs no restart.
    pub(super) fn config(&self, trust: &Trust) -> Result<Arc<ClientConfig>, UpstreamError> {
        let version = trust.ca_file.as_deref().and_then(version);
        if let Some(built) = self.built().get(trust)
            && built.version == version
        {
            return Ok(Arc::clone(&built.config));
        }
        let config = Arc::new(self.build(trust)?);
        let mut built = self.built();
        // Policies name few of these; a bound all the same, since inline policies come and go.
        if built.len() >= 256 {
            built.clear();
        }
        built.insert(
            trust.clone(),
            Built {
                config: Arc::clone(&config),
                version,
            },
        );
        Ok(config)
    }

    fn built(&self) -> MutexGuard<'_, HashMap<Trust, Built>> {
        self.built.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn build(&self, trust: &Trust) -> Result<ClientConfig, UpstreamError> {
        let builder = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(UpstreamError::TlsSettings)?;
        let mut config = match trust.pin {
            Some(digest) => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Pinned {
                    digest,
                    provider: Arc::clone(&self.provider),
                }))
                .with_no_client_auth(),
            None => builder
                .with_root_certificates(self.roots(trust)?)
                .with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    fn roots(&self, trust: &Trust) -> Result<RootCertStore, UpstreamError> {
        let Some(file) = &trust.ca_file else {
            return Ok(self.system.clone());
        };
        authorities(file).map_err(|reason| UpstreamError::CaFile {
            file: file.clone(),
            reason,
        })
    }
}

/// The certificates of a `ca_file`. The reason repeats nothing of the file: a policy may name any.
pub(crate) fn authorities(file: &str) -> Result<RootCertStore, String> {
    let pem = std::fs::read(file).map_err(|error| error.to_string())?;
    let certificates = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| "it is not PEM".to_owned())?;
    if certificates.is_empty() {
        return Err("it holds no certificate".to_owned());
    }
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots
            .add(certificate)
            .map_err(|_| "it holds something that is no certificate".to_owned())?;
    }
    Ok(roots)
}

/// Tells one content of a file from another: inode, change time, length.
fn version(file: &str) -> Option<(u64, i64, i64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(file).ok()?;
    Some((found.ino(), found.ctime(), found.ctime_nsec(), found.len()))
}

/// Accepts exactly one public key. Name, chain and dates do not matter; possession of the key does,
/// which is what the handshake signature proves.
#[derive(Debug)]
struct Pinned {
    digest: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = webpki::EndEntityCert::try_from(end_entity).map_err(|_| {
            rustls::Error::InvalidCertificate(rustls::CertificateError::BadEncoding)
        })?;
        let found: [u8; 32] = Sha256::digest(certificate.subject_public_key_info().as_ref()).into();
        if found == self.digest {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(rustls::Error::InvalidCertificate(
                rustls::CertificateError::ApplicationVerificationFailure,
            ))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
