//! `run`: how the gate comes up, and goes down.
//!
//! Configuration and policies are read before anything is touched. Then privileges go, and only
//! then are secrets read and sockets opened. What cannot be had keeps the gate from starting.

mod ready;
mod tasks;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use tokio::sync::mpsc;
use tracing_subscriber::EnvFilter;

use super::ConfigArg;
use super::output::{Exit, chain, tell};
use crate::audit::checkpoint::Commitments;
use crate::audit::signing::Signer;
use crate::audit::{Audit, Workers};
use crate::boundary::{Boundary, BoundaryProof, Source, refusals};
use crate::ca::Minter;
use crate::config::{Config, ScopeProof, StoreConfig};
use crate::control::{self, custody::Custody};
use crate::credential::Vault;
use crate::descriptors::Descriptors;
use crate::gate::{Gate, Parts};
use crate::harden::{self, Hardened, VisibleUids};
use crate::policies::Policies;
use crate::runs::{NewListener, Runs, RunsSettings};
use crate::share::Share;
use crate::store::{Foreign, ProofError};

/// Listeners on their way to the entrance.
const LISTENERS_QUEUED: usize = 16;
/// What may block: reloads and readers of the log.
const BLOCKING_THREADS: usize = 8;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  portcullis-proxy run --user portcullis-proxy      (as root: becomes that user, for good)
  portcullis-proxy run --config ./proxy.toml --ready-file /tmp/ready

