//! A Docker daemon of the tests' own: private socket, data and network namespace.
//!
//! Its bridge lies in a namespace without any way out, where the stand-ins listen. It costs some seconds to start and is kept
//! as long as this process lives. Then, however that ends, [`SUPERVISOR`] stops it and takes everything away. The images are
//! the product's own, built by `provisioning/sidecar/build`, and an agent's, made by `tests/agent_root`; nothing is pulled.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::command::{Finished, Program};
use crate::netns::Netns;
use crate::{binaries, host, wait};

/// Where containers on the bridge find a resolver, once [`crate::names::Names`] serves it.
pub const RESOLVER: &str = "93.184.215.53";

/// Runs the daemon in namespace $1 until it is told to end, as the kernel does when who started it dies. What is in the
/// namespace then goes too, and directory $2.
const SUPERVISOR: &str = r#"
netns=$1 directory=$2; shift 2
nsenter --net="/run/netns/$netns" dockerd "$@" & daemon=$!
end() {
    trap '' TERM
    kill -TERM "$daemon" 2>/dev/null
    wait "$daemon"
    ip netns pids "$netns" | xargs -r kill -KILL 2>/dev/null
    grep -o " $directory[^ ]*" /proc/mounts | sort -r | xargs -r umount --lazy 2>/dev/null
    rm -rf --one-file-system "$directory"
    ip netns delete "$netns"
    exit 0
}
trap end TERM
wait "$daemon"
end
"#;

/// The daemon.
#[derive(Debug)]
pub struct Engine {
    /// Its bridge and whatever a test adds: addresses, peers.
    pub netns: Netns,
    directory: PathBuf,
    supervisor: Mutex<Child>,
}

impl Engine {
    /// Starts one; takes some seconds.
    pub fn start() -> Self {
        let netns = Netns::new();
        let directory = host::scratch().keep();
        let at = |name: &str| directory.join(name).display().to_string();
        let words = [
            "--host".to_owned(),
            format!("unix://{}", at("socket")),
            format!("--data-root={}", at("data")),
            format!("--exec-root={}", at("exec")),
            format!("--pidfile={}", at("pid")),
            format!("--dns={RESOLVER}"),
        ];
        let supervisor = Program::new("setpriv")
            .args(["--pdeathsig", "TERM", "bash", "-c", SUPERVISOR, "engine"])
            .arg(netns.name())
            .arg(&directory)
            .args(words)
            .args(["--iptables=false", "--ip6tables=false", "--ip-masq=false"])
            .args(["--ip-forward=false", "--userland-proxy=false"])
            .args(["--shutdown-timeout=3", "--log-level=warn"]);
        // The kernel tells it when the thread dies that started it: that one stays.
        let (started, supervised) = channel();
        let log = directory.join("log");
        std::thread::spawn(move || {
            if started.send(supervisor.spawn_logging(&log)).is_ok() {
                loop {
                    std::thread::park();
                }
            }
        });
        let supervisor = Mutex::new(supervised.recv().expect("the thread started it"));
        let engine = Self {
            netns,
            directory,
            supervisor,
        };
        wait::until_within(Duration::from_secs(90), "the engine answers", || {
            let mut child = engine
                .supervisor
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if let Ok(Some(status)) = child.try_wait() {
                panic!("dockerd: {status}: {}", engine.log());
            }
            engine
                .docker(["version"])
                .run()
                .status
                .success()
                .then_some(())
        });
        let load = engine.docker(["load", "--quiet", "--input"]).arg(image());
        load.limit(300).run().ok();
        let import = engine.docker(["import", "--change=CMD [\"/bin/bash\"]"]);
        let root = prepared("agent", "agent_root").join("agent.tar");
        import.arg(root).arg("agent").limit(300).run().ok();
        engine
    }

    /// A folder that goes with it.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// `docker WORDS`
    pub fn docker<W: AsRef<std::ffi::OsStr>>(&self, words: impl IntoIterator<Item = W>) -> Program {
        Program::new("/usr/bin/docker")
            .env("DOCKER_HOST", self.host())
            .env("HOME", &self.directory)
            .args(words)
    }

    /// `docker-compose WORDS` for the project in `directory`.
    pub fn compose<W: AsRef<std::ffi::OsStr>>(
        &self,
        directory: &Path,
        words: impl IntoIterator<Item = W>,
    ) -> Program {
        Program::new("/usr/bin/docker-compose")
            .env("DOCKER_HOST", self.host())
            .env("HOME", &self.directory)
            .env("COMPOSE_INTERACTIVE_NO_CLI", "1")
            .in_directory(directory)
            .args(words)
            .limit(240)
    }

    /// One field of what the daemon knows about a container.
    pub fn inspect(&self, container: &str, format: &str) -> Finished {
        self.docker(["inspect", "--format", format, container])
            .run()
    }

    fn host(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }

    /// What it said.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }
}

/// The product's image, as `docker load` takes it.
pub fn image() -> PathBuf {
    prepared("sidecar", "../provisioning/sidecar/build").join("image.tar")
}

/// A folder that `tests/run` has filled before: beside the folder of the programs.
fn prepared(name: &str, script: &str) -> PathBuf {
    let target = binaries::directory();
    let target = target.parent().expect("target/PROFILE");
    let found = target.join(name);
    assert!(
        found.is_dir(),
        "{} is missing\nhint: tests/{script} (see tests/run)",
        found.display()
    );
    found
}
