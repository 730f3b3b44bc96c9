//! SHA-256 as text.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// SHA-256 of these bytes, in hex.
#[must_use]
pub(crate) fn sha256(bytes: impl AsRef<[u8]>) -> String {
    Sha256::digest(bytes)
        .iter()
        .fold(String::with_capacity(64), |mut hex, byte| {
            // Writing to a String cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}
