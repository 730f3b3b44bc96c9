//! What upstreams speak, as their last TLS handshakes said. Only so much is remembered, and for a
//! while only.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;
use policy::Route;
use policy::authority::Authority;
use tokio::sync::OwnedMutexGuard;

use super::verify::Trust;

/// What an upstream speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    /// HTTP/1.1, and not HTTP/2.
    Http1,
    /// HTTP/2, and maybe HTTP/1.1.
    Http2,
    /// HTTP/2 alone: it has refused HTTP/1.1.
    OnlyHttp2,
}

/// Where something was learnt, and about whom.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    authority: Authority,
    address: Option<SocketAddr>,
    trust: Trust,
}

impl Place {
    pub(super) fn of(route: &Route) -> Self {
        Self {
            authority: route.authority().clone(),
            address: route.address(),
            trust: Trust::of(route.tls()),
        }
    }
}

#[derive(Debug, Default)]
struct Entry {
    known: Option<(Speaks, Instant)>,
    /// Held by whoever finds out.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// The memory.
#[derive(Debug)]
pub(super) struct Known {
    places: Mutex<LruCache<Place, Entry>>,
    keep: Duration,
}

impl Known {
    /// Remembers `most` upstreams for `keep` each.
    pub(super) fn new(most: usize, keep: Duration) -> Self {
        let most = NonZeroUsize::new(most).unwrap_or(NonZeroUsize::MIN);
        Self {
            places: Mutex::new(LruCache::new(most)),
            keep,
        }
    }

    pub(super) fn get(&self, place: &Place) -> Option<Speaks> {
        let mut places = self.places();
        let (speaks, since) = places.get(place)?.known?;
        (since.elapsed() < self.keep).then_some(speaks)
    }

    pub(super) fn learn(&self, place: &Place, speaks: Speaks) {
        let mut places = self.places();
        let entry = places.get_or_insert_mut(place.clone(), Entry::default);
        // An upstream that refused HTTP/1.1 is not known better by what it chose of both.
        let only = matches!(entry.known, Some((Speaks::OnlyHttp2, _))) && speaks == Speaks::Http2;
        let speaks = if only { Speaks::OnlyHttp2 } else { speaks };
        entry.known = Some((speaks, Instant::now()));
    }

    /// One at a time finds out what is spoken there; the others wait and read.
    pub(super) async fn turn(&self, place: &Place) -> OwnedMutexGuard<()> {
        let turn = {
            let mut places = self.places();
            let entry = places.get_or_insert_mut(place.clone(), Entry::default);
            Arc::clone(&entry.turn)
        };
        turn.lock_owned().await
    }

    fn places(&self) -> MutexGuard<'_, LruCache<Place, Entry>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::authority::Scheme;
    use policy::{Policy, Routing};

    fn place(host: &str) -> Place {
        let text = "[[service]]\nkind = \"http\"\nhost = \"*.example.com\"\nallow = [\"GET /\"]\n";
        let policy = Policy::parse(text, "p.toml").unwrap();
        let authority = Authority::parse(&format!("{host}.example.com:443")).unwrap();
        match policy.route(Scheme::Https, &authority) {
            Routing::Route(route) => Place::of(&route),
            Routing::Refuse(refusal) => panic!("{refusal}"),
        }
    }

    #[test]
    fn it_is_bounded_and_forgets_in_time() {
        let known = Known::new(2, Duration::from_secs(600));
        for host in ["a", "b", "c"] {
            known.learn(&place(host), Speaks::Http2);
        }
        assert_eq!(known.get(&place("a")), None, "the oldest made room");
        assert_eq!(known.get(&place("c")), Some(Speaks::Http2));
        known.learn(&place("c"), Speaks::OnlyHttp2);
        known.learn(&place("c"), Speaks::Http2);
        assert_eq!(known.get(&place("c")), Some(Speaks::OnlyHttp2));
        known.learn(&place("c"), Speaks::Http1);
        assert_eq!(known.get(&place("c")), Some(Speaks::Http1));
        let forgetful = Known::new(2, Duration::ZERO);
        forgetful.learn(&place("a"), Speaks::Http2);
        assert_eq!(forgetful.get(&place("a")), None);
    }
}
