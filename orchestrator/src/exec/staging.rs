//! The current directory as the container sees it: mapped to the run's uid, with the places that
//! host tools read commands from closed.
//!
//! The mount is made in the private mount namespace of exec's thread. Mapped: whoever owns the
//! directory on disk appears as the run's uid, so that files keep their owner on disk while the
//! caller's uid exists nowhere in the container. Closed: see [`READ_ONLY`]. A closed place is a mount
//! point, and so are the directories above it, because a mount point cannot be renamed away; what does
//! not exist yet cannot be a mount point and is put aside when the run has ended ([`PUT_ASIDE`]).

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid, chown};

use super::ExecError;
use crate::container::{Slice, passable_directory};
use crate::spawn::idmap::{self, Mapping};

/// Names that are read-only inside when they exist: git runs what they say, or direnv does.
pub(super) const READ_ONLY: [&str; 6] = [
    ".git/config",
    ".git/config.worktree",
    ".git/commondir",
    ".git/hooks",
    ".git/info",
    ".envrc",
];

/// Names that must not have appeared: git would read another configuration because of them.
pub(super) const PUT_ASIDE: [&str; 3] = [".git/config.worktree", ".git/commondir", ".envrc"];

/// A directory that is ready to be the workspace of a container.
#[derive(Debug)]
pub(super) struct Staged {
    /// Where the mapped mount is.
    pub(super) mount: PathBuf,
    /// Names of [`PUT_ASIDE`] that did not exist before the run.
    pub(super) absent: Vec<&'static str>,
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
/// The kernel or the file system cannot map mounts; the caller may fall back to a clone.
pub(super) fn mapped(directory: &Path, staging: &Path, slice: Slice) -> io::Result<Staged> {
    let owner = directory.metadata()?;
    let target = staging.join("work");
    passable_directory(&target)?;
    let mapping = Mapping {
        disk_uid: owner.uid(),
        disk_gid: owner.gid(),
        seen_uid: slice.agent(),
        seen_gid: slice.agent(),
    };
    complete(directory, owner.uid(), owner.gid())?;
    idmap::mount(directory, &target, mapping)?;
    let absent = close(&target)?;
    Ok(Staged {
        mount: target,
        absent,
    })
}

/// Closes the places of [`READ_ONLY`] beneath `root`; returns the absent names of [`PUT_ASIDE`].
fn close(root: &Path) -> io::Result<Vec<&'static str>> {
    let git = root.join(".git");
    match git.symlink_metadata() {
        Ok(meta) if meta.is_dir() => {
            pin(&git)?;
            for module in modules(&git)? {
                pin(&module)?;
                for name in ["config", "config.worktree", "commondir", "hooks", "info"] {
                    read_only(&module.join(name))?;
                }
            }
        }
        // A worktree's or submodule's pointer. What it points to is not in this directory, so git
        // could not work on it inside; a clone can.
        Ok(meta) if meta.is_file() => {
            return Err(io::Error::other("its repository is in another directory"));
        }
        Ok(_) => return Err(io::Error::other(".git is neither a directory nor a file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    for path in named_by_config(root) {
        read_only(&path)?;
    }
    for name in READ_ONLY {
        read_only(&root.join(name))?;
    }
    let missing = |name: &&str| root.join(name).symlink_metadata().is_err();
    Ok(PUT_ASIDE.into_iter().filter(missing).collect())
}

/// Places inside `root` that the repository's own configuration names: a hooks directory in the
/// working tree, an included configuration file. Git would take commands from them.
fn named_by_config(root: &Path) -> Vec<PathBuf> {
    let git = root.join(".git");
    let text = fs::read_to_string(git.join("config")).unwrap_or_default();
    let mut found = Vec::new();
    for line in text.lines() {
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        let from = match key.trim().to_ascii_lowercase().as_str() {
            "hookspath" => root,
            "path" => &git,
            _ => continue,
        };
        let path = normal(&from.join(value.trim().trim_matches('"')));
        let inside = path
            .strip_prefix(root)
            .is_ok_and(|rest| rest.components().count() > 0);
        if inside && path.symlink_metadata().is_ok_and(|meta| !meta.is_symlink()) {
            found.push(path);
        }
    }
    found
}

/// The path without `.` and `..`, by the letter.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => normal.push(part),
        }
    }
    normal
}

