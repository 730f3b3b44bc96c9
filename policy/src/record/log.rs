//! What the log says about itself.

use serde::{Deserialize, Serialize};

/// Something that happened to the log, for those who check it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum LogFact {
    /// A gate continues the log.
    Opened {
        /// Whether the log ended with its closing record, or was empty.
        clean: bool,
    },
    /// A last line that a crash cut short was set aside.
    Torn {
        /// The file that it was put in.
        file: String,
    },
    /// A write or a sync failed, and the log goes on in a new file.
    Abandoned {
        /// Every line up to this one is known to be on the disk.
        durable: u64,
        /// Every line after that, up to this one, may be missing.
        last: u64,
    },
    /// The file was moved away or removed under the gate.
    Moved {
        /// The last line that went there.
        last: u64,
    },
    /// A closed file is about to be replaced by a compressed copy.
    Compressed {
        /// The number of its first line, which its name says.
        first: u64,
        /// SHA-256 of the compressed file, in hex.
        sha256: String,
    },
    /// Old lines are about to be removed, as retention asks for.
    Removed {
        /// The first of them.
        first: u64,
        /// The last of them.
        last: u64,
    },
}

/// What a checkpoint commits to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The text that is signed; `docs/audit-log.md` has its form.
    pub statement: String,
    /// Whether the log was closed with it.
    pub closing: bool,
    /// Fingerprint of the key, in hex; absent where the gate has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Detached OpenPGP signature over `statement`, in ASCII armour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}
