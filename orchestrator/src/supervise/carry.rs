//! One run, from its claim to its end.

use std::sync::Arc;
use std::time::Duration;

use policy::grant::{Grant, OpenRun, OpenedRun, PeerUids, RunId};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until};

use super::{Homes, Shared, environ};
use crate::container::{Engine, EngineError, Exit, RunSpec, Running};
use crate::gate_client::{GateError, chain};
use crate::model::run::Outcome;
use crate::model::{Actor, RunStatus};
use crate::store::runs::{self, Claimed};
use crate::store::{StoreError, Writer, agents};

/// Seconds of a lease at the gate.
const LEASE_SECONDS: u32 = 60;
/// How long a run may take when its adapter does not say.
const DEFAULT_TIMEOUT: u64 = 3600;
/// A process that was killed is waited for so long.
const KILLED_WITHIN: Duration = Duration::from_secs(10);

type Cancel = watch::Receiver<Option<String>>;

/// Carries a claimed run out. Returns once its ticket, agent and slice are free again.
pub(super) async fn out<E: Engine, H: Homes>(
    shared: Arc<Shared<E, H>>,
    claimed: Claimed,
    mut cancel: Cancel,
) {
    let id = claimed.run.id.clone();
    let Ok(run) = RunId::parse(&id) else {
        tracing::error!(run = id, "the run's id is not one");
        return;
    };
    let outcome = match begin(&shared, &run, &claimed, &cancel).await {
        Ok((mut running, open)) => {
            let outcome =
                watch_over(&shared, &run, &claimed, &open, &mut running, &mut cancel).await;
            running.kill();
            outcome
        }
        Err(outcome) => outcome,
    };
    end(&shared, &run, &claimed.run, outcome).await;
    shared.forget(&id);
}

/// Opens the run at the gate, makes its workspace and starts its container.
async fn begin<E: Engine, H: Homes>(
    shared: &Arc<Shared<E, H>>,
    run: &RunId,
    claimed: &Claimed,
    cancel: &Cancel,
) -> Result<(Running, OpenRun), Outcome> {
    let company = claimed.run.company.clone();
    let company = shared
        .store
        .read(move |db| agents::company(db, &company, None))
        .await;
    let company = company.map_err(|error| failed(chain(&error)))?;
    let open = open_run(shared, run, claimed, &company.prefix).map_err(failed)?;
    let opened = shared.gate.open(&open).await.map_err(|error| {
        let reason = format!("the gate did not open the run: {}", chain(&error));
        Outcome {
            retry: error.may_pass(),
            ..failed(reason)
        }
    })?;
    let spec = spec(shared, run, claimed, &company.name, &opened)
        .await
        .map_err(failed)?;
    if let Some(why) = cancel.borrow().clone() {
        return Err(cancelled(None, why));
    }
    let running = shared
        .engine
        .start(spec)
        .await
        .map_err(|error| match error {
            EngineError::Refused(_) | EngineError::Start(_) | EngineError::Unreadable(_) => {
                failed(chain(&error))
            }
        })?;
    let (id, evidence) = (claimed.run.id.clone(), running.evidence.clone());
    let started = move |w: &mut Writer<'_>| runs::started(w, &id, &evidence);
    if let Err(error) = shared.store.write(Actor::System, started).await {
        running.kill();
        return Err(failed(format!(
            "the start could not be recorded: {}",
            chain(&error)
        )));
    }
    tracing::info!(run = %run, "run started");
    Ok((running, open))
}

/// Waits for the end, whatever brings it; keeps the leases meanwhile.
async fn watch_over<E: Engine, H: Homes>(
    shared: &Arc<Shared<E, H>>,
    run: &RunId,
    claimed: &Claimed,
    open: &OpenRun,
    running: &mut Running,
    cancel: &mut Cancel,
) -> Outcome {
    let seconds = claimed
        .agent
        .adapter
        .process()
        .timeout_seconds
        .unwrap_or(DEFAULT_TIMEOUT);
    let deadline = Instant::now() + Duration::from_secs(seconds.min(30 * 24 * 3600));
    let every = shared.settings.extend;
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let why = tokio::select! {
            exit = running.wait() => return of_exit(exit),
            why = asked_to_stop(cancel) => why,
            () = sleep_until(deadline) => format!("its {seconds} seconds were up"),
            _tick = ticks.tick() => match extend(shared, run, open).await {
                Ok(()) => continue,
                Err(outcome) => {
                    running.kill();
                    return outcome;
                }
            },
        };
        running.kill();
        return match tokio::time::timeout(KILLED_WITHIN, running.wait()).await {
            Ok(exit) => cancelled(Some(exit), why),
            // The run is over for its agent. Its ticket is not: who begins the next run waits until
            // this process is gone.
            Err(_elapsed) => {
                let seconds = KILLED_WITHIN.as_secs();
                let still = format!("its process has not ended {seconds} s after it was killed");
                cancelled(None, format!("{why}; {still}"))
            }
        };
    }
}

