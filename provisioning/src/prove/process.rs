//! Processes of this machine as root sees them, and the search for credentials in them.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nftables::accounts::UidRange;

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
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let status = fs::read_to_string(entry.path().join("status")).ok()?;
            Process::parse(pid, &status)
        })
        .collect()
}

impl Process {
    fn parse(pid: u32, status: &str) -> Option<Self> {
        let field = |key: &str| status.lines().find_map(|line| line.strip_prefix(key));
        // A kernel thread has no memory of its own.
        field("VmSize:")?;
        Some(Self {
            pid,
            parent: field("PPid:")?.trim().parse().ok()?,
            uid: field("Uid:")?.split_whitespace().next()?.parse().ok()?,
            name: field("Name:")?.trim().to_owned(),
        })
    }

    /// `portcullis-prox (process 17)`.
    #[must_use]
    pub fn shown(&self) -> String {
        format!("{} (process {})", self.name, self.pid)
    }

    /// The file it executes.
    #[must_use]
    pub fn program(&self) -> Option<PathBuf> {
        fs::read_link(format!("/proc/{}/exe", self.pid)).ok()
    }

    fn is_this_program(&self) -> bool {
        let identity = |path: &str| {
            fs::metadata(path)
                .ok()
                .map(|found| (found.dev(), found.ino()))
        };
        let own = identity(SELF);
        own.is_some() && own == identity(&format!("/proc/{}/exe", self.pid))
    }

    /// Its variables, if they can be read.
    #[must_use]
    pub fn environment(&self) -> Option<Vec<(String, String)>> {
        let bytes = fs::read(format!("/proc/{}/environ", self.pid)).ok()?;
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
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("NoNewPrivs:"))?;
        Some(line.trim() == "1")
    }
}

impl Process {
    /// Whether the kernel writes its memory to a file when it falls.
    #[must_use]
    pub fn dumps_core(&self) -> Option<bool> {
        let limits = fs::read_to_string(format!("/proc/{}/limits", self.pid)).ok()?;
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
        let inode = |pid: &str| Some(fs::metadata(format!("/proc/{pid}/ns/user")).ok()?.ino());
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let there = inode(&self.pid.to_string());
        if there.is_some() && there != inode("self") {
            return Some(Vec::new());
        }
        Some(nftables::capabilities::held(&status))
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

/// The instance's credentials, in order to look for them. They are compared, and never shown or passed on.
pub struct Needles(Vec<Vec<u8>>);

impl Needles {
    /// Those of a directory. What is too short to be one is left out.
    #[must_use]
    pub fn read(directory: &Path) -> Self {
        let files = fs::read_dir(directory).into_iter().flatten().flatten();
        let texts = files.filter_map(|file| fs::read(file.path()).ok());
        Self(
            texts
                .map(|bytes| bytes.trim_ascii().to_vec())
                .filter(|bytes| bytes.len() >= 8)
                .collect(),
        )
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Where one of them stands, among the environments and arguments of all processes.
    ///
    /// # Errors
    /// When a word of our own in a process of our own is not found by the same search.
    pub fn find(&self) -> Result<Vec<String>, String> {
        let mut mark = [0; 16];
        getrandom::fill(&mut mark).map_err(|error| error.to_string())?;
        let mark: String = mark.iter().map(|byte| format!("{byte:02x}")).collect();
        let child = Marked::start(&mark).map_err(|error| format!("no control process: {error}"))?;
        let control = Self(vec![mark.into_bytes()]);
        let seen = control.search();
        drop(child);
        if seen.is_empty() {
            return Err("a word in the environment of a process of ours was not found".to_owned());
        }
        Ok(self.search())
    }

    fn search(&self) -> Vec<String> {
        let mut found = Vec::new();
        for process in all() {
            for file in ["environ", "cmdline"] {
                let text = fs::read(format!("/proc/{}/{file}", process.pid)).unwrap_or_default();
                let holds = |needle: &Vec<u8>| {
                    text.windows(needle.len())
                        .any(|part| part == needle.as_slice())
                };
                if self.0.iter().any(holds) {
                    found.push(format!("{file} of {}", process.shown()));
                }
            }
        }
        found
    }
}

impl std::fmt::Debug for Needles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} credentials", self.0.len())
    }
}

/// A process of ours that has what is looked for, until dropped: who sees it would have seen another's.
#[derive(Debug)]
pub struct Marked(Child);

impl Marked {
    fn start(mark: &str) -> std::io::Result<Self> {
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
        let status = "Name:\tgate\nPPid:\t1\nUid:\t7\t7\t7\t7\nVmSize:\t 1 kB\n";
        let process = Process::parse(5, status).unwrap();
        assert_eq!(
            (process.uid, process.shown().as_str()),
            (7, "gate (process 5)")
        );
        assert_eq!(Process::parse(5, "Name:\tk\nUid:\t0\t0\n"), None);
        assert!(
            all()
                .iter()
                .any(|process| process.pid == std::process::id())
        );
    }

    #[test]
    fn a_credential_in_an_environment_is_found() {
        let needles = Needles(vec![b"prove-test-needle-5711".to_vec()]);
        assert_eq!(needles.find().unwrap(), Vec::<String>::new());
        let _child = Marked::start("x prove-test-needle-5711").unwrap();
        assert_eq!(needles.find().unwrap().len(), 1);
    }
}
