//! The certificate authority: made once, kept in one directory, and a [`Minter`] of leaves.
//!
//! Leaves are P-256, share one key that lives as long as the process, are valid for a day from five
//! minutes ago, and are minted again an hour before they end or when the wall clock has jumped out
//! of their time. The cache is bounded, so that names nobody will ask for again cost nothing. The
//! authority itself is replaced by a successor that clients have learnt to trust before
//! ([`rotation`]).

mod authority;
mod rotation;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use lru::LruCache;
use policy::authority::Host;
use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, SanType, SerialNumber,
};
use rustls::crypto::aws_lc_rs::sign::any_ecdsa_type;
use rustls::sign::{CertifiedKey, SigningKey};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

pub use authority::{Created, create, export};
pub use rotation::{AuthorityView, CaView, NextView, begin, finish, view};

/// The certificate's file in the CA's directory.
pub const CERTIFICATE: &str = "ca.pem";
/// The key's file.
pub const KEY: &str = "ca.key";

/// How long before now a leaf starts, for clients whose clock is behind.
const BACKDATED: Duration = Duration::from_secs(5 * 60);
const LEAF_LIFE: Duration = Duration::from_secs(24 * 3600);
/// A leaf this close to its end is replaced.
const RENEW_BEFORE: Duration = Duration::from_secs(3600);
/// The longest common name that X.509 admits.
const COMMON_NAME_MAX: usize = 64;

