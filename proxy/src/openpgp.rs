//! OpenPGP keys as files: a secret key without a passphrase, never an agent, and certificates.
//!
//! The file's mode and owner are judged before a byte of it is read ([`crate::guarded`]). Binary
//! and armoured files are taken; one file holds one key.

use std::path::{Path, PathBuf};

use sequoia_openpgp as pgp;

use pgp::Cert;
use pgp::cert::CertParser;
use pgp::crypto::KeyPair;
use pgp::packet::key::SecretKeyMaterial;
use pgp::parse::Parse;
use pgp::policy::StandardPolicy;
use pgp::serialize::Serialize as _;

use crate::guarded::{self, Unfit};

/// The largest key file: a certificate with many signatures, and still no disk image.
const KEY_BYTES_MAX: usize = 1024 * 1024;

/// Why a key cannot be used. Names the file, never what is in it.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file is not one we would trust with a key, or cannot be read.
    #[error("the key file {path} {problem}\n  hint: {hint}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// What to do about it.
        hint: String,
    },
    /// The content is not one usable key.
    #[error("the key file {path} {problem}\n  hint: {}", problem.hint())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: KeyProblem,
    },
}

/// What is wrong with the content of a key file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message is its documentation")]
pub enum KeyProblem {
    #[error("holds no OpenPGP key")]
    NotAKey,
    #[error("holds more than one key")]
    Several,
    #[error("holds only a public key")]
    PublicOnly,
    #[error("is protected by a passphrase, which a service cannot type")]
    Passphrase,
    #[error("holds a key that can no longer be used: revoked, expired or too weak")]
    Unusable,
    #[error("holds no subkey that may decrypt stored data")]
    CannotDecrypt,
    #[error("holds no subkey that may sign")]
    CannotSign,
}

impl KeyProblem {
    /// What to do about it.
    #[must_use]
    pub fn hint(self) -> &'static str {
        match self {
            Self::NotAKey | Self::PublicOnly => {
                "write it with: gpg --export-secret-keys KEYID | install -m 600 /dev/stdin FILE"
            }
            Self::Several => "export one key alone",
            Self::Passphrase => {
                "make a key for this purpose without one: \
                 gpg --batch --passphrase '' --quick-generate-key NAME future-default default never"
            }
            Self::Unusable | Self::CannotDecrypt | Self::CannotSign => {
                "make a fresh key with the subkey that is needed, and encrypt the store to it"
            }
        }
    }
}

/// A key whose secret part is usable without a passphrase. The secret is held encrypted in memory
/// and wiped on drop; it is never printed.
#[allow(
    missing_debug_implementations,
    reason = "holds a secret key, which is never printed"
)]
pub struct SecretKey {
    path: PathBuf,
    cert: Cert,
}

/// A certificate: what others encrypt to or verify with.
#[derive(Debug, Clone)]
pub struct PublicKey {
    cert: Cert,
}

