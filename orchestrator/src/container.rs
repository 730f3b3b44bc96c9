//! Where a run lives: the seam between the supervisor and whatever starts containers.
//!
//! The supervisor hands an [`Engine`] a [`RunSpec`] and gets back a [`Running`]. It stores the
//! [`Evidence`] so that after a crash it can ask, without any handle of its own, whether the old
//! processes are *proven* gone. Output goes to the run log live, as NDJSON lines
//! `{"ts","stream","chunk","seq"}` in [`RunSpec::log`].

pub mod cgroup;
mod config;
mod evidence;
mod lxc;
pub mod rootfs;
pub mod runlog;
pub mod slices;

pub use lxc::{Identity, Io, LxcEngine, Orders, SECCOMP};

use std::fmt;
use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use policy::grant::RunId;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Makes `path` and what is missing above it, passable by everyone and listable by its owner alone,
/// whatever the umask: the ids of containers are others than ours.
pub(crate) fn passable_directory(path: &Path) -> io::Result<()> {
    if !path.is_dir() {
        if let Some(parent) = path.parent() {
            passable_directory(parent)?;
        }
        fs::create_dir(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o711))?;
    }
    Ok(())
}

/// A range of host uids (and the same range of gids) that belongs to one run alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// First host id.
    pub first: u32,
    /// How many ids.
    pub count: u32,
}

/// What a run may use at most. A limit that cannot be set refuses the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory of the whole container, in bytes.
    pub memory_bytes: u64,
    /// Processes and threads of the whole container.
    pub pids: u64,
}

/// Everything an engine needs to start one run.
#[derive(Debug, Clone)]
pub struct RunSpec {
    /// The run's id; names its container and its control groups.
    pub run: RunId,
    /// The host ids of this run.
    pub slice: Slice,
    /// Program and arguments inside the container, passed as data, never through a shell.
    pub argv: Vec<String>,
    /// Environment inside the container, complete.
    pub env: Vec<(String, String)>,
    /// Host directory mounted writable as the workspace.
    pub workspace: PathBuf,
    /// Read-only instructions directory, mounted at `/opt/agent`.
    pub bundle: Option<PathBuf>,
    /// Host directory that holds the run's `gate.sock`.
    pub gate_socket_dir: PathBuf,
    /// Host directory with the CA files for clients, mounted read-only.
    pub trust_dir: PathBuf,
    /// Hosts whose git remotes over ssh the system's git configuration rewrites to https.
    pub git_hosts: Vec<String>,
    /// Limits of the container.
    pub limits: Limits,
    /// Bytes for the command's standard input; end of file follows.
    pub stdin: Vec<u8>,
    /// The run log, NDJSON, appended as output comes.
    pub log: PathBuf,
}

/// What proves, after a restart of everything but the host, which processes a run consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// `/proc/sys/kernel/random/boot_id` at the start; another boot means gone.
    pub boot_id: String,
    /// The container monitor's process id.
    pub monitor_pid: i32,
    /// The monitor's start time (field 22 of `/proc/PID/stat`), in clock ticks.
    pub start_time: u64,
    /// The control group directories of the run; all empty or missing means gone.
    pub cgroups: Vec<PathBuf>,
}

/// How a run's command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// The engine lost sight of it; only [`Engine::proven_gone`] tells more.
    Unknown,
}

/// A started run.
pub struct Running {
    /// Proof of what was started.
    pub evidence: Evidence,
    exit: watch::Receiver<Option<Exit>>,
    kill: Arc<dyn Fn() + Send + Sync>,
}

impl Running {
    /// `exit` turns to `Some` once the whole container has ended; `kill` ends all of it and may
    /// be called at any time, any number of times.
    pub fn new(
        evidence: Evidence,
        exit: watch::Receiver<Option<Exit>>,
        kill: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self {
            evidence,
            exit,
            kill: Arc::new(kill),
        }
    }

    /// Waits for the end of the run. May be called again; cancelling it loses nothing.
    pub async fn wait(&mut self) -> Exit {
        match self.exit.wait_for(Option::is_some).await {
            Ok(exit) => exit.unwrap_or(Exit::Unknown),
            Err(_closed) => Exit::Unknown,
        }
    }

    /// Kills every process of the container.
    pub fn kill(&self) {
        (self.kill)();
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("evidence", &self.evidence)
            .finish_non_exhaustive()
    }
}

/// Why an engine could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The host cannot enforce what the run asks for; nothing was started.
    #[error("the run was refused: {0}")]
    Refused(String),
    /// Something failed on the way; the engine has cleaned up what it had started.
    #[error("the container could not be started: {0}")]
    Start(String),
    /// The state of the host could not be read, so nothing is proven.
    #[error("the state of the container cannot be read: {0}")]
    Unreadable(String),
}

/// Starts containers and answers whether they are gone.
pub trait Engine: Send + Sync + 'static {
    /// Starts the run's command in a container of its own. Returns once the command's process exists.
    fn start(&self, spec: RunSpec) -> impl Future<Output = Result<Running, EngineError>> + Send;

    /// What a start of this run may have left behind whose [`Running`] was never seen (the
    /// orchestrator died in between). `None`: nothing was ever started, or nothing is left.
    fn leftover(&self, run: &RunId) -> Result<Option<Evidence>, EngineError>;

    /// True only when no process of the run can exist any more.
    fn proven_gone(&self, evidence: &Evidence) -> Result<bool, EngineError>;

    /// Kills what is left of a run; does not wait.
    fn kill_leftover(&self, evidence: &Evidence) -> Result<(), EngineError>;
}