Signals: SIGHUP reloads, SIGTERM and SIGINT stop")]
pub(super) struct RunArgs {
    #[command(flatten)]
    config: ConfigArg,
    /// The service user to become; required as root
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Written with the process id once the gate listens
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// How the operators' log on stderr is written
    #[arg(long, value_enum, default_value = "text")]
    log: LogForm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum LogForm {
    /// A line of words
    Text,
    /// One JSON object a line
    Json,
}

impl RunArgs {
    /// The configuration file.
    pub(super) fn config(&self) -> &Path {
        &self.config.config
    }
}

/// Why the gate did not start.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    #[error(transparent)]
    Policies(#[from] crate::policies::PolicyErrors),
    #[error(transparent)]
    Harden(#[from] harden::HardenError),
    #[error(transparent)]
    Credentials(#[from] crate::credential::CredentialErrors),
    #[error(transparent)]
    Scope(#[from] ProofError),
    #[error(transparent)]
    Ca(#[from] crate::ca::CaError),
    #[error(transparent)]
    Audit(#[from] crate::audit::AuditError),
    #[error(transparent)]
    Signer(#[from] crate::audit::signing::SignerError),
    #[error(transparent)]
    Runs(#[from] crate::runs::RunError),
    #[error(transparent)]
    Gate(#[from] crate::gate::GateError),
    #[error(transparent)]
    Descriptors(#[from] crate::descriptors::DescriptorsError),
    #[error("could not {what} {at}")]
    Listen {
        what: &'static str,
        at: String,
        source: std::io::Error,
    },
    #[error("a part of the gate failed; it was stopped rather than left half alive")]
    Broken,
    #[error("could not read which uids this process can tell apart")]
    Uids(#[source] std::io::Error),
    #[error("could not start the runtime")]
    Runtime(#[source] std::io::Error),
}

pub(super) fn run(args: &RunArgs) -> Exit {
    run_sharing(args, None)
}

/// The same, with a directory for agents that is kept as it should be.
pub(super) fn run_sharing(args: &RunArgs, share: Option<Share>) -> Exit {
    match start(args, share) {
        Ok(()) => Exit::Yes,
        Err(problem) => {
            tell(&format!(
                "portcullis-proxy does not start:\n{}",
                chain(&problem)
            ));
            Exit::CouldNotTell
        }
    }
}

fn start(args: &RunArgs, share: Option<Share>) -> Result<(), StartError> {
    let config = Arc::new(Config::load(&args.config.config)?);
    let policies = Arc::new(Policies::load(Arc::clone(&config))?);
    let foreign = config.store.as_ref().map(StoreConfig::collect_foreign);
    let foreign = foreign.transpose()?.flatten();
    // Still a single thread, which is what makes the drop complete.
    let hardened = harden::drop_privileges(args.user.as_deref())?;
    let visible = VisibleUids::read().map_err(StartError::Uids)?;
    config.check_uids(hardened.uid, &visible)?;
    policies.check_trust()?;
    log_to_stderr(args.log);

    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let workers = Workers::of(&mut runtime);
    let runtime = runtime
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("gate")
        .enable_all()
        .build()
        .map_err(StartError::Runtime)?;
    let served = runtime.block_on(async {
        let (custody, listeners) =
            assemble(&config, policies, hardened, visible, foreign, workers)?;
        serve(custody, listeners, args, share).await
    });
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    served
}

/// Operators' log. The level may be set with RUST_LOG; what is allowed may not.
fn log_to_stderr(form: LogForm) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false);
    match form {
        LogForm::Text => log.init(),
        LogForm::Json => log.json().flatten_event(true).init(),
    }
}

/// Reads the secrets and opens the log, as the service user.
fn assemble(
    config: &Arc<Config>,
    policies: Arc<Policies>,
    hardened: Hardened,
    visible: VisibleUids,
    foreign: Option<Foreign>,
    workers: Arc<Workers>,
) -> Result<(Arc<Custody>, mpsc::Receiver<NewListener>), StartError> {
    let mut settings = config.audit.settings();
    settings.workers = Some(workers);
    match &config.audit.signing_key {
        Some(path) => {
            let store = config.store.as_ref().map(|store| store.key.as_path());
            settings.signer = Some(Arc::new(Signer::load_apart(path, store)?));
        }
        None => tracing::warn!(
            "[audit] names no signing_key: checkpoints are not signed, so whoever can write the \
             audit log can write it anew"
        ),
    }
    let audit = Arc::new(Audit::open_with(&config.audit_directory, settings)?);
    let vault = Arc::new(Vault::load(config, foreign)?);
    if let Some(ScopeProof::None(reason)) = config.store.as_ref().map(|store| &store.scope) {
        tracing::warn!(
            "nothing proves that the store's key reads no more than it should: {reason}"
        );
    }
    let boundary = Arc::new(Boundary::new(config.boundary.clone()));
    match (boundary.source(), boundary.check()) {
        (Source::External(reason), _) => {
            tracing::warn!("the boundary is not proven by this machine: {reason}");
        }
        (Source::Status(_), Ok(_)) => {}
        (Source::Status(_), Err(problem)) => {
            tracing::error!("{problem}; serving nothing until it is proven");
            vault.seal();
        }
    }
    let minter = Arc::new(Minter::load(
        &config.ca_directory,
        config.limits.leaf_cache,
    )?);
    let descriptors = Arc::new(Descriptors::of_process(&config.limits)?);
    if descriptors.runs < config.limits.runs {
        tracing::warn!(
            "the descriptor limit leaves room for {} runs, not limits.runs = {}",
            descriptors.runs,
            config.limits.runs
        );
    }
    let (new_listeners, listeners) = mpsc::channel(LISTENERS_QUEUED);
    let settings = RunsSettings {
        directory: config.runs_directory.clone(),
        most: config.limits.runs.min(descriptors.runs),
        lease: config.limits.lease,
        own_uid: hardened.uid,
        visible,
        tokens: config
            .listen
            .iter()
            .flat_map(|listen| &listen.tokens)
            .map(|identity| identity.digest)
            .collect(),
    };
    let runs = Arc::new(Runs::new(
        settings,
        Arc::clone(&policies),
        Arc::clone(&audit),
        new_listeners,
    )?);
    let custody = Custody {
        config: Arc::clone(config),
        policies,
        vault,
        audit,
        runs,
        boundary,
        minter,
        descriptors,
        started_at: crate::audit::now(),
        neighbours: hardened.neighbours,
    };
    let (policies, boundary) = (Arc::clone(&custody.policies), Arc::clone(&custody.boundary));
    custody
        .audit
        .commit_to(move || commitments(&policies, &boundary));
    Ok((Arc::new(custody), listeners))
}

/// What a checkpoint commits to beside the log.
fn commitments(policies: &Policies, boundary: &Boundary) -> Commitments {
    let policies = policies.view().into_iter();
    Commitments {
        policies: policies.map(|(name, view)| (name, view.hash)).collect(),
        boundary: match (boundary.source(), boundary.check()) {
            (Source::External(reason), _) => format!("external: {reason}"),
            (Source::Status(_), Ok(BoundaryProof::Kernel { ruleset_hash, .. })) => ruleset_hash,
            (Source::Status(_), Ok(BoundaryProof::External { reason })) => {
                format!("external: {reason}")
            }
            (Source::Status(_), Err(problem)) => format!("not proven: {problem}"),
        },
        refused: std::collections::BTreeMap::new(),
        refused_packets: match boundary.source() {
            Source::Status(path) => refusals::counted(path),
            Source::External(_) => std::collections::BTreeMap::new(),
        },
        // The log knows it.
        interval: None,
    }
}

async fn serve(
    custody: Arc<Custody>,
    listeners: mpsc::Receiver<NewListener>,
    args: &RunArgs,
    share: Option<Share>,
) -> Result<(), StartError> {
    let config = Arc::clone(&custody.config);
    let gate = Arc::new(Gate::new(Parts {
        config: Arc::clone(&config),
        policies: Arc::clone(&custody.policies),
        vault: Arc::clone(&custody.vault),
        minter: Arc::clone(&custody.minter),
        audit: Arc::clone(&custody.audit),
        runs: Arc::clone(&custody.runs),
        boundary: Arc::clone(&custody.boundary),
        descriptors: Arc::clone(&custody.descriptors),
    })?);
    let entrances = match &config.listen {
        None => tasks::Entrances::default(),
        Some(listen) => tasks::Entrances::bind(listen)
            .await
            .map_err(|(at, source)| StartError::Listen {
                what: "listen on",
                at,
                source,
            })?,
    };
    let control = control::bind(&config.control.socket).map_err(|source| StartError::Listen {
        what: "make the control socket",
        at: config.control.socket.display().to_string(),
        source,
    })?;
    let metrics = match &config.metrics {
        None => None,
        Some(metrics) => Some(
            tokio::net::TcpListener::bind(metrics.listen)
                .await
                .map_err(|source| StartError::Listen {
                    what: "listen on",
                    at: metrics.listen.to_string(),
                    source,
                })?,
        ),
    };
    let mut signals = tasks::Signals::new().map_err(StartError::Runtime)?;
    let mut tasks = tasks::Tasks::spawn(
        Arc::clone(&custody),
        Arc::clone(&gate),
        control,
        entrances,
        metrics,
        listeners,
    );
    if let Some(share) = share {
        tasks.add(crate::share::keep(share, Arc::clone(&config)));
    }

    custody.audit.event(&format!(
        "gate started, version {}",
        env!("CARGO_PKG_VERSION")
    ));
    let vouching = Arc::clone(&custody);
    if let Err(problem) = tokio::task::spawn_blocking(move || vouching.audit.vouch()).await {
        tracing::error!("the log could not be signed at the start: {problem}");
    }
    tracing::info!("listening on {}", config.control.socket.display());
    if let Err(problem) = ready::announce(args.ready_file.as_deref()) {
        tracing::error!("cannot say that the gate is ready: {problem}");
    }
    if let Err(problem) = crate::vault::program::give_back_unchanged() {
        tracing::debug!("what only the start needed stays mapped: {problem}");
    }
    let whole = tokio::select! {
        () = signals.until_stop(&custody) => true,
        () = tasks.one_ended() => false,
    };
    tasks.stop(&gate, config.limits.drain).await;
    custody.audit.event("gate stopped");
    if whole {
        Ok(())
    } else {
        Err(StartError::Broken)
    }
}
