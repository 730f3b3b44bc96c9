//! Generated files and what a person did to them since: a file edited by hand is never overwritten.
//!
//! The manifest keeps the SHA-256 of each generated file as it was written. A file whose hash is another one has been
//! edited and stays; one that is unchanged follows when its generated content changes.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::file::{self, Access, FileError};

#[derive(Debug, Error)]
pub enum ManifestError {
    #[error(
        "{path} is not a manifest\n  hint: remove it; files that differ from what is generated then count as yours"
    )]
    Malformed {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error(transparent)]
    File(#[from] FileError),
}

/// What is to be done about a generated file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Its content is what would be written.
    Right,
    /// It is not there.
    Absent,
    /// It is as we wrote it, and what we would write has changed.
    Outdated,
    /// A person changed it, or put it there; it stays.
    Edited,
}

/// Judges one file: what is there, what we wrote last (its hash), and what we would write.
#[must_use]
pub fn standing(found: Option<&[u8]>, written: Option<&str>, wanted: &[u8]) -> Standing {
    match (found, written) {
        (None, _) => Standing::Absent,
        (Some(found), _) if found == wanted => Standing::Right,
        (Some(found), Some(written)) if file::hash(found) == written => Standing::Outdated,
        (Some(_), _) => Standing::Edited,
    }
}

/// The hashes of the generated files of one instance.
#[derive(Debug)]
pub struct Manifest {
    path: PathBuf,
    written: BTreeMap<PathBuf, String>,
}

impl Manifest {
    /// Reads it; a missing one is empty.
    ///
    /// # Errors
    /// When it cannot be read or is not a map of paths to hashes.
    pub fn load(path: &Path) -> Result<Self, ManifestError> {
        let written = match fs::read(path) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map_err(|source| ManifestError::Malformed {
                    path: path.into(),
                    source,
                })?
            }
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(source) => return Err(FileError::new("read", path)(source).into()),
        };
        Ok(Self {
            path: path.into(),
            written,
        })
    }

    /// How the file at `path` stands to `wanted`.
    ///
    /// # Errors
    /// When the file is there but cannot be read.
    pub fn standing(&self, path: &Path, wanted: &str) -> Result<Standing, ManifestError> {
        let found = match fs::read(path) {
            Ok(bytes) => Some(bytes),
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(FileError::new("read", path)(source).into()),
        };
        let written = self.written.get(path).map(String::as_str);
        Ok(standing(found.as_deref(), written, wanted.as_bytes()))
    }

    /// Writes the file unless a person edited it, and remembers its hash. Returns how it stood before.
    ///
    /// # Errors
    /// When the file or the manifest cannot be written.
    pub fn put(
        &mut self,
        path: &Path,
        wanted: &str,
        access: Access,
    ) -> Result<Standing, ManifestError> {
        let standing = self.standing(path, wanted)?;
        match standing {
            Standing::Edited => return Ok(standing),
            Standing::Right => {}
            Standing::Absent | Standing::Outdated => file::write(path, wanted.as_bytes(), access)?,
        }
        let hash = file::hash(wanted.as_bytes());
        if self.written.get(path) != Some(&hash) {
            self.written.insert(path.into(), hash);
            self.save()?;
        }
        Ok(standing)
    }

    fn save(&self) -> Result<(), ManifestError> {
        let text = serde_json::to_vec_pretty(&self.written).map_err(|source| {
            ManifestError::Malformed {
                path: self.path.clone(),
                source,
            }
        })?;
        Ok(file::write(&self.path, &text, Access::root(0o644))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::{getgid, getuid};

    fn own() -> Access {
        Access {
            uid: getuid().as_raw(),
            gid: getgid().as_raw(),
            mode: 0o644,
        }
    }

    #[test]
    fn the_four_standings() {
        let old = file::hash(b"old");
        assert_eq!(standing(None, Some(&old), b"new"), Standing::Absent);
        assert_eq!(standing(Some(b"new"), None, b"new"), Standing::Right);
        assert_eq!(
            standing(Some(b"old"), Some(&old), b"new"),
            Standing::Outdated
        );
        assert_eq!(
            standing(Some(b"mine"), Some(&old), b"new"),
            Standing::Edited
        );
        assert_eq!(standing(Some(b"mine"), None, b"new"), Standing::Edited);
    }

    #[test]
    fn an_edit_survives_and_an_untouched_file_follows() {
        let directory = tempfile::tempdir().unwrap();
        let (record, target) = (
            directory.path().join("manifest.json"),
            directory.path().join("a.toml"),
        );
        Manifest::load(&record)
            .unwrap()
            .put(&target, "one", own())
            .unwrap();

        let mut again = Manifest::load(&record).unwrap();
        assert_eq!(
            again.put(&target, "two", own()).unwrap(),
            Standing::Outdated
        );
        assert_eq!(fs::read_to_string(&target).unwrap(), "two");

        fs::write(&target, "by hand").unwrap();
        let mut third = Manifest::load(&record).unwrap();
        assert_eq!(
            third.put(&target, "three", own()).unwrap(),
            Standing::Edited
        );
        assert_eq!(fs::read_to_string(&target).unwrap(), "by hand");
    }
}
