//! One exec from its slice to its summary.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::{Uid, User};
use policy::grant::{Grant, OpenRun, OpenedRun, PeerUids, RunId};
use tokio::signal::unix::{SignalKind, signal};

use super::clone::Clone;
use super::place::Place;
use super::staging::{self, Staged};
use super::summary::{self, Summary, printable, say};
use super::{ExecArgs, ExecError, OWN_FAILURE, changes};
use crate::container::cgroup::CgroupRoot;
use crate::container::slices::{self, Held, Slices};
use crate::container::{
    Engine, EngineError, Exit, Identity, Io, Limits, LxcEngine, Orders, RunSpec, Running,
    passable_directory, rootfs,
};
use crate::environment;
use crate::gate_client::GateClient;

/// Seconds that the gate keeps a run open without a word from us.
const LEASE: u32 = 60;
/// How often a word is sent.
const EXTEND: Duration = Duration::from_secs(20);
/// Where the relay listens inside.
pub(super) const GATE: &str = "http://127.0.0.1:3128";
/// Where the CA files are inside.
pub(super) const TRUST: &str = "/opt/portcullis/trust";

/// Everything that is ready before the gate is asked.
pub(super) struct Session {
    args: ExecArgs,
    place: Place,
    policy: Option<String>,
    env: Vec<(String, String)>,
    directory: PathBuf,
    run: RunId,
    slices: Slices,
    held: Held,
    engine: LxcEngine,
    gate: GateClient,
    runtime: tokio::runtime::Runtime,
}

/// The workspace of the run, either way.
enum Work {
    Mapped(Staged),
    Cloned(Clone),
}

