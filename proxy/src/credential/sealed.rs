//! The refresh token that follows the one in the store: the gate's own state, sealed with the
//! store's key. The store itself is never written by the gate.
//!
//! A refresh token that rotates is good once. Before it is used, the state says so; what comes back
//! is on disk before it is used. A gate that is killed between the two finds out at its next start
//! and says so: whether the old token still works only the provider knows.
//!
//! Each login has a file of its own, named by the credential and by its seed, so that a request that
//! still holds the former login never writes over the state of the new one. A file that is named by the
//! credential alone, as they once were, is taken over by the login whose state it holds.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;

use policy::credential::CredentialName;
use serde::{Deserialize, Serialize};

use crate::config::StoreConfig;
use crate::digest::sha256;
use crate::store::{Files, Store, StoreError};
use crate::vault::{Secret, VaultError};

/// Why the state could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SealedError {
    /// Its directory or file.
    #[error("the sealed state in {path}")]
    File {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The key.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Protected memory.
    #[error(transparent)]
    Memory(#[from] VaultError),
    /// It is not what was written there.
    #[error("the sealed state in {0} is damaged; remove the file and log in again")]
    Damaged(PathBuf),
}

/// The state of one login.
#[derive(Debug, Clone)]
pub(super) struct Sealed {
    directory: PathBuf,
    name: CredentialName,
    store: PathBuf,
    key: PathBuf,
}

/// What is sealed.
#[derive(Serialize, Deserialize)]
struct State {
    /// Digest of the token in the store that this began with: another one there begins anew.
    seed: String,
    token: String,
    /// A refresh with `token` was begun.
    pending: bool,
}

/// The token to use now.
pub(super) struct Refresh {
    pub(super) token: Arc<Secret>,
    /// A refresh with this token was begun before and never ended.
    pub(super) interrupted: bool,
}

impl Sealed {
    /// Nothing where the configuration names no place for it.
    pub(super) fn of(name: &CredentialName, store: &StoreConfig) -> Option<Self> {
        Some(Self {
            directory: store.state.clone()?,
            name: name.clone(),
            store: store.directory.clone(),
            key: store.key.clone(),
        })
    }

    /// The token to use, after the state says that it is being used.
    pub(super) fn begin(&self, seed: &Secret) -> Result<Refresh, SealedError> {
        let (store, files) = self.open()?;
        let digest = digest(seed);
        let state = self.read(&store, &files, &digest)?;
        let (token, interrupted) = match state.filter(|state| state.seed == digest) {
            Some(state) => {
                let interrupted = state.pending;
                (Secret::take_text(state.token)?, interrupted)
            }
            None => (Secret::take(&mut seed.expose().to_vec())?, false),
        };
        self.write(&store, &files, digest, &token, true)?;
        self.leave_former(&store, &files, seed)?;
        Ok(Refresh {
            token: Arc::new(token),
            interrupted,
        })
    }

    /// `next` is the token from now on.
    pub(super) fn finish(&self, seed: &Secret, next: &Secret) -> Result<(), SealedError> {
        let (store, files) = self.open()?;
        self.write(&store, &files, digest(seed), next, false)
    }

    fn file(&self, seed: &str) -> String {
        format!("{}.{}.pgp", self.name, seed.get(..16).unwrap_or(seed))
    }

    /// Without a seed in its name.
    fn former(&self) -> String {
        format!("{}.pgp", self.name)
    }

    /// Removes the file of the old name, once its state stands in the one of the new name.
    fn leave_former(&self, store: &Store, files: &Files, seed: &Secret) -> Result<(), SealedError> {
        let former = self.former();
        let held = self.unsealed(store, files, &former)?;
        if held.is_some_and(|state| state.seed == digest(seed)) {
            files.remove(&former).map_err(|source| self.wrong(source))?;
        }
        Ok(())
    }

    fn open(&self) -> Result<(Store, Files), SealedError> {
        let store = Store::open(&self.store, &self.key)?;
        let wrong = |source| self.wrong(source);
        match std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&self.directory)
        {
            Ok(()) => {}
            Err(problem) if problem.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(problem) => return Err(wrong(problem)),
        }
        let files = Files::open(&self.directory).map_err(wrong)?;
        Ok((store, files))
    }

    fn wrong(&self, source: std::io::Error) -> SealedError {
        SealedError::File {
            path: self.directory.clone(),
            source,
        }
    }

    /// The state of the login that began with `seed`.
    fn read(&self, store: &Store, files: &Files, seed: &str) -> Result<Option<State>, SealedError> {
        match self.unsealed(store, files, &self.file(seed))? {
            Some(state) => Ok(Some(state)),
            None => self.unsealed(store, files, &self.former()),
        }
    }

    fn unsealed(
        &self,
        store: &Store,
        files: &Files,
        file: &str,
    ) -> Result<Option<State>, SealedError> {
        let Some(sealed) = files.read(file).map_err(|source| self.wrong(source))? else {
            return Ok(None);
        };
        let damaged = || SealedError::Damaged(self.directory.join(file));
        let text = store.unseal(&sealed).map_err(|_| damaged())?;
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|_| damaged())
    }

    fn write(
        &self,
        store: &Store,
        files: &Files,
        seed: String,
        token: &Secret,
        pending: bool,
    ) -> Result<(), SealedError> {
        let file = self.file(&seed);
        let state = State {
            seed,
            token: String::from_utf8_lossy(token.expose()).into_owned(),
            pending,
        };
        let text = serde_json::to_vec(&state).map_err(|problem| self.wrong(problem.into()))?;
        let text = zeroize::Zeroizing::new(text);
        zeroize::Zeroize::zeroize(&mut { state.token });
        let sealed = store.seal(&text)?;
        files
            .write(&file, &sealed)
            .map_err(|source| self.wrong(source))
    }
}