async fn asked_to_stop(cancel: &mut Cancel) -> String {
    match cancel.wait_for(Option::is_some).await {
        Ok(why) => why.clone().unwrap_or_default(),
        Err(_closed) => "the supervisor has ended".to_owned(),
    }
}

/// Extends both leases. A gate that has forgotten the run (it was restarted) is told again.
async fn extend<E: Engine, H: Homes>(
    shared: &Arc<Shared<E, H>>,
    run: &RunId,
    open: &OpenRun,
) -> Result<(), Outcome> {
    let id = run.to_string();
    let live = shared
        .store
        .write(Actor::System, move |w| runs::extend(w, &id))
        .await;
    match live {
        Ok(true) => {}
        Ok(false) => return Err(failed("the run was ended by somebody else".to_owned())),
        Err(error) => {
            return Err(failed(format!(
                "its lease could not be kept: {}",
                chain(&error)
            )));
        }
    }
    match shared.gate.extend(run, open.epoch).await {
        Ok(()) => Ok(()),
        Err(GateError::Refused {
            status: 404 | 409 | 410,
            ..
        }) => match shared.gate.open(open).await {
            Ok(_) => Ok(()),
            Err(error) if error.may_pass() => Ok(()),
            Err(error) => Err(failed(format!(
                "the gate closed the run: {}",
                chain(&error)
            ))),
        },
        Err(error) => {
            // Without the gate nothing leaves; its own lease ends the run there if this lasts.
            tracing::warn!(run = %run, error = chain(&error), "the gate's lease was not extended");
            Ok(())
        }
    }
}

/// The end, in its order: database, gate, proof, database.
pub(super) async fn end<E: Engine, H: Homes>(
    shared: &Arc<Shared<E, H>>,
    run: &RunId,
    row: &crate::model::Run,
    outcome: Outcome,
) {
    tracing::info!(run = %run, status = %outcome.status, reason = outcome.reason, "run ending");
    let id = row.id.clone();
    persist(shared, "the run's end", move |w| {
        runs::begin_end(w, &id, &outcome).map(|_run| ())
    })
    .await;
    let epoch = u64::try_from(row.epoch).unwrap_or(1);
    if let Err(error) = shared.gate.close(run, epoch).await {
        tracing::warn!(run = %run, error = chain(&error), "the gate's lease ends by itself");
    }
    gone(shared, run).await;
    let slice = shared.settings.slice(row.slice);
    let (homes, owned) = (Arc::clone(&shared.homes), run.clone());
    let removed = tokio::task::spawn_blocking(move || homes.remove(&owned, slice)).await;
    if let Ok(Err(error)) = removed {
        tracing::warn!(run = %run, error, "the run's workspace was not removed");
    }
    let id = row.id.clone();
    persist(shared, "the run's end", move |w| {
        runs::finish(w, &id).map(|_run| ())
    })
    .await;
}

