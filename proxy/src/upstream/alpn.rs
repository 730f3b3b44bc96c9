//! What upstreams speak, as their last TLS handshakes said. Only so much is remembered, and for a
//! while only. Whose requests want to know it at once take turns; nobody waits for another asker.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;
use policy::Route;
use policy::authority::Authority;
use tokio::sync::OwnedMutexGuard;

use super::UpstreamError;
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

/// When the last attempt failed, and how.
type Failure = Option<(Instant, Arc<UpstreamError>)>;
/// Where the requests of one asker wait for each other.
type Queue = Arc<tokio::sync::Mutex<Failure>>;

/// The turn of one request, which others of the same asker wait for.
#[derive(Debug)]
pub(super) struct Turn(OwnedMutexGuard<Failure>);

impl Turn {
    /// Tells those who wait now that it has failed, so that they need not find out one by one.
    pub(super) fn failed(mut self, error: UpstreamError) -> UpstreamError {
        let error = Arc::new(error);
        *self.0 = Some((Instant::now(), Arc::clone(&error)));
        UpstreamError::Shared(error)
    }
}

/// The memory.
#[derive(Debug)]
pub(super) struct Known {
    places: Mutex<LruCache<Place, (Speaks, Instant)>>,
    /// Held by whoever finds out.
    turns: Mutex<LruCache<(Arc<str>, Place), Queue>>,
    keep: Duration,
}

impl Known {
    /// Remembers `most` upstreams for `keep` each.
    pub(super) fn new(most: usize, keep: Duration) -> Self {
        let most = NonZeroUsize::new(most).unwrap_or(NonZeroUsize::MIN);
        Self {
            places: Mutex::new(LruCache::new(most)),
            turns: Mutex::new(LruCache::new(most)),
            keep,
        }
    }

    pub(super) fn get(&self, place: &Place) -> Option<Speaks> {
        let mut places = self.places();
        let (speaks, since) = *places.get(place)?;
        (since.elapsed() < self.keep).then_some(speaks)
    }

    pub(super) fn learn(&self, place: &Place, speaks: Speaks) {
        let mut places = self.places();
        // An upstream that refused HTTP/1.1 is not known better by what it chose of both.
        let only =
            matches!(places.peek(place), Some((Speaks::OnlyHttp2, _))) && speaks == Speaks::Http2;
        let speaks = if only { Speaks::OnlyHttp2 } else { speaks };
        places.put(place.clone(), (speaks, Instant::now()));
    }

    /// One request of an asker at a time finds out what is spoken there; its others wait and read.
    ///
    /// # Errors
    /// What another one heard while this one waited.
    pub(super) async fn turn(
        &self,
        owner: &Arc<str>,
        place: &Place,
    ) -> Result<Turn, UpstreamError> {
        let since = Instant::now();
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(turns.get_or_insert((Arc::clone(owner), place.clone()), Arc::default))
        };
        let turn = turn.lock_owned().await;
        match &*turn {
            Some((at, error)) if *at >= since => Err(UpstreamError::Shared(Arc::clone(error))),
            Some(_) | None => Ok(Turn(turn)),
        }
    }

    fn places(&self) -> MutexGuard<'_, LruCache<Place, (Speaks, Instant)>> {
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