impl Session {
    pub(super) fn new(args: ExecArgs) -> Result<Self, ExecError> {
        if !Uid::effective().is_root() {
            return Err(ExecError::Usage(
                "exec must be started by root: it maps the directory and hands out ids; the command \
                 itself runs as nobody the host knows\n  hint: sudo portcullis exec …"
                    .to_owned(),
            ));
        }
        let place = Place::find(&args)?;
        let policy = args.policy.as_deref().map(read_policy).transpose()?;
        let env = args
            .env
            .iter()
            .map(|text| variable(text))
            .collect::<Result<_, _>>()?;
        let directory = workspace_directory()?;
        let identity = identity(&place.account)?;
        prepare_state(&place)?;
        let engine = LxcEngine {
            state: place.runs(),
            rootfs: place.rootfs(),
            relay: place.relay.clone(),
            cgroups: CgroupRoot::made_by_root(&place.account)?,
            identity: Some(identity),
        };
        let slices = Slices::of_account(slices::directory(&place.state), &place.account)?;
        for gone in sweep(&slices, &engine)? {
            recover(&place, &gone)?;
        }
        let run = RunId::parse(&uuid::Uuid::now_v7().to_string())
            .map_err(|error| ExecError::Said(error.to_string()))?;
        let held = slices.acquire(run.as_str())?;
        let gate = GateClient::new(place.control.clone());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ExecError::io("starting"))?;
        Ok(Self {
            args,
            place,
            policy,
            env,
            directory,
            run,
            slices,
            held,
            engine,
            gate,
            runtime,
        })
    }

    /// Runs the command; the exit code, or why there is none.
    pub(super) fn run(self) -> Result<u8, ExecError> {
        let result = staging::private_mounts()
            .and_then(|()| self.open())
            .and_then(|opened| self.behind_the_gate(&opened));
        staging::unstage(&self.place.staging(self.run.as_str()));
        self.release();
        result
    }

    /// What happens while the run is open; it is closed in any case.
    fn behind_the_gate(&self, opened: &OpenedRun) -> Result<u8, ExecError> {
        let began = summary::file_time_now();
        let work = self.work();
        let code = match &work {
            Ok(work) => self
                .start(work, opened)
                .and_then(|(running, orders)| self.supervise(running, &orders)),
            Err(_) => Ok(OWN_FAILURE),
        };
        // Closed before anything is read back: what the run still does, it does without a gate.
        self.close();
        self.end(code, &work?, began)
    }

    fn open(&self) -> Result<OpenedRun, ExecError> {
        let slice = self.held.slice;
        let said = |error: policy::grant::GrantError| ExecError::Said(error.to_string());
        let open = OpenRun {
            grant: Grant::new("local", "exec", None, self.run.clone(), &self.args.profile)
                .map_err(said)?,
            epoch: 1,
            peer_uids: PeerUids::new(slice.first, slice.count).map_err(said)?,
            token_sha256: None,
            lease_seconds: LEASE,
            board_token: None,
            policy: self.policy.clone(),
        };
        let unproven = self.runtime.block_on(self.gate.unproven());
        if let Some(why) = unproven.map_err(ExecError::Gate)? {
            return Err(ExecError::Unproven(why));
        }
        self.runtime
            .block_on(self.gate.open(&open))
            .map_err(ExecError::Gate)
    }

    /// The mapped directory, or a clone where that is wanted or nothing else is possible.
    fn work(&self) -> Result<Work, ExecError> {
        let staging = self.place.staging(self.run.as_str());
        let slice = self.held.slice;
        if !self.args.clone {
            match staging::mapped(&self.directory, &staging, slice) {
                Ok(staged) => return Ok(Work::Mapped(staged)),
                Err(error) => {
                    say(&format!(
                        "portcullis exec: this directory cannot be mapped ({error}); working on a clone, \
                         which is handed back as a branch"
                    ));
                    staging::unstage(&staging);
                }
            }
        }
        let clone = Clone::make(&self.directory, &staging.join("clone"), slice)?;
        Ok(Work::Cloned(clone))
    }

    fn start(&self, work: &Work, opened: &OpenedRun) -> Result<(Running, Orders), ExecError> {
        let mut env = environment::base();
        env.extend(environment::client_families_at(
            GATE,
            TRUST,
            &self.place.trust,
        ));
        env.extend(environment::placeholders());
        if let Ok(term) = std::env::var("TERM") {
            env.push(("TERM".to_owned(), term));
        }
        for (name, value) in &self.env {
            env.retain(|(other, _)| other != name);
            env.push((name.clone(), value.clone()));
        }
        let spec = RunSpec {
            run: self.run.clone(),
            slice: self.held.slice,
            argv: self.args.command.clone(),
            env,
            workspace: match work {
                Work::Mapped(staged) => staged.mount.clone(),
                Work::Cloned(clone) => clone.work.clone(),
            },
            bundle: None,
            gate_socket_dir: PathBuf::from(&opened.socket_dir),
            trust_dir: self.place.trust.clone(),
            git_hosts: opened.git_hosts.clone(),
            limits: Limits {
                memory_bytes: self.args.memory.saturating_mul(1024 * 1024),
                pids: self.args.pids,
            },
            stdin: Vec::new(),
            log: PathBuf::new(),
        };
        Ok(self.engine.start_with(&spec, Io::through())?)
    }

    /// Waits for the end, keeps the lease, hands signals on: the first one as it is, the second
    /// kills.
    fn supervise(&self, mut running: Running, orders: &Orders) -> Result<u8, ExecError> {
        self.runtime.block_on(async {
            let listen = |kind| signal(kind).map_err(ExecError::io("listening for signals"));
            let mut interrupt = listen(SignalKind::interrupt())?;
            let mut terminate = listen(SignalKind::terminate())?;
            let mut hang_up = listen(SignalKind::hangup())?;
            let mut extend = tokio::time::interval(EXTEND);
            let mut asked = false;
            loop {
                let told = tokio::select! {
                    exit = running.wait() => return code_of(exit),
                    _ = extend.tick() => {
                        if let Err(error) = self.gate.extend(&self.run, 1).await {
                            tracing::debug!(%error, "the lease was not extended");
                        }
                        continue;
                    }
                    _ = interrupt.recv() => Signal::SIGINT,
                    _ = terminate.recv() => Signal::SIGTERM,
                    _ = hang_up.recv() => Signal::SIGHUP,
                };
                if asked {
                    running.kill();
                } else {
                    orders.signal(told);
                    asked = true;
                }
            }
        })
    }

    fn close(&self) {
        if let Err(error) = self.runtime.block_on(self.gate.close(&self.run, 1)) {
            say(&format!(
                "portcullis exec: the gate could not be told that the run is over ({error}); its lease \
                 ends within {LEASE} seconds"
            ));
        }
    }

    /// Reads back what is to be told, and hands back a clone.
    fn end(
        &self,
        code: Result<u8, ExecError>,
        work: &Work,
        began: (i64, i64),
    ) -> Result<u8, ExecError> {
        let aside = self.place.put_aside(self.run.as_str());
        let (changes, put_aside, branch) = match work {
            Work::Mapped(staged) => {
                let moved = staging::put_aside(&self.directory, &staged.absent, &aside)
                    .map_err(ExecError::io("moving files out of git's way"))?;
                let changes = changes::since(&self.directory, began, staged.repository);
                (changes, moved, Ok(None))
            }
            Work::Cloned(clone) => {
                let branch = clone.hand_back(self.run.as_str());
                // Where handing back failed the clone is all there is of the work.
                if branch.is_ok() {
                    clone.remove();
                } else {
                    say(&format!(
                        "portcullis exec: the clone is kept in {}",
                        clone.work.display()
                    ));
                }
                (
                    changes::Changes {
                        files: Vec::new(),
                        complete: true,
                    },
                    Vec::new(),
                    branch,
                )
            }
        };
        let code = code?;
        let mut summary = Summary {
            run: self.run.to_string(),
            exit: code,
            allowed: Vec::new(),
            refused: Vec::new(),
            requests_unknown: None,
            changed: changes.files,
            changes_complete: changes.complete,
            put_aside,
            branch: branch?,
        };
        match self.runtime.block_on(self.gate.audit(&self.run)) {
            Ok(records) => summary.count(&records),
            Err(error) => summary.requests_unknown = Some(super::with_causes(&error)),
        }
        if self.args.json {
            say(&serde_json::to_string(&summary)
                .map_err(|error| ExecError::Said(error.to_string()))?);
        } else if !self.args.quiet {
            say(&summary.text());
        }
        Ok(code)
    }

    /// Gives the slice back when nothing of the run is left; else it stays in quarantine.
    fn release(self) {
        match self.engine.leftover(&self.run) {
            Ok(None) => {
                if let Err(error) = self.slices.release(self.held) {
                    say(&format!("portcullis exec: {}", super::with_causes(&error)));
                }
            }
            Ok(Some(_)) | Err(_) => say(
                "portcullis exec: something of the run is still there; its ids stay in quarantine \
                 until a later exec finds it gone",
            ),
        }
    }
}

