//! Runs: who may use which socket, for how long, judged by which policy.
//!
//! A run is a lease. It ends when it is closed, when nobody extends it, or when a higher epoch of
//! the same run is opened; whatever the reason, its live streams are cut and that epoch never opens
//! again. Grants are not kept over a restart of the gate, but the runs' directories are: they are
//! bound into containers, where a directory made anew would never appear.

mod directory;
mod ended;
mod error;
mod lease;
mod run;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use policy::grant::{Grant, Limit, OpenRun, OpenedRun, RunId, RunView, TokenDigest};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use zeroize::Zeroize;

use crate::audit::Audit;
use crate::config::Peer;
use crate::harden::VisibleUids;
use crate::policies::{LoadedPolicy, Policies};
use crate::vault::Secret;

use directory::RunsDirectory;
use ended::Ended;

pub use error::RunError;
pub use run::Run;

/// A listener of a run that has just been opened.
pub type NewListener = (Arc<Run>, UnixListener);

/// What opening runs is held to.
#[derive(Debug, Clone)]
pub struct RunsSettings {
    /// Where the runs' directories are.
    pub directory: PathBuf,
    /// Runs open at once.
    pub most: usize,
    /// The longest lease.
    pub lease: Duration,
    /// The gate's own uid.
    pub own_uid: u32,
    /// The uids that the kernel can name to the gate.
    pub visible: VisibleUids,
    /// Digests of the tokens that the configuration gives to others.
    pub tokens: Vec<TokenDigest>,
}

/// All open runs.
#[allow(
    missing_debug_implementations,
    reason = "GET /v1/runs shows it through views()"
)]
pub struct Runs {
    settings: RunsSettings,
    directory: RunsDirectory,
    policies: Arc<Policies>,
    audit: Arc<Audit>,
    new_listeners: mpsc::Sender<NewListener>,
    /// Held while a run is opened or ended; never across an await.
    table: Mutex<Table>,
}

struct Table {
    open: HashMap<RunId, Arc<Run>>,
    ended: Ended,
}

impl Table {
    fn by_token(&self, digest: &TokenDigest) -> Option<Arc<Run>> {
        let shown =
            |run: &&Arc<Run>| run.token.is_some_and(|token| token.is(digest)) && !run.is_closed();
        // To the end of the table, whichever it is.
        self.open.values().filter(shown).last().cloned()
    }
}

impl Runs {
    /// Makes the directory if need be and reads which epochs have ended.
    ///
    /// # Errors
    /// [`RunError::Socket`] when the directory cannot be used.
    pub fn new(
        settings: RunsSettings,
        policies: Arc<Policies>,
        audit: Arc<Audit>,
        new_listeners: mpsc::Sender<NewListener>,
    ) -> Result<Self, RunError> {
        let failed = |path: &Path, problem: std::io::Error| RunError::Socket {
            path: path.display().to_string(),
            problem: problem.to_string(),
        };
        let directory = RunsDirectory::open(&settings.directory)
            .map_err(|problem| failed(&settings.directory, problem))?;
        let ended = Ended::load(&settings.directory)
            .map_err(|problem| failed(&settings.directory, problem))?;
        let table = Mutex::new(Table {
            open: HashMap::new(),
            ended,
        });
        Ok(Self {
            settings,
            directory,
            policies,
            audit,
            new_listeners,
            table,
        })
    }

    /// Opens a run, or says again that it is open. Needs a tokio runtime with I/O.
    ///
    /// # Errors
    /// [`RunError`]
    pub async fn open(
        self: &Arc<Self>,
        id: &RunId,
        mut request: OpenRun,
        peer: &Peer,
    ) -> Result<OpenedRun, RunError> {
        let permit = self
            .new_listeners
            .reserve()
            .await
            .map_err(|_| RunError::Stopping)?;
        let token = request.board_token.take();
        let opened = self.open_now(id, &request, token, peer);
        if let Some(text) = &mut request.policy {
            text.zeroize();
        }
        let (answer, fresh) = opened?;
        if let Some(fresh) = fresh {
            lease::watch(Arc::clone(self), Arc::clone(&fresh.0));
            permit.send(fresh);
        }
        Ok(answer)
    }

