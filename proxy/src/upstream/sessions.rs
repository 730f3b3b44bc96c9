//! TLS sessions with upstreams, kept for the same asker only, as connections are: a session that is
//! resumed tells the upstream that both connections come from one client.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use policy::credential::CredentialName;
use rustls::client::Resumption;
use tokio::time::Instant;

use super::pool::Key;
use super::verify::Trust;

/// Keys of which sessions are kept; the one that was used longest ago goes.
const MOST_KEYS: usize = 1024;
/// rustls makes of this a place for one server, which is all that a key has.
const OF_ONE_SERVER: usize = 1;

/// The sessions that may be resumed.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<HashMap<Key, (Resumption, Instant)>>);

impl Sessions {
    /// What a connection of `key` may resume, and where its own session goes. A connection that is
    /// nobody's yet resumes nothing: it is not known whose it will be.
    pub(super) fn of(&self, key: &Key) -> Resumption {
        if key.is_unused() {
            return Resumption::disabled();
        }
        let now = Instant::now();
        let mut kept = self.kept();
        if let Some((resumption, used)) = kept.get_mut(key) {
            *used = now;
            return resumption.clone();
        }
        if kept.len() >= MOST_KEYS {
            let oldest = kept.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                kept.remove(&oldest);
            }
        }
        let resumption = Resumption::in_memory_sessions(OF_ONE_SERVER);
        kept.insert(key.clone(), (resumption.clone(), now));
        resumption
    }

    /// Forgets those of `owner`.
    pub(super) fn forget(&self, owner: &str) {
        self.kept().retain(|key, _| &**key.owner() != owner);
    }

    /// Forgets those that carried `credential`.
    pub(super) fn forget_credential(&self, credential: &CredentialName) {
        self.kept().retain(|key, _| !key.carries(credential));
    }

    /// Forgets those that were verified so, since that has changed.
    pub(super) fn forget_trust(&self, trust: &Trust) {
        self.kept().retain(|key, _| key.trust() != trust);
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<Key, (Resumption, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
