//! All credentials of the gate: loaded, replaced while requests run, forgotten while the boundary
//! is not proven.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use policy::credential::CredentialName;

use super::canary::{CanaryView, Verdict};
use super::demand::Rounds;
use super::health::{CredentialHealth, CredentialView, Health};
use super::mint::Cores;
use super::source::Reader;
use super::{Credential, CredentialError, CredentialErrors};
use crate::config::{CanaryConfig, Config, CredentialConfig, SecretSource, StoreConfig};
use crate::store::{Foreign, Stamp};

/// The longest wait before something is tried again.
const RETRY_MOST: Duration = Duration::from_secs(300);

const PENDING: &str = "the new value has yet to pass its canary";

type Stamps = Option<Vec<Option<Stamp>>>;

#[derive(Default)]
struct Entry {
    current: Option<Arc<Credential>>,
    /// Counts what `current` has been.
    round: u64,
    /// A value that its canary has yet to pass.
    pending: Option<Arc<Credential>>,
    loaded_at: Option<String>,
    problem: Option<String>,
    /// The value has not been tried with its canary yet.
    untried: bool,
    health: Arc<Health>,
    stamp: Stamps,
    /// A change that was seen once; it is taken up when it is seen a second time, so that a file
    /// that is still being written is not read.
    changing: Stamps,
    /// Waits before a canary that had no answer is sent again.
    canary_again: Again,
    /// Waits before a source that could not be read is read again though it has not changed.
    read_again: Again,
}

/// When to try again: after a second, then after twice as long each time.
#[derive(Default)]
struct Again {
    tries: u32,
    at: Option<Instant>,
}

impl Again {
    fn failed(&mut self) {
        let wait = Duration::from_secs(1 << self.tries.min(16)).min(RETRY_MOST);
        self.tries += 1;
        self.at = Some(Instant::now() + wait);
    }

    fn is_due(&self) -> bool {
        self.at.is_none_or(|at| Instant::now() >= at)
    }
}

/// All credentials of the gate, by name.
///
/// While the boundary is not proven the vault is [sealed](Vault::seal): it holds nothing.
#[allow(
    missing_debug_implementations,
    reason = "holds secrets, which are never printed"
)]
pub struct Vault {
    configs: Vec<CredentialConfig>,
    store: Option<StoreConfig>,
    foreign: Option<Foreign>,
    cores: Cores,
    demanded: Rounds,
    entries: RwLock<BTreeMap<CredentialName, Entry>>,
}

impl Vault {
    /// Loads every credential of the configuration; one that fails keeps the gate from starting,
    /// and so does a store key that reads one of the `foreign` entries.
    ///
    /// # Errors
    /// [`CredentialErrors`] with all of them.
    pub fn load(config: &Config, foreign: Option<Foreign>) -> Result<Self, CredentialErrors> {
        let vault = Self {
            configs: config.credentials.values().cloned().collect(),
            store: config.store.clone(),
            foreign,
            cores: Cores::default(),
            demanded: Rounds::default(),
            entries: RwLock::new(BTreeMap::new()),
        };
        vault
            .prove_scope()
            .map_err(|problem| CredentialErrors(vec![problem]))?;
        let errors = vault.reload();
        if errors.is_empty() {
            Ok(vault)
        } else {
            Err(CredentialErrors(errors))
        }
    }

    /// Nothing is read yet.
    #[cfg(test)]
    pub(super) fn unloaded(configs: Vec<CredentialConfig>) -> Self {
        Self {
            configs,
            store: None,
            foreign: None,
            cores: Cores::default(),
            demanded: Rounds::default(),
            entries: RwLock::default(),
        }
    }

    /// How often the source could not be read since it could be.
    #[cfg(test)]
    pub(super) fn tries(&self, name: &CredentialName) -> u32 {
        self.read()
            .get(name)
            .map_or(0, |entry| entry.read_again.tries)
    }

    /// Opens the store, and tries the operator's entries with its key.
    fn prove_scope(&self) -> Result<(), CredentialError> {
        let Some(config) = &self.store else {
            return Ok(());
        };
        let store = crate::store::Store::open(&config.directory, &config.key)?;
        if let Some(foreign) = &self.foreign {
            store.prove_foreign(foreign)?;
        }
        Ok(())
    }

    /// The credential, unless it never loaded or the vault is sealed.
    #[must_use]
    pub fn get(&self, name: &CredentialName) -> Option<Arc<Credential>> {
        let entries = self.read();
        entries.get(name).and_then(|entry| entry.current.clone())
    }

    /// Reads every source again. A credential that fails keeps its former value and says so in
    /// [`Vault::view`].
    pub fn reload(&self) -> Vec<CredentialError> {
        self.reload_some(None).1
    }