    fn open_now(
        &self,
        id: &RunId,
        request: &OpenRun,
        token: Option<String>,
        peer: &Peer,
    ) -> Result<(OpenedRun, Option<NewListener>), RunError> {
        // Into protected memory first: every way out of here then wipes it.
        let token = token
            .map(Secret::take_text)
            .transpose()
            .map_err(RunError::Token)?;
        self.check(id, request, peer)?;
        let inline = match &request.policy {
            Some(text) => Some(
                self.policies
                    .inline(text, peer.admin)
                    .map_err(RunError::Policy)?,
            ),
            None => None,
        };
        let lease = Duration::from_secs(request.lease_seconds.into());

        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(next) = table.ended.refuses(id, request.epoch) {
            return Err(RunError::Ended {
                run: id.clone(),
                epoch: request.epoch,
                next,
            });
        }
        if let Some(open) = table.open.get(id) {
            if !may_manage(peer, open) {
                return Err(RunError::NotYours { run: id.clone() });
            }
            if request.epoch < open.epoch {
                let (run, next) = (id.clone(), open.epoch);
                return Err(RunError::Ended {
                    run,
                    epoch: request.epoch,
                    next,
                });
            }
            if request.epoch == open.epoch && !open.is_closed() {
                let hash = inline.as_ref().map(|policy| &policy.hash);
                let same = open.grant.is_of(&request.grant)
                    && open.peer_uids == request.peer_uids
                    && open.token == request.token_sha256
                    && open.inline_hash.as_ref() == hash
                    && same_token(open.board_token.as_ref(), token.as_ref());
                if !same {
                    return Err(RunError::Conflict {
                        run: id.clone(),
                        epoch: request.epoch,
                    });
                }
                open.set_allowance(&request.grant.allowance);
                open.lease.store(request.lease_seconds, Ordering::Relaxed);
                open.deadline.send_replace(Instant::now() + lease);
                return Ok((answer(open, request.lease_seconds), None));
            }
        }
        // Before a former epoch ends: one that cannot open takes nothing over.
        let former = table.open.get(id).cloned();
        if let Some(token) = &request.token_sha256
            && table.by_token(token).is_some_and(|run| run.id() != id)
        {
            return Err(RunError::TokenTaken);
        }
        if former.is_none() && table.open.len() >= self.settings.most {
            return Err(RunError::Full {
                most: self.settings.most,
            });
        }
        if let Some(former) = former {
            self.end(&mut table, &former, "superseded by a later epoch");
            if let Some(next) = table.ended.refuses(id, request.epoch) {
                return Err(RunError::Ended {
                    run: id.clone(),
                    epoch: request.epoch,
                    next,
                });
            }
        }
        let fresh = self.make(id, request, token, inline, lease, peer)?;
        table.open.insert(id.clone(), Arc::clone(&fresh.0));
        drop(table);
        self.record(&fresh.0, "run opened");
        Ok((answer(&fresh.0, request.lease_seconds), Some(fresh)))
    }

