//! Control groups of runs: where they may be made, one per run, and who is in them.
//!
//! A run's group is a directory of its own beneath a subtree that was handed to the orchestrator's
//! uid (version 1: one directory each under the memory and pids hierarchies; version 2: one under
//! the unified hierarchy, systemd's `Delegate=yes`). The container's monitor starts inside it, alone, and LXC makes
//! its own two groups beneath. On version 2 it starts in a leaf, [`ENTRANCE`]. Limits are LXC's to set, on the container's part; what cannot be
//! limited is refused before anything starts.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Gid, Pid, Uid, chown};

use super::Limits;

mod discover;

/// The controllers that a run's limits need.
const CONTROLLERS: [&str; 2] = ["memory", "pids"];

/// Where a run's monitor starts on version 2, beneath the run's group. LXC enables the controllers for the children of
/// the group it was started in before it leaves it, which the kernel refuses while it is in there; of this name alone
/// (liblxc 5: `prune_init_scope`) it takes the parent as the place to start from.
const ENTRANCE: &str = "init.scope";

/// What the kernel says a subtree's user must own, one name per line (since Linux 4.15).
const DELEGATE: &str = "/sys/kernel/cgroup/delegate";

/// Why runs cannot be limited here.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// No hierarchy offers the controller.
    #[error(
        "limits cannot be set: no control group hierarchy with the {0} controller is mounted\n  \
         hint: mount the controllers, or for version 2 let systemd delegate them (Delegate=yes)"
    )]
    NoController(&'static str),
    /// The subtree belongs to somebody else.
    #[error(
        "limits cannot be set: {path} is not ours to use\n  hint: hand the control group subtree of this \
         process to its uid (systemd: Delegate=yes; otherwise chown the directory, cgroup.procs and tasks) \
         and start it inside"
    )]
    NotDelegated {
        /// The directory that could not be used.
        path: PathBuf,
        /// What the kernel answered.
        #[source]
        source: io::Error,
    },
    /// `/proc` does not say where this process is.
    #[error("limits cannot be set: the control groups of this process cannot be read")]
    Unreadable(#[source] io::Error),
}

/// A subtree in which groups for runs can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CgroupRoot {
    /// Version 1: a directory under each controller's hierarchy.
    V1 {
        /// Under the memory hierarchy.
        memory: PathBuf,
        /// Under the pids hierarchy.
        pids: PathBuf,
    },
    /// Version 2: one directory with both controllers enabled for its children.
    V2 {
        /// Under the unified hierarchy.
        root: PathBuf,
    },
}

impl CgroupRoot {
    fn directories(&self) -> Vec<&Path> {
        match self {
            Self::V1 { memory, pids } => vec![memory, pids],
            Self::V2 { root } => vec![root],
        }
    }

    /// The directories a run's group has, whether or not they exist.
    pub fn of_run(&self, name: &str) -> Vec<PathBuf> {
        self.directories()
            .iter()
            .map(|dir| dir.join(format!("run-{name}")))
            .collect()
    }

    /// Makes the group of a run, owned by `owner` when that is not us.
    ///
    /// # Errors
    /// The subtree is not ours.
    pub fn create(&self, name: &str, owner: Option<(Uid, Gid)>) -> Result<RunGroup, CgroupError> {
        let group = RunGroup {
            directories: self.of_run(name),
        };
        for directory in &group.directories {
            let made = make(directory, owner).and_then(|()| match self {
                Self::V1 { .. } => Ok(()),
                Self::V2 { .. } => make(&directory.join(ENTRANCE), owner),
            });
            if let Err(source) = made {
                group.remove();
                return Err(CgroupError::NotDelegated {
                    path: directory.clone(),
                    source,
                });
            }
        }
        Ok(group)
    }

    /// LXC's configuration lines that limit the container. Swap counts as memory where the kernel
    /// can say so.
    pub fn limits(&self, limits: Limits) -> Vec<(String, String)> {
        let Limits { memory_bytes, pids } = limits;
        match self {
            Self::V1 { memory, .. } => {
                let mut lines = vec![("lxc.cgroup.memory.limit_in_bytes", memory_bytes)];
                if memory.join("memory.memsw.limit_in_bytes").exists() {
                    lines.push(("lxc.cgroup.memory.memsw.limit_in_bytes", memory_bytes));
                }
                lines.push(("lxc.cgroup.pids.max", pids));
                lines
            }
            Self::V2 { .. } => vec![
                ("lxc.cgroup2.memory.max", memory_bytes),
                ("lxc.cgroup2.memory.swap.max", 0),
                ("lxc.cgroup2.pids.max", pids),
            ],
        }
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_string()))
        .collect()
    }
}

