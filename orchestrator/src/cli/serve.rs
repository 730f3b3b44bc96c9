//! `serve` and `check`: the orchestrator itself.

use std::fs::File;
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use nix::unistd::{Uid, User};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::{CliError, output};
use crate::anchor;
use crate::api::{self, Board, Entrance};
use crate::config::{Config, Hooks};
use crate::container::LxcEngine;
use crate::container::cgroup::{CgroupError, CgroupRoot};
use crate::container::slices::{self, Held, SLICE_IDS, SliceError, Slices};
use crate::gate_client::{GateClient, chain};
use crate::model::{Actor, Profile};
use crate::routines;
use crate::store::files::Files;
use crate::store::{Store, StoreError, attachments, profiles};
use crate::supervise::{Settings, Supervisor};
use crate::workspace::Workspaces;

/// The mark of a slice that is the orchestrator's. No run's name, so that nobody takes it for one.
const RESERVED: &str = "orchestrator (see state.db)";

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  portcullis-orchestrator serve
  portcullis-orchestrator serve --user portcullis-orchestrator --ready-file /run/ready")]
pub(super) struct ServeArgs {
    /// Become this account first; needed when started by root
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Written once the sockets are open
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
}

/// Why the orchestrator does not run.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServeError {
    #[error(
        "the orchestrator does not run as root\n  hint: start it as an account of its own, or with --user NAME"
    )]
    Root,
    #[error("there is no account `{0}`\n  hint: create it, or name another with --user")]
    NoAccount(String),
    #[error("becoming {account} failed")]
    Drop {
        account: String,
        #[source]
        source: nix::Error,
    },
    #[error("another orchestrator uses {0}\n  hint: stop it first; two would start runs twice")]
    Running(PathBuf),
    #[error("{doing}")]
    Io {
        doing: String,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Slices(#[from] SliceError),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ServeError {
    fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}

/// Runs until a signal ends it.
pub(super) fn run(config: &Config, args: &ServeArgs) -> Result<ExitCode, CliError> {
    // Before any thread exists: ids belong to threads on Linux.
    become_user(args.user.as_deref())?;
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_max_level(tracing::Level::INFO)
        .init();
    let _only_one = lock(&config.state)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(ServeError::io("starting"))?;
    runtime.block_on(serve(config, args.ready_file.as_deref()))?;
    Ok(ExitCode::SUCCESS)
}

/// `check`: what `serve` would stumble over.
pub(super) fn check(config: &Config, json: bool) -> Result<ExitCode, CliError> {
    let mut problems = Vec::new();
    for (key, path) in [
        ("trust", &config.trust),
        ("relay", &config.relay),
        ("state", &config.state),
    ] {
        if !path.exists() {
            problems.push(format!(
                "{}: {key}: {} does not exist",
                config.path.display(),
                path.display()
            ));
        }
    }
    if let Some(account) = account(config)
        && let Err(error) = Slices::of_account(slices::directory(&config.state), &account)
    {
        problems.push(format!("{}: ids: {error}", config.path.display()));
    }
    let facts = json!({ "ok": problems.is_empty(), "config": config.path, "problems": problems });
    output::either(json, &facts, || {
        if problems.is_empty() {
            format!("{} is right", config.path.display())
        } else {
            problems.join("\n")
        }
    });
    Ok(if problems.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(2)
    })
}

