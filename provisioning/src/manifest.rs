//! Generated files and what a person did to them since: a file edited by hand is never overwritten.
//!
//! The manifest keeps the SHA-256 of each generated file as it was written. A file whose hash is another one has been
//! edited and stays; one that is unchanged follows when its generated content changes. What is about to be written is
//! noted first, beside what was: a run that is killed at any moment leaves no file of ours that looks edited.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
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

/// Judges one file: what is there, what we may have written last (hashes), and what we would write.
#[must_use]
pub fn standing(found: Option<&[u8]>, written: &[String], wanted: &[u8]) -> Standing {
    match found {
        None => Standing::Absent,
        Some(found) if found == wanted => Standing::Right,
        Some(found) if written.contains(&file::hash(found)) => Standing::Outdated,
        Some(_) => Standing::Edited,
    }
}

/// The hashes of the generated files of one instance.
#[derive(Debug)]
pub struct Manifest {
    path: PathBuf,
    written: BTreeMap<PathBuf, Written>,
}

/// What a file was last written as: one hash, or several while it is being written, of which it has one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    One(String),
    Either(Vec<String>),
}

impl Written {
    fn hashes(&self) -> &[String] {
        match self {
            Self::One(hash) => std::slice::from_ref(hash),
            Self::Either(hashes) => hashes,
        }
    }
}

/// How far a file has come on its way: each stage is one replacement of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Stage {
    Noted,
    Written,
    Settled,
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
        Ok(standing(
            found.as_deref(),
            self.hashes(path),
            wanted.as_bytes(),
        ))
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
        self.put_as_far_as(Stage::Settled, path, wanted, access)
    }

    fn put_as_far_as(
        &mut self,
        last: Stage,
        path: &Path,
        wanted: &str,
        access: Access,
    ) -> Result<Standing, ManifestError> {
        let standing = self.standing(path, wanted)?;
        if standing == Standing::Edited {
            return Ok(standing);
        }
        let hash = file::hash(wanted.as_bytes());
        if matches!(standing, Standing::Absent | Standing::Outdated) {
            let mut hashes = self.hashes(path).to_vec();
            hashes.push(hash.clone());
            self.note(path, Written::Either(hashes))?;
            if last > Stage::Noted {
                file::write(path, wanted.as_bytes(), access)?;
            }
        }
        if last > Stage::Written {
            self.note(path, Written::One(hash))?;
        }
        Ok(standing)
    }

    fn hashes(&self, path: &Path) -> &[String] {
        self.written.get(path).map_or(&[], Written::hashes)
    }

    fn note(&mut self, path: &Path, written: Written) -> Result<(), ManifestError> {
        if self.written.get(path) != Some(&written) {
            self.written.insert(path.into(), written);
            self.save()?;
        }
        Ok(())
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
        let old = [file::hash(b"old")];
        assert_eq!(standing(None, &old, b"new"), Standing::Absent);
        assert_eq!(standing(Some(b"new"), &[], b"new"), Standing::Right);
        assert_eq!(standing(Some(b"old"), &old, b"new"), Standing::Outdated);
        assert_eq!(standing(Some(b"mine"), &old, b"new"), Standing::Edited);
        assert_eq!(standing(Some(b"mine"), &[], b"new"), Standing::Edited);
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

    /// Wherever a run ends, and whatever the next one wants, the file is not taken for a person's; a person's is.
    #[test]
    fn a_run_that_ends_at_any_stage_leaves_no_file_that_looks_edited() {
        let before = [None, Some("zero")];
        for (at, (before, stage)) in before
            .into_iter()
            .flat_map(|before| {
                [Stage::Noted, Stage::Written, Stage::Settled].map(|stage| (before, stage))
            })
            .enumerate()
        {
            let directory = tempfile::tempdir().unwrap();
            let record = directory.path().join("manifest.json");
            let target = directory.path().join("a.toml");
            let manifest = || Manifest::load(&record).unwrap();
            if let Some(text) = before {
                manifest().put(&target, text, own()).unwrap();
            }
            let ended = |wanted: &str, stage: Stage| {
                let standing = manifest().put_as_far_as(stage, &target, wanted, own());
                assert_ne!(standing.unwrap(), Standing::Edited, "{at}: {wanted}");
            };
            ended("one", stage);
            // The next program may want something else, and be ended too.
            ended("two", stage);
            ended("three", Stage::Settled);
            assert_eq!(fs::read_to_string(&target).unwrap(), "three", "{at}");
            let noted = fs::read_to_string(&record).unwrap();
            assert_eq!(noted.matches('"').count(), 4, "one hash is left: {noted}");

            ended("four", stage);
            fs::write(&target, "by hand").unwrap();
            let kept = manifest().put(&target, "five", own()).unwrap();
            assert_eq!(kept, Standing::Edited, "{at}");
            assert_eq!(fs::read_to_string(&target).unwrap(), "by hand", "{at}");
        }
    }
}