pub(super) fn digest(seed: &Secret) -> String {
    sha256(seed.expose())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use sequoia_openpgp::cert::CertBuilder;
    use sequoia_openpgp::serialize::Serialize as _;

    use super::*;

    fn sealed(folder: &std::path::Path) -> Sealed {
        let place = |name: &str| folder.join(name);
        let (cert, _) = CertBuilder::new()
            .add_userid("agents")
            .add_storage_encryption_subkey()
            .generate()
            .unwrap();
        let mut bytes = Vec::new();
        cert.as_tsk().serialize(&mut bytes).unwrap();
        std::fs::write(place("key"), bytes).unwrap();
        std::fs::set_permissions(place("key"), std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::create_dir(place("store")).unwrap();
        Sealed {
            directory: place("state"),
            name: CredentialName::parse("login").unwrap(),
            store: place("store"),
            key: place("key"),
        }
    }

    fn secret(text: &str) -> Secret {
        Secret::take_text(text.to_owned()).unwrap()
    }

    #[test]
    fn the_state_of_the_old_name_is_taken_over_by_its_own_login_alone() {
        let folder = tempfile::tempdir().unwrap();
        let sealed = sealed(folder.path());
        let (mine, other) = (secret("mine"), secret("other"));
        sealed.begin(&mine).unwrap();
        sealed.finish(&mine, &secret("mine-2")).unwrap();
        let (fresh, former) = (
            folder
                .path()
                .join("state")
                .join(sealed.file(&digest(&mine))),
            folder.path().join("state/login.pgp"),
        );
        std::fs::rename(&fresh, &former).unwrap();

        // Another login does not touch it.
        assert_eq!(sealed.begin(&other).unwrap().token.expose(), b"other");
        assert!(former.exists());
        let taken = sealed.begin(&mine).unwrap();
        assert_eq!(taken.token.expose(), b"mine-2", "not the used-up seed");
        assert!(!taken.interrupted);
        assert!(fresh.exists() && !former.exists());
        sealed.finish(&mine, &secret("mine-3")).unwrap();
        assert_eq!(sealed.begin(&mine).unwrap().token.expose(), b"mine-3");

        // One that cannot be read is named, not passed over.
        std::fs::remove_file(&fresh).unwrap();
        std::fs::write(&former, "damaged").unwrap();
        let problem = sealed.begin(&mine).err().unwrap().to_string();
        assert!(problem.contains("login.pgp is damaged"), "{problem}");
    }

    #[test]
    fn a_former_login_does_not_write_over_the_state_of_a_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let sealed = sealed(folder.path());
        let (former, fresh) = (secret("former"), secret("fresh"));
        assert_eq!(sealed.begin(&former).unwrap().token.expose(), b"former");
        assert_eq!(sealed.begin(&fresh).unwrap().token.expose(), b"fresh");
        sealed.finish(&fresh, &secret("fresh-2")).unwrap();
        // The refresh that the former login had begun ends now.
        sealed.finish(&former, &secret("former-2")).unwrap();
        let now = sealed.begin(&fresh).unwrap();
        assert_eq!(now.token.expose(), b"fresh-2");
        assert!(!now.interrupted);
        let interrupted = sealed.begin(&fresh).unwrap();
        assert!(interrupted.interrupted, "the control");
    }
}
