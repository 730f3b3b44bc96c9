//! The command line of `portcullis prove`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use caps::{CapSet, Capability};
use clap::{Args, Subcommand};
use nix::unistd::geteuid;
use thiserror::Error;

use super::alone::Alone;
use super::attempt;
use super::bare::Bare;
use super::identity::{Identity, IdentityError};
use super::kind::Must;
use super::list::{self, List};
use super::outage::{self, Outage, OutageError};
use super::peer::{self, PeerError};
use super::report::{Format, Report};
use super::run::Run;
use super::subject::{Subject, SubjectError};
use super::task::Task;
use super::verdict::{self, Status, Verdict};
use crate::file::FileError;
use crate::instance::{Instance, InstanceError};
use crate::output;

const EXAMPLES: &str = "\
Exit status: 0 the boundary holds, 1 it is broken, 2 it could not be told

Examples:
  portcullis prove                                 everything, as the agent, beside its controls
  portcullis prove --kill-gate                     and again while the gate is down
  portcullis prove --format junit --output prove.xml
  portcullis prove list > proofs.toml              the list, to read or to change
  portcullis prove --proofs proofs.toml            a list of your own
  portcullis prove --boundary boundary.toml        without an instance, for boundary rules of your own
  docker run --rm --network none -v /usr/local/lib/portcullis:/p:ro IMAGE /p/portcullis prove";

/// `portcullis prove …`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub struct ProveArgs {
    #[command(subcommand)]
    command: Option<ProveCommand>,
    /// Directory everything is put below; the installed command knows its own
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
    /// Name of the instance
    #[arg(long)]
    name: Option<String>,
    /// The boundary's configuration, where there is no instance [default: the instance's]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prefix", "name"])]
    boundary: Option<PathBuf>,
    /// What to try, instead of the built-in list
    #[arg(long, value_name = "FILE")]
    proofs: Option<PathBuf>,
    /// Uid of the agent to try it as [default: one that the boundary's configuration names]
    #[arg(long, value_name = "UID")]
    agent: Option<u32>,
    /// Attempt only, as whoever is asking, even as root
    #[arg(long)]
    attempt_only: bool,
    /// Loopback port where the gate is reached from here (attempts only)
    #[arg(long, value_name = "PORT")]
    gate: Option<u16>,
    /// Kill the gate, try everything again, and bring it back
    #[arg(long, conflicts_with_all = ["boundary", "attempt_only"])]
    kill_gate: bool,
    /// How the report is written
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Write the report to a file; a summary still goes to standard error
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Show what holds as well (text)
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Subcommand)]
enum ProveCommand {
    /// Print the built-in list of proofs
    List,
    /// The outside peer (used by `prove`)
    #[command(hide = true)]
    Peer,
    /// Hold the gate down (used by `prove`)
    #[command(hide = true)]
    HoldGate {
        #[arg(long)]
        prefix: PathBuf,
    },
    /// One attempt (used by `prove`)
    #[command(hide = true)]
    Attempt {
        /// Become this user first
        #[arg(long = "become", value_name = "UID:GID")]
        identity: Option<String>,
        /// Wait in a fresh user namespace
        #[arg(long)]
        wait_inside: bool,
        /// Go to a network namespace without rules first
        #[arg(long)]
        bare: Option<Bare>,
        /// What to attempt
        task: Option<String>,
    },
}