pub(super) fn code_of(exit: Exit) -> Result<u8, ExecError> {
    match exit {
        Exit::Code(code) => Ok(u8::try_from(code).unwrap_or(1)),
        Exit::Signal(signal) => Ok(u8::try_from(128 + signal).unwrap_or(255)),
        Exit::Unknown => Err(ExecError::Said(
            "the end of the command was not seen".to_owned(),
        )),
    }
}

fn read_policy(path: &Path) -> Result<String, ExecError> {
    let text = fs::read_to_string(path).map_err(|error| {
        ExecError::Usage(format!(
            "the policy {} cannot be read: {error}",
            path.display()
        ))
    })?;
    match policy::Policy::parse(&text, &path.to_string_lossy()) {
        Ok(_) => Ok(text),
        Err(problems) => Err(ExecError::Usage(format!(
            "the policy has errors\n{problems}"
        ))),
    }
}

fn variable(text: &str) -> Result<(String, String), ExecError> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(ExecError::Usage(format!("--env {text}: not NAME=VALUE"))),
    }
}

/// The current directory, unless it is one that no run should have as its workspace.
fn workspace_directory() -> Result<PathBuf, ExecError> {
    let directory = std::env::current_dir()
        .and_then(|path| path.canonicalize())
        .map_err(ExecError::io("finding the current directory"))?;
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let homes: Vec<&Path> = passwd
        .lines()
        .filter_map(|line| line.split(':').nth(5).map(Path::new))
        .collect();
    match super::place::unfit(&directory, &homes) {
        None => Ok(directory),
        Some(why) => Err(ExecError::Usage(format!(
            "{} {why}, and would be writable inside\n  hint: go into the directory of the project",
            directory.display()
        ))),
    }
}

pub(super) fn identity(account: &str) -> Result<Identity, ExecError> {
    let missing = || {
        ExecError::Said(format!(
            "the account {account}, whose ids containers get, does not exist\n  hint: portcullis up makes it"
        ))
    };
    let user = User::from_name(account)
        .ok()
        .flatten()
        .ok_or_else(missing)?;
    Ok(Identity {
        uid: user.uid.as_raw(),
        gid: user.gid.as_raw(),
    })
}

/// The directories of our state, which the ids of containers must be able to pass through.
fn prepare_state(place: &Place) -> Result<(), ExecError> {
    let making = || ExecError::io(format!("making {}", place.state.display()));
    for directory in [&place.state, &place.runs(), &place.state.join("staging")] {
        passable_directory(directory).map_err(making())?;
    }
    rootfs::create(&place.rootfs()).map_err(making())
}

/// Frees the slices of execs that died, once nothing of their runs is left.
/// Returns whose they were.
pub(super) fn sweep(slices: &Slices, engine: &LxcEngine) -> Result<Vec<RunId>, ExecError> {
    let mut freed = Vec::new();
    for (held, name) in slices.quarantined()? {
        let Ok(run) = RunId::parse(&name) else {
            continue;
        };
        let gone = match engine.leftover(&run)? {
            None => true,
            Some(evidence) => {
                engine.kill_leftover(&evidence)?;
                matches!(engine.leftover(&run), Ok::<_, EngineError>(None))
            }
        };
        if gone {
            slices.release(held)?;
            freed.push(run);
        }
    }
    Ok(freed)
}

/// Does for a killed exec what it would have done at its end to keep tools of the host safe.
fn recover(place: &Place, run: &RunId) -> Result<(), ExecError> {
    let run = run.as_str();
    let found = staging::recover(&place.staging(run), &place.put_aside(run))
        .map_err(ExecError::io(format!("cleaning up after run {run}")))?;
    if let Some((directory, moved)) = found {
        let mut text = format!(
            "portcullis exec: run {run} in {} had no proper end; look at what it changed there",
            printable(&directory.to_string_lossy())
        );
        for path in moved {
            text.push_str("\n  moved out of the way: ");
            text.push_str(&printable(&path.to_string_lossy()));
        }
        say(&text);
    }
    Ok(())
}
