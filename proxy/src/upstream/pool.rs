//! Open connections, kept for the same asker only. The key holds everything that made a connection
//! trustworthy for a request: who asks, with which credential, where to, and how the far end proved
//! itself. Two runs never share one. A connection of HTTP/2 is lent to several requests of one key at
//! once; what a probe opened has carried none yet, and goes to the first key of its asker that wants it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use policy::Route;
use policy::authority::{Authority, Scheme};
use policy::credential::CredentialName;
use tokio::time::Instant;

use super::connection::{Connection, Sender};
use super::verify::{Offer, Trust};

/// What two requests must have in common to use one connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    owner: Arc<str>,
    holder: Holder,
    /// How many values of that credential have been replaced.
    round: u64,
    scheme: Scheme,
    authority: Authority,
    address: Option<SocketAddr>,
    board: bool,
    trust: Trust,
}

/// Whose requests a connection has carried.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Holder {
    /// None yet.
    Nobody,
    /// Requests with this credential, or without one.
    Requests(Option<CredentialName>),
}

impl Key {
    /// The key of a connection that has carried no request yet.
    pub(super) fn unused(owner: &Arc<str>, route: &Route) -> Self {
        Self {
            owner: Arc::clone(owner),
            holder: Holder::Nobody,
            round: 0,
            scheme: route.scheme(),
            authority: route.authority().clone(),
            address: route.address(),
            board: route.board(),
            trust: Trust::of(route.tls()),
        }
    }

    /// Whose requests it is for.
    pub(super) fn owner(&self) -> &Arc<str> {
        &self.owner
    }

    /// How the far end must prove itself.
    pub(super) fn trust(&self) -> &Trust {
        &self.trust
    }
}

#[derive(Debug)]
struct Kept {
    connection: Connection,
    since: Instant,
    _place: Place,
}

/// A place among all that are kept.
#[derive(Debug)]
struct Place(Arc<AtomicUsize>);

impl Place {
    fn of(taken: &Arc<AtomicUsize>) -> Option<Self> {
        let more = |taken| (taken < MOST_KEPT).then_some(taken + 1);
        taken
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .ok()
            .map(|_| Self(Arc::clone(taken)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Kept {
    /// Whether it is of use: open, and not idle for longer than `keep`.
    fn is_good(&self, keep: Duration) -> bool {
        let idle_since = match &self.connection.sender {
            Sender::Http1(_) => Some(self.since),
            Sender::Http2(_, streams) => streams.idle_since(),
        };
        !self.connection.is_closed() && idle_since.is_none_or(|since| since.elapsed() < keep)
    }
}

/// The open connections of this gate.
#[derive(Debug)]
pub(super) struct Pool {
    kept: Mutex<HashMap<Key, Vec<Kept>>>,
    /// How many values of a credential have been replaced.
    rounds: Mutex<HashMap<CredentialName, u64>>,
    most: usize,
    keep: Duration,
    /// How many are kept, of all keys together.
    taken: Arc<AtomicUsize>,
}

/// Connections kept at once, of all keys together.
const MOST_KEPT: usize = 4096;
/// Different keys kept at once.
const MOST_KEYS: usize = 1024;

impl Pool {
    /// Keeps up to `most` connections per key, each for up to `keep` while it is idle.
    pub(super) fn new(most: usize, keep: Duration) -> Self {
        Self {
            kept: Mutex::default(),
            rounds: Mutex::default(),
            most,
            keep,
            taken: Arc::default(),
        }
    }

    /// The key of a request with this credential.
    pub(super) fn key(
        &self,
        owner: &Arc<str>,
        credential: Option<&CredentialName>,
        route: &Route,
    ) -> Key {
        Key {
            holder: Holder::Requests(credential.cloned()),
            round: self.round(credential),
            ..Key::unused(owner, route)
        }
    }

    /// A connection for a request of `key` that wants what `offer` would get: the most recently used
    /// one, else one that has carried nothing yet.
    pub(super) fn take(&self, key: &Key, offer: Offer) -> Option<Connection> {
        if let Some(connection) = self.take_of(key, offer) {
            return Some(connection);
        }
        let unused = Key {
            holder: Holder::Nobody,
            round: 0,
            ..key.clone()
        };
        let connection = self.take_whole(&unused, offer)?;
        match connection.share() {
            Some(shared) => {
                self.put(key.clone(), connection);
                Some(shared)
            }
            None => Some(connection),
        }
    }

    fn take_of(&self, key: &Key, offer: Offer) -> Option<Connection> {
        if offer == Offer::Http1 {
            return self.take_whole(key, offer);
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let list = kept.get_mut(key)?;
        list.retain(|one| one.is_good(self.keep));
        let shared = list.iter().rev().find_map(|one| one.connection.share());
        if list.is_empty() {
            kept.remove(key);
        }
        shared
    }

    fn take_whole(&self, key: &Key, offer: Offer) -> Option<Connection> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let list = kept.get_mut(key)?;
        let wanted = |one: &Kept| one.connection.is_http2() == (offer == Offer::Both);
        let mut found = None;
        // The rest is looked at when its turn comes, or now and then: there may be many.
        while let Some(at) = list.iter().rposition(wanted) {
            let one = list.remove(at);
            if one.is_good(self.keep) {
                found = Some(one.connection);
                break;
            }
        }
        if list.is_empty() {
            kept.remove(key);
        }
        found
    }

    /// Keeps a connection: one of HTTP/1.1 whose last response has been read to its end, or one of
    /// HTTP/2 for others to share.
    pub(super) fn put(&self, key: Key, connection: Connection) {
        if connection.is_closed() || self.most == 0 || self.is_past(&key) {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MOST_KEYS && !kept.contains_key(&key) {
            return;
        }
        let list = kept.entry(key).or_default();
        if list.len() < self.most
            && let Some(place) = Place::of(&self.taken)
        {
            list.push(Kept {
                connection,
                since: Instant::now(),
                _place: place,
            });
        }
    }

    /// Closes what has been idle for too long or was closed by the far end.
    pub(super) fn sweep(&self) {
        self.retain(|_, kept| kept.is_good(self.keep));
    }

    /// Closes everything that idles.
    pub(super) fn clear(&self) {
        self.retain(|_, kept| match &kept.connection.sender {
            Sender::Http1(_) => false,
            Sender::Http2(_, streams) => streams.idle_since().is_none(),
        });
    }

    /// Closes everything that `owner` left behind.
    pub(super) fn forget(&self, owner: &str) {
        self.retain(|key, _| &*key.owner != owner);
    }

    /// Closes everything that carried a former value of `credential`, and keeps nothing of it that is
    /// in use now: the HTTP library remembers the last head it sent.
    pub(super) fn forget_credential(&self, credential: &CredentialName) {
        let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        let round = rounds.entry(credential.clone()).or_default();
        *round = round.wrapping_add(1);
        drop(rounds);
        self.retain(|key, _| !self.is_past(key));
    }

    fn round(&self, credential: Option<&CredentialName>) -> u64 {
        let rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        let round = credential.and_then(|name| rounds.get(name));
        round.copied().unwrap_or_default()
    }

    fn is_past(&self, key: &Key) -> bool {
        match &key.holder {
            Holder::Nobody => false,
            Holder::Requests(credential) => key.round != self.round(credential.as_ref()),
        }
    }

    fn retain(&self, mut wanted: impl FnMut(&Key, &Kept) -> bool) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|key, list| {
            list.retain(|one| wanted(key, one));
            !list.is_empty()
        });
    }
}
