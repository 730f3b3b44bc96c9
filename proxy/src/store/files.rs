//! The store's files: opened beneath its directory and never through a link, replaced whole.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{AtFlags, Flock, FlockArg, OFlag, OpenHow, ResolveFlag, openat2, renameat};
use nix::sys::stat::{Mode, fchmod, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, unlinkat};

use crate::guarded;

/// The largest encrypted entry.
const FILE_BYTES_MAX: usize = 256 * 1024;
/// Folders in folders, at most.
const DEPTH_MAX: usize = 24;

/// The store's directory, open.
#[derive(Debug)]
pub struct Files {
    path: PathBuf,
    root: File,
}

impl Files {
    /// # Errors
    /// What the system says; a path that is no directory too.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let root = File::open(path)?;
        if !root.metadata()?.is_dir() {
            return Err(std::io::ErrorKind::NotADirectory.into());
        }
        Ok(Self {
            path: path.to_owned(),
            root,
        })
    }

    /// The directory's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Who the directory belongs to.
    ///
    /// # Errors
    /// What the system says.
    pub fn owner(&self) -> std::io::Result<u32> {
        Ok(self.root.metadata()?.uid())
    }

    /// Keeps other writers out until it is dropped.
    ///
    /// # Errors
    /// What the system says.
    pub fn lock(&self) -> std::io::Result<Flock<File>> {
        let root = File::open(&self.path)?;
        Flock::lock(root, FlockArg::LockExclusive).map_err(|(_, problem)| problem.into())
    }

    /// Reads one file; nothing if it is not there.
    ///
    /// # Errors
    /// What the system says, a link on the way (`ELOOP`), and more than 256 KiB.
    pub fn read(&self, file: &str) -> std::io::Result<Option<Vec<u8>>> {
        let opened = match self.beneath(file, OFlag::O_RDONLY | OFlag::O_NONBLOCK) {
            Ok(opened) => opened,
            Err(problem) if problem.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(problem) => return Err(problem),
        };
        if !opened.metadata()?.is_file() {
            return Err(std::io::Error::other("is not a regular file"));
        }
        let bytes = guarded::fill(opened, FILE_BYTES_MAX)
            .map_err(|unfit| std::io::Error::other(unfit.problem))?;
        Ok(Some(bytes.to_vec()))
    }

    /// What tells one version of a file from another: inode, size and times.
    #[must_use]
    pub fn stamp(&self, file: &str) -> Option<Stamp> {
        let opened = self.beneath(file, OFlag::O_PATH).ok()?;
        opened.metadata().ok().map(|found| Stamp::of(&found))
    }

    /// Every `*.gpg` below the directory, without `.gpg`, in order. Hidden folders and links are
    /// passed over.
    ///
    /// # Errors
    /// What the system says.
    pub fn entries(&self) -> std::io::Result<Vec<String>> {
        let mut found = Vec::new();
        walk(&self.path, "", 0, &mut found)?;
        found.sort();
        Ok(found)
    }

    /// Replaces one file with `bytes`, or makes it: whole or not at all, on disk when this returns.
    /// The mode and group of a former file are kept; a new one is as open as its folder.
    ///
    /// # Errors
    /// What the system says.
    pub fn write(&self, file: &str, bytes: &[u8]) -> std::io::Result<()> {
        let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
        self.make_folders(folder)?;
        let folder = match folder {
            "" => self.root.try_clone()?,
            inner => self.beneath(inner, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?,
        };
        let around = folder.metadata()?;
        let former = self
            .beneath(file, OFlag::O_PATH)
            .and_then(|former| former.metadata())
            .ok();
        let mode = match &former {
            Some(former) => former.mode() & 0o666,
            None => (around.mode() & 0o666) | 0o600,
        };
        let fresh = format!(".{name}.{}", uuid::Uuid::new_v4().simple());
        let how = OpenHow::new()
            .flags(OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC)
            .mode(Mode::S_IRUSR | Mode::S_IWUSR)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
        let mut out = File::from(openat2(folder.as_fd(), fresh.as_str(), how)?);
        let written = (|| {
            out.write_all(bytes)?;
            let (uid, gid) = former
                .as_ref()
                .map_or((around.uid(), around.gid()), |former| {
                    (former.uid(), former.gid())
                });
            if Uid::effective().is_root() {
                fchown(&out, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
            } else if gid != nix::unistd::getegid().as_raw() {
                // Where we may not give it to the former group, it stays closed to that group.
                let kept = fchown(&out, None, Some(Gid::from_raw(gid)));
                if kept.is_err() && mode & 0o060 != 0 {
                    kept?;
                }
            }
            fchmod(&out, Mode::from_bits_truncate(mode))?;
            out.sync_all()?;
            renameat(&folder, fresh.as_str(), &folder, name)?;
            folder.sync_all()
        })();
        if written.is_err() {
            // Whatever went wrong is told; the name without a meaning is only litter.
            let _ = unlinkat(&folder, fresh.as_str(), UnlinkatFlags::NoRemoveDir);
        }
        written
    }

    /// Removes one file; that it is gone is on disk when this returns.
    ///
    /// # Errors
    /// What the system says.
    pub fn remove(&self, file: &str) -> std::io::Result<()> {
        let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
        let folder = match folder {
            "" => self.root.try_clone()?,
            inner => self.beneath(inner, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?,
        };
        unlinkat(&folder, name, UnlinkatFlags::NoRemoveDir)?;
        folder.sync_all()
    }

    fn make_folders(&self, folder: &str) -> std::io::Result<()> {
        if folder.is_empty() {
            return Ok(());
        }
        let mut at = self.root.try_clone()?;
        for word in folder.split('/') {
            let around = at.metadata()?;
            let mode = Mode::from_bits_truncate((around.mode() & 0o777) | 0o700);
            match mkdirat(&at, word, mode) {
                Ok(()) if Uid::effective().is_root() => {
                    nix::unistd::fchownat(
                        &at,
                        word,
                        Some(Uid::from_raw(around.uid())),
                        Some(Gid::from_raw(around.gid())),
                        AtFlags::AT_SYMLINK_NOFOLLOW,
                    )?;
                }
                Ok(()) | Err(nix::errno::Errno::EEXIST) => {}
                Err(problem) => return Err(problem.into()),
            }
            at.sync_all()?;
            at = beneath(&at, word, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
        }
        Ok(())
    }

    fn beneath(&self, file: &str, flags: OFlag) -> std::io::Result<File> {
        beneath(&self.root, file, flags)
    }
}

fn beneath(root: &File, file: &str, flags: OFlag) -> std::io::Result<File> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    Ok(File::from(openat2(root.as_fd(), file, how)?))
}

fn walk(root: &Path, below: &str, depth: usize, found: &mut Vec<String>) -> std::io::Result<()> {
    if depth > DEPTH_MAX {
        return Ok(());
    }
    for entry in std::fs::read_dir(root.join(below))? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else {
            continue;
        };
        let path = if below.is_empty() {
            name.to_owned()
        } else {
            format!("{below}/{name}")
        };
        let kind = entry.file_type()?;
        if kind.is_dir() {
            walk(root, &path, depth + 1, found)?;
        } else if let Some(bare) = path.strip_suffix(".gpg").filter(|_| kind.is_file()) {
            found.push(bare.to_owned());
        }
    }
    Ok(())
}

/// A version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// From what the system says about a file.
    #[must_use]
    pub fn of(found: &std::fs::Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let closed = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(folder.path(), closed).unwrap();
        let files = Files::open(folder.path()).unwrap();
        assert_eq!(files.read("a/b.gpg").unwrap(), None);
        files.write("a/b.gpg", b"one").unwrap();
        let path = folder.path().join("a/b.gpg");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600, "as closed as the folder");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let before = files.stamp("a/b.gpg").unwrap();
        files.write("a/b.gpg", b"two").unwrap();
        assert_eq!(mode(&path), 0o640);
        assert_ne!(files.stamp("a/b.gpg").unwrap(), before);
        assert_eq!(files.read("a/b.gpg").unwrap().unwrap(), b"two");
        assert_eq!(files.entries().unwrap(), ["a/b"]);
        let names: Vec<_> = std::fs::read_dir(folder.path().join("a"))
            .unwrap()
            .collect();
        assert_eq!(names.len(), 1, "nothing is left beside it");
    }

    #[test]
    fn no_link_leads_out_of_the_store() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("x.gpg"), b"x").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let link = |to: &Path, name: &str| {
            std::os::unix::fs::symlink(to, folder.path().join(name)).unwrap();
        };
        link(outside.path(), "out");
        link(&outside.path().join("x.gpg"), "y.gpg");
        let files = Files::open(folder.path()).unwrap();
        assert!(files.read("out/x.gpg").is_err() && files.read("y.gpg").is_err());
        assert!(files.read("../x.gpg").is_err());
        assert!(files.write("out/z.gpg", b"z").is_err());
        assert!(!outside.path().join("z.gpg").exists());
        assert!(files.entries().unwrap().is_empty());
        files.write("in.gpg", b"z").unwrap();
        assert_eq!(files.entries().unwrap(), ["in"]);
    }
}
