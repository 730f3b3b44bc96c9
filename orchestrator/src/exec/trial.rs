//! `portcullis-orchestrator container`: one container with no gate behind it.
//!
//! For finding out whether a host can do what runs need, and what a command sees inside. Works as
//! any account with subordinate ids whose control group subtree was handed to it, exactly as the
//! orchestrator works; root borrows the ids of another account.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use nix::unistd::{Uid, User};
use policy::grant::RunId;

use super::summary::say;
use super::{ExecError, OWN_FAILURE, session, with_causes};
use crate::container::cgroup::CgroupRoot;
use crate::container::slices::{self, Slices};
use crate::container::{Io, Limits, LxcEngine, RunSpec, passable_directory, rootfs};
use crate::environment;
use crate::workspace::Workspaces;

/// Arguments of `container`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  portcullis-orchestrator container --state /tmp/try -- id
  portcullis-orchestrator container --state /tmp/try --gate /run/my-gate -- curl http://example.com/")]
pub struct TrialArgs {
    /// Where the container's tree, ids and workspaces are kept; made when missing
    #[arg(long, value_name = "DIR")]
    pub state: PathBuf,
    /// Account whose subordinate ids are used [default: the caller]
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,
    /// Directory that holds a gate.sock [default: an empty one]
    #[arg(long, value_name = "DIR")]
    pub gate: Option<PathBuf>,
    /// Directory with CA files for clients [default: an empty one]
    #[arg(long, value_name = "DIR")]
    pub trust: Option<PathBuf>,
    /// Read-only directory for /opt/agent
    #[arg(long, value_name = "DIR")]
    pub bundle: Option<PathBuf>,
    /// Write the output to this run log instead of passing it through
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Name of the run [default: a fresh one]
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// Leave the workspace in place
    #[arg(long)]
    pub keep: bool,
    /// Memory, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    pub memory: u64,
    /// Processes and threads
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub pids: u64,
    /// The path of the relay [default: beside this program]
    #[arg(long, value_name = "FILE")]
    pub relay: Option<PathBuf>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Runs the command and returns its exit code; 125 when no container could be had.
pub fn run(args: TrialArgs) -> ExitCode {
    match attempt(args) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say(&format!(
                "portcullis-orchestrator container: {}",
                with_causes(&error)
            ));
            ExitCode::from(OWN_FAILURE)
        }
    }
}

fn attempt(args: TrialArgs) -> Result<u8, ExecError> {
    let own = User::from_uid(Uid::effective())
        .ok()
        .flatten()
        .map(|user| user.name);
    let account = args.account.clone().or(own).ok_or_else(|| {
        ExecError::Said("this uid has no account\n  hint: name one with --account".to_owned())
    })?;
    let root = Uid::effective().is_root();
    let making = || ExecError::io(format!("making {}", args.state.display()));
    let empty = args.state.join("empty");
    for directory in [&args.state, &empty] {
        passable_directory(directory).map_err(making())?;
    }
    let tree = args.state.join("rootfs");
    rootfs::create(&tree).map_err(making())?;
    let engine = LxcEngine {
        state: args.state.join("runs"),
        rootfs: tree,
        relay: match args.relay {
            Some(relay) => relay,
            None => std::env::current_exe()
                .map_err(ExecError::io("finding this program"))?
                .with_file_name("portcullis-relay"),
        },
        cgroups: if root {
            CgroupRoot::made_by_root(&account)?
        } else {
            CgroupRoot::delegated()?
        },
        identity: if root {
            Some(session::identity(&account)?)
        } else {
            None
        },
    };
    let slices = Slices::of_account(slices::directory(&args.state), &account)?;
    session::sweep(&slices, &engine)?;
    let name = args.run.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    let run = RunId::parse(&name).map_err(|error| ExecError::Said(error.to_string()))?;
    let held = slices.acquire(run.as_str())?;
    let workspaces = Workspaces::new(args.state.join("workspaces"));
    let workspace_error = |error| ExecError::Said(with_causes(&error));
    let workspace = workspaces
        .create(&run, held.slice)
        .map_err(workspace_error)?;

    let mut env = environment::base();
    let trust = args.trust.unwrap_or_else(|| empty.clone());
    env.extend(environment::client_families_at(
        session::GATE,
        session::TRUST,
        &trust,
    ));
    let spec = RunSpec {
        run: run.clone(),
        slice: held.slice,
        argv: args.command,
        env,
        workspace,
        bundle: args.bundle,
        gate_socket_dir: args.gate.unwrap_or(empty),
        trust_dir: trust,
        git_hosts: Vec::new(),
        limits: Limits {
            memory_bytes: args.memory.saturating_mul(1024 * 1024),
            pids: args.pids,
        },
        stdin: Vec::new(),
        log: args.log.clone().unwrap_or_default(),
    };
    let io = match &args.log {
        Some(log) => {
            Io::logged(&spec).map_err(ExecError::io(format!("opening {}", log.display())))?
        }
        None => Io::through(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(ExecError::io("starting"))?;
    let exit = engine
        .start_with(&spec, io)
        .map(|(mut running, _orders)| runtime.block_on(running.wait()));
    if !args.keep {
        workspaces
            .remove(&run, held.slice)
            .map_err(workspace_error)?;
    }
    let code = session::code_of(exit?)?;
    slices.release(held)?;
    Ok(code)
}