    fn check(&self, id: &RunId, request: &OpenRun, peer: &Peer) -> Result<(), RunError> {
        if *id != request.grant.run {
            let grant = request.grant.run.clone();
            return Err(RunError::Mismatch {
                path: id.clone(),
                grant,
            });
        }
        match &request.policy {
            Some(_) if !peer.inline => {
                return Err(RunError::Inline {
                    user: peer.user.clone(),
                });
            }
            Some(_) => {}
            None if !peer.profiles.contains(&request.grant.profile) => {
                let profile = request.grant.profile.clone();
                return Err(RunError::Profile {
                    user: peer.user.clone(),
                    profile,
                });
            }
            None => {}
        }
        let most = self.settings.lease.as_secs();
        if request.lease_seconds == 0 || u64::from(request.lease_seconds) > most {
            return Err(RunError::Lease { most });
        }
        if request.peer_uids.contains(self.settings.own_uid) {
            return Err(RunError::OwnUid);
        }
        if let Some(token) = &request.token_sha256
            && self.settings.tokens.iter().any(|known| known.is(token))
        {
            return Err(RunError::TokenTaken);
        }
        let uids = request.peer_uids;
        if uids.is_nobody() && request.token_sha256.is_none() {
            return Err(RunError::NobodysRun);
        }
        if !uids.is_nobody() && !self.settings.visible.cover(uids.first(), uids.count()) {
            return Err(RunError::Unmapped);
        }
        Ok(())
    }

    fn make(
        &self,
        id: &RunId,
        request: &OpenRun,
        board_token: Option<Secret>,
        inline: Option<LoadedPolicy>,
        lease: Duration,
        peer: &Peer,
    ) -> Result<NewListener, RunError> {
        let (inline_hash, policy, sender) = match inline {
            Some(policy) => {
                let hash = policy.hash.clone();
                let (sender, receiver) = watch::channel(Arc::new(policy));
                (Some(hash), receiver, Some(sender))
            }
            None => {
                let profile = &request.grant.profile;
                let policy = self
                    .policies
                    .watch(profile)
                    .ok_or_else(|| RunError::Profile {
                        user: peer.user.clone(),
                        profile: profile.clone(),
                    })?;
                (None, policy, None)
            }
        };
        let socket = self.directory.socket(id);
        let failed = |problem: std::io::Error| RunError::Socket {
            path: socket.display().to_string(),
            problem: problem.to_string(),
        };
        let listener = self.directory.bind(id).map_err(failed)?;
        let listener = UnixListener::from_std(listener).map_err(failed)?;
        let run = Run {
            grant: request.grant.clone(),
            epoch: request.epoch,
            peer_uids: request.peer_uids,
            board_token,
            token: request.token_sha256,
            connections: AtomicU64::new(0),
            socket,
            opened_by: peer.uid,
            policy,
            _inline: sender,
            inline_hash,
            lease: AtomicU32::new(request.lease_seconds),
            deadline: watch::Sender::new(Instant::now() + lease),
            closed: watch::Sender::new(false),
            allowance: Mutex::new(request.grant.allowance.clone()),
        };
        Ok((Arc::new(run), listener))
    }

    /// Prolongs an open run by the lease it was opened with, or by `seconds`.
    ///
    /// # Errors
    /// [`RunError`]
    pub fn extend(
        &self,
        id: &RunId,
        epoch: u64,
        seconds: Option<u32>,
        peer: &Peer,
    ) -> Result<RunView, RunError> {
        let most = self.settings.lease.as_secs();
        if seconds.is_some_and(|seconds| seconds == 0 || u64::from(seconds) > most) {
            return Err(RunError::Lease { most });
        }
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let run = table
            .open
            .get(id)
            .ok_or_else(|| RunError::NotOpen { run: id.clone() })?;
        if !may_manage(peer, run) {
            return Err(RunError::NotYours { run: id.clone() });
        }
        if run.epoch != epoch || run.is_closed() {
            let next = run.epoch.saturating_add(u64::from(run.is_closed()));
            return Err(RunError::Ended {
                run: id.clone(),
                epoch,
                next,
            });
        }
        let seconds = seconds.unwrap_or_else(|| run.lease.load(Ordering::Relaxed));
        run.deadline
            .send_replace(Instant::now() + Duration::from_secs(seconds.into()));
        Ok(run.view())
    }

