//! How an upstream proves itself: by the system's roots, by the CA that a service names instead of
//! them, or by the digest of its public key. There is no way to skip verification; a pin replaces
//! the chain but not the handshake signature.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use policy::UpstreamTls;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore,
    SignatureScheme,
};
use sha2::{Digest, Sha256};

use super::UpstreamError;
use super::pool::Key;
use super::sessions::Sessions;

/// Client configurations, one for each way of verifying that the policies name. Also the pool's
/// notion of "same TLS".
#[derive(Debug)]
pub(super) struct Verifiers {
    provider: Arc<CryptoProvider>,
    system: RootCertStore,
    built: Mutex<HashMap<Trust, Built>>,
    sessions: Sessions,
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
    configs: Configs,
    version: Option<(u64, i64, i64, u64)>,
}

/// What the upstream is offered to speak. Neither resumes a session: that depends on who asks.
#[derive(Debug, Clone)]
struct Configs {
    http1: Arc<ClientConfig>,
    both: Arc<ClientConfig>,
}

/// The protocols that an upstream is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offer {
    /// HTTP/1.1 alone.
    Http1,
    /// HTTP/2, or HTTP/1.1 if the upstream does not speak it.
    Both,
}

impl Configs {
    fn get(&self, offer: Offer) -> Arc<ClientConfig> {
        Arc::clone(match offer {
            Offer::Http1 => &self.http1,
            Offer::Both => &self.both,
        })
    }
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
            sessions: Sessions::default(),
        }
    }

    /// The sessions that may be resumed.
    pub(super) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// The configuration for a connection of `key`, which resumes sessions of that key alone.
    pub(super) fn config(
        &self,
        key: &Key,
        offer: Offer,
    ) -> Result<Arc<ClientConfig>, UpstreamError> {
        let mut config = ClientConfig::clone(&*self.verifying(key.trust(), offer)?);
        config.resumption = self.sessions.of(key);
        Ok(Arc::new(config))
    }

    /// The configuration for `trust`, built on first use and again when its CA file has changed. A
    /// file that cannot be read is an error each time, so that a repaired one needs no restart.
    fn verifying(&self, trust: &Trust, offer: Offer) -> Result<Arc<ClientConfig>, UpstreamError> {
        let version = trust.ca_file.as_deref().and_then(version);
        if let Some(built) = self.built().get(trust)
            && built.version == version
        {
            return Ok(built.configs.get(offer));
        }
        let configs = self.build(trust)?;
        // What was verified in another way is not taken for granted.
        self.sessions.forget_trust(trust);
        let config = configs.get(offer);
        let mut built = self.built();
        // Policies name few of these; a bound all the same, since inline policies come and go.
        if built.len() >= 256 {
            built.clear();
        }
        built.insert(trust.clone(), Built { configs, version });
        Ok(config)
    }

    fn built(&self) -> MutexGuard<'_, HashMap<Trust, Built>> {
        self.built.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn build(&self, trust: &Trust) -> Result<Configs, UpstreamError> {
        let means = match trust.pin {
            Some(digest) => Means::Key(digest),
            None => Means::Chain(self.chain(trust)?),
        };
        let provider = Arc::clone(&self.provider);
        let verifier = Verifier { means, provider };
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(UpstreamError::TlsSettings)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let http1 = Arc::new(config.clone());
        config.alpn_protocols.insert(0, b"h2".to_vec());
        let both = Arc::new(config);
        Ok(Configs { http1, both })
    }

    fn chain(&self, trust: &Trust) -> Result<Arc<WebPkiServerVerifier>, UpstreamError> {
        let (roots, provider) = (Arc::new(self.roots(trust)?), Arc::clone(&self.provider));
        WebPkiServerVerifier::builder_with_provider(roots, provider)
            .build()
            .map_err(|error| UpstreamError::TlsSettings(rustls::Error::General(error.to_string())))
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

/// What was wrong with a certificate, and the pin that would accept its key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the certificate is not accepted: {flaw:?}")]
pub(super) struct Distrust {
    pub(super) flaw: Flaw,
    /// `sha256/BASE64` of the public key that was shown.
    pub(super) pin: String,
}

/// What was wrong with a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    Expired,
    NotYetValid,
    OtherName,
    UnknownCa,
    SelfSigned,
    /// Not the pinned key.
    OtherKey,
    Other,
}