/// Git directories of submodules, at any depth, and the directories that lead to them.
fn modules(git: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![git.join("modules")];
    while let Some(directory) = open.pop() {
        if !directory.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            continue;
        }
        if directory.join("HEAD").exists() {
            open.push(directory.join("modules"));
        } else {
            for entry in fs::read_dir(&directory)? {
                open.push(entry?.path());
            }
        }
        found.push(directory);
        if found.len() > 1000 {
            return Err(io::Error::other("more than 1000 submodule directories"));
        }
    }
    // Parents first, so that each mount covers the one above it.
    found.sort();
    Ok(found)
}

/// Makes the directories in which git looks for commands, where they are missing, so that they can
/// be closed. Done on disk, before the mapped mount, through which we are nobody.
fn complete(directory: &Path, uid: u32, gid: u32) -> io::Result<()> {
    let git = directory.join(".git");
    if !git.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
        return Ok(());
    }
    let mut repositories = modules(&git)?;
    repositories.retain(|path| path.join("HEAD").exists());
    repositories.push(git);
    for repository in repositories {
        for name in ["hooks", "info"] {
            let path = repository.join(name);
            if path.symlink_metadata().is_err() {
                fs::create_dir(&path)?;
                chown(&path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
            }
        }
    }
    Ok(())
}

/// Makes a directory a mount point of itself, so that it cannot be renamed or removed.
fn pin(path: &Path) -> io::Result<()> {
    refuse_links(path)?;
    bind(path).map_err(io::Error::from)
}

/// Mounts a file or directory read-only over itself, if it exists.
fn read_only(path: &Path) -> io::Result<()> {
    if path
        .symlink_metadata()
        .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    {
        return Ok(());
    }
    refuse_links(path)?;
    let flags = MsFlags::MS_BIND
        | MsFlags::MS_REMOUNT
        | MsFlags::MS_RDONLY
        | MsFlags::MS_NOSUID
        | MsFlags::MS_NODEV;
    bind(path)
        .and_then(|()| mount_flags(path, flags))
        .map_err(io::Error::from)
}

/// A link in a protected place would make us mount over what it names.
fn refuse_links(path: &Path) -> io::Result<()> {
    if path.symlink_metadata()?.is_symlink() {
        return Err(io::Error::other(format!(
            "{} is a symbolic link",
            path.display()
        )));
    }
    Ok(())
}

fn bind(path: &Path) -> nix::Result<()> {
    mount(
        Some(path),
        path,
        None::<&str>,
        MsFlags::MS_BIND,
        None::<&str>,
    )
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
    absent: &[&'static str],
    to: &Path,
) -> io::Result<Vec<&'static str>> {
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
        let target = to.join(name.replace('/', "-"));
        if fs::rename(&from, &target).is_err() {
            let beside = directory.join(format!("{name}.put-aside-by-portcullis"));
            fs::rename(&from, beside)?;
        }
        moved.push(*name);
    }
    Ok(moved)
}

/// Removes what [`mapped`] made on disk; the mounts are gone with the namespace, or detached here.
pub(super) fn unstage(staging: &Path) {
    let work = staging.join("work");
    // Detached with everything mounted beneath it.
    let _not_mounted = nix::mount::umount2(&work, nix::mount::MntFlags::MNT_DETACH);
    let _not_empty = fs::remove_dir(&work);
    let _not_empty = fs::remove_dir(staging);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_configuration_names_inside_the_tree_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join(".git")).unwrap();
        fs::create_dir_all(root.join(".githooks")).unwrap();
        fs::write(root.join(".gitconfig"), "").unwrap();
        let text = "[core]\n\thooksPath = .githooks\n[include]\n\tpath = ../.gitconfig\n\
                    [include]\n\tpath = ../../outside\n[user]\n\tname = x\n";
        fs::write(root.join(".git/config"), text).unwrap();
        assert_eq!(
            named_by_config(root),
            [root.join(".githooks"), root.join(".gitconfig")]
        );
    }
}