async fn serve(config: &Config, ready_file: Option<&Path>) -> Result<(), ServeError> {
    let account = account(config).ok_or(ServeError::NoAccount("of this uid".to_owned()))?;
    let slices = Slices::of_account(slices::directory(&config.state), &account)?;
    let (first_id, _count) = slices.range();
    let (_held, usable) = reserve(&slices)?;
    let store = Store::open(&config.database())?;
    let mut profiles = config.profiles.clone();
    profiles.extend(config.concurrent.map(|most| Profile {
        concurrent: Some(i64::from(most)),
        ..Profile::plain(Profile::EVERY)
    }));
    store
        .write(Actor::System, move |w| profiles::replace(w, &profiles))
        .await?;
    let gate = GateClient::new(config.control_socket.clone());
    let engine = LxcEngine {
        state: config.state.join("containers"),
        rootfs: config.rootfs.clone(),
        relay: config.relay.clone(),
        cgroups: CgroupRoot::delegated()?,
        identity: None,
    };
    let settings = Settings {
        first_id,
        slice_ids: SLICE_IDS,
        slices: Arc::clone(&usable),
        runs: config.runs.clone(),
        trust: config.trust.clone(),
        limits: config.limits,
        extend: Duration::from_secs(20),
    };
    let board = Arc::new(Board {
        store: store.clone(),
        gate: gate.clone(),
        runs: config.runs.clone(),
        files: Files::new(config.state.join("attachments")),
        slices: Arc::clone(&usable),
    });
    match attachments::sweep(&store, &board.files).await {
        Ok(0) => {}
        Ok(files) => tracing::info!(files, "removed attached bytes that no ticket has"),
        Err(error) => tracing::warn!(error = chain(&error), "attached bytes are not swept"),
    }
    let (stop, stopped) = watch::channel(false);
    let mut uids = vec![0, Uid::effective().as_raw()];
    uids.extend(&config.operators);
    let entrances = [
        (
            &config.board_socket,
            Entrance::Board {
                proxy: config.proxy_uid,
            },
        ),
        (&config.api_socket, Entrance::Operators { uids }),
    ];
    let mut servers = tokio::task::JoinSet::new();
    for (path, entrance) in entrances {
        let listener = api::bind(path).map_err(ServeError::io(format!(
            "opening the socket {}",
            path.display()
        )))?;
        let router = api::router(Arc::clone(&board), entrance);
        servers.spawn(api::serve(listener, router, stopped.clone()));
    }
    if let Some(hooks) = &config.hooks {
        serve_hooks(
            hooks,
            api::hooks(Arc::clone(&board)),
            &stopped,
            &mut servers,
        )
        .await?;
    }
    let anchors = anchor::keep(store.clone(), gate.clone(), stopped.clone());
    servers.spawn(async move {
        anchors.await;
        Ok(())
    });
    let routines = routines::keep(store.clone(), stopped.clone());
    servers.spawn(async move {
        routines.await;
        Ok(())
    });
    let supervisor = Supervisor::new(
        store,
        engine,
        Workspaces::new(&config.workspaces),
        gate,
        settings,
    );
    let mut working = tokio::spawn(supervisor.run(stopped));
    if let Some(path) = ready_file {
        std::fs::write(path, "ready\n")
            .map_err(ServeError::io(format!("writing {}", path.display())))?;
    }
    tracing::info!(slices = usable.len(), account, "ready");
    let mut terminate =
        signal(SignalKind::terminate()).map_err(ServeError::io("listening for signals"))?;
    let mut interrupt =
        signal(SignalKind::interrupt()).map_err(ServeError::io("listening for signals"))?;
    let failure = tokio::select! {
        _signal = terminate.recv() => None,
        _signal = interrupt.recv() => None,
        Some(ended) = servers.join_next() => Some(format!("a socket is no longer served: {ended:?}")),
        ended = &mut working => Some(format!("the supervisor ended: {ended:?}")),
    };
    tracing::info!("stopping");
    // Nobody listening means it has ended already.
    let _sent = stop.send(true);
    if let Some(problem) = failure {
        return Err(ServeError::io(problem)(std::io::Error::other(
            "unexpected end",
        )));
    }
    if let Err(error) = working.await {
        return Err(ServeError::io("ending the supervisor")(
            std::io::Error::other(error),
        ));
    }
    Ok(())
}

/// Opens the entrance of webhooks.
async fn serve_hooks(
    hooks: &Hooks,
    router: axum::Router,
    stopped: &watch::Receiver<bool>,
    servers: &mut tokio::task::JoinSet<std::io::Result<()>>,
) -> Result<(), ServeError> {
    match hooks {
        Hooks::Socket(path) => {
            let doing = format!("opening the socket {}", path.display());
            let listener = api::bind(path).map_err(ServeError::io(doing))?;
            servers.spawn(api::serve_hooks(listener, router, stopped.clone()));
        }
        Hooks::Loopback(address) => {
            let listener = tokio::net::TcpListener::bind(address).await;
            let listener = listener.map_err(ServeError::io(format!("listening on {address}")))?;
            servers.spawn(api::serve_hooks(listener, router, stopped.clone()));
        }
    }
    Ok(())
}