impl Distrust {
    /// Finds it in what a failed handshake returned.
    pub(super) fn of(error: &std::io::Error) -> Option<&Self> {
        let inner = error.get_ref()?.downcast_ref::<rustls::Error>()?;
        match inner {
            rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(why))) => {
                why.downcast_ref()
            }
            _ => None,
        }
    }

    fn because(
        error: &rustls::Error,
        shown: &CertificateDer<'_>,
        provider: &CryptoProvider,
    ) -> rustls::Error {
        let certificate = webpki::EndEntityCert::try_from(shown).ok();
        let by_itself = certificate
            .as_ref()
            .is_some_and(|found| signs_itself(found, shown, provider));
        let flaw = match error {
            rustls::Error::InvalidCertificate(bad) => match bad {
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    Flaw::Expired
                }
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    Flaw::NotYetValid
                }
                CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. } => Flaw::OtherName,
                CertificateError::ApplicationVerificationFailure => Flaw::OtherKey,
                _ if by_itself => Flaw::SelfSigned,
                CertificateError::UnknownIssuer => Flaw::UnknownCa,
                _ => Flaw::Other,
            },
            _ => Flaw::Other,
        };
        let pin = certificate.map_or_else(String::new, |found| {
            let digest = Sha256::digest(found.subject_public_key_info().as_ref());
            format!("sha256/{}", STANDARD.encode(digest))
        });
        let why = OtherError(Arc::new(Self { flaw, pin }));
        rustls::Error::InvalidCertificate(CertificateError::Other(why))
    }
}

/// Whether a certificate is signed with its own key.
fn signs_itself(
    certificate: &webpki::EndEntityCert<'_>,
    der: &CertificateDer<'_>,
    provider: &CryptoProvider,
) -> bool {
    if certificate.issuer() != certificate.subject() {
        return false;
    }
    // Certificate ::= SEQUENCE { what is signed, algorithm, BIT STRING } (RFC 5280, 4.1).
    let signed = || {
        let (_, inside, _) = element(der)?;
        let (signed, _, rest) = element(inside)?;
        let (_, _, rest) = element(rest)?;
        let (_, bits, _) = element(rest)?;
        Some((signed, bits.strip_prefix(&[0])?))
    };
    signed().is_some_and(|(message, signature)| {
        let algorithms = provider.signature_verification_algorithms.all;
        algorithms.iter().any(|algorithm| {
            certificate
                .verify_signature(*algorithm, message, signature)
                .is_ok()
        })
    })
}

/// The DER element that `bytes` begin with: all of it, its contents, and what follows it.
fn element(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let first = usize::from(*bytes.get(1)?);
    let (start, length) = if first < 0x80 {
        (2, first)
    } else {
        let count = first & 0x7f;
        let digits = bytes.get(2..2 + count).filter(|_| count <= 4)?;
        let length = digits
            .iter()
            .fold(0, |sum, digit| sum << 8 | usize::from(*digit));
        (2 + count, length)
    };
    let (whole, rest) = bytes.split_at_checked(start.checked_add(length)?)?;
    Some((whole, whole.get(start..)?, rest))
}

/// Verifies by `means`, and remembers what was wrong. The handshake's signature counts in any case: it
/// proves that the upstream has the key it shows.
#[derive(Debug)]
struct Verifier {
    means: Means,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug)]
enum Means {
    /// Chain, name and dates.
    Chain(Arc<WebPkiServerVerifier>),
    /// Exactly one public key, by its digest. Name, chain and dates do not matter.
    Key([u8; 32]),
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = match &self.means {
            Means::Chain(chain) => {
                chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            Means::Key(wanted) => shows(end_entity, wanted),
        };
        verified.map_err(|error| Distrust::because(&error, end_entity, &self.provider))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

fn shows(
    shown: &CertificateDer<'_>,
    wanted: &[u8; 32],
) -> Result<ServerCertVerified, rustls::Error> {
    let refused = |why| Err(rustls::Error::InvalidCertificate(why));
    let Ok(certificate) = webpki::EndEntityCert::try_from(shown) else {
        return refused(CertificateError::BadEncoding);
    };
    let found: [u8; 32] = Sha256::digest(certificate.subject_public_key_info().as_ref()).into();
    if found == *wanted {
        Ok(ServerCertVerified::assertion())
    } else {
        refused(CertificateError::ApplicationVerificationFailure)
    }
}
