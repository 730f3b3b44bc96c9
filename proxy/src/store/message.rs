//! One encrypted message: to several recipients, unsigned, as `pass` writes it.

use std::cell::Cell;
use std::io::Write as _;

use sequoia_openpgp as pgp;

use pgp::crypto::{KeyPair, SessionKey};
use pgp::packet::{PKESK, SKESK, Tag};
use pgp::parse::stream::{
    DecryptionHelper, DecryptorBuilder, MessageStructure, VerificationHelper,
};
use pgp::parse::{PacketParser, PacketParserResult, Parse};
use pgp::policy::StandardPolicy;
use pgp::serialize::stream::{Encryptor, LiteralWriter, Message};
use pgp::types::SymmetricAlgorithm;
use pgp::{Cert, Packet};
use zeroize::Zeroizing;

use crate::guarded;

/// The largest plaintext that is read; a secret is far smaller.
pub(super) const PLAIN_BYTES_MAX: usize = 64 * 1024;

/// Why a message gave nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message is its documentation")]
pub enum Unreadable {
    #[error("is a file without a byte in it")]
    EmptyFile,
    #[error("is not encrypted to this key")]
    NotOurs,
    #[error("is encrypted in a form of GnuPG's own (OCB, packet 20) that no standard knows")]
    Ocb,
    #[error("is no OpenPGP message, or holds no data, or was damaged")]
    Malformed,
    #[error("holds more than 64 KiB")]
    TooLong,
}

/// Decrypts with one of `keys`.
///
/// # Errors
/// [`Unreadable`]
pub(super) fn decrypt(message: &[u8], keys: &[KeyPair]) -> Result<Zeroizing<Vec<u8>>, Unreadable> {
    if message.is_empty() {
        return Err(Unreadable::EmptyFile);
    }
    let policy = StandardPolicy::new();
    let refused = Cell::new(false);
    let helper = Helper {
        keys: keys.to_vec(),
        refused: &refused,
    };
    let opened = DecryptorBuilder::from_bytes(message)
        .and_then(|builder| builder.with_policy(&policy, None, helper));
    let mut opened = match opened {
        Ok(opened) => opened,
        Err(_) if is_ocb(message) => return Err(Unreadable::Ocb),
        Err(_) if refused.get() => return Err(Unreadable::NotOurs),
        Err(_) => return Err(Unreadable::Malformed),
    };
    let mut failed = false;
    let read = guarded::fill(
        Noting {
            from: &mut opened,
            failed: &mut failed,
        },
        PLAIN_BYTES_MAX,
    );
    read.map_err(|_| {
        if failed {
            Unreadable::Malformed
        } else {
            Unreadable::TooLong
        }
    })
}

/// Whether the data lies in the packet that GnuPG 2.3 and later write to keys that ask for it.
fn is_ocb(message: &[u8]) -> bool {
    let Ok(mut parsed) = PacketParser::from_bytes(message) else {
        return false;
    };
    while let PacketParserResult::Some(at) = parsed {
        if at.packet.tag() == Tag::AED {
            return true;
        }
        match at.next() {
            Ok((_, next)) => parsed = next,
            Err(_) => return false,
        }
    }
    false
}

/// Whether one of `keys` opens the way into `message`, whatever lies behind it. Weak ciphers that
/// [`decrypt`] would not touch count too.
#[must_use]
pub(super) fn opens(message: &[u8], keys: &[KeyPair]) -> bool {
    let mut keys = keys.to_vec();
    let Ok(mut parsed) = PacketParser::from_bytes(message) else {
        return false;
    };
    while let PacketParserResult::Some(at) = parsed {
        if let Packet::PKESK(packet) = &at.packet
            && keys
                .iter_mut()
                .any(|key| meant(packet, key) && packet.decrypt(key, None).is_some())
        {
            return true;
        }
        // What is encrypted lies behind all of its keys.
        if matches!(at.packet, Packet::SEIP(_) | Packet::Unknown(_)) {
            return false;
        }
        match at.next() {
            Ok((_, next)) => parsed = next,
            Err(_) => return false,
        }
    }
    false
}

/// A message to an unnamed recipient may be for anybody.
fn meant(packet: &PKESK, key: &KeyPair) -> bool {
    let handle = key.public().key_handle();
    packet
        .recipient()
        .is_none_or(|named| handle.aliases(&named))
}

/// Encrypts to every recipient's living encryption subkeys.
///
/// # Errors
/// The fingerprint of a recipient that nothing can be encrypted to; empty when the library failed.
pub(super) fn encrypt(plain: &[u8], recipients: &[Cert]) -> Result<Vec<u8>, String> {
    let policy = StandardPolicy::new();
    let mut keys = Vec::new();
    for cert in recipients {
        let before = keys.len();
        keys.extend(
            cert.keys()
                .with_policy(&policy, None)
                .supported()
                .alive()
                .revoked(false)
                .for_storage_encryption()
                .for_transport_encryption(),
        );
        if keys.len() == before {
            return Err(cert.fingerprint().to_hex());
        }
    }
    let mut sealed = Vec::new();
    let write = || -> pgp::Result<()> {
        let message = Message::new(&mut sealed);
        let message = Encryptor::for_recipients(message, keys).build()?;
        let mut message = LiteralWriter::new(message).build()?;
        message.write_all(plain)?;
        message.finalize()
    };
    write().map_err(|_| String::new())?;
    Ok(sealed)
}

/// Tells a broken message from a long one.
struct Noting<'f, R> {
    from: R,
    failed: &'f mut bool,
}

impl<R: std::io::Read> std::io::Read for Noting<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.from.read(buffer);
        *self.failed |= read.is_err();
        read
    }
}

struct Helper<'r> {
    keys: Vec<KeyPair>,
    refused: &'r Cell<bool>,
}

impl VerificationHelper for Helper<'_> {
    fn get_certs(&mut self, _ids: &[pgp::KeyHandle]) -> pgp::Result<Vec<Cert>> {
        Ok(Vec::new())
    }

    /// Entries are not signed: who may write the store is said by its permissions.
    fn check(&mut self, _structure: MessageStructure<'_>) -> pgp::Result<()> {
        Ok(())
    }
}

impl DecryptionHelper for Helper<'_> {
    fn decrypt(
        &mut self,
        to: &[PKESK],
        _passwords: &[SKESK],
        algorithm: Option<SymmetricAlgorithm>,
        decrypt: &mut dyn FnMut(Option<SymmetricAlgorithm>, &SessionKey) -> bool,
    ) -> pgp::Result<Option<Cert>> {
        for packet in to {
            for key in &mut self.keys {
                if meant(packet, key)
                    && let Some((algorithm, session)) = packet.decrypt(key, algorithm)
                    && decrypt(algorithm, &session)
                {
                    return Ok(None);
                }
            }
        }
        self.refused.set(true);
        Err(pgp::Error::MissingSessionKey("no recipient is ours".to_owned()).into())
    }
}
