//! `portcullis exec`: any command in a fresh container behind the gate, without the orchestrator.
//!
//! The path to follow is [`run`]: take a slice, open a run at the gate (with a policy text of its
//! own if one is given), stage the current directory, start, wait, close, and tell what was allowed,
//! what was refused, and which changed files a tool of the host would execute. The command's exit code
//! is passed on; 125 means that exec itself failed, 2 that it was called wrongly (a broken policy, not root).

mod changes;
mod clone;
mod place;
mod session;
mod staging;
mod summary;
pub mod trial;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

pub use changes::{Changed, Reason};
pub use summary::Summary;

/// The code that says: exec itself failed, nothing is known about the command.
pub const OWN_FAILURE: u8 = 125;

/// Arguments of `exec`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  portcullis exec -- git push                       the gate's default profile decides
  portcullis exec --policy policy.toml -- curl https://api.example.com/v1/status
  portcullis exec --clone -- make                   work on a clone, handed back as a branch
  portcullis exec --json -- true 2>summary.json")]
pub struct ExecArgs {
    /// Policy of this run alone; without it the profile decides
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Profile of the gate that the run belongs to
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub profile: String,
    /// Work on a clone of the repository, handed back as the branch portcullis/RUN
    #[arg(long)]
    pub clone: bool,
    /// Print the summary as one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Print no summary
    #[arg(long, conflicts_with = "json")]
    pub quiet: bool,
    /// Memory of the container, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 2048)]
    pub memory: u64,
    /// Processes and threads of the container
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub pids: u64,
    /// More variables for the command
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// The gate's control socket [default: PREFIX/run/portcullis/proxy/control.sock]
    #[arg(long, value_name = "SOCKET")]
    pub control: Option<PathBuf>,
    /// Where exec keeps its own state [default: PREFIX/var/lib/portcullis/exec]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// The CA files for clients [default: PREFIX/var/lib/portcullis/trust]
    #[arg(long, value_name = "DIR")]
    pub trust: Option<PathBuf>,
    /// Account whose subordinate ids containers get [default: the one ending in -exec in boundary.toml]
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Why exec could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// Said as it stands, with its hint.
    #[error("{0}")]
    Said(String),
    /// What was asked for makes no sense as it stands: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// Something on the way.
    #[error("{doing}")]
    Io {
        /// What exec was doing.
        doing: String,
        /// What failed.
        #[source]
        source: std::io::Error,
    },
    /// The gate.
    #[error(
        "the gate did not open the run\n  hint: `portcullis status` shows whether it serves, and if not, why"
    )]
    Gate(#[source] crate::gate_client::GateError),
    /// The kernel boundary, as its status file shows it.
    #[error(
        "boundary_not_proven: nothing is started: {0}\n  hint: `portcullis boundary verify` names what is wrong"
    )]
    Unproven(String),
    /// The container.
    #[error(transparent)]
    Engine(#[from] crate::container::EngineError),
    /// The ids.
    #[error(transparent)]
    Slice(#[from] crate::container::slices::SliceError),
    /// The limits.
    #[error(transparent)]
    Cgroup(#[from] crate::container::cgroup::CgroupError),
}

impl ExecError {
    /// 2 for what the caller has to put right first, [`OWN_FAILURE`] for the rest.
    fn code(&self) -> u8 {
        if matches!(self, Self::Usage(_)) {
            2
        } else {
            OWN_FAILURE
        }
    }

    fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}

/// Runs `exec` and returns the command's exit code. Prints to standard error only.
///
/// Everything happens in a thread of its own, whose mount namespace is private to it: what is
/// staged there is visible to nobody else and gone with the process.
pub fn run(args: ExecArgs) -> ExitCode {
    let worker = std::thread::Builder::new()
        .name("exec".to_owned())
        .spawn(move || session::Session::new(args).and_then(session::Session::run));
    let result = worker
        .map_err(ExecError::io("starting a thread"))
        .and_then(|worker| {
            worker
                .join()
                .unwrap_or_else(|_| Err(ExecError::Said("exec panicked".to_owned())))
        });
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            summary::say(&format!("portcullis exec: {}", with_causes(&error)));
            ExitCode::from(error.code())
        }
    }
}

/// The error and its causes; a `hint:` line of the outermost stays last.
fn with_causes(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    let (mut first, hint) = match text.split_once('\n') {
        Some((first, hint)) => (first.to_owned(), format!("\n{hint}")),
        None => (text, String::new()),
    };
    let mut next = error.source();
    while let Some(cause) = next {
        first = format!("{first}: {cause}");
        next = cause.source();
    }
    first + &hint
}
