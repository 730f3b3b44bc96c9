//! A whole Portcullis on this host, made by `portcullis up` under a prefix and a name of its own.
//!
//! Accounts, subordinate ids, control groups and the ruleset belong to the host, so only one test at
//! a time has an instance; dropping it removes everything again.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::binaries;
use crate::command::{Finished, Program};

static HOST: Mutex<()> = Mutex::new(());

/// How long `up` may take, with the assembly of a root file system and a gate test.
const UP_SECONDS: u32 = 400;

/// An instance, made or not yet made.
#[derive(Debug)]
pub struct Instance {
    /// Everything lies below.
    pub prefix: PathBuf,
    /// Users, table and control groups carry it.
    pub name: String,
    _turn: MutexGuard<'static, ()>,
}

impl Instance {
    /// Takes the host for one test; makes nothing.
    pub fn claim() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let turn = HOST.lock().unwrap_or_else(PoisonError::into_inner);
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        // Ends in a letter, so that no instance's name begins another's.
        let name = format!("pt{}x{number}z", std::process::id());
        Self {
            prefix: PathBuf::from("/tmp").join(&name),
            name,
            _turn: turn,
        }
    }

    /// Takes the host and makes an instance, without the gate test.
    pub fn up() -> Self {
        let instance = Self::claim();
        instance.run_up(&["--no-gate-test"]).ok();
        instance
    }

    /// `portcullis up`, from the folder it was built in.
    pub fn run_up(&self, arguments: &[&str]) -> Finished {
        for name in [
            "portcullis-proxy",
            "portcullis-orchestrator",
            "portcullis-boundary",
            "portcullis-relay",
            "portcullis-stand-in",
        ] {
            binaries::path(name);
        }
        self.place(Program::new(binaries::path("portcullis")).arg("up"))
            .args(arguments)
            .limit(UP_SECONDS)
            .run()
    }

    /// `portcullis down`.
    pub fn run_down(&self, arguments: &[&str]) -> Finished {
        self.place(Program::new(binaries::path("portcullis")).arg("down"))
            .args(arguments)
            .run()
    }

    /// `portcullis status`.
    pub fn run_status(&self, arguments: &[&str]) -> Finished {
        self.place(Program::new(binaries::path("portcullis")).arg("status"))
            .args(arguments)
            .run()
    }

    /// The installed command, which knows its own prefix.
    pub fn portcullis(&self) -> Program {
        Program::new(self.prefix.join("usr/local/bin/portcullis")).env("HOME", "/root")
    }

    /// Runs a command of the installed program that answers in JSON.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let finished = self.portcullis().args(arguments).arg("--json").run().ok();
        serde_json::from_str(&finished.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", finished.shown()))
    }

    /// A file or folder of this instance.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.prefix.join(relative)
    }

    /// Process ids of every process whose command line contains `needle` and our prefix.
    pub fn processes(&self, needle: &str) -> Vec<u32> {
        let prefix = self.prefix.display().to_string();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            if line.contains(&prefix) && line.contains(needle) {
                found.push(pid);
            }
        }
        found
    }

    fn place(&self, program: Program) -> Program {
        program
            .env("HOME", "/root")
            .arg("--prefix")
            .arg(&self.prefix)
            .args(["--name", &self.name])
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Not `binaries::path`: an old program may panic there, and removes what it made all the same.
        let program = Program::new(binaries::directory().join("portcullis")).arg("down");
        let down = self.place(program).arg("--purge").run();
        let _absent = fs::remove_dir_all(&self.prefix);
        if !down.status.success() && !std::thread::panicking() {
            panic!("the instance could not be removed: {}", down.shown());
        }
    }
}
