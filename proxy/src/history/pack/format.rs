//! How a repository names its objects: by SHA-1, watched for collisions, or by SHA-256.

use sha2::{Digest, Sha256};

use crate::history::graph::Id;

/// How objects are named in a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Sha1,
    Sha256,
}

impl Format {
    /// By the length of an id in hex.
    pub(crate) fn of(hex: &str) -> Option<Self> {
        match hex.len() {
            40 => Some(Self::Sha1),
            64 => Some(Self::Sha256),
            _ => None,
        }
    }

    /// Bytes of an id.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// The id of a commit; none if somebody has prepared its bytes for a collision.
    pub(crate) fn commit(self, content: &[u8]) -> Option<Id> {
        let head = format!("commit {}\0", content.len());
        self.hash(&[head.as_bytes(), content])
    }

    /// The hash over all of these; none if somebody has prepared them for a collision.
    pub(super) fn hash(self, parts: &[&[u8]]) -> Option<Id> {
        match self {
            Self::Sha1 => {
                let mut hash = sha1collisiondetection::Sha1CD::default();
                parts.iter().for_each(|part| hash.update(part));
                let mut out = sha1collisiondetection::Output::default();
                hash.finalize_into_dirty_cd(&mut out).ok()?;
                Id::of(&out)
            }
            Self::Sha256 => {
                let mut hash = Sha256::new();
                parts.iter().for_each(|part| hash.update(part));
                Id::of(&hash.finalize())
            }
        }
    }
}