    /// Reads the sources that have changed and have then stayed as they are for one call, and, now
    /// and then, those that could not be read: to be called often. The names that have a new value, and
    /// what failed that has not failed in the same way before.
    pub fn follow(&self) -> (Vec<CredentialName>, Vec<CredentialError>) {
        let reader = Reader::new(self.store.as_ref());
        let mut changed = BTreeSet::new();
        for config in &self.configs {
            let stamp = reader.stamp(config);
            let mut entries = self.write();
            let Some(entry) = entries.get_mut(&config.name) else {
                continue;
            };
            // What could not be read may be readable again though nothing about the file has changed.
            let lost = entry.read_again.at.is_some() && entry.read_again.is_due();
            if stamp == entry.stamp {
                entry.changing = None;
                if lost {
                    changed.insert(config.name.clone());
                }
            } else if stamp == entry.changing {
                changed.insert(config.name.clone());
            } else {
                entry.changing = stamp;
            }
        }
        if changed.is_empty() {
            return (Vec::new(), Vec::new());
        }
        self.reload_some(Some(&changed))
    }

    fn reload_some(
        &self,
        only: Option<&BTreeSet<CredentialName>>,
    ) -> (Vec<CredentialName>, Vec<CredentialError>) {
        let reader = Reader::new(self.store.as_ref());
        let (mut changed, mut errors) = (Vec::new(), Vec::new());
        // A key that was replaced may reach further than the one that was proven.
        let scope = self
            .configs
            .iter()
            .any(|config| matches!(config.source, SecretSource::Entry(_)))
            .then(|| self.prove_scope().err())
            .flatten();
        let scope = scope.map(|problem| super::source::chain(&problem));
        for config in &self.configs {
            if only.is_some_and(|only| !only.contains(&config.name)) {
                continue;
            }
            let stamp = reader.stamp(config);
            let loaded = match (&config.source, &scope) {
                (SecretSource::Entry(_), Some(problem)) => Err(CredentialError::Store {
                    name: config.name.clone(),
                    problem: problem.clone(),
                }),
                (
                    SecretSource::Entry(_) | SecretSource::File(_) | SecretSource::Descriptor(_),
                    _,
                ) => Credential::load(config, &reader),
            };
            let mut entries = self.write();
            let entry = entries.entry(config.name.clone()).or_default();
            (entry.stamp, entry.changing) = (stamp, None);
            match loaded {
                Ok((mut credential, notes)) => {
                    if let Some(mint) = &mut credential.mint {
                        mint.join(&self.cores);
                    }
                    entry.problem = None;
                    entry.read_again = Again::default();
                    let same = |held: &Option<Arc<Credential>>| {
                        held.as_ref()
                            .is_some_and(|held| held.same_value(&credential))
                    };
                    if same(&entry.pending) {
                        entry.problem = Some(PENDING.to_owned());
                        entry.canary_again = Again::default();
                        continue;
                    }
                    if same(&entry.current) {
                        // One that waited for its canary is not wanted any more.
                        if entry.pending.take().is_some() {
                            entry.untried = false;
                        }
                        continue;
                    }
                    for note in notes {
                        tracing::warn!("{note}");
                    }
                    let canary = config.canary.as_ref();
                    entry.untried = canary.is_some();
                    if canary.is_some_and(|canary| canary.required) {
                        entry.pending = Some(Arc::new(credential));
                        entry.canary_again = Again::default();
                        entry.problem = Some(PENDING.to_owned());
                        continue;
                    }
                    entry.round += 1;
                    entry.current = Some(Arc::new(credential));
                    entry.loaded_at = Some(crate::audit::now());
                    entry.health.recovered();
                    entry.health.tried(None);
                    changed.push(config.name.clone());
                }
                Err(error) => {
                    // A value that waited for its canary is withdrawn with its source: nothing may
                    // come into use that nobody can read any more.
                    if entry.pending.take().is_some() {
                        entry.untried = false;
                    }
                    let problem = Some(super::source::chain(&error));
                    // Whoever asks is told each time, the log once.
                    if only.is_none() || entry.problem != problem {
                        errors.push(error);
                    }
                    entry.problem = problem;
                    entry.read_again.failed();
                }
            }
        }
        (changed, errors)
    }

    /// Each credential with a number that changes when its value in use does.
    #[must_use]
    pub fn rounds(&self) -> BTreeMap<CredentialName, u64> {
        let entries = self.read();
        let round = |(name, entry): (&CredentialName, &Entry)| (name.clone(), entry.round);
        entries.iter().map(round).collect()
    }

    /// Forgets every secret until [`Vault::reload`].
    pub fn seal(&self) {
        let mut entries = self.write();
        for entry in entries.values_mut() {
            entry.round += u64::from(entry.current.is_some());
            (entry.current, entry.pending) = (None, None);
            entry.problem = Some("not held while the boundary is not proven".to_owned());
        }
    }