/// What went wrong with the certificate authority.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// A file of it cannot be used.
    #[error("certificate authority: {path}: {problem}\n  hint: {hint}")]
    File {
        /// The file or directory.
        path: String,
        /// What is wrong.
        problem: String,
        /// What to do.
        hint: String,
    },
    /// A certificate could not be made.
    #[error("could not make a certificate")]
    Mint(#[source] rcgen::Error),
    /// The TLS library does not take the key.
    #[error("the leaf key is not usable for TLS")]
    Key(#[source] rustls::Error),
}

struct Leaf {
    key: Arc<CertifiedKey>,
    from: SystemTime,
    until: SystemTime,
}

/// Mints leaves signed by the authority.
#[allow(missing_debug_implementations, reason = "holds the authority's key")]
pub struct Minter {
    directory: PathBuf,
    signer: Mutex<Arc<Signer>>,
    leaf_key: KeyPair,
    signing: Arc<dyn SigningKey>,
    cache: Mutex<LruCache<Host, Leaf>>,
}

/// Who signs.
struct Signer {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

impl Minter {
    /// Reads the authority; `leaf_cache` is the number of leaves kept.
    ///
    /// # Errors
    /// [`CaError::File`] when it is missing, not ours alone, expired, or its key is another's.
    pub fn load(directory: &Path, leaf_cache: usize) -> Result<Self, CaError> {
        let signer = Signer::load(directory, SystemTime::now())?;
        let leaf_key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(CaError::Mint)?;
        let der = PrivatePkcs8KeyDer::from(leaf_key.serialize_der());
        let signing = any_ecdsa_type(&PrivateKeyDer::Pkcs8(der)).map_err(CaError::Key)?;
        let bound = NonZeroUsize::new(leaf_cache).unwrap_or(NonZeroUsize::MIN);
        // Grows as it is used; a fresh process holds no table.
        let cache = Mutex::new(LruCache::sparse(bound));
        Ok(Self {
            directory: directory.to_owned(),
            signer: Mutex::new(Arc::new(signer)),
            leaf_key,
            signing,
            cache,
        })
    }

    /// Looks whether the authority has been replaced, or is to be by now; to be called now and
    /// then. Gives the name of a new one. Until it has been read whole, the old one signs.
    ///
    /// # Errors
    /// [`CaError`]
    pub fn turn(&self) -> Result<Option<String>, CaError> {
        self.turn_at(SystemTime::now())
    }

    fn turn_at(&self, now: SystemTime) -> Result<Option<String>, CaError> {
        let due = rotation::switch_at(&self.directory)?.is_some_and(|from| from <= now);
        let path = self.directory.join(CERTIFICATE);
        if !due && authority::read_certificate(&path)? == self.certificate() {
            return Ok(None);
        }
        let fresh = Signer::load(&self.directory, now)?;
        let view = authority::describe(&path, &fresh.certificate)?;
        *self.signer.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(fresh);
        self.cache().clear();
        Ok(Some(view.name))
    }

    fn signer(&self) -> Arc<Signer> {
        let signer = self.signer.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&signer)
    }

    /// The authority's certificate.
    #[must_use]
    pub fn certificate(&self) -> CertificateDer<'static> {
        self.signer().certificate.clone()
    }

    /// A certificate for this host with its key. Cheap when cached.
    ///
    /// # Errors
    /// [`CaError::Mint`]
    pub fn leaf(&self, host: &Host) -> Result<Arc<CertifiedKey>, CaError> {
        self.leaf_at(host, SystemTime::now())
    }

    fn leaf_at(&self, host: &Host, now: SystemTime) -> Result<Arc<CertifiedKey>, CaError> {
        if let Some(leaf) = self.cache().get(host)
            && leaf.from <= now
            && now + RENEW_BEFORE < leaf.until
        {
            return Ok(Arc::clone(&leaf.key));
        }
        // Minted without the lock: two at once are two valid leaves, and the later one is kept.
        let signer = self.signer();
        let leaf = self.mint(&signer, host, now)?;
        let key = Arc::clone(&leaf.key);
        // One that was signed while the authority changed is served, but not kept.
        if Arc::ptr_eq(&signer, &self.signer()) {
            self.cache().put(host.clone(), leaf);
        }
        Ok(key)
    }

    /// How many leaves are kept, and how many may be.
    #[must_use]
    pub fn cached(&self) -> (usize, usize) {
        let cache = self.cache();
        (cache.len(), cache.cap().get())
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, LruCache<Host, Leaf>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mint(&self, signer: &Signer, host: &Host, now: SystemTime) -> Result<Leaf, CaError> {
        let (from, until) = (now - BACKDATED, now + LEAF_LIFE);
        let mut params = CertificateParams::default();
        params.not_before = from.into();
        params.not_after = until.into();
        // All leaves share one key: without a number of its own each would repeat another's.
        params.serial_number = Some(serial());
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names = vec![match host {
            Host::Name(name) => SanType::DnsName(name.as_str().try_into().map_err(CaError::Mint)?),
            Host::V4(address) => SanType::IpAddress((*address).into()),
            Host::V6(address) => SanType::IpAddress((*address).into()),
        }];
        let name = host.to_string();
        let common = if name.len() <= COMMON_NAME_MAX {
            &name
        } else {
            "Portcullis leaf"
        };
        params.distinguished_name.remove(DnType::CommonName);
        params.distinguished_name.push(DnType::CommonName, common);
        let certificate = params
            .signed_by(&self.leaf_key, &signer.issuer)
            .map_err(CaError::Mint)?;
        let chain = vec![certificate.der().clone()];
        let key = Arc::new(CertifiedKey::new(chain, Arc::clone(&self.signing)));
        Ok(Leaf { key, from, until })
    }
}

impl Signer {
    /// Reads the authority, after putting a successor whose time has come in its place.
    fn load(directory: &Path, now: SystemTime) -> Result<Self, CaError> {
        rotation::heal(directory)?;
        if rotation::switch_at(directory)?.is_some_and(|from| from <= now) {
            rotation::finish(directory)?;
        }
        let (issuer, certificate) = authority::load(directory)?;
        Ok(Self {
            issuer,
            certificate,
        })
    }
}

/// 16 random bytes, positive and of full length as DER wants them.
fn serial() -> SerialNumber {
    let mut bytes = uuid::Uuid::new_v4().into_bytes();
    bytes[0] = (bytes[0] & 0x3f) | 0x40;
    SerialNumber::from_slice(&bytes)
}

#[cfg(test)]
mod tests;
