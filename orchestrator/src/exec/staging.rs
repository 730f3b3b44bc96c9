//! The current directory as the container sees it: mapped to the run's uid, with the places that
//! host tools read commands from closed.
//!
//! The mount is made in the private mount namespace of exec's thread. Mapped: whoever owns the
//! directory on disk appears as the run's uid, so that files keep their owner on disk while the
//! caller's uid exists nowhere in the container. Closed: see [`IN_REPOSITORIES`] and [`places`]. A closed place is
//! a mount point, and so is every directory above it, because a mount point cannot be renamed away; what does
//! not exist yet cannot be a mount point and is put aside when the run has ended, or, if exec is killed,
//! by the next exec ([`recover`]).

mod places;

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

use super::ExecError;
use crate::container::{Slice, passable_directory};
use crate::spawn::idmap::{self, Mapping};
use places::Journal;

pub(super) use places::is_repository;

/// Names that are read-only in each git directory when they exist: git runs what they say.
const IN_REPOSITORIES: [&str; 6] = [
    "config",
    "config.worktree",
    "commondir",
    "gitdir",
    "hooks",
    "info",
];

/// Names that must not have appeared in a git directory: git would read another configuration.
const NEW_IN_REPOSITORIES: [&str; 3] = ["config", "config.worktree", "commondir"];

/// Direnv runs what it says: closed, or put aside.
const ENVRC: &str = ".envrc";

/// Where a run's journal is, beneath its staging directory.
const JOURNAL: &str = "journal";

/// A directory that is ready to be the workspace of a container.
#[derive(Debug)]
pub(super) struct Staged {
    /// Where the mapped mount is.
    pub(super) mount: PathBuf,
    /// Places that would be closed, but did not exist before the run.
    pub(super) absent: Vec<PathBuf>,
    /// Whether the directory was a repository.
    pub(super) repository: bool,
}

/// Gives the calling thread a mount namespace of its own. Nothing it mounts from now on is seen
/// elsewhere.
///
/// # Errors
/// The caller is not root.
pub(super) fn private_mounts() -> Result<(), ExecError> {
    unshare(CloneFlags::CLONE_NEWNS)
        .and_then(|()| mount_flags(Path::new("/"), MsFlags::MS_REC | MsFlags::MS_PRIVATE))
        .map_err(|error| ExecError::Io {
            doing: "making a private mount namespace".to_owned(),
            source: error.into(),
        })
}

/// Mounts `directory`, mapped to the slice's agent, beneath `staging`.
///
/// # Errors
/// The kernel or the file system cannot map mounts, or a place cannot be closed; the caller may fall
/// back to a clone.
pub(super) fn mapped(directory: &Path, staging: &Path, slice: Slice) -> io::Result<Staged> {
    let meta = directory.metadata()?;
    let owner = (meta.uid(), meta.gid());
    let target = staging.join("work");
    passable_directory(&target)?;
    let mapping = Mapping {
        disk_uid: owner.0,
        disk_gid: owner.1,
        seen_uid: slice.agent(),
        seen_gid: slice.agent(),
    };
    let repositories = repositories(directory)?;
    complete(directory, &repositories, owner)?;
    let mut closed: Vec<PathBuf> = Vec::new();
    for repository in &repositories {
        closed.extend(IN_REPOSITORIES.map(|name| repository.join(name)));
    }
    closed.extend(places::named_by_config(directory, owner));
    closed.push(ENVRC.into());
    let endpoints = places::endpoints(directory)?;

    idmap::mount(directory, &target, mapping)?;
    let mut pinned = Pinned::new(&target);
    for repository in &repositories {
        pinned.pin(repository)?;
    }
    let mut absent = Vec::new();
    for place in closed {
        match pinned.missing(&place)? {
            None => pinned.read_only(&place)?,
            // Of what git directories need not have, only some can do harm; of the rest, the
            // topmost part that would have to appear.
            Some(missing) if !place.starts_with(".git") => absent.push(missing),
            Some(_) => {
                let named = |name: &str| place.file_name().is_some_and(|file| file == name);
                let repository = place.parent().unwrap_or(Path::new(""));
                if NEW_IN_REPOSITORIES.iter().any(|name| named(name))
                    && is_repository(&directory.join(repository))
                {
                    absent.push(place);
                }
            }
        }
    }
    if !endpoints.is_empty() {
        let cover = staging.join("cover");
        fs::write(&cover, "")?;
        for endpoint in endpoints {
            bind(&cover, &target.join(endpoint))?;
        }
    }
    let journal = Journal {
        directory: directory.to_owned(),
        absent,
    };
    journal.write(&staging.join(JOURNAL))?;
    Ok(Staged {
        mount: target,
        absent: journal.absent,
        repository: !repositories.is_empty(),
    })
}

