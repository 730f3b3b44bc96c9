//! One open run: what its connections ask it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use policy::grant::{Grant, Limit, PeerUids, RunId, RunView, TokenDigest};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::policies::LoadedPolicy;
use crate::vault::Secret;

/// One open run.
#[allow(missing_debug_implementations, reason = "holds the run's token")]
pub struct Run {
    /// Whose run it is.
    pub grant: Grant,
    /// The epoch that is open.
    pub epoch: u64,
    /// Which host uids may use the socket.
    pub peer_uids: PeerUids,
    /// The token injected towards the board.
    pub board_token: Option<Secret>,
    /// What its own token digests to, if it has one.
    pub token: Option<TokenDigest>,
    /// Connections open now; whoever serves one counts it.
    pub connections: AtomicU64,
    /// The socket's path.
    pub socket: PathBuf,
    /// Who opened it.
    pub opened_by: u32,
    pub(super) policy: watch::Receiver<Arc<LoadedPolicy>>,
    /// Keeps an inline policy's channel open.
    pub(super) _inline: Option<watch::Sender<Arc<LoadedPolicy>>>,
    pub(super) inline_hash: Option<String>,
    /// Seconds; what an extension grants unless it says otherwise.
    pub(super) lease: AtomicU32,
    pub(super) deadline: watch::Sender<Instant>,
    pub(super) closed: watch::Sender<bool>,
    /// What its grant bounds; whoever opened it may say so anew.
    pub(super) allowance: Mutex<Vec<Limit>>,
}

impl Run {
    /// The run's name.
    #[must_use]
    pub fn id(&self) -> &RunId {
        &self.grant.run
    }

    /// The policy in force at this moment. Ask for every request: a reload changes it.
    #[must_use]
    pub fn policy(&self) -> Arc<LoadedPolicy> {
        Arc::clone(&self.policy.borrow())
    }

    /// What its requests are held to at this moment.
    #[must_use]
    pub fn allowance(&self) -> Vec<Limit> {
        let limits = self
            .allowance
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        limits.clone()
    }

    pub(super) fn set_allowance(&self, limits: &[Limit]) {
        let mut current = self
            .allowance
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *current = limits.to_vec();
    }

    /// Tells when the policy changes, for streams that are to be judged again.
    #[must_use]
    pub fn policy_changes(&self) -> watch::Receiver<Arc<LoadedPolicy>> {
        self.policy.clone()
    }

    /// Becomes `true` when the run ends; the sender lives as long as the run.
    #[must_use]
    pub fn closed(&self) -> watch::Receiver<bool> {
        self.closed.subscribe()
    }

    /// Whether the run has ended, its lease included.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        *self.closed.borrow() || *self.deadline.borrow() <= Instant::now()
    }

    pub(super) fn view(&self) -> RunView {
        let left = self
            .deadline
            .borrow()
            .saturating_duration_since(Instant::now());
        RunView {
            grant: Grant {
                allowance: self.allowance(),
                ..self.grant.clone()
            },
            epoch: self.epoch,
            peer_uids: self.peer_uids,
            token: self.token.is_some(),
            lease_seconds_left: left.as_secs(),
            socket: self.socket.display().to_string(),
            policy_hash: self.policy().hash.clone(),
            connections: self.connections.load(Ordering::Relaxed),
        }
    }
}