    /// Credentials whose canary should be sent now: those with a new value, or all of them.
    pub fn to_try(&self, all: bool) -> Vec<(Arc<Credential>, CanaryConfig)> {
        let entries = self.read();
        let wanted = |config: &CredentialConfig| {
            let (canary, entry) = (config.canary.clone()?, entries.get(&config.name)?);
            let credential = entry.pending.as_ref().or(entry.current.as_ref())?;
            (all || entry.untried && entry.canary_again.is_due())
                .then(|| (Arc::clone(credential), canary))
        };
        self.configs.iter().filter_map(wanted).collect()
    }

    /// What the canary of `credential` found. One that waited for it is taken into use or dropped;
    /// where there was no answer to judge, it waits on and is tried again later. What is found of a
    /// value that has been replaced meanwhile says nothing about its successor. Returns whether it was
    /// taken into use.
    pub fn tried(&self, credential: &Arc<Credential>, found: CanaryView) -> bool {
        let mut entries = self.write();
        let Some(entry) = entries.get_mut(credential.name()) else {
            return false;
        };
        let is_it = |held: &Option<Arc<Credential>>| {
            held.as_ref()
                .is_some_and(|held| Arc::ptr_eq(held, credential))
        };
        let waited = is_it(&entry.pending);
        if !waited && (entry.pending.is_some() || !is_it(&entry.current)) {
            return false;
        }
        let passed = found.verdict.works();
        entry.untried = waited && found.verdict == Verdict::Unknown;
        if entry.untried {
            entry.canary_again.failed();
            entry.problem = Some(format!("{PENDING}, which is tried again: {}", found.text));
        } else if waited {
            entry.pending = None;
            if passed {
                entry.round += 1;
                entry.current = Some(Arc::clone(credential));
                entry.loaded_at = Some(crate::audit::now());
                entry.problem = None;
                entry.health.recovered();
            } else {
                entry.problem = Some(format!("the new value failed its canary: {}", found.text));
            }
        }
        entry.health.tried(Some(found));
        waited && passed
    }

    /// Lets go of what is kept for tokens that are not used any more; to be called now and then.
    pub fn tidy(&self) {
        for entry in self.read().values() {
            for credential in [&entry.current, &entry.pending].into_iter().flatten() {
                credential.tidy();
            }
        }
    }

    /// The rounds of canaries that were asked for.
    pub(super) fn demanded(&self) -> &Rounds {
        &self.demanded
    }

    /// Credentials whose new value waits for its canary.
    #[must_use]
    pub fn waiting(&self) -> Vec<CredentialName> {
        let entries = self.read();
        let waiting = entries.iter().filter(|(_, entry)| entry.pending.is_some());
        waiting.map(|(name, _)| name.clone()).collect()
    }

    /// The credential was put on a request.
    pub fn injected(&self, name: &CredentialName) {
        self.health_of(name, Health::injected);
    }

    /// `by` answered 401 to it. Whether that is news.
    pub fn refused(&self, name: &CredentialName, by: &str) -> bool {
        let mut news = false;
        self.health_of(name, |health| news = health.refused(by));
        news
    }

    /// An upstream took it. Whether that is news.
    pub fn accepted(&self, name: &CredentialName) -> bool {
        let mut news = false;
        self.health_of(name, |health| news = health.recovered());
        news
    }

    fn health_of(&self, name: &CredentialName, then: impl FnOnce(&Health)) {
        if let Some(entry) = self.read().get(name) {
            then(&entry.health);
        }
    }

    /// What status says: names, kinds and what ails them.
    #[must_use]
    pub fn view(&self) -> Vec<CredentialView> {
        let entries = self.read();
        let view = |config: &CredentialConfig| {
            let entry = entries.get(&config.name);
            CredentialView {
                name: config.name.clone(),
                kind: config.kind.word(),
                ok: entry.is_some_and(|entry| entry.current.is_some()),
                loaded_at: entry.and_then(|entry| entry.loaded_at.clone()),
                problem: entry.and_then(|entry| entry.problem.clone()),
                sick: entry.and_then(|entry| entry.health.sickness()),
                canary: entry.and_then(|entry| entry.health.canary()),
            }
        };
        self.configs.iter().map(view).collect()
    }

    /// What metrics say.
    #[must_use]
    pub fn health(&self) -> Vec<CredentialHealth> {
        let entries = self.read();
        let snapshot = |config: &CredentialConfig| {
            let entry = entries.get(&config.name)?;
            let (injected, refused) = entry.health.counts();
            Some(CredentialHealth {
                name: config.name.clone(),
                kind: config.kind.word(),
                loaded: entry.current.is_some(),
                stale: entry.current.is_some() && entry.problem.is_some(),
                sick: entry.health.sickness().is_some(),
                canary_works: entry.health.canary().map(|found| found.verdict.works()),
                injected,
                refused,
            })
        };
        self.configs.iter().filter_map(snapshot).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<CredentialName, Entry>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<CredentialName, Entry>> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }
}
