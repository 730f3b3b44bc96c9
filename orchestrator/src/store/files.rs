//! Files by their hash, in a directory of the orchestrator's own.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// The directory, mode 0700; each file 0600 under the SHA-256 of its bytes.
#[derive(Debug, Clone)]
pub struct Files(PathBuf);

impl Files {
    /// Files in this directory, which is made when the first is kept.
    #[must_use]
    pub fn new(directory: PathBuf) -> Self {
        Self(directory)
    }

    /// The name of these bytes.
    #[must_use]
    pub fn hash(bytes: &[u8]) -> String {
        let digest = Sha256::digest(bytes);
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Keeps bytes; they are on disk when this returns.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn keep(&self, bytes: &[u8]) -> io::Result<String> {
        let hash = Self::hash(bytes);
        let path = self.path(&hash);
        if let Ok(there) = fs::read(&path)
            && there == bytes
        {
            return Ok(hash);
        }
        let directory = path.parent().unwrap_or(&self.0);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        let draft = directory.join(format!(".{}", super::new_id()));
        let written = write(&draft, bytes).and_then(|()| fs::rename(&draft, &path));
        if let Err(error) = written {
            // It may not exist; the first error says more.
            let _absent = fs::remove_file(&draft);
            return Err(error);
        }
        fs::File::open(directory)?.sync_all()?;
        Ok(hash)
    }

    /// The bytes of a hash.
    ///
    /// # Errors
    /// They are not there, or no longer what they were.
    pub fn read(&self, hash: &str) -> io::Result<Vec<u8>> {
        let bytes = fs::read(self.path(hash))?;
        if Self::hash(&bytes) != hash {
            let error = "the file is no longer what was kept";
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        Ok(bytes)
    }

    /// Whether there are bytes under a hash.
    #[must_use]
    pub fn has(&self, hash: &str) -> bool {
        self.path(hash).is_file()
    }

    /// Forgets the bytes of a hash.
    ///
    /// # Errors
    /// They cannot be removed.
    pub fn remove(&self, hash: &str) -> io::Result<()> {
        match fs::remove_file(self.path(hash)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Removes every file whose hash is not among these, and drafts that nobody finished. Nobody may
    /// keep anything meanwhile.
    ///
    /// # Errors
    /// The directory cannot be read, or a file not removed.
    pub fn sweep(&self, known: &HashSet<String>) -> io::Result<usize> {
        let folders = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            folders => folders?,
        };
        let mut removed = 0;
        for folder in folders {
            for file in fs::read_dir(folder?.path())? {
                let file = file?;
                if !file
                    .file_name()
                    .to_str()
                    .is_some_and(|name| known.contains(name))
                {
                    fs::remove_file(file.path())?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }

    /// A hash is hex by construction: it comes from the database or from [`Files::hash`].
    fn path(&self, hash: &str) -> PathBuf {
        self.0.join(hash.get(..2).unwrap_or("xx")).join(hash)
    }
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn files_are_private_named_by_their_hash_and_checked() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::new(folder.path().join("attachments"));
        let hash = files.keep(b"hello").unwrap();
        assert_eq!(files.keep(b"hello").unwrap(), hash);
        assert_eq!(files.read(&hash).unwrap(), b"hello");
        let path = files.path(&hash);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        assert_eq!(mode(&folder.path().join("attachments")), 0o700);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        fs::write(&path, b"hullo").unwrap();
        assert!(files.read(&hash).is_err(), "changed behind our back");
        files.keep(b"hello").unwrap();
        assert!(files.read(&hash).is_ok(), "kept again");
        files.remove(&hash).unwrap();
        files.remove(&hash).unwrap();
        assert!(files.read(&hash).is_err());
    }
}
