//! The scope proof: the operator's entries cannot be read with the agents' key.
//!
//! What protects a key without a passphrase is that little can be read with it. Whether that is so
//! is tried, not believed. The entries are collected while the gate may still read them (before it
//! becomes its service user) and tried afterwards, with the key that the service user reads.

use std::path::{Path, PathBuf};

use sequoia_openpgp::crypto::KeyPair;

use super::message;

/// The largest file that is taken for an entry.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
const DEPTH_MAX: usize = 24;

/// Why the proof was not given.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// It can be read.
    #[error(
        "the scope proof failed: {0} can be decrypted with the agents' store key\n  hint: the key reaches further than the agents' entries: encrypt that entry without it, or make a key for the agents alone"
    )]
    Readable(PathBuf),
    /// It cannot be looked at.
    #[error(
        "the scope proof could not be made: {path}\n  hint: start the gate as root with --user, which reads the operator's (encrypted) entries before it becomes that user"
    )]
    Unreadable {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Nothing to prove it with.
    #[error(
        "the scope proof could not be made: there is no entry in {0}\n  hint: name the operator's store in [store] operator_entries, or say no_operator_entries = \"REASON\""
    )]
    Nothing(PathBuf),
}

/// The operator's entries, encrypted as they are.
#[derive(Debug)]
pub struct Foreign {
    entries: Vec<(PathBuf, Vec<u8>)>,
}

impl Foreign {
    /// Reads every `*.gpg` and `*.asc` below `place`, or `place` itself if it is a file.
    ///
    /// # Errors
    /// [`ProofError::Unreadable`], [`ProofError::Nothing`]
    pub fn collect(place: &Path) -> Result<Self, ProofError> {
        let mut entries = Vec::new();
        gather(place, 0, &mut entries)?;
        if entries.is_empty() {
            return Err(ProofError::Nothing(place.to_owned()));
        }
        Ok(Self { entries })
    }

    /// Tries all of them; how many there were.
    pub(super) fn prove(&self, keys: &[KeyPair]) -> Result<usize, ProofError> {
        for (path, sealed) in &self.entries {
            if message::opens(sealed, keys) {
                return Err(ProofError::Readable(path.clone()));
            }
        }
        Ok(self.entries.len())
    }
}

fn gather(
    place: &Path,
    depth: usize,
    entries: &mut Vec<(PathBuf, Vec<u8>)>,
) -> Result<(), ProofError> {
    let failed = |source| ProofError::Unreadable {
        path: place.to_owned(),
        source,
    };
    // Links are followed: what the operator reads through them counts.
    let found = std::fs::metadata(place).map_err(failed)?;
    if found.is_dir() {
        if depth > DEPTH_MAX {
            return Ok(());
        }
        for entry in std::fs::read_dir(place).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let link_away = std::fs::metadata(&path).is_err();
            if name == ".git" || link_away {
                continue;
            }
            if path.is_dir() || name.ends_with(".gpg") || name.ends_with(".asc") {
                gather(&path, depth + 1, entries)?;
            }
        }
    } else if found.is_file() && found.len() <= FILE_BYTES_MAX {
        entries.push((place.to_owned(), std::fs::read(place).map_err(failed)?));
    }
    Ok(())
}
