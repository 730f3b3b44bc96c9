//! Files and directories with the owner and mode they should have, written whole or not at all.

use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

/// What could not be done to which path.
#[derive(Debug, Error)]
#[error("cannot {action} {path}")]
pub struct FileError {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl FileError {
    /// For `map_err`: names the action and the path.
    pub fn new(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self {
            action,
            path,
            source,
        }
    }
}

/// Who owns a path and with which permission bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    pub uid: u32,
    pub gid: u32,
    pub mode: u32,
}

impl Access {
    /// root's, with that mode.
    #[must_use]
    pub fn root(mode: u32) -> Self {
        Self {
            uid: 0,
            gid: 0,
            mode,
        }
    }

    /// How `path` differs from this; `None` when it does not. A missing path differs.
    #[must_use]
    pub fn difference(&self, path: &Path) -> Option<String> {
        let Ok(found) = fs::symlink_metadata(path) else {
            return Some(format!("{} is missing", path.display()));
        };
        if found.is_symlink() {
            return Some(format!("{} is a symbolic link", path.display()));
        }
        let have = Self {
            uid: found.uid(),
            gid: found.gid(),
            mode: found.mode() & 0o7777,
        };
        (have != *self).then(|| {
            format!(
                "{} is {}:{} {:04o}, wanted {}:{} {:04o}",
                path.display(),
                have.uid,
                have.gid,
                have.mode,
                self.uid,
                self.gid,
                self.mode
            )
        })
    }

    /// By a descriptor that no symbolic link was followed to: root changes the owner of nothing else, whoever else can
    /// write beside it.
    fn set(&self, path: &Path) -> Result<(), FileError> {
        let file = fs::OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
            .open(path)
            .map_err(FileError::new("open", path))?;
        fchown(&file, Some(self.uid), Some(self.gid))
            .map_err(FileError::new("change the owner of", path))?;
        file.set_permissions(Permissions::from_mode(self.mode))
            .map_err(FileError::new("change the mode of", path))
    }
}

/// Creates the directory (and missing parents, as root's 0755) and gives it that access.
///
/// # Errors
/// When the kernel refuses, or something that is not a directory is in the way.
pub fn ensure_directory(path: &Path, access: Access) -> Result<(), FileError> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        let loops = io::Error::other("a symbolic link is in its place");
        return Err(FileError::new("use the directory", path)(loops));
    }
    fs::create_dir_all(path).map_err(FileError::new("create the directory", path))?;
    access.set(path)
}

/// Gives an existing file that access.
///
/// # Errors
/// When the kernel refuses.
pub fn hand_over(path: &Path, access: Access) -> Result<(), FileError> {
    access.set(path)
}

/// Writes the whole content beside the path, syncs it and renames it into place: a reader sees the old or the new file.
///
/// # Errors
/// When any of it fails; the old file is then untouched.
pub fn write(path: &Path, content: &[u8], access: Access) -> Result<(), FileError> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let failed = |source| FileError::new("write", path)(source);
    let mut fresh = tempfile::Builder::new()
        .prefix(".portcullis-")
        .tempfile_in(directory)
        .map_err(failed)?;
    fresh.write_all(content).map_err(failed)?;
    access.set(fresh.path())?;
    fresh.as_file().sync_all().map_err(failed)?;
    fresh
        .persist(path)
        .map_err(|refused| failed(refused.error))?;
    Ok(())
}

/// The content of a file as text.
///
/// # Errors
/// When it cannot be read.
pub fn read(path: &Path) -> Result<String, FileError> {
    fs::read_to_string(path).map_err(FileError::new("read", path))
}

/// The text of a regular file of at most `most` bytes that `owner` can write: no link is followed, so that root reads
/// nothing that its owner could not have read.
///
/// # Errors
/// When it is something else, belongs to somebody else, has another name elsewhere or cannot be read.
pub fn read_of(path: &Path, owner: u32, most: u64) -> Result<String, FileError> {
    use std::io::Read as _;
    let failed = FileError::new("read", path);
    let read = || {
        let file = fs::OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
            .open(path)?;
        let found = file.metadata()?;
        let fits = found.is_file() && found.nlink() == 1 && found.len() <= most;
        if !fits || (found.uid() != owner && found.uid() != 0) {
            return Err(io::Error::other(format!(
                "it is not a small regular file of user {owner} with a single name"
            )));
        }
        let mut text = String::new();
        file.take(most).read_to_string(&mut text)?;
        Ok(text)
    };
    read().map_err(failed)
}

/// SHA-256 of bytes in hexadecimal.
#[must_use]
pub fn hash(content: &[u8]) -> String {
    hex(&Sha256::digest(content))
}

/// Whether two files have the same content.
///
/// # Errors
/// When one cannot be read.
pub fn is_same(one: &Path, other: &Path) -> Result<bool, FileError> {
    let read = |path: &Path| fs::read(path).map_err(FileError::new("read", path));
    let length = |path: &Path| fs::metadata(path).map(|found| found.len()).ok();
    Ok(length(one) == length(other) && read(one)? == read(other)?)
}

/// A name for this very file as it is: it changes when the file is replaced or written to.
///
/// # Errors
/// When it is not there.
pub fn identity(path: &Path) -> Result<String, FileError> {
    let found = fs::metadata(path).map_err(FileError::new("look at", path))?;
    Ok(format!(
        "{}:{}:{}.{}",
        found.ino(),
        found.len(),
        found.mtime(),
        found.mtime_nsec()
    ))
}

/// Lower-case hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
