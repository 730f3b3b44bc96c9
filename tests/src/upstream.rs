//! The stand-ins as a test uses them: started in a namespace, watched, stopped when dropped.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Child;

use serde::Deserialize;

use crate::command::{Finished, Program};
use crate::netns::Netns;
use crate::pki::Pki;
use crate::{binaries, host, wait};

/// A git host that wants a credential.
#[derive(Debug)]
pub struct GitHost {
    child: Child,
    /// Holds the bare repositories.
    pub root: PathBuf,
    log: PathBuf,
}

/// One request the git host saw.
#[derive(Clone, Debug, Deserialize)]
pub struct GitRequest {
    /// Method.
    pub method: String,
    /// Path without the query.
    pub path: String,
    /// Query, without the question mark.
    pub query: String,
    /// Names of all header fields, lower case.
    pub headers: Vec<String>,
    /// `right`, `wrong` or `missing`.
    pub credential: String,
    /// What it answered.
    pub status: u16,
}

/// A web server that keeps every byte.
#[derive(Debug)]
pub struct WebHost {
    child: Child,
    record: PathBuf,
}

/// Any stand-in, by its command line.
#[derive(Debug)]
pub struct Stand {
    child: Child,
    /// Its folder.
    pub dir: PathBuf,
}

impl Stand {
    /// Starts `portcullis-stand-in WORDS` at `address`; `{dir}` in a word becomes `dir`.
    pub fn start(
        netns: &Netns,
        dir: &Path,
        pki: &Pki,
        address: SocketAddr,
        words: &[String],
    ) -> Self {
        // A test may have put something there already.
        host::directory(dir, 0, 0o700);
        let place = dir.display().to_string();
        let words = words.iter().map(|word| word.replace("{dir}", &place));
        let program = Program::new(binaries::path("portcullis-stand-in")).args(words);
        let child = listen(program, netns, dir, pki, address);
        Self {
            child,
            dir: dir.to_path_buf(),
        }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}

impl GitHost {
    /// Serves `acme/web` (and what is pushed) at `address` to whoever has user `x-access-token` and
    /// `password`.
    pub fn start(
        netns: &Netns,
        dir: &Path,
        pki: &Pki,
        address: SocketAddr,
        password: &str,
    ) -> Self {
        host::directory(dir, 0, 0o700);
        let (root, log) = (dir.join("root"), dir.join("requests.jsonl"));
        let secret = dir.join("password");
        host::file(&secret, password, 0, 0o600);
        let program = Program::new(binaries::path("portcullis-stand-in"))
            .args([
                "git",
                "--repo",
                "acme/web",
                "--user",
                "x-access-token",
                "--password-file",
            ])
            .arg(&secret)
            .arg("--root")
            .arg(&root)
            .arg("--log")
            .arg(&log);
        let child = listen(program, netns, dir, pki, address);
        Self { child, root, log }
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<GitRequest> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str(line).expect("one object a line"))
            .collect()
    }

    /// `git` in a bare repository of the host, such as `acme/web.git`.
    pub fn run(&self, repository: &str, words: &[&str]) -> Finished {
        Program::new("git")
            .args(["-c", "safe.directory=*", "--git-dir"])
            .arg(self.root.join(repository))
            .args(words)
            .run()
    }

    /// The commit that `reference` of `acme/web` names, if it exists.
    pub fn reference(&self, reference: &str) -> Option<String> {
        let words = ["rev-parse", "--verify", "--quiet", reference];
        let finished = self.run("acme/web.git", &words);
        finished
            .status
            .success()
            .then(|| finished.stdout.trim().to_owned())
    }
}

impl WebHost {
    /// Serves at `address`, recording into `dir`.
    pub fn start(netns: &Netns, dir: &Path, pki: &Pki, address: SocketAddr) -> Self {
        let record = dir.join("record");
        host::directory(dir, 0, 0o700);
        host::directory(&record, 0, 0o700);
        let program =
            Program::new(binaries::path("portcullis-stand-in")).args(["https", "--record"]);
        let child = listen(program.arg(&record), netns, dir, pki, address);
        Self { child, record }
    }

    /// The decrypted bytes of each connection so far, in order of arrival. A connection that sent
    /// nothing is an empty record.
    pub fn connections(&self) -> Vec<Vec<u8>> {
        let mut files: Vec<_> = fs::read_dir(&self.record)
            .expect("it exists")
            .flatten()
            .map(|it| it.path())
            .collect();
        files.sort();
        files
            .iter()
            .map(|file| fs::read(file).expect("readable"))
            .collect()
    }

    /// Ends it, and with it every connection.
    pub fn stop(&mut self) {
        stop(&mut self.child);
    }

    /// All bytes of all connections, as text.
    pub fn received(&self) -> String {
        String::from_utf8_lossy(&self.connections().concat()).into_owned()
    }
}

fn listen(program: Program, netns: &Netns, dir: &Path, pki: &Pki, address: SocketAddr) -> Child {
    let (ready, log) = (dir.join("ready"), dir.join("output"));
    let mut child = program
        .args(["--listen", &address.to_string(), "--cert"])
        .arg(pki.leaf())
        .arg("--key")
        .arg(pki.leaf_key())
        .arg("--ready")
        .arg(&ready)
        .in_netns(netns)
        .spawn_logging(&log);
    wait::until("a stand-in listens", || {
        if let Ok(Some(status)) = child.try_wait() {
            panic!("{status}: {}", fs::read_to_string(&log).unwrap_or_default());
        }
        ready.exists().then_some(())
    });
    child
}

impl Drop for GitHost {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}

impl Drop for WebHost {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}

/// Kills a child of ours and reaps it.
pub(crate) fn stop(child: &mut Child) {
    // Gone already is as good.
    let _gone = child.kill();
    let _status = child.wait();
}
