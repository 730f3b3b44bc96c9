//! An OpenPGP store in the layout of `pass` and `gopass`: `.gpg-id` per folder, `NAME.gpg`, history
//! in git or in `.history/`. Opened with a key that is a file; no agent, no keyring.
//!
//! The gate only reads: [`Store::open`], [`Store::read`]. [`Store::put`] is for the command line.

pub(crate) mod entry;
mod files;
mod git;
mod history;
mod message;
mod name;
mod proof;
mod recipients;

use std::path::{Path, PathBuf};

use sequoia_openpgp::crypto::KeyPair;
use zeroize::Zeroizing;

use crate::openpgp::{KeyError, SecretKey};

pub use entry::{Form, NoValue, is_void, value};
pub use files::{Files, Stamp};
pub use git::GitError;
pub use history::Version;
pub use message::Unreadable;
pub use name::{EntryName, NotAName};
pub use proof::{Foreign, ProofError};

use history::History;

/// Why the store, or something in it, cannot be used. Names entries, never values or lengths.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory itself.
    #[error(
        "the store {path} cannot be opened\n  hint: make it with pass init or give the gate's user access"
    )]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// No such entry.
    #[error(
        "the store has no entry {0}\n  hint: `portcullis secret list` shows what there is; `portcullis secret put {0}` makes it"
    )]
    Missing(EntryName),
    /// The entry's file.
    #[error("the entry {name} cannot be {what}")]
    File {
        /// The entry.
        name: EntryName,
        /// `read` or `written`.
        what: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The message in it.
    #[error("the entry {name} {problem}\n  hint: {}", unreadable_hint(*problem))]
    Message {
        /// The entry.
        name: EntryName,
        /// What is wrong with it.
        problem: Unreadable,
    },
    /// There is no value in it.
    #[error(
        "the entry {name} {problem}\n  hint: `portcullis secret history {name}` shows former versions, `portcullis secret restore {name}` brings one back"
    )]
    Void {
        /// The entry.
        name: EntryName,
        /// In which way it is without one.
        problem: NoValue,
    },
    /// Nobody, or somebody unknown, to encrypt to.
    #[error("nothing can be written in {folder}: {problem}\n  hint: {hint}")]
    Recipients {
        /// The folder, for people.
        folder: String,
        /// What is wrong with its `.gpg-id`.
        problem: String,
        /// What to do about it.
        hint: String,
    },
    /// The history.
    #[error("{what} of {name}")]
    History {
        /// The entry.
        name: EntryName,
        /// What could not be done, and what was done before.
        what: &'static str,
        /// Why.
        #[source]
        source: GitError,
    },
    /// No such version.
    #[error(
        "the entry {name} has no version {version}\n  hint: `portcullis secret history {name}` lists them"
    )]
    NoVersion {
        /// The entry.
        name: EntryName,
        /// What was asked for.
        version: String,
    },
}

fn unreadable_hint(problem: Unreadable) -> &'static str {
    match problem {
        Unreadable::EmptyFile | Unreadable::Malformed => {
            "`portcullis secret history` shows former versions, `secret restore` brings one back"
        }
        Unreadable::NotOurs => {
            "add the key to the folder's .gpg-id and encrypt again: pass init -p FOLDER KEY…"
        }
        Unreadable::Ocb => {
            "have it encrypted as the standard says: `gpg --edit-key KEY` and there \
             `setpref AES256 AES192 AES SHA512 SHA256 ZLIB`, `save`; then write the entry again"
        }
        Unreadable::TooLong => "this is no secret: keep documents elsewhere",
    }
}

/// An open store.
#[allow(
    missing_debug_implementations,
    reason = "holds a secret key, which is never printed"
)]
pub struct Store {
    files: Files,
    key: SecretKey,
    keys: Vec<KeyPair>,
}

impl Store {
    /// Opens the store in `directory` with the secret key in the file `key`, which must belong to
    /// us, to root or to the owner of the store.
    ///
    /// # Errors
    /// [`StoreError::Directory`], [`StoreError::Key`]
    pub fn open(directory: &Path, key: &Path) -> Result<Self, StoreError> {
        let wrong = |source| StoreError::Directory {
            path: directory.to_owned(),
            source,
        };
        let files = Files::open(directory).map_err(wrong)?;
        let owners = [
            nix::unistd::Uid::effective().as_raw(),
            files.owner().map_err(wrong)?,
        ];
        let key = SecretKey::load_owned(key, &owners)?;
        let keys = key.decryptors()?;
        Ok(Self { files, key, keys })
    }