/// The git directories of the repository at `directory`; none where there is no repository.
fn repositories(directory: &Path) -> io::Result<Vec<PathBuf>> {
    match directory.join(".git").symlink_metadata() {
        Ok(meta) if meta.is_dir() => places::git_directories(directory),
        // A worktree's or submodule's pointer. What it points to is not in this directory, so git
        // could not work on it inside; a clone can.
        Ok(meta) if meta.is_file() => {
            Err(io::Error::other("its repository is in another directory"))
        }
        Ok(_) => Err(io::Error::other(".git is neither a directory nor a file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Makes the directories in which git looks for commands, where they are missing, so that they can
/// be closed. Done on disk, before the mapped mount, through which we are nobody; as the owner and
/// without following any link, because another run may be working in the same directory.
fn complete(directory: &Path, repositories: &[PathBuf], owner: (u32, u32)) -> io::Result<()> {
    let top = fs::File::open(directory)?;
    let own = repositories.iter().filter(|path| {
        is_repository(&directory.join(path)) && !directory.join(path).join("commondir").exists()
    });
    for repository in own.map(PathBuf::as_path) {
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
        let opened = openat2(&top, repository, how)?;
        let _former = (
            setfsgid(Gid::from_raw(owner.1)),
            setfsuid(Uid::from_raw(owner.0)),
        );
        let made: Vec<_> = ["hooks", "info"]
            .map(|name| mkdirat(&opened, name, Mode::from_bits_truncate(0o755)))
            .into();
        let _former = (setfsuid(Uid::effective()), setfsgid(Gid::effective()));
        for answer in made {
            match answer {
                Ok(()) | Err(nix::errno::Errno::EEXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// A mapped mount in which places are being closed.
struct Pinned<'a> {
    root: &'a Path,
    done: Vec<PathBuf>,
}

impl<'a> Pinned<'a> {
    fn new(root: &'a Path) -> Self {
        Self {
            root,
            done: Vec::new(),
        }
    }

    /// The topmost part of `path` that does not exist.
    ///
    /// # Errors
    /// A part is a link: whoever may write beside it could make it name something else.
    fn missing(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        let mut parts: Vec<&Path> = path.ancestors().collect();
        parts.retain(|part| !part.as_os_str().is_empty());
        for part in parts.into_iter().rev() {
            match self.root.join(part).symlink_metadata() {
                Ok(meta) if meta.is_symlink() => {
                    return Err(io::Error::other(format!(
                        "{} is a symbolic link",
                        part.display()
                    )));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok(Some(part.to_owned()));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Makes a directory, and those above it, mount points of themselves: they cannot be renamed or
    /// removed then.
    fn pin(&mut self, path: &Path) -> io::Result<()> {
        if path.as_os_str().is_empty() || self.done.iter().any(|done| done == path) {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.pin(parent)?;
        }
        let path = path.to_owned();
        if self.missing(&path)?.is_some() {
            return Err(io::Error::other(format!("{} is gone", path.display())));
        }
        bind(&self.root.join(&path), &self.root.join(&path))?;
        self.done.push(path);
        Ok(())
    }

    /// Mounts an existing file or directory read-only over itself, with what is above it pinned.
    fn read_only(&mut self, path: &Path) -> io::Result<()> {
        self.pin(path)?;
        let flags = MsFlags::MS_BIND
            | MsFlags::MS_REMOUNT
            | MsFlags::MS_RDONLY
            | MsFlags::MS_NOSUID
            | MsFlags::MS_NODEV;
        mount_flags(&self.root.join(path), flags).map_err(io::Error::from)
    }
}

fn bind(from: &Path, to: &Path) -> nix::Result<()> {
    mount(Some(from), to, None::<&str>, MsFlags::MS_BIND, None::<&str>)
}

fn mount_flags(path: &Path, flags: MsFlags) -> nix::Result<()> {
    mount(None::<&str>, path, None::<&str>, flags, None::<&str>)
}

/// Moves names that appeared during the run out of the repository. Returns what was moved.
///
/// # Errors
/// Something could not be moved: it is still where host tools would find it.
pub(super) fn put_aside(
    directory: &Path,
    absent: &[PathBuf],
    to: &Path,
) -> io::Result<Vec<PathBuf>> {
    let mut moved = Vec::new();
    for name in absent {
        let from = directory.join(name);
        if from.symlink_metadata().is_err() {
            continue;
        }
        // Across file systems a rename fails; inside the repository it always works.
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(to)?;
        let target = to.join(name.to_string_lossy().replace('/', "-"));
        if fs::rename(&from, &target).is_err() {
            let mut beside = from.clone().into_os_string();
            beside.push(".put-aside-by-portcullis");
            fs::rename(&from, beside)?;
        }
        moved.push(name.clone());
    }
    Ok(moved)
}

/// After an exec that was killed: moves what it would have moved, and removes what it staged.
/// Returns the directory and the names moved. Only for runs that are proven gone.
///
/// # Errors
/// As [`put_aside`]; the journal stays for another attempt.
pub(super) fn recover(staging: &Path, to: &Path) -> io::Result<Option<(PathBuf, Vec<PathBuf>)>> {
    let journal = match Journal::read(&staging.join(JOURNAL)) {
        Ok(journal) => Some(journal),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let found = match journal {
        Some(Journal { directory, absent }) => {
            let moved = put_aside(&directory, &absent, to)?;
            Some((directory, moved))
        }
        None => None,
    };
    unstage(staging);
    Ok(found)
}

/// Removes what [`mapped`] made on disk; the mounts are gone with the namespace, or detached here.
pub(super) fn unstage(staging: &Path) {
    let work = staging.join("work");
    // Detached with everything mounted beneath it.
    let _not_mounted = nix::mount::umount2(&work, nix::mount::MntFlags::MNT_DETACH);
    let _not_empty = fs::remove_dir(&work);
    for file in ["cover", JOURNAL] {
        let _never_made = fs::remove_file(staging.join(file));
    }
    let _not_empty = fs::remove_dir(staging);
}
