//! A Docker daemon of the tests' own: private socket, data and network namespace, gone when dropped.
//!
//! Its bridge lies in a namespace without any way out, where the stand-ins listen. It is told to end when this process dies,
//! however it dies. The images are the product's own, built by `provisioning/sidecar/build`, and an agent's, made by
//! `tests/agent_root`; nothing is pulled.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::command::{Finished, Program};
use crate::netns::Netns;
use crate::{binaries, host, upstream, wait};

/// Where containers on the bridge find a resolver, once [`crate::names::Names`] serves it.
pub const RESOLVER: &str = "93.184.215.53";

/// The daemon.
#[derive(Debug)]
pub struct Engine {
    /// Its bridge and whatever a test adds: addresses, peers.
    pub netns: Netns,
    directory: tempfile::TempDir,
    daemon: Mutex<Child>,
    /// Its end lets the thread end that the daemon must not outlive.
    _alive: Sender<()>,
}

impl Engine {
    /// Starts one; takes some seconds.
    pub fn start() -> Self {
        let netns = Netns::new();
        let directory = host::scratch();
        let at = |name: &str| directory.path().join(name).display().to_string();
        let words = [
            "--host".to_owned(),
            format!("unix://{}", at("socket")),
            format!("--data-root={}", at("data")),
            format!("--exec-root={}", at("exec")),
            format!("--pidfile={}", at("pid")),
            format!("--dns={RESOLVER}"),
        ];
        // It outlives the test that starts it, and must not outlive this process: the thread that starts it stays.
        let (alive, end) = channel::<()>();
        let (started, daemon) = channel();
        let name = netns.name().to_owned();
        let log = directory.path().join("log");
        std::thread::spawn(move || {
            let daemon = Program::new("nsenter")
                .arg(format!("--net=/run/netns/{name}"))
                .args(["setpriv", "--pdeathsig", "TERM", "dockerd"])
                .args(words)
                .args(["--iptables=false", "--ip6tables=false", "--ip-masq=false"])
                .args([
                    "--ip-forward=false",
                    "--userland-proxy=false",
                    "--shutdown-timeout=3",
                ])
                .args(["--log-level=warn"])
                .spawn_logging(&log);
            if started.send(daemon).is_ok() {
                // An error is the end of the other side.
                let _gone = end.recv();
            }
        });
        let daemon = Mutex::new(daemon.recv().expect("the thread started it"));
        let engine = Self {
            netns,
            directory,
            daemon,
            _alive: alive,
        };
        wait::until_within(Duration::from_secs(90), "the engine answers", || {
            let mut daemon = engine.daemon.lock().unwrap_or_else(PoisonError::into_inner);
            if let Ok(Some(status)) = daemon.try_wait() {
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

    /// `docker WORDS`
    pub fn docker<W: AsRef<std::ffi::OsStr>>(&self, words: impl IntoIterator<Item = W>) -> Program {
        Program::new("/usr/bin/docker")
            .env("DOCKER_HOST", self.host())
            .env("HOME", self.directory.path())
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
            .env("HOME", self.directory.path())
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
        self.directory.path().join("socket")
    }

    /// What it said.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let listed = self.docker(["ps", "--all", "--quiet"]).run().stdout;
        let containers: Vec<&str> = listed.lines().collect();
        if !containers.is_empty() {
            let remove = self.docker(["rm", "--force", "--volumes"]);
            remove.args(containers).run();
        }
        let daemon = self
            .daemon
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Ok(pid) = i32::try_from(daemon.id()) {
            // Gone already is as good.
            let _gone = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        for _ in 0..1500 {
            if !matches!(daemon.try_wait(), Ok(None)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        upstream::stop(daemon);
        // What a daemon that had to be killed leaves mounted would keep the directory from going.
        let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let points = table.lines().filter_map(|line| line.split(' ').nth(1));
        let below: Vec<&str> = points
            .filter(|point| Path::new(point).starts_with(self.directory.path()))
            .collect();
        for point in below.iter().rev() {
            // Another may be in its way; the directory is in /tmp.
            let _left = umount2(*point, MntFlags::MNT_DETACH);
        }
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
