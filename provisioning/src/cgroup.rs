//! The control groups handed to the orchestrator's account, below which each run gets its own with its limits.
//!
//! Under systemd the orchestrator's unit does this. Without it, with version 1 (or a mixed host) each controller has a
//! tree of its own: `/sys/fs/cgroup/CONTROLLER/NAME`; with version 2 it is `/sys/fs/cgroup/NAME`.

use std::fs;
use std::path::{Path, PathBuf};

/// Where control groups are mounted.
pub const ROOT: &str = "/sys/fs/cgroup";
/// The controllers a run is limited by, and `freezer`, by which its end is made certain.
const CONTROLLERS: [&str; 3] = ["memory", "pids", "freezer"];

/// Whether this host has one tree with every controller.
#[must_use]
pub fn is_unified(root: &Path) -> bool {
    root.join("cgroup.controllers").exists()
}

/// The directories of an instance, whether they exist or not.
#[must_use]
pub fn directories(root: &Path, name: &str) -> Vec<PathBuf> {
    if is_unified(root) {
        return vec![root.join(name)];
    }
    CONTROLLERS
        .iter()
        .map(|controller| root.join(controller))
        .filter(|tree| tree.is_dir())
        .map(|tree| tree.join(name))
        .collect()
}

/// What has to be the account's inside each directory, beside the directory itself.
#[must_use]
pub fn handed_files(directory: &Path) -> Vec<PathBuf> {
    [
        "cgroup.procs",
        "tasks",
        "cgroup.subtree_control",
        "cgroup.threads",
    ]
    .iter()
    .map(|name| directory.join(name))
    .filter(|path| path.exists())
    .collect()
}

/// Every process in the directory and below it.
#[must_use]
pub fn processes(directory: &Path) -> Vec<i32> {
    let mut found: Vec<i32> = fs::read_to_string(directory.join("cgroup.procs"))
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.parse().ok())
        .collect();
    for child in children(directory) {
        found.extend(processes(&child));
    }
    found
}

/// Every directory of that name below `directory`: `exec` makes one under whatever group its caller was in.
#[must_use]
pub fn named(directory: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for child in children(directory) {
        if child.file_name().is_some_and(|own| own == name) {
            found.push(child);
        } else {
            found.extend(named(&child, name));
        }
    }
    found
}

/// Removes the directory and all below it, deepest first.
///
/// # Errors
/// When one still has a process in it.
pub fn remove(directory: &Path) -> std::io::Result<()> {
    for child in children(directory) {
        remove(&child)?;
    }
    fs::remove_dir(directory)
}

fn children(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_one_has_a_directory_per_controller_and_version_two_has_one() {
        let root = tempfile::tempdir().unwrap();
        for tree in ["memory", "pids", "cpu", "unified"] {
            fs::create_dir(root.path().join(tree)).unwrap();
        }
        let found = directories(root.path(), "n");
        assert_eq!(
            found,
            [root.path().join("memory/n"), root.path().join("pids/n")]
        );
        fs::write(root.path().join("cgroup.controllers"), "memory pids").unwrap();
        assert_eq!(directories(root.path(), "n"), [root.path().join("n")]);
    }
}