impl SecretKey {
    /// Reads one secret key, binary or armoured. The file must have mode 0600 or 0400 and belong
    /// to this process's user or to root.
    ///
    /// # Errors
    /// [`KeyError`]
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        Self::load_owned(path, &[nix::unistd::Uid::effective().as_raw()])
    }

    /// As [`SecretKey::load`], for a file that may belong to one of `owners` or to root.
    ///
    /// # Errors
    /// [`KeyError`]
    pub fn load_owned(path: &Path, owners: &[u32]) -> Result<Self, KeyError> {
        let bytes = guarded::read_owned(path, KEY_BYTES_MAX, owners).map_err(file(path))?;
        Self::parse(&bytes, path)
    }

    /// One secret key from the bytes of `path`.
    ///
    /// # Errors
    /// [`KeyError::Content`]
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self, KeyError> {
        let wrong = |problem| KeyError::Content {
            path: path.to_owned(),
            problem,
        };
        let cert = one(bytes).map_err(wrong)?;
        if !cert.is_tsk() {
            return Err(wrong(KeyProblem::PublicOnly));
        }
        let open = cert
            .keys()
            .secret()
            .any(|key| matches!(key.key().secret(), SecretKeyMaterial::Unencrypted(_)));
        if !open {
            return Err(wrong(KeyProblem::Passphrase));
        }
        let policy = StandardPolicy::new();
        if !usable(&cert, &policy) {
            return Err(wrong(KeyProblem::Unusable));
        }
        Ok(Self {
            path: path.to_owned(),
            cert,
        })
    }

    /// The certificate with its secret.
    #[must_use]
    pub fn cert(&self) -> &Cert {
        &self.cert
    }

    /// The fingerprint, upper-case hex.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        self.cert.fingerprint().to_hex()
    }

    /// The same key without its secret.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey {
            cert: self.cert.clone().strip_secret_key_material(),
        }
    }

    /// What signs: the first living subkey that may.
    ///
    /// # Errors
    /// [`KeyProblem::CannotSign`] in a [`KeyError::Content`].
    pub fn signer(&self) -> Result<KeyPair, KeyError> {
        let policy = StandardPolicy::new();
        let key = self
            .cert
            .keys()
            .with_policy(&policy, None)
            .supported()
            .alive()
            .revoked(false)
            .for_signing()
            .unencrypted_secret()
            .next();
        key.and_then(|key| key.key().clone().into_keypair().ok())
            .ok_or_else(|| self.problem(KeyProblem::CannotSign))
    }

    /// What decrypts stored data: every unprotected subkey that may, living or not, since old
    /// entries must stay readable.
    ///
    /// # Errors
    /// [`KeyProblem::CannotDecrypt`] in a [`KeyError::Content`] if there is none.
    pub fn decryptors(&self) -> Result<Vec<KeyPair>, KeyError> {
        let policy = StandardPolicy::new();
        let pairs: Vec<KeyPair> = self
            .cert
            .keys()
            .with_policy(&policy, None)
            .supported()
            .for_storage_encryption()
            .for_transport_encryption()
            .unencrypted_secret()
            .filter_map(|key| key.key().clone().into_keypair().ok())
            .collect();
        if pairs.is_empty() {
            return Err(self.problem(KeyProblem::CannotDecrypt));
        }
        Ok(pairs)
    }

    /// Every unprotected secret key of the certificate, also those that no sound policy would use:
    /// whoever has the file can decrypt with them.
    #[must_use]
    pub fn every(&self) -> Vec<KeyPair> {
        self.cert
            .keys()
            .unencrypted_secret()
            .filter_map(|key| key.key().clone().into_keypair().ok())
            .collect()
    }

    fn problem(&self, problem: KeyProblem) -> KeyError {
        KeyError::Content {
            path: self.path.clone(),
            problem,
        }
    }
}

impl PublicKey {
    /// Reads one certificate, binary or armoured, with or without its secret (which is dropped).
    /// Anybody may read such a file, so its mode is not judged.
    ///
    /// # Errors
    /// [`KeyError`]
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let read = std::fs::File::open(path).map_err(|problem| Unfit {
            problem: format!("cannot be opened: {problem}"),
            hint: "write it with: gpg --export KEYID > FILE".to_owned(),
        });
        let bytes = read
            .and_then(|opened| guarded::fill(opened, KEY_BYTES_MAX))
            .map_err(file(path))?;
        Self::parse(&bytes).map_err(|problem| KeyError::Content {
            path: path.to_owned(),
            problem,
        })
    }

    /// One certificate from bytes.
    ///
    /// # Errors
    /// [`KeyProblem`]
    pub fn parse(bytes: &[u8]) -> Result<Self, KeyProblem> {
        Ok(Self {
            cert: one(bytes)?.strip_secret_key_material(),
        })
    }

    /// The certificate.
    #[must_use]
    pub fn cert(&self) -> &Cert {
        &self.cert
    }

    /// The fingerprint, upper-case hex.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        self.cert.fingerprint().to_hex()
    }

    /// ASCII armour, as `gpg --export --armor` writes it.
    ///
    /// # Errors
    /// What the library says; writing to memory does not fail in practice.
    pub fn armoured(&self) -> std::io::Result<Vec<u8>> {
        let mut text = Vec::new();
        self.cert
            .armored()
            .serialize(&mut text)
            .map_err(std::io::Error::other)?;
        Ok(text)
    }
}

/// Whether the current standards accept it, and its owner has not taken it back.
fn usable(cert: &Cert, policy: &StandardPolicy<'_>) -> bool {
    use pgp::types::RevocationStatus;
    match cert.with_policy(policy, None) {
        Ok(valid) => {
            valid.alive().is_ok()
                && !matches!(valid.revocation_status(), RevocationStatus::Revoked(_))
        }
        Err(_) => false,
    }
}

fn one(bytes: &[u8]) -> Result<Cert, KeyProblem> {
    let mut found = CertParser::from_bytes(bytes).map_err(|_| KeyProblem::NotAKey)?;
    let first = found
        .next()
        .and_then(Result::ok)
        .ok_or(KeyProblem::NotAKey)?;
    match found.next() {
        None => Ok(first),
        Some(_) => Err(KeyProblem::Several),
    }
}

