//! Idle connections, kept for the same asker only. The key holds everything that made a connection
//! trustworthy for a request: who asks, with which credential, where to, and how the far end proved
//! itself. Two runs never share one.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::client::conn::http1::SendRequest;
use policy::Route;
use policy::authority::{Authority, Scheme};
use policy::credential::CredentialName;
use tokio::time::Instant;

use super::verify::Trust;
use crate::exchange::body::RequestBody;

/// What two requests must have in common to use one connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    owner: Arc<str>,
    credential: Option<CredentialName>,
    scheme: Scheme,
    authority: Authority,
    address: Option<SocketAddr>,
    board: bool,
    trust: Trust,
}

impl Key {
    pub(super) fn new(
        owner: &Arc<str>,
        credential: Option<&CredentialName>,
        route: &Route,
        trust: Trust,
    ) -> Self {
        Self {
            owner: Arc::clone(owner),
            credential: credential.cloned(),
            scheme: route.scheme(),
            authority: route.authority().clone(),
            address: route.address(),
            board: route.board(),
            trust,
        }
    }

    /// How the far end must prove itself.
    pub(super) fn trust(&self) -> &Trust {
        &self.trust
    }
}

/// One open connection to an upstream, speaking HTTP/1.1.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) sender: SendRequest<RequestBody>,
    /// Where it leads; absent for the board's unix socket.
    pub(super) address: Option<SocketAddr>,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    since: Instant,
}

/// The idle connections of this gate.
#[derive(Debug)]
pub(super) struct Pool {
    idle: Mutex<HashMap<Key, Vec<Idle>>>,
    most: usize,
    keep: Duration,
}

/// Different keys kept at once.
const MOST_KEYS: usize = 1024;

impl Pool {
    /// Keeps up to `most` connections per key, each for up to `keep`.
    pub(super) fn new(most: usize, keep: Duration) -> Self {
        Self {
            idle: Mutex::default(),
            most,
            keep,
        }
    }

    /// The most recently used live connection for `key`.
    pub(super) fn take(&self, key: &Key) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle.get_mut(key)?;
        while let Some(Idle { connection, since }) = kept.pop() {
            if !connection.sender.is_closed() && since.elapsed() < self.keep {
                return Some(connection);
            }
        }
        idle.remove(key);
        None
    }

    /// Keeps a connection whose last response has been read to its end.
    pub(super) fn put(&self, key: Key, connection: Connection) {
        if connection.sender.is_closed() || self.most == 0 {
            return;
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() >= MOST_KEYS && !idle.contains_key(&key) {
            return;
        }
        let kept = idle.entry(key).or_default();
        if kept.len() < self.most {
            kept.push(Idle {
                connection,
                since: Instant::now(),
            });
        }
    }

    /// Closes what has been idle for too long or was closed by the far end.
    pub(super) fn sweep(&self) {
        self.retain(|_, kept| {
            !kept.connection.sender.is_closed() && kept.since.elapsed() < self.keep
        });
    }

    /// Closes everything that `owner` left behind.
    pub(super) fn forget(&self, owner: &str) {
        self.retain(|key, _| &*key.owner != owner);
    }

    fn retain(&self, mut wanted: impl FnMut(&Key, &Idle) -> bool) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|key, kept| {
            kept.retain(|one| wanted(key, one));
            !kept.is_empty()
        });
    }
}