    /// The key's fingerprint, upper-case hex.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        self.key.fingerprint()
    }

    /// Every entry, in order. A file whose name is no entry's name is left out.
    ///
    /// # Errors
    /// [`StoreError::Directory`]
    pub fn list(&self) -> Result<Vec<EntryName>, StoreError> {
        let names = self
            .files
            .entries()
            .map_err(|source| StoreError::Directory {
                path: self.files.path().to_owned(),
                source,
            })?;
        Ok(names
            .iter()
            .filter_map(|name| EntryName::parse(name).ok())
            .collect())
    }

    /// The text of an entry.
    ///
    /// # Errors
    /// [`StoreError::Missing`], [`StoreError::File`], [`StoreError::Message`]
    pub fn text(&self, name: &EntryName) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        let sealed = self
            .sealed(name)?
            .ok_or_else(|| StoreError::Missing(name.clone()))?;
        self.open_message(name, &sealed)
    }

    /// The value of an entry and how it stands there; `whole` asks for all of the text.
    ///
    /// # Errors
    /// As [`Store::text`], and [`StoreError::Void`].
    pub fn read(
        &self,
        name: &EntryName,
        whole: bool,
    ) -> Result<(Zeroizing<Vec<u8>>, Form), StoreError> {
        let text = self.text(name)?;
        value(&text, whole).map_err(|problem| StoreError::Void {
            name: name.clone(),
            problem,
        })
    }

    /// Writes an entry for the recipients of its folder. The former version is in the history
    /// before the file changes, and what is written was read back before. `message` goes into the
    /// history.
    ///
    /// # Errors
    /// [`StoreError`]; the file is unchanged unless [`StoreError::History`] says otherwise.
    pub fn put(&self, name: &EntryName, text: &[u8], message: &str) -> Result<(), StoreError> {
        value(text, false)
            .or_else(|_| value(text, true))
            .map_err(|problem| StoreError::Void {
                name: name.clone(),
                problem,
            })?;
        let recipients = recipients::of(&self.files, name, self.key.cert())?;
        let sealed =
            message::encrypt(text, &recipients).map_err(|whom| StoreError::Recipients {
                folder: recipients::shown(name),
                problem: format!("the key of the recipient {whom} has no living encryption subkey"),
                hint: "renew it, export it again, or take it out of .gpg-id".to_owned(),
            })?;
        if *self.open_message(name, &sealed)? != *text {
            return Err(StoreError::Message {
                name: name.clone(),
                problem: Unreadable::Malformed,
            });
        }
        let written = |source| StoreError::File {
            name: name.clone(),
            what: "written",
            source,
        };
        let _lock = self.files.lock().map_err(written)?;
        let history = History::of(&self.files);
        if let Some(former) = self.sealed(name)? {
            history
                .keep(&self.files, name, &former)
                .map_err(|source| StoreError::History {
                    name: name.clone(),
                    what: "nothing was written: the former version could not be kept in the history",
                    source,
                })?;
        }
        self.files.write(&name.file(), &sealed).map_err(written)?;
        history
            .record(&self.files, name, &sealed, message)
            .map_err(|source| StoreError::History {
                name: name.clone(),
                what: "the new value was written, but not recorded in the history",
                source,
            })
    }

    /// Former versions, newest first. The first one may be what the entry is now.
    ///
    /// # Errors
    /// [`StoreError::History`]
    pub fn history(&self, name: &EntryName) -> Result<Vec<Version>, StoreError> {
        History::of(&self.files)
            .versions(&self.files, name)
            .map_err(|source| StoreError::History {
                name: name.clone(),
                what: "cannot read the history",
                source,
            })
    }

    /// The text of one version: its id or the beginning of it.
    ///
    /// # Errors
    /// [`StoreError::NoVersion`], [`StoreError::History`], [`StoreError::Message`]
    pub fn version(&self, name: &EntryName, id: &str) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        let none = || StoreError::NoVersion {
            name: name.clone(),
            version: id.to_owned(),
        };
        let versions = self.history(name)?;
        let mut fitting = versions.iter().filter(|version| version.id.starts_with(id));
        let version = fitting.next().filter(|_| !id.is_empty()).ok_or_else(none)?;
        if fitting.next().is_some() && version.id != id {
            return Err(none());
        }
        let sealed = History::of(&self.files)
            .content(&self.files, name, version)
            .map_err(|source| StoreError::History {
                name: name.clone(),
                what: "cannot read the history",
                source,
            })?;
        self.open_message(name, &sealed.ok_or_else(none)?)
    }

    /// The scope proof: not one of `foreign` can be read with this store's key.
    ///
    /// # Errors
    /// [`ProofError::Readable`] naming the first that can.
    pub fn prove_foreign(&self, foreign: &Foreign) -> Result<usize, ProofError> {
        foreign.prove(&self.key.every())
    }

    /// Encrypts to this store's key alone.
    ///
    /// # Errors
    /// [`StoreError::Recipients`] if the key can no longer be encrypted to.
    pub fn seal(&self, text: &[u8]) -> Result<Vec<u8>, StoreError> {
        let own = self.key.public().cert().clone();
        message::encrypt(text, &[own]).map_err(|_| StoreError::Recipients {
            folder: "the gate's own state".to_owned(),
            problem: "the store's key has no living encryption subkey".to_owned(),
            hint: "renew the key".to_owned(),
        })
    }

    /// Opens what [`Store::seal`] made.
    ///
    /// # Errors
    /// [`Unreadable`]
    pub fn unseal(&self, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, Unreadable> {
        message::decrypt(sealed, &self.keys)
    }

    fn sealed(&self, name: &EntryName) -> Result<Option<Vec<u8>>, StoreError> {
        self.files
            .read(&name.file())
            .map_err(|source| StoreError::File {
                name: name.clone(),
                what: "read",
                source,
            })
    }

    fn open_message(
        &self,
        name: &EntryName,
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        message::decrypt(sealed, &self.keys).map_err(|problem| StoreError::Message {
            name: name.clone(),
            problem,
        })
    }
}

#[cfg(test)]
mod tests;
