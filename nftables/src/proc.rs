//! What `/proc` says of a process, or of one of its threads: whose it is, and what it may do.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::{fs, io};

use crate::capabilities;

/// The `status` of a process or a thread.
#[derive(Debug, Clone)]
pub struct Status(String);

impl Status {
    /// Reads that of `/proc/PID`, or of `/proc/PID/task/TID`.
    ///
    /// # Errors
    /// When it is gone, or may not be read.
    pub fn read(directory: &Path) -> io::Result<Self> {
        fs::read_to_string(directory.join("status")).map(Self)
    }

    /// One that was read already.
    #[must_use]
    pub fn of(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Its real, effective, saved and file system user, in this order.
    pub fn uids(&self) -> impl Iterator<Item = u32> + '_ {
        let uids = self.field("Uid:").unwrap_or_default();
        uids.split_whitespace().filter_map(|uid| uid.parse().ok())
    }

    /// What it calls itself; at most 15 characters.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.field("Name:")
    }

    /// The process that started it, or whoever took it on.
    #[must_use]
    pub fn parent(&self) -> Option<u32> {
        self.field("PPid:")?.parse().ok()
    }

    /// Whether it has ended, and only its number is left.
    #[must_use]
    pub fn has_ended(&self) -> Option<bool> {
        Some(self.field("State:")?.starts_with(['Z', 'X']))
    }

    /// Whether it has memory of its own, which a thread of the kernel has not.
    #[must_use]
    pub fn has_memory(&self) -> bool {
        self.field("VmSize:").is_some()
    }

    /// Whether it can never gain rights by executing a file.
    #[must_use]
    pub fn no_new_privileges(&self) -> Option<bool> {
        Some(self.field("NoNewPrivs:")? == "1")
    }

    /// As [`capabilities::held`].
    #[must_use]
    pub fn capabilities(&self) -> Vec<String> {
        capabilities::held(&self.0)
    }

    fn field(&self, key: &str) -> Option<&str> {
        let line = self.0.lines().find_map(|line| line.strip_prefix(key));
        line.map(str::trim)
    }
}

/// The numbers that a directory lists: processes below `/proc`, threads below `/proc/PID/task`.
#[must_use]
pub fn numbers(directory: &Path) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The number of a namespace, `net` or `user`, of a process or a thread.
///
/// # Errors
/// When it is gone, or is another user's and CAP_SYS_PTRACE is lacking.
pub fn namespace(directory: &Path, kind: &str) -> io::Result<u64> {
    Ok(fs::metadata(directory.join("ns").join(kind))?.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_field_by_field() {
        let status = Status::of(
            "Name:\tgate\nState:\tS (sleeping)\nPPid:\t1\nUid:\t7\t8\t9\t10\nVmSize:\t 1 kB\nNoNewPrivs:\t1\n\
             CapEff:\t0000000000002000\n",
        );
        assert_eq!(status.uids().collect::<Vec<_>>(), [7, 8, 9, 10]);
        assert_eq!((status.name(), status.parent()), (Some("gate"), Some(1)));
        assert_eq!(status.has_ended(), Some(false));
        assert!(status.has_memory() && status.no_new_privileges() == Some(true));
        assert_eq!(status.capabilities(), ["CAP_NET_RAW (effective)"]);
        // What is not said is not known.
        let none = Status::of("State:\tZ (zombie)\nName:\tx\n");
        assert_eq!(none.uids().count(), 0);
        assert_eq!((none.parent(), none.no_new_privileges()), (None, None));
        assert_eq!((none.has_ended(), none.has_memory()), (Some(true), false));
    }

    #[test]
    fn our_own_process_has_a_status_a_thread_and_namespaces() {
        let own = Path::new("/proc/self");
        let me = nix::unistd::getuid().as_raw();
        assert_eq!(Status::read(own).unwrap().uids().next(), Some(me));
        assert!(numbers(Path::new("/proc")).contains(&std::process::id()));
        assert!(numbers(&own.join("task")).contains(&std::process::id()));
        assert_eq!(
            namespace(own, "net").unwrap(),
            namespace(Path::new("/proc/thread-self"), "net").unwrap()
        );
        assert!(Status::read(Path::new("/proc/0")).is_err());
    }
}