#[derive(Debug, Error)]
pub enum ProveError {
    #[error(transparent)]
    List(#[from] nftables::diagnostics::Diagnostics),
    #[error(transparent)]
    Subject(#[from] SubjectError),
    #[error(transparent)]
    Instance(#[from] InstanceError),
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("the outside peer failed")]
    Serve(#[source] io::Error),
    #[error("no network namespace without rules could be made")]
    Bare(#[source] io::Error),
    #[error("the attempt cannot be read")]
    Task(#[source] serde_json::Error),
    #[error(transparent)]
    Write(#[from] FileError),
    #[error(transparent)]
    Outage(#[from] OutageError),
    #[error(
        "there is no boundary to prove at {0}\n  hint: `portcullis up` makes one; --prefix or --boundary name another"
    )]
    NoBoundary(PathBuf),
}

/// Runs the command.
///
/// # Errors
/// When nothing could be tried.
pub fn execute(arguments: ProveArgs, default_prefix: &Path) -> Result<ExitCode, ProveError> {
    match arguments.command {
        None => prove(&arguments, default_prefix),
        Some(ProveCommand::List) => {
            output::data(list::BUILT_IN);
            Ok(ExitCode::SUCCESS)
        }
        Some(ProveCommand::Peer) => {
            peer::serve().map_err(ProveError::Serve)?;
            Ok(ExitCode::SUCCESS)
        }
        Some(ProveCommand::HoldGate { prefix }) => {
            outage::hold(&Instance::open(&prefix, None)?)?;
            Ok(ExitCode::SUCCESS)
        }
        Some(ProveCommand::Attempt {
            identity,
            wait_inside,
            bare,
            task,
        }) => {
            if let Some(bare) = bare {
                bare.enter().map_err(ProveError::Bare)?;
            }
            hidden_attempt(identity.as_deref(), wait_inside, task.as_deref())
        }
    }
}

fn hidden_attempt(
    identity: Option<&str>,
    wait_inside: bool,
    task: Option<&str>,
) -> Result<ExitCode, ProveError> {
    let text = task.unwrap_or_default();
    if let Some(identity) = identity {
        let identity: Identity = identity.parse()?;
        let arguments = ["prove", "attempt", text].map(str::to_owned);
        return Err(identity.execute(&arguments).into());
    }
    let report = if wait_inside {
        attempt::wait_inside()
    } else {
        let task: Task = serde_json::from_str(text).map_err(ProveError::Task)?;
        attempt::run(&task)
    };
    output::data(&serde_json::to_string(&report).map_err(ProveError::Task)?);
    Ok(ExitCode::SUCCESS)
}

fn prove(arguments: &ProveArgs, default_prefix: &Path) -> Result<ExitCode, ProveError> {
    let began = Instant::now();
    let list = match &arguments.proofs {
        Some(path) => List::load(path)?,
        None => List::built_in()?,
    };
    let (verdicts, by) = if arguments.attempt_only || !may_judge() {
        attempts(arguments, default_prefix, &list)?
    } else {
        judged(arguments, default_prefix, &list)?
    };
    let report = Report {
        verdicts: &verdicts,
        by,
        seconds: began.elapsed().as_secs_f64(),
    };
    let text = report.render(arguments.format, arguments.all);
    match &arguments.output {
        None => output::data(&text),
        Some(path) => {
            std::fs::write(path, &text).map_err(FileError::new("write", path))?;
            output::say(report.render(Format::Text, false).trim_end());
        }
    }
    Ok(ExitCode::from(verdict::exit_code(&verdicts)))
}

/// Whether we may make a namespace and its wire, and be others.
fn may_judge() -> bool {
    let needed = [
        Capability::CAP_NET_ADMIN,
        Capability::CAP_SYS_ADMIN,
        Capability::CAP_SETUID,
        Capability::CAP_SETGID,
    ];
    let has = |capability| caps::has_cap(None, CapSet::Effective, capability).unwrap_or(false);
    geteuid().is_root() && needed.into_iter().all(has)
}

fn instance(arguments: &ProveArgs, default_prefix: &Path) -> Result<Option<Instance>, ProveError> {
    if arguments.boundary.is_some() {
        return Ok(None);
    }
    let prefix = arguments.prefix.as_deref().unwrap_or(default_prefix);
    if arguments.prefix.is_some() || arguments.name.is_some() {
        return Ok(Some(Instance::open(prefix, arguments.name.as_deref())?));
    }
    Ok(Instance::find(prefix)?)
}

fn judged(
    arguments: &ProveArgs,
    default_prefix: &Path,
    list: &List,
) -> Result<(Vec<Verdict>, String), ProveError> {
    let instance = instance(arguments, default_prefix)?;
    let file = match (&arguments.boundary, &instance) {
        (Some(file), _) => file.clone(),
        (None, Some(instance)) => instance.layout.config("boundary"),
        (None, None) => return Err(ProveError::NoBoundary(default_prefix.to_owned())),
    };
    let subject = Subject::open(&file, instance, arguments.agent)?;
    let run = Run::prepare(&subject, list)?;
    let mut verdicts = run.round(false);
    if arguments.kill_gate {
        let instance = subject.instance.as_ref().ok_or(OutageError::NoInstance)?;
        verdicts.extend(without_gate(&run, instance)?);
    }
    let by = format!(
        "as uid {} (agent), uid {} (gate, the control) and uid {} (stranger); scope {}, table {}",
        subject.agent.uid,
        subject.gate.uid,
        subject.stranger.uid,
        subject.scope.word(),
        subject.table
    );
    Ok((verdicts, by))
}

/// Everything once more while the gate is down, and whether it came back.
fn without_gate(run: &Run<'_>, instance: &Instance) -> Result<Vec<Verdict>, ProveError> {
    let verdict =
        |id: &str, must, tried: &str, reason: &str, (status, saw): (Status, String)| Verdict {
            id: id.to_owned(),
            must,
            status,
            tried: tried.to_owned(),
            reason: reason.to_owned(),
            saw,
            gate_down: true,
            ms: 0,
        };
    let outage = Outage::begin(instance)?;
    let refused = attempt::connects(&instance.layout.control_socket()).err();
    let down = match refused {
        Some(error) => (Status::Holds, error.to_string()),
        None => (
            Status::CouldNotTell,
            "something answers at the gate's control socket".to_owned(),
        ),
    };
    let reason = "what is tried now is tried without a gate";
    let mut verdicts = vec![verdict(
        "OPN-gate-is-down",
        Must::Fail,
        "root asks the killed gate",
        reason,
        down,
    )];
    verdicts.extend(run.round(true));
    let back = match outage.end() {
        Ok(()) => (Status::Holds, "it serves again".to_owned()),
        Err(error) => (Status::Broken, output::chain(&error)),
    };
    let reason = "a gate that was killed is started again";
    verdicts.push(verdict(
        "OPN-gate-is-back",
        Must::Succeed,
        "root asks the gate",
        reason,
        back,
    ));
    Ok(verdicts)
}

fn attempts(
    arguments: &ProveArgs,
    default_prefix: &Path,
    list: &List,
) -> Result<(Vec<Verdict>, String), ProveError> {
    // An agent may not be able to read it, or be where it is not.
    let instance = instance(arguments, default_prefix).ok().flatten();
    let alone = Alone::look(instance.as_ref(), arguments.gate);
    let verdicts = alone.round(list, None);
    let by = format!("attempts only, as uid {}; {}", geteuid(), alone.place());
    Ok((verdicts, by))
}
