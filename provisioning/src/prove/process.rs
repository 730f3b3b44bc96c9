//! Processes of this machine as root sees them, and those of ours that a look has to see.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nftables::accounts::UidRange;
use nftables::proc::{self, Status};

use super::identity::SELF;

/// One process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    /// Its real user.
    pub uid: u32,
    parent: u32,
    name: String,
}

/// All of them but what we ourselves started: attempts, and the programs that attempts run.
#[must_use]
pub fn others() -> Vec<Process> {
    let all = all();
    let parents: HashMap<u32, u32> = all
        .iter()
        .map(|process| (process.pid, process.parent))
        .collect();
    let own = std::process::id();
    let is_own = |process: &Process| {
        let mut pid = process.pid;
        // No chain is longer than there are processes; one that changes meanwhile ends at a process that is gone.
        for _ in 0..parents.len() {
            if pid == own {
                return true;
            }
            match parents.get(&pid) {
                Some(parent) => pid = *parent,
                None => return false,
            }
        }
        false
    };
    let others = all
        .iter()
        .filter(|process| !is_own(process) && !process.is_this_program());
    others.cloned().collect()
}

/// All of them.
#[must_use]
pub fn all() -> Vec<Process> {
    let root = Path::new("/proc");
    let numbers = proc::numbers(root).into_iter();
    numbers
        .filter_map(|pid| {
            let status = Status::read(&root.join(pid.to_string())).ok()?;
            Process::of(pid, &status)
        })
        .collect()
}

impl Process {
    fn of(pid: u32, status: &Status) -> Option<Self> {
        status.has_memory().then_some(())?;
        Some(Self {
            pid,
            parent: status.parent()?,
            uid: status.uids().next()?,
            name: status.name()?.to_owned(),
        })
    }

    fn directory(&self) -> PathBuf {
        Path::new("/proc").join(self.pid.to_string())
    }

    /// `portcullis-prox (process 17)`.
    #[must_use]
    pub fn shown(&self) -> String {
        format!("{} (process {})", self.name, self.pid)
    }

    /// The file it executes.
    #[must_use]
    pub fn program(&self) -> Option<PathBuf> {
        fs::read_link(self.directory().join("exe")).ok()
    }

    fn is_this_program(&self) -> bool {
        let identity = |path: &Path| {
            fs::metadata(path)
                .ok()
                .map(|found| (found.dev(), found.ino()))
        };
        let own = identity(Path::new(SELF));
        own.is_some() && own == identity(&self.directory().join("exe"))
    }

    /// Its variables, if they can be read.
    #[must_use]
    pub fn environment(&self) -> Option<Vec<(String, String)>> {
        let bytes = fs::read(self.directory().join("environ")).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let pairs = text.split('\0').filter_map(|entry| entry.split_once('='));
        Some(
            pairs
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        )
    }

    /// Whether it can never gain rights by executing a file.
    #[must_use]
    pub fn no_new_privileges(&self) -> Option<bool> {
        Status::read(&self.directory()).ok()?.no_new_privileges()
    }

    /// Whether the kernel writes its memory to a file when it falls.
    #[must_use]
    pub fn dumps_core(&self) -> Option<bool> {
        let limits = fs::read_to_string(self.directory().join("limits")).ok()?;
        let line = limits
            .lines()
            .find_map(|line| line.strip_prefix("Max core file size"))?;
        // Soft and hard limit: it could raise the one to the other.
        Some(line.split_whitespace().nth(1) != Some("0"))
    }

    /// Capabilities that it can use or hand on: `CAP_NET_RAW (effective, permitted)`. Those of a process in a user namespace of
    /// its own rule nothing here. `None` when it is gone.
    #[must_use]
    pub fn capabilities(&self) -> Option<Vec<String>> {
        let status = Status::read(&self.directory()).ok()?;
        let of = |directory: &Path| proc::namespace(directory, "user").ok();
        let there = of(&self.directory());
        if there.is_some() && there != of(Path::new("/proc/self")) {
            return Some(Vec::new());
        }
        Some(status.capabilities())
    }
}

/// Subordinate ids of a user as the helpers' own library tells them: the name service may have more than the files.
#[must_use]
pub fn subordinate_ids(uid: u32, users: bool) -> Vec<UidRange> {
    let name = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid));
    let Some(name) = name.ok().flatten().map(|user| user.name) else {
        return Vec::new();
    };
    let words = if users {
        vec![name]
    } else {
        vec!["-g".to_owned(), name]
    };
    // Where that program is not here, or knows of nothing, the files are all there is.
    let told = crate::process::Call::new("getsubids").args(words).run();
    let told = told.unwrap_or_default();
    let ranges = told.lines().filter_map(|line| {
        // `0: agent 100000 65536`
        let mut fields = line.split_whitespace().skip(2);
        let first: u32 = fields.next()?.parse().ok()?;
        let count: u32 = fields.next()?.parse().ok()?;
        Some(UidRange {
            first,
            last: first.checked_add(count.checked_sub(1)?)?,
        })
    });
    ranges.collect()
}

/// A process of ours that has what is looked for, until dropped: who sees it would have seen another's.
#[derive(Debug)]
pub struct Marked(Child);

impl Marked {
    /// One with that word in its environment.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn start(mark: &str) -> std::io::Result<Self> {
        Self::begin(Self::program("sleep").arg("60").env("PROVE", mark))
    }

    /// A program with an empty environment, for [`Marked::begin`].
    #[must_use]
    pub fn program(name: &str) -> Command {
        let mut command = Command::new(name);
        command
            .env_clear()
            .env("PATH", crate::process::SEARCH_PATH)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// Starts it.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn begin(command: &mut Command) -> std::io::Result<Self> {
        Ok(Self(command.spawn()?))
    }

    /// How it is listed among all processes.
    #[must_use]
    pub fn seen(&self) -> Option<Process> {
        all().into_iter().find(|process| process.pid == self.0.id())
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_and_a_kernel_thread_is_none() {
        let status = Status::of("Name:\tgate\nPPid:\t1\nUid:\t7\t7\t7\t7\nVmSize:\t 1 kB\n");
        let process = Process::of(5, &status).unwrap();
        assert_eq!(
            (process.uid, process.shown().as_str()),
            (7, "gate (process 5)")
        );
        let kernel = Status::of("Name:\tk\nPPid:\t2\nUid:\t0\t0\n");
        assert_eq!(Process::of(5, &kernel), None);
        assert!(
            all()
                .iter()
                .any(|process| process.pid == std::process::id())
        );
    }
}