/// Writes until it is written: a full disk must not leave a run half ended.
async fn persist<E: Engine, H: Homes>(
    shared: &Arc<Shared<E, H>>,
    what: &str,
    change: impl Fn(&mut Writer<'_>) -> Result<(), StoreError> + Clone + Send + Sync + 'static,
) {
    loop {
        match shared.store.write(Actor::System, change.clone()).await {
            Ok(()) => return,
            Err(error @ (StoreError::Gone | StoreError::Refused(_))) => {
                tracing::error!(error = chain(&error), "{what} could not be recorded");
                return;
            }
            Err(error) => {
                tracing::error!(error = chain(&error), "{what} is not recorded yet");
                sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// Kills what is left of a run and waits until the engine can prove that nothing is.
async fn gone<E: Engine, H: Homes>(shared: &Arc<Shared<E, H>>, run: &RunId) {
    let mut pause = Duration::from_millis(10);
    let mut said = false;
    loop {
        let (engine, owned) = (Arc::clone(&shared.engine), run.clone());
        let id = run.to_string();
        let known = shared
            .store
            .read(move |db| Ok(runs::get(db, &id)?.evidence))
            .await;
        let verdict = match known {
            Ok(known) => {
                let look = move || {
                    let evidence = match known {
                        Some(evidence) => Some(evidence),
                        None => engine.leftover(&owned)?,
                    };
                    let Some(evidence) = evidence else {
                        return Ok(true);
                    };
                    if engine.proven_gone(&evidence)? {
                        return Ok(true);
                    }
                    engine.kill_leftover(&evidence)?;
                    engine.proven_gone(&evidence)
                };
                let look = tokio::task::spawn_blocking(look).await;
                look.unwrap_or_else(|panic| Err(EngineError::Unreadable(panic.to_string())))
                    .map_err(|error| chain(&error))
            }
            Err(error) => Err(chain(&error)),
        };
        match verdict {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) if !said => {
                said = true;
                tracing::error!(run = %run, error, "the run cannot be proven gone yet");
            }
            Err(_again) => {}
        }
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

fn open_run<E, H>(
    shared: &Shared<E, H>,
    run: &RunId,
    claimed: &Claimed,
    company: &str,
) -> Result<OpenRun, String> {
    let slice = shared.settings.slice(claimed.run.slice);
    let named = |agent: &str| {
        Grant::new(
            company,
            agent,
            claimed
                .ticket
                .as_ref()
                .map(|ticket| ticket.identifier.as_str()),
            run.clone(),
            &claimed.agent.profile,
        )
    };
    // A name that is no label for the audit log is replaced by the id, which always is one.
    let grant = named(&claimed.agent.name).or_else(|_name| named(&claimed.agent.id));
    Ok(OpenRun {
        grant: grant.map_err(|error| error.to_string())?,
        epoch: u64::try_from(claimed.run.epoch).unwrap_or(1),
        peer_uids: PeerUids::new(slice.first, slice.count).map_err(|error| error.to_string())?,
        token_sha256: None,
        lease_seconds: LEASE_SECONDS,
        board_token: Some(claimed.token.clone()),
        policy: None,
    })
}

async fn spec<E: Engine, H: Homes>(
    shared: &Arc<Shared<E, H>>,
    run: &RunId,
    claimed: &Claimed,
    company: &str,
    opened: &OpenedRun,
) -> Result<RunSpec, String> {
    let settings = &shared.settings;
    let slice = settings.slice(claimed.run.slice);
    let (homes, owned) = (Arc::clone(&shared.homes), run.clone());
    let workspace = tokio::task::spawn_blocking(move || homes.create(&owned, slice))
        .await
        .map_err(|error| error.to_string())?
        .map_err(|error| format!("the workspace could not be made: {error}"))?;
    let directory = settings.runs.join(run.as_str());
    tokio::fs::create_dir_all(&directory)
        .await
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    let told = environ::told(&shared.store, claimed)
        .await
        .map_err(|error| chain(&error))?;
    let process = claimed.agent.adapter.process();
    Ok(RunSpec {
        run: run.clone(),
        slice,
        argv: process.command.clone(),
        env: environ::variables(claimed, &told, &settings.trust),
        workspace,
        bundle: process.bundle.clone(),
        gate_socket_dir: opened.socket_dir.clone().into(),
        trust_dir: settings.trust.clone(),
        git_hosts: opened.git_hosts.clone(),
        limits: settings.limits,
        stdin: environ::prompt(claimed, &told, company).into_bytes(),
        log: directory.join("output.ndjson"),
    })
}

fn of_exit(exit: Exit) -> Outcome {
    let (status, reason) = match exit {
        Exit::Code(0) => (
            RunStatus::Succeeded,
            "the command ended with exit code 0".to_owned(),
        ),
        Exit::Code(code) => (
            RunStatus::Failed,
            format!("the command ended with exit code {code}"),
        ),
        Exit::Signal(signal) => (
            RunStatus::Failed,
            format!("the command was ended by signal {signal}"),
        ),
        Exit::Unknown => (
            RunStatus::Lost,
            "how the command ended is not known".to_owned(),
        ),
    };
    Outcome {
        status,
        exit: Some(exit),
        reason,
        retry: false,
    }
}

fn failed(reason: String) -> Outcome {
    Outcome {
        status: RunStatus::Failed,
        exit: None,
        reason,
        retry: false,
    }
}

fn cancelled(exit: Option<Exit>, reason: String) -> Outcome {
    Outcome {
        status: RunStatus::Cancelled,
        exit,
        reason,
        retry: false,
    }
}
