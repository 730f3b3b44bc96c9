//! A Docker daemon of the tests' own: private socket, data and network namespace.
//!
//! Its bridge lies in a namespace without any way out, where the stand-ins listen. It costs some seconds to start and is kept
//! as long as this process lives; a test may stop it and start it again, as a machine does that boots. Then, however that ends, [`SUPERVISOR`] stops it and takes everything away. The images are
//! the product's own, built by `provisioning/sidecar/build`, and an agent's, made by `tests/agent_root`; nothing is pulled.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::command::{Finished, Program};
use crate::netns::Netns;
use crate::{binaries, host, wait};

/// Where containers on the bridge find a resolver, once [`crate::names::Names`] serves it.
pub const RESOLVER: &str = "93.184.215.53";
/// What containers on the bridge have of IPv6.
const BRIDGE6: &str = "fd00:d0c:0:1::/64";

/// Runs the daemon in namespace $1 until it is told to end, as the kernel does when who started it dies. What is in the
/// namespace then goes too, and directory $2.
const SUPERVISOR: &str = r#"
netns=$1 directory=$2 down=; shift 2
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
trap 'down=1; kill -TERM "$daemon"' USR1
trap 'down=' USR2
while :; do
    nsenter --net="/run/netns/$netns" dockerd "$@" & daemon=$!
    while kill -0 "$daemon" 2>/dev/null; do wait "$daemon"; done
    [ -n "$down" ] || end
    : >"$directory/down"
    while [ -n "$down" ]; do sleep 0.05; done
    rm "$directory/down"
done
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
            .args(["--ipv6", &format!("--fixed-cidr-v6={BRIDGE6}")])
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
        engine.until_it_answers();
        let load = engine.docker(["load", "--quiet", "--input"]).arg(image());
        load.limit(300).run().ok();
        let import = engine.docker(["import", "--change=CMD [\"/bin/bash\"]"]);
        import.arg(agent_root()).arg("agent").limit(300).run().ok();
        engine
    }

    fn until_it_answers(&self) {
        wait::until_within(Duration::from_secs(90), "the engine answers", || {
            let mut child = self
                .supervisor
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if let Ok(Some(status)) = child.try_wait() {
                panic!("dockerd: {status}: {}", self.log());
            }
            let version = self.docker(["version"]).run();
            version.status.success().then_some(())
        });
    }

    /// Stops the daemon, and every container with it, as a machine does that goes down. Returns when it is gone.
    pub fn stop(&self) {
        self.tell(Signal::SIGUSR1);
        wait::until_within(Duration::from_secs(60), "the engine is gone", || {
            self.directory.join("down").exists().then_some(())
        });
    }

    /// Starts it again, and with it whatever its restart policies say. Returns when it answers.
    pub fn start_again(&self) {
        self.tell(Signal::SIGUSR2);
        wait::until_within(Duration::from_secs(60), "the engine comes", || {
            (!self.directory.join("down").exists()).then_some(())
        });
        self.until_it_answers();
    }

    fn tell(&self, signal: Signal) {
        let child = self
            .supervisor
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let pid = i32::try_from(child.id()).expect("a pid is small");
        kill(Pid::from_raw(pid), signal).expect("it is this process's child");
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

/// An agent's root, as a tar.
pub fn agent_root() -> PathBuf {
    prepared("agent", "agent_root").join("agent.tar")
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
