//! The run loop: decides, starts runs, keeps their leases, ends them, recovers what a crash left.
//!
//! A run goes through four stations, each committed before the next: claimed (run row, lease,
//! checkout), opened at the gate, started in its container, ended. The end has an order of its own:
//! the database first (the token is dead from that commit on), then the gate (live streams are
//! cut), then the container is killed and *proven* gone, and only then are ticket, agent and id slice free.
//!
//! Start-up starts nothing of its own: wakes that waited are work somebody asked for and go on
//! waiting their turn; runs found live are ended as `lost` and their tickets parked.

mod carry;
mod environ;
mod recovery;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use policy::grant::RunId;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::container::{Engine, Limits, Slice};
use crate::gate_client::{GateClient, chain};
use crate::model::{Actor, Refusal};
use crate::scheduler::{self, Decision, Readiness};
use crate::store::{Store, StoreError, runs, snapshot, wakes};

/// What the supervisor needs to know of the host.
#[derive(Debug, Clone)]
pub struct Settings {
    /// First host id of the first slice.
    pub first_id: u32,
    /// Ids per slice.
    pub slice_ids: u32,
    /// Which slices runs may have.
    pub slices: Arc<[i64]>,
    /// One directory per run, with its output.
    pub runs: PathBuf,
    /// CA files for run containers.
    pub trust: PathBuf,
    /// Limits of one run.
    pub limits: Limits,
    /// How often leases are extended.
    pub extend: Duration,
}

impl Settings {
    /// The host ids of a slice.
    #[must_use]
    pub fn slice(&self, index: i64) -> Slice {
        let index = u32::try_from(index).unwrap_or(0);
        Slice {
            first: self.first_id + index * self.slice_ids,
            count: self.slice_ids,
        }
    }
}

/// Where runs have their workspaces.
pub trait Homes: Send + Sync + 'static {
    /// Makes an empty workspace that the slice's agent owns.
    ///
    /// # Errors
    /// A sentence for people.
    fn create(&self, run: &RunId, slice: Slice) -> Result<PathBuf, String>;

    /// Removes it. Only called once the run is proven gone.
    ///
    /// # Errors
    /// A sentence for people.
    fn remove(&self, run: &RunId, slice: Slice) -> Result<(), String>;
}

impl Homes for crate::workspace::Workspaces {
    fn create(&self, run: &RunId, slice: Slice) -> Result<PathBuf, String> {
        Self::create(self, run, slice).map_err(|error| chain(&error))
    }

    fn remove(&self, run: &RunId, slice: Slice) -> Result<(), String> {
        Self::remove(self, run, slice).map_err(|error| chain(&error))
    }
}

/// Starts and watches runs.
#[derive(Debug)]
pub struct Supervisor<E, H> {
    shared: Arc<Shared<E, H>>,
}

#[derive(Debug)]
struct Shared<E, H> {
    store: Store,
    engine: Arc<E>,
    homes: Arc<H>,
    gate: GateClient,
    settings: Settings,
    cancels: Mutex<HashMap<String, watch::Sender<Option<String>>>>,
}