    /// Ends a run and every epoch up to this one. Saying it again is no error; that the run was
    /// open is the answer.
    ///
    /// # Errors
    /// [`RunError::NotYours`], or [`RunError::Conflict`] when a later epoch is open.
    pub fn close(&self, id: &RunId, epoch: u64, peer: &Peer) -> Result<bool, RunError> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let was_open = match table.open.get(id).cloned() {
            Some(run) if !may_manage(peer, &run) => {
                return Err(RunError::NotYours { run: id.clone() });
            }
            Some(run) if run.epoch > epoch => {
                return Err(RunError::Conflict {
                    run: id.clone(),
                    epoch: run.epoch,
                });
            }
            Some(run) => {
                self.end(&mut table, &run, "run closed");
                true
            }
            None => false,
        };
        // Also an epoch that this process never saw: it may have been open before a restart.
        table.ended.add(id, epoch);
        // Still under the lock: a later epoch that opens meanwhile must keep its socket.
        self.directory.remove(id);
        drop(table);
        Ok(was_open)
    }

    /// The open run of this name.
    #[must_use]
    pub fn get(&self, id: &RunId) -> Option<Arc<Run>> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.open.get(id).filter(|run| !run.is_closed()).cloned()
    }

    /// The open run whose token digests to this. Every one is looked at, whichever it is.
    #[must_use]
    pub fn by_token(&self, digest: &TokenDigest) -> Option<Arc<Run>> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.by_token(digest)
    }

    /// An open run of whose uids this is one.
    #[must_use]
    pub fn by_uid(&self, uid: u32) -> Option<Arc<Run>> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let of_it = |run: &&Arc<Run>| run.peer_uids.contains(uid) && !run.is_closed();
        table.open.values().find(of_it).cloned()
    }

    /// All open runs, ordered by name.
    #[must_use]
    pub fn views(&self) -> Vec<RunView> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let mut views: Vec<RunView> = table.open.values().map(|run| run.view()).collect();
        views.sort_by(|a, b| a.grant.run.cmp(&b.grant.run));
        views
    }

    /// Whose the open runs are, and what they are held to.
    #[must_use]
    pub fn granted(&self) -> Vec<(Grant, Vec<Limit>)> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let runs = table.open.values();
        runs.map(|run| (run.grant.clone(), run.allowance()))
            .collect()
    }

    fn expire(&self, run: &Arc<Run>) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if *run.deadline.borrow() <= Instant::now() {
            self.end(&mut table, run, "run ended: its lease was not extended");
        }
    }

    /// Cuts the streams, forgets the grant and lets the epoch never open again. The directory
    /// stays: a container may still have it bound and a later epoch may need it.
    fn end(&self, table: &mut Table, run: &Arc<Run>, why: &str) {
        if run.closed.send_replace(true) {
            return;
        }
        table.ended.add(run.id(), run.epoch);
        let current = table
            .open
            .get(run.id())
            .is_some_and(|open| Arc::ptr_eq(open, run));
        if current {
            table.open.remove(run.id());
            self.directory.unbind(run.id());
        }
        self.record(run, why);
    }

    fn record(&self, run: &Run, what: &str) {
        use policy::record::{Record, RecordKind};
        let mut record = Record::new(RecordKind::Event, &crate::audit::new_id(), "").of(&run.grant);
        record.policy_hash = Some(run.policy().hash.clone());
        record.reason = Some(format!("{what} (epoch {})", run.epoch));
        if let Err(problem) = self.audit.append(record) {
            tracing::error!("{problem}; not recorded: {what}, run {}", run.id());
        }
    }
}

fn may_manage(peer: &Peer, run: &Run) -> bool {
    peer.admin || peer.uid == run.opened_by
}

fn same_token(one: Option<&Secret>, other: Option<&Secret>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.expose() == other.expose(),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

fn answer(run: &Run, lease_seconds: u32) -> OpenedRun {
    let directory = run.socket.parent().unwrap_or(&run.socket);
    OpenedRun {
        socket_dir: directory.display().to_string(),
        socket: run.socket.display().to_string(),
        epoch: run.epoch,
        lease_seconds,
        git_hosts: run.policy().policy.git_hosts(),
    }
}

#[cfg(test)]
mod tests;