/// Holds the account's slices of host ids for as long as this process lives, so that a container
/// started by hand from the same state directory gets none of them. Left out are those that
/// somebody else has, or left without proof that its processes are gone. Which of the rest a run
/// holds, the database knows.
fn reserve(slices: &Slices) -> Result<(Vec<Held>, Arc<[i64]>), SliceError> {
    let mut held = Vec::new();
    for (slice, name) in slices.quarantined()? {
        if name == RESERVED {
            held.push(slice);
        } else {
            tracing::warn!(slice = slice.slice.first, name, "not proven gone: left out");
        }
    }
    loop {
        match slices.acquire(RESERVED) {
            Ok(slice) => held.push(slice),
            Err(SliceError::Exhausted(_)) => break,
            Err(error) => return Err(error),
        }
    }
    let (first, _count) = slices.range();
    let index = |held: &Held| i64::from((held.slice.first - first) / SLICE_IDS);
    let mut usable: Vec<i64> = held.iter().map(index).collect();
    usable.sort_unstable();
    Ok((held, usable.into()))
}

/// The account whose subordinate ids runs get: the named one, or the one the orchestrator runs as,
/// which is the owner of its state directory when root asks.
fn account(config: &Config) -> Option<String> {
    let own = || {
        let uid = if Uid::effective().is_root() {
            Uid::from_raw(std::fs::metadata(&config.state).ok()?.uid())
        } else {
            Uid::effective()
        };
        Some(User::from_uid(uid).ok()??.name)
    };
    config.ids.clone().or_else(own)
}

/// Gives root up for good. `no_new_privs` stays off, because a rootless container needs the
/// set-user-id helper `newuidmap`.
fn become_user(name: Option<&str>) -> Result<(), ServeError> {
    if let Some(name) = name {
        let user = User::from_name(name).ok().flatten();
        let user = user.ok_or_else(|| ServeError::NoAccount(name.to_owned()))?;
        let failed = |source| ServeError::Drop {
            account: name.to_owned(),
            source,
        };
        if Uid::effective() != user.uid {
            nix::unistd::setgroups(&[user.gid]).map_err(failed)?;
            nix::unistd::setresgid(user.gid, user.gid, user.gid).map_err(failed)?;
            nix::unistd::setresuid(user.uid, user.uid, user.uid).map_err(failed)?;
        }
    }
    if Uid::effective().is_root() || Uid::current().is_root() {
        return Err(ServeError::Root);
    }
    Ok(())
}

/// One orchestrator per state directory. The lock ends with the process, however it ends.
fn lock(state: &Path) -> Result<File, ServeError> {
    let path = state.join("lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(ServeError::io(format!("opening {}", path.display())))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(ServeError::Running(state.to_owned())),
        Err(std::fs::TryLockError::Error(error)) => {
            Err(ServeError::io(format!("locking {}", path.display()))(error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_others_and_of_the_dead_are_left_out_and_ours_are_held() {
        let dir = tempfile::tempdir().unwrap();
        // The third slice holds id 65534, which is nobody's.
        let slices = Slices::new(dir.path(), 63_000, 5 * SLICE_IDS);
        let _theirs = slices.acquire("a-trial").unwrap();
        drop(slices.acquire("a-crashed-trial").unwrap());
        let (held, usable) = reserve(&slices).unwrap();
        assert_eq!(*usable, [3, 4]);
        assert!(matches!(slices.acquire("x"), Err(SliceError::Exhausted(_))));
        drop(held);
        assert!(
            matches!(slices.acquire("x"), Err(SliceError::Exhausted(_))),
            "the database may know of runs in them"
        );
        assert_eq!(*reserve(&slices).unwrap().1, [3, 4]);
    }
}