impl<E: Engine, H: Homes> Supervisor<E, H> {
    /// A supervisor; nothing happens before [`Supervisor::run`].
    pub fn new(store: Store, engine: E, homes: H, gate: GateClient, settings: Settings) -> Self {
        let shared = Shared {
            store,
            engine: Arc::new(engine),
            homes: Arc::new(homes),
            gate,
            settings,
            cancels: Mutex::new(HashMap::new()),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Recovers what was left, then works until `stop` turns true, then ends every live run.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let shared = &self.shared;
        let mut tasks = JoinSet::new();
        tokio::select! {
            () = recovery::start(shared, &mut tasks) => {}
            _stopped = stop.wait_for(|stop| *stop) => {}
        }
        while !*stop.borrow() {
            let pause = match self.step(&mut tasks).await {
                Ok(pause) => pause,
                Err(error) => {
                    tracing::error!(error = chain(&error), "no run is started");
                    Duration::from_secs(2)
                }
            };
            tokio::select! {
                () = shared.store.kicked() => {}
                () = tokio::time::sleep(pause) => {}
                Some(_ended) = tasks.join_next() => {}
                _changed = stop.changed() => {}
            }
        }
        shared.cancel_all("the orchestrator was stopped");
        let all_gone = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(Duration::from_secs(25), all_gone)
            .await
            .is_err()
        {
            tracing::warn!("runs are not proven gone yet; the next start goes on with them");
        }
    }

    /// One look at the board. Returns how long nothing can change by itself.
    async fn step(&self, tasks: &mut JoinSet<()>) -> Result<Duration, StoreError> {
        let shared = &self.shared;
        shared.pass_on_cancels().await?;
        let slices = Arc::clone(&shared.settings.slices);
        let now = shared.store.now();
        let mut state = shared
            .store
            .read(move |db| snapshot::state(db, &slices, Readiness::default(), now))
            .await?;
        if state.wakes.is_empty() {
            return Ok(Duration::from_secs(3600));
        }
        state.readiness = shared.gate.readiness().await;
        let mut pause = Duration::from_secs(if state.readiness.ready() { 3600 } else { 1 });
        for decision in scheduler::decide(&state, now) {
            match decision {
                Decision::Start { wake } => self.start(wake, tasks).await?,
                Decision::Wait {
                    until: Some(until), ..
                } => {
                    let wait = u64::try_from(until.saturating_sub(now))
                        .unwrap_or(0)
                        .max(10);
                    pause = pause.min(Duration::from_millis(wait));
                }
                Decision::Wait { until: None, .. } => {}
                Decision::Drop { wake, gate } => {
                    let change = move |w: &mut crate::store::Writer<'_>| {
                        if let Some(wake) = wakes::get(w, &wake)? {
                            wakes::drop_wake(w, &wake, &gate.fact)?;
                        }
                        Ok(())
                    };
                    shared.store.write(Actor::System, change).await?;
                }
            }
        }
        Ok(pause)
    }

    async fn start(&self, wake: String, tasks: &mut JoinSet<()>) -> Result<(), StoreError> {
        let slices = Arc::clone(&self.shared.settings.slices);
        let claim = move |w: &mut crate::store::Writer<'_>| runs::claim(w, &wake, &slices);
        let claimed = match self.shared.store.write(Actor::System, claim).await {
            Ok(claimed) => claimed,
            Err(StoreError::Refused(Refusal { error, .. })) => {
                tracing::debug!(error, "a wake is not due any more");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        tracing::info!(
            run = claimed.run.id,
            agent = claimed.agent.name,
            "run claimed"
        );
        let cancel = self.shared.register(&claimed.run.id);
        tasks.spawn(carry::out(Arc::clone(&self.shared), claimed, cancel));
        Ok(())
    }
}

impl<E, H> Shared<E, H> {
    fn register(&self, run: &str) -> watch::Receiver<Option<String>> {
        let (sender, receiver) = watch::channel(None);
        self.lock().insert(run.to_owned(), sender);
        receiver
    }

    fn forget(&self, run: &str) {
        self.lock().remove(run);
    }

    fn cancel(&self, run: &str, why: &str) {
        if let Some(sender) = self.lock().get(run) {
            sender.send_if_modified(|reason| {
                let first = reason.is_none();
                if first {
                    *reason = Some(why.to_owned());
                }
                first
            });
        }
    }

    fn cancel_all(&self, why: &str) {
        let all: Vec<String> = self.lock().keys().cloned().collect();
        for run in all {
            self.cancel(&run, why);
        }
    }

    /// Tells the tasks of runs that a person wants stopped.
    async fn pass_on_cancels(&self) -> Result<(), StoreError> {
        let holding = self.store.read(runs::holding).await?;
        for run in holding.iter().filter(|run| run.cancel) {
            self.cancel(&run.id, "a person stopped it");
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, watch::Sender<Option<String>>>> {
        self.cancels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
