//! A real LXD (Incus where that is what the release has) with a directory of its own, and guests in it by the command under
//! test. It is started by a test and ended with it; several run beside one another.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;

use serde_json::{Value, json};

use crate::binaries;
use crate::command::{Finished, Program};
use crate::machine::{kept, script};

/// Making the first root fetches a Debian.
const MAKING_SECONDS: u32 = 1800;
/// How long one command of the guests' may take on a loaded machine.
const PATIENCE: u32 = 500;
/// What a guest is provisioned with.
const PROGRAMS: [&str; 6] = [
    "portcullis",
    "portcullis-boundary",
    "portcullis-orchestrator",
    "portcullis-proxy",
    "portcullis-relay",
    "portcullis-stand-in",
];

/// A daemon with a storage pool.
#[derive(Debug)]
pub struct Lxd {
    daemon: Child,
    program: &'static str,
    directory: tempfile::TempDir,
}

impl Lxd {
    /// Starts one with a `dir` pool and no network.
    pub fn start() -> Self {
        let program = if Path::new("/usr/bin/incusd").exists() || Path::new("/opt/incus").exists() {
            "incusd"
        } else {
            "lxd"
        };
        let directory = tempfile::Builder::new()
            .prefix("pt-lxd-")
            .tempdir()
            .expect("room in /tmp");
        let log = directory.path().join("daemon.log");
        let daemon = Self::of(program, directory.path())
            .args(["--group", "root"])
            .spawn_logging(&log);
        let lxd = Self {
            daemon,
            program,
            directory,
        };
        lxd.tool(&["waitready", "--timeout", "120"]).run().ok();
        lxd.ask(
            "POST",
            "/1.0/storage-pools",
            &json!({"name": "default", "driver": "dir"}),
        );
        lxd
    }

    fn of(program: &str, directory: &Path) -> Program {
        Program::new(program)
            .env("HOME", "/root")
            .env("LXD_DIR", directory)
            .env("INCUS_DIR", directory)
    }

    fn tool(&self, words: &[&str]) -> Program {
        Self::of(self.program, self.directory.path()).args(words)
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("unix.socket")
    }

    /// One call of its API by a client that is not ours; the answer.
    #[track_caller]
    pub fn ask(&self, method: &str, target: &str, body: &Value) -> Value {
        let mut curl = Program::new("curl")
            .args(["--silent", "--show-error", "-X", method, "--unix-socket"])
            .arg(self.socket());
        if !body.is_null() {
            curl = curl.arg("--data").arg(body.to_string());
        }
        let answer = curl.arg(format!("http://localhost{target}")).run().ok();
        let answer: Value = serde_json::from_str(&answer.stdout).expect("JSON");
        assert_ne!(answer["type"], "error", "{answer}");
        answer["metadata"].clone()
    }

    /// `portcullis guest WORDS` on this daemon.
    pub fn guest(&self, words: &[&str]) -> Finished {
        for name in PROGRAMS {
            binaries::path(name);
        }
        let mut program = Program::new(binaries::path("portcullis"))
            .env("HOME", "/root")
            .limit(PATIENCE)
            .arg("guest");
        let (before, after) = match words.iter().position(|word| *word == "--") {
            Some(at) => words.split_at(at),
            None => (words, &words[words.len()..]),
        };
        program = program.args(before).arg("--socket").arg(self.socket());
        program.args(after).run()
    }

    /// A script in a guest as root.
    pub fn inside(&self, guest: &str, script: &str) -> Finished {
        self.guest(&["shell", guest, "--", "/bin/bash", "-c", script])
    }

    /// The root file system that guests are made of.
    pub fn root() -> PathBuf {
        let boot = kept();
        script("boot").arg(&boot).limit(MAKING_SECONDS).run().ok();
        let directory = boot.with_file_name("guest");
        script("guest_root")
            .args([&boot, &directory])
            .limit(MAKING_SECONDS)
            .run()
            .ok();
        directory.join("root.tar")
    }
}

impl Drop for Lxd {
    fn drop(&mut self) {
        // With the guests that are left; the answer is of no use to a test that is over.
        let _ended = self.tool(&["shutdown", "--timeout", "60"]).limit(90).run();
        let _gone = self.daemon.kill();
        let _reaped = self.daemon.wait();
        let own = self.directory.path().display().to_string();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mut below: Vec<&str> = mounts
            .lines()
            .filter_map(|line| line.split(' ').nth(1))
            .filter(|place| place.starts_with(&own))
            .collect();
        below.reverse();
        for place in below {
            Program::new("umount").args(["--lazy", place]).run();
        }
    }
}