fn file(path: &Path) -> impl FnOnce(Unfit) -> KeyError {
    let path = path.to_owned();
    move |unfit| KeyError::File {
        path,
        problem: unfit.problem,
        hint: unfit.hint,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use pgp::cert::CertBuilder;

    use super::*;

    fn made(build: impl FnOnce(CertBuilder<'static>) -> CertBuilder<'static>) -> Cert {
        build(CertBuilder::new().add_userid("agents"))
            .generate()
            .unwrap()
            .0
    }

    fn whole() -> Cert {
        made(|builder| builder.add_signing_subkey().add_storage_encryption_subkey())
    }

    fn saved(bytes: &[u8], mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    fn secret_bytes(cert: &Cert) -> Vec<u8> {
        let mut bytes = Vec::new();
        cert.as_tsk().serialize(&mut bytes).unwrap();
        bytes
    }

    fn problem(bytes: &[u8]) -> KeyProblem {
        match SecretKey::load(saved(bytes, 0o600).path()) {
            Err(KeyError::Content { problem, .. }) => problem,
            Err(KeyError::File { problem, .. }) => panic!("{problem}"),
            Ok(_) => panic!("it was taken"),
        }
    }

    #[test]
    fn binary_and_armoured_keys_load_sign_and_decrypt() {
        let cert = whole();
        let mut armoured = Vec::new();
        cert.as_tsk().armored().serialize(&mut armoured).unwrap();
        for bytes in [secret_bytes(&cert), armoured] {
            let key = SecretKey::load(saved(&bytes, 0o400).path()).unwrap();
            assert_eq!(key.fingerprint(), cert.fingerprint().to_hex());
            assert!(key.signer().is_ok());
            assert_eq!(key.decryptors().unwrap().len(), 1);
            assert!(!key.public().cert().is_tsk());
        }
    }

    /// LIF-12: missing, readable by others, or not the key that is needed.
    /// Attack: LIF-12
    #[test]
    fn lif_12_a_key_that_is_missing_open_or_wrong_is_refused_by_name() {
        let cert = whole();
        let bytes = secret_bytes(&cert);
        let missing = SecretKey::load(Path::new("/nonexistent/store.key"));
        assert!(
            missing
                .err()
                .unwrap()
                .to_string()
                .contains("/nonexistent/store.key does not exist")
        );
        for mode in [0o640, 0o604, 0o644, 0o660] {
            let file = saved(&bytes, mode);
            let refused = SecretKey::load(file.path()).err().unwrap().to_string();
            assert!(
                refused.contains("mode") && refused.contains("chmod 600"),
                "{refused}"
            );
        }
        let mut public = Vec::new();
        cert.serialize(&mut public).unwrap();
        assert_eq!(problem(&public), KeyProblem::PublicOnly);
        assert_eq!(problem(b"not a key"), KeyProblem::NotAKey);
        assert_eq!(problem(b""), KeyProblem::NotAKey);
        let both = [bytes.clone(), secret_bytes(&whole())].concat();
        assert_eq!(problem(&both), KeyProblem::Several);
        let locked = made(|builder| {
            builder
                .add_storage_encryption_subkey()
                .set_password(Some("words".into()))
        });
        assert_eq!(problem(&secret_bytes(&locked)), KeyProblem::Passphrase);
        assert!(SecretKey::load(saved(&bytes, 0o600).path()).is_ok());
    }

    #[test]
    fn a_key_without_the_subkey_that_is_needed_says_which() {
        let bare = made(|builder| builder);
        let key = SecretKey::parse(&secret_bytes(&bare), Path::new("key")).unwrap();
        let said = |problem: KeyError| problem.to_string();
        assert!(said(key.signer().err().unwrap()).contains("may sign"));
        assert!(said(key.decryptors().err().unwrap()).contains("decrypt"));
    }

    #[test]
    fn public_keys_load_without_their_secret() {
        let cert = whole();
        let key = PublicKey::load(saved(&secret_bytes(&cert), 0o644).path()).unwrap();
        assert!(!key.cert().is_tsk());
        let again = PublicKey::parse(&key.armoured().unwrap()).unwrap();
        assert_eq!(again.fingerprint(), cert.fingerprint().to_hex());
        assert!(PublicKey::load(Path::new("/nonexistent/key")).is_err());
    }
}