fn make(directory: &Path, owner: Option<(Uid, Gid)>) -> io::Result<()> {
    fs::create_dir(directory)?;
    let Some((uid, gid)) = owner else {
        return Ok(());
    };
    chown(directory, Some(uid), Some(gid))?;
    // LXC leaves version 2 alone, limits and all, where one of the kernel's list is not its user's. An old kernel has
    // no list, and then these are all.
    let listed = fs::read_to_string(DELEGATE).unwrap_or_default();
    let always = [
        "cgroup.procs",
        "tasks",
        "cgroup.subtree_control",
        "cgroup.threads",
    ];
    for file in always.into_iter().chain(listed.lines()) {
        let file = directory.join(file);
        if file.exists() {
            chown(&file, Some(uid), Some(gid))?;
        }
    }
    Ok(())
}

/// The group of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunGroup {
    /// Its directories, one per hierarchy.
    pub directories: Vec<PathBuf>,
}

impl RunGroup {
    /// Opens what a process writes `0` to in order to join.
    ///
    /// # Errors
    /// The directories are gone or not ours.
    pub fn open_procs(&self) -> Result<Vec<OwnedFd>, CgroupError> {
        let open = |directory: &PathBuf| {
            let entrance = directory.join(ENTRANCE);
            let place = if entrance.is_dir() {
                &entrance
            } else {
                directory
            };
            let path = place.join("cgroup.procs");
            OpenOptions::new()
                .write(true)
                .open(&path)
                .map(|file: File| file.into())
                .map_err(|source| CgroupError::NotDelegated { path, source })
        };
        self.directories.iter().map(open).collect()
    }

    /// Removes the directories that are empty; a group with processes stays.
    pub fn remove(&self) {
        self.directories
            .iter()
            .for_each(|directory| remove_tree(directory));
    }
}

fn remove_tree(directory: &Path) {
    for child in children(directory).unwrap_or_default() {
        remove_tree(&child);
    }
    // Busy or gone: both are for `processes` to tell.
    let _busy_or_gone = fs::remove_dir(directory);
}

/// Every process in a group directory and beneath it. A missing directory has none.
///
/// # Errors
/// Something exists but cannot be read, so nothing is known.
pub fn processes(directory: &Path) -> io::Result<Vec<Pid>> {
    let mut found = Vec::new();
    match fs::read_to_string(directory.join("cgroup.procs")) {
        Ok(text) => found.extend(
            text.lines()
                .filter_map(|line| line.parse().ok())
                .map(Pid::from_raw),
        ),
        Err(error) if is_gone(&error) => return Ok(found),
        Err(error) => return Err(error),
    }
    for child in children(directory)? {
        found.extend(processes(&child)?);
    }
    Ok(found)
}

/// Sends SIGKILL to every process in the directories, ourselves excepted.
///
/// # Errors
/// A directory cannot be read, or a process is not ours to kill.
pub fn kill_all(directories: &[PathBuf]) -> io::Result<()> {
    let mut refused = None;
    for directory in directories {
        for pid in processes(directory)? {
            // pid 0 is a process outside our pid namespace: not ours, and not a pid to signal.
            if pid == Pid::this() || pid.as_raw() <= 0 {
                continue;
            }
            match kill(pid, Signal::SIGKILL) {
                Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
                Err(error) => refused = Some(io::Error::from(error)),
            }
        }
    }
    refused.map_or(Ok(()), Err)
}

fn children(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if is_gone(&error) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        match entry.and_then(|entry| Ok((entry.file_type()?, entry.path()))) {
            Ok((kind, path)) if kind.is_dir() => found.push(path),
            Ok(_) => {}
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// A group that is removed while it is being read answers ENOENT or ENODEV.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plain directory stands in for the hierarchy: what is looked at is which groups are made and joined.
    fn joined(root: &CgroupRoot) -> (RunGroup, bool) {
        let group = root.create("x", None).unwrap();
        let entrance = group.directories[0].join(ENTRANCE);
        let leaf = entrance.is_dir();
        for directory in &group.directories {
            let place = if leaf { &entrance } else { directory };
            fs::write(place.join("cgroup.procs"), "").unwrap();
        }
        (group, leaf)
    }

    #[test]
    fn a_monitor_starts_in_a_leaf_on_version_2_and_in_the_group_itself_on_version_1() {
        let tree = tempfile::tempdir().unwrap();
        let at = |name: &str| {
            let path = tree.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let v2 = CgroupRoot::V2 {
            root: at("unified"),
        };
        let (group, leaf) = joined(&v2);
        assert!(leaf);
        assert_eq!(group.open_procs().unwrap().len(), 1);

        let v1 = CgroupRoot::V1 {
            memory: at("memory"),
            pids: at("pids"),
        };
        let (group, leaf) = joined(&v1);
        assert!(!leaf);
        assert_eq!(group.open_procs().unwrap().len(), 2);
    }
}
