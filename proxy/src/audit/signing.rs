//! The audit's own OpenPGP key: what signs checkpoints, and what tells whether a signature is good.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sequoia_openpgp as pgp;

use pgp::armor::Kind;
use pgp::cert::{CertBuilder, CipherSuite};
use pgp::crypto::KeyPair;
use pgp::parse::Parse;
use pgp::parse::stream::{
    DetachedVerifierBuilder, MessageLayer, MessageStructure, VerificationHelper,
};
use pgp::policy::StandardPolicy;
use pgp::serialize::Serialize as _;
use pgp::serialize::stream::{Armorer, Message, Signer as Stream};
use pgp::types::KeyFlags;

use crate::openpgp::{KeyError, PublicKey, SecretKey};

/// Signs statements.
#[allow(
    missing_debug_implementations,
    reason = "holds a secret key, which is never printed"
)]
pub struct Signer {
    pair: Mutex<KeyPair>,
    public: PublicKey,
}

/// Why nothing can be signed with a key.
#[derive(Debug, thiserror::Error)]
pub enum SignerError {
    /// One of the two keys cannot be read.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// It also opens the store: who reads secrets with it could sign with it.
    #[error(
        "the key that signs the audit log, {}, is also the one that reads the store\n  hint: make one \
         for the log alone: portcullis-proxy audit keygen", .0.display()
    )]
    OneKey(PathBuf),
}

impl Signer {
    /// As [`Signer::load`], of a key that must be another than the store's.
    ///
    /// # Errors
    /// [`SignerError`]
    pub fn load_apart(path: &Path, store: Option<&Path>) -> Result<Self, SignerError> {
        let signer = Self::load(path)?;
        if let Some(store) = store
            && SecretKey::load(store)?.fingerprint() == signer.fingerprint()
        {
            return Err(SignerError::OneKey(path.to_owned()));
        }
        Ok(signer)
    }

    /// Reads the key, which must be able to sign, and tries it.
    ///
    /// # Errors
    /// [`KeyError`]
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let key = SecretKey::load(path)?;
        Ok(Self {
            pair: Mutex::new(key.signer()?),
            public: key.public(),
        })
    }

    /// The fingerprint of the key, upper-case hex.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        self.public.fingerprint()
    }

    /// A detached signature over `text`, in ASCII armour.
    ///
    /// # Errors
    /// What the library says.
    pub fn sign(&self, text: &str) -> std::io::Result<String> {
        let pair = self
            .pair
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut out = Vec::new();
        let signed = (|| -> pgp::Result<()> {
            let message = Armorer::new(Message::new(&mut out))
                .kind(Kind::Signature)
                .build()?;
            let mut message = Stream::new(message, pair)?.detached().build()?;
            message.write_all(text.as_bytes())?;
            message.finalize()
        })();
        signed.map_err(std::io::Error::other)?;
        String::from_utf8(out).map_err(std::io::Error::other)
    }
}

/// Whether `signature` is one over `text` by this key.
///
/// # Errors
/// What is wrong with it.
pub fn judge(key: &PublicKey, text: &str, signature: &str) -> Result<(), String> {
    let policy = StandardPolicy::new();
    let mut verifier = DetachedVerifierBuilder::from_bytes(signature)
        .and_then(|builder| builder.with_policy(&policy, None, Helper { key }))
        .map_err(|problem| problem.to_string())?;
    verifier
        .verify_bytes(text)
        .map_err(|problem| problem.to_string())
}

struct Helper<'k> {
    key: &'k PublicKey,
}

impl VerificationHelper for Helper<'_> {
    fn get_certs(&mut self, _ids: &[pgp::KeyHandle]) -> pgp::Result<Vec<pgp::Cert>> {
        Ok(vec![self.key.cert().clone()])
    }

    fn check(&mut self, structure: MessageStructure<'_>) -> pgp::Result<()> {
        for layer in structure {
            if let MessageLayer::SignatureGroup { results } = layer {
                return match results.into_iter().next() {
                    Some(Ok(_)) => Ok(()),
                    Some(Err(problem)) => Err(std::io::Error::other(problem.to_string()).into()),
                    None => Err(std::io::Error::other("there is no signature").into()),
                };
            }
        }
        Err(std::io::Error::other("there is no signature").into())
    }
}

/// A new signing key without a passphrase: its secret and its public part, in ASCII armour, and
/// the fingerprint.
///
/// # Errors
/// What the library says.
pub fn generate(name: &str) -> std::io::Result<(Vec<u8>, Vec<u8>, String)> {
    let make = || -> pgp::Result<(Vec<u8>, Vec<u8>, String)> {
        let (cert, _revocation) = CertBuilder::new()
            .add_userid(name)
            .set_cipher_suite(CipherSuite::Cv25519)
            .set_primary_key_flags(KeyFlags::empty().set_certification().set_signing())
            .generate()?;
        let (mut secret, mut public) = (Vec::new(), Vec::new());
        cert.as_tsk().armored().serialize(&mut secret)?;
        cert.armored().serialize(&mut public)?;
        Ok((secret, public, cert.fingerprint().to_hex()))
    };
    make().map_err(std::io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn key(folder: &Path, name: &str) -> (Signer, PublicKey) {
        let (secret, public, fingerprint) = generate(name).unwrap();
        let path = folder.join(name);
        std::fs::write(&path, secret).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let signer = Signer::load(&path).unwrap();
        assert_eq!(signer.fingerprint(), fingerprint);
        (signer, PublicKey::parse(&public).unwrap())
    }

    #[test]
    fn a_signature_is_good_for_its_text_and_key_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (signer, public) = key(folder.path(), "audit");
        let (_, other) = key(folder.path(), "other");
        let signature = signer.sign("a\nb\n").unwrap();
        assert_eq!(judge(&public, "a\nb\n", &signature), Ok(()));
        assert!(judge(&public, "a\nb", &signature).is_err());
        assert!(judge(&other, "a\nb\n", &signature).is_err());
        assert!(judge(&public, "a\nb\n", "").is_err());
        assert!(judge(&public, "a\nb\n", &signature[..signature.len() / 2]).is_err());
    }
}
