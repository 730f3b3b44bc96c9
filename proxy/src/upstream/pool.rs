//! Open connections, kept for the same asker only. The key holds everything that made a connection
//! trustworthy for a request: who asks, with which credential, where to, and how the far end proved
//! itself. Two runs never share one. A connection of HTTP/2 is lent to several requests of one key at
//! once; what a probe opened has carried none yet, and goes to the first key of its asker that wants it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

    /// Whether it is the key of a connection that has carried no request yet.
    pub(super) fn is_unused(&self) -> bool {
        self.holder == Holder::Nobody
    }

    /// Whether its requests carry this credential.
    pub(super) fn carries(&self, credential: &CredentialName) -> bool {
        matches!(&self.holder, Holder::Requests(Some(own)) if own == credential)
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

/// A place among those of its owner, and among all that are kept.
#[derive(Debug)]
struct Place([Arc<AtomicUsize>; 2]);

impl Drop for Place {
    fn drop(&mut self) {
        for taken in &self.0 {
            taken.fetch_sub(1, Ordering::AcqRel);
        }
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
    shelf: Mutex<Shelf>,
    /// How many values of a credential have been replaced. Locked after the shelf, where both are.
    rounds: Mutex<HashMap<CredentialName, u64>>,
    most: usize,
    keep: Duration,
}

/// What is kept, and how many.
#[derive(Debug, Default)]
struct Shelf {
    kept: HashMap<Key, Vec<Kept>>,
    owners: HashMap<Arc<str>, Arc<AtomicUsize>>,
    taken: Arc<AtomicUsize>,
    /// Owners of whom nothing is kept any more, and since when.
    ended: HashMap<Arc<str>, Instant>,
}

/// Connections kept at once, of all keys together.
const MOST_KEPT: usize = 4096;
/// Connections kept at once of one owner, whatever they are for.
const MOST_OF_OWNER: usize = 256;
/// Different keys kept at once.
const MOST_KEYS: usize = 1024;
/// So long it is remembered that an owner has ended. Its exchanges are cut at its end.
const ENDED_FOR: Duration = Duration::from_secs(3600);

impl Shelf {
    /// A place for one more of `owner`. Places are taken under the shelf's lock alone, and given
    /// back wherever a connection is dropped.
    fn place(&mut self, owner: &Arc<str>) -> Option<Place> {
        let of_owner = self.owners.get(owner).map(Arc::clone).unwrap_or_default();
        let taken = [&of_owner, &self.taken].map(|taken| taken.load(Ordering::Acquire));
        if taken[0] >= MOST_OF_OWNER || taken[1] >= MOST_KEPT {
            return None;
        }
        self.owners
            .entry(Arc::clone(owner))
            .or_insert_with(|| Arc::clone(&of_owner));
        let places = [of_owner, Arc::clone(&self.taken)];
        for taken in &places {
            taken.fetch_add(1, Ordering::AcqRel);
        }
        Some(Place(places))
    }

    fn retain(&mut self, mut wanted: impl FnMut(&Key, &Kept) -> bool) {
        self.kept.retain(|key, list| {
            list.retain(|one| wanted(key, one));
            !list.is_empty()
        });
        self.owners
            .retain(|_, places| Arc::strong_count(places) > 1);
    }
}

impl Pool {
    /// Keeps up to `most` connections per key, each for up to `keep` while it is idle.
    pub(super) fn new(most: usize, keep: Duration) -> Self {
        Self {
            shelf: Mutex::default(),
            rounds: Mutex::default(),
            most,
            keep,
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
        let kept = &mut self.shelf().kept;
        let list = kept.get_mut(key)?;
        list.retain(|one| one.is_good(self.keep));
        let shared = list.iter().rev().find_map(|one| one.connection.share());
        if list.is_empty() {
            kept.remove(key);
        }
        shared
    }

    fn take_whole(&self, key: &Key, offer: Offer) -> Option<Connection> {
        let kept = &mut self.shelf().kept;
        let list = kept.get_mut(key)?;
        let wanted = |one: &Kept| one.connection.is_http2() == (offer == Offer::Both);
        let mut found = None;
        while let Some(at) = list.iter().rposition(wanted) {
            let one = list.remove(at);
            if one.is_good(self.keep) {
                found = Some(one.connection);
                break;
            }
        }
        // The longest idle are the first, so that what comes behind a good one is looked at when its
        // turn comes, or room is wanted: there may be many.
        let dead = list.iter().position(|one| one.is_good(self.keep));
        list.drain(..dead.unwrap_or(list.len()));
        if list.is_empty() {
            kept.remove(key);
        }
        found
    }

    /// Keeps a connection: one of HTTP/1.1 whose last response has been read to its end, or one of
    /// HTTP/2 for others to share. Nothing of an owner that has ended, or that carried a value which
    /// has been replaced.
    pub(super) fn put(&self, key: Key, connection: Connection) {
        if connection.is_closed() || self.most == 0 {
            return;
        }
        let mut shelf = self.shelf();
        // Under the lock: whoever forgets something removes what is there once it is past.
        if shelf.ended.contains_key(&key.owner) || self.is_past(&key) {
            return;
        }
        if let Some(list) = shelf.kept.get_mut(&key) {
            if list.len() >= self.most {
                list.retain(|one| one.is_good(self.keep));
            }
            if list.len() >= self.most {
                return;
            }
        } else if shelf.kept.len() >= MOST_KEYS {
            return;
        }
        let Some(place) = shelf.place(&key.owner) else {
            return;
        };
        shelf.kept.entry(key).or_default().push(Kept {
            connection,
            since: Instant::now(),
            _place: place,
        });
    }

    /// Closes what has been idle for too long or was closed by the far end.
    pub(super) fn sweep(&self) {
        let mut shelf = self.shelf();
        shelf.retain(|_, kept| kept.is_good(self.keep));
        shelf.ended.retain(|_, since| since.elapsed() < ENDED_FOR);
    }

    /// Closes everything that idles.
    pub(super) fn clear(&self) {
        self.shelf()
            .retain(|_, kept| match &kept.connection.sender {
                Sender::Http1(_) => false,
                Sender::Http2(_, streams) => streams.idle_since().is_none(),
            });
    }

    /// Closes everything that `owner` left behind, and keeps nothing of it that is in use now.
    pub(super) fn forget(&self, owner: &str) {
        let mut shelf = self.shelf();
        shelf.ended.insert(owner.into(), Instant::now());
        shelf.retain(|key, _| &*key.owner != owner);
    }

    /// Closes everything that carried a former value of `credential`, and keeps nothing of it that is
    /// in use now: the HTTP library remembers the last head it sent.
    pub(super) fn forget_credential(&self, credential: &CredentialName) {
        let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        let round = rounds.entry(credential.clone()).or_default();
        *round = round.wrapping_add(1);
        drop(rounds);
        self.shelf().retain(|key, _| !self.is_past(key));
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

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
