//! What a connection is doing by a permit at this moment, so that a changed policy can judge it
//! again while it streams. On an HTTP/2 connection that may be many things at once, and each is cut
//! alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::request::Parts;
use http::{Method, Uri};
use policy::credential::CredentialName;
use policy::{Caps, Decision, Facts, Permit, Route, Routing};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::body::{Cut, Meter};
use crate::classify;
use crate::inspect::spool::Taken;
use crate::policies::LoadedPolicy;

/// What was cut ends at once unless its client does not read: the HTTP library does not look at a body
/// then. The whole connection ends after this long.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is going on on a connection by permits.
#[derive(Debug, Clone, Default)]
pub struct Live(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    going: Mutex<Going>,
    /// Something was cut.
    cut: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Going {
    next: u64,
    on: HashMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    permitted: Permitted,
    meter: Arc<Meter>,
    /// What had gone by when it was last looked at.
    seen: u64,
    since: Instant,
    caps: Caps,
    /// Cuts it when its time is over.
    clock: Option<Clock>,
}

/// Ends with what it is for.
#[derive(Debug)]
struct Clock(AbortHandle);

impl Clock {
    fn until(end: Instant, meter: &Arc<Meter>) -> Self {
        let meter = Arc::clone(meter);
        let waiting = tokio::spawn(async move {
            tokio::time::sleep_until(end).await;
            meter.cut(Cut::Time);
        });
        Self(waiting.abort_handle())
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Entry {
    fn bound(&mut self, caps: Caps) {
        if self.caps == caps {
            return;
        }
        self.caps = caps;
        self.meter.bound(caps);
        self.clock = caps.seconds.map(|seconds| {
            let end = self.since + Duration::from_secs(seconds);
            Clock::until(end, &self.meter)
        });
    }
}

/// What a request was judged by beside its head.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judged<'a> {
    pub(super) facts: &'a Facts,
    /// What somebody approved, where it had to wait for that.
    pub(super) approved: Option<&'a str>,
}

#[derive(Debug)]
struct Permitted {
    method: Method,
    uri: Uri,
    facts: Facts,
    route: Route,
    credential: Option<CredentialName>,
    /// What somebody approved, where it had to wait for that.
    approved: Option<String>,
    websocket: bool,
    trailers: bool,
}

/// One thing that is going on, until this is dropped.
#[derive(Debug)]
pub struct GoingOn {
    live: Live,
    id: u64,
    /// Room that what is known of it takes.
    _taken: Taken,
}

impl GoingOn {
    /// Keeps the room that its facts take, for as long as it goes on.
    pub(super) fn keeping(mut self, taken: Taken) -> Self {
        self._taken = taken;
        self
    }
}

impl Drop for GoingOn {
    fn drop(&mut self) {
        self.live.going().on.remove(&self.id);
    }
}

impl Live {
    /// Cuts what `policy` does not permit any more in the same way and with the same credential, and
    /// bounds the rest as it says.
    pub fn cut_forbidden(&self, policy: &LoadedPolicy) {
        for entry in self.going().on.values_mut() {
            match entry.permitted.still(policy) {
                Some(caps) => entry.bound(caps),
                None => entry.meter.cut(Cut::Forbidden),
            }
        }
    }

    /// Cuts what has not moved since this was last called, unless it waits for the upstream's head,
    /// which has a deadline of its own.
    pub fn cut_stalled(&self) {
        for entry in self.going().on.values_mut() {
            let moved = entry.meter.sent().wrapping_add(entry.meter.received());
            if moved == entry.seen && !entry.meter.is_waiting() {
                entry.meter.cut(Cut::Forbidden);
            }
            entry.seen = moved.wrapping_add(u64::from(entry.meter.is_waiting()));
        }
    }

    /// Counts what will begin on this connection.
    pub(super) fn meter(&self) -> Arc<Meter> {
        Arc::new(Meter::new(Arc::clone(&self.0.cut)))
    }

    /// Ends when something that was cut goes on nevertheless, because its client reads nothing. Only
    /// the end of the connection ends that.
    pub async fn stuck(&self) {
        loop {
            self.0.cut.notified().await;
            let cut: Vec<u64> = {
                let going = self.going();
                let cut = going.on.iter().filter(|(_, entry)| entry.meter.is_cut());
                cut.map(|(id, _)| *id).collect()
            };
            tokio::time::sleep(PATIENCE).await;
            let going = self.going();
            if cut.iter().any(|id| going.on.contains_key(id)) {
                return;
            }
        }
    }

    /// Whether something is going on by a permit.
    pub fn is_on(&self) -> bool {
        !self.going().on.is_empty()
    }

    /// Notes what begins now. `meter` is what stops it.
    pub(super) fn permitted(
        &self,
        parts: &Parts,
        route: &Route,
        permit: &Permit,
        judged: Judged<'_>,
        websocket: bool,
        meter: &Arc<Meter>,
    ) -> GoingOn {
        let permitted = Permitted {
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            facts: judged.facts.clone(),
            route: route.clone(),
            credential: permit.credential().cloned(),
            approved: judged.approved.map(str::to_owned),
            websocket,
            trailers: permit.opens_trailers(),
        };
        let mut going = self.going();
        let id = going.next;
        going.next += 1;
        let mut entry = Entry {
            permitted,
            meter: Arc::clone(meter),
            // Differs from what a meter shows first, so that a new one is not taken for stalled.
            seen: u64::MAX,
            since: Instant::now(),
            caps: Caps::default(),
            clock: None,
        };
        entry.bound(permit.caps());
        going.on.insert(id, entry);
        GoingOn {
            live: self.clone(),
            id,
            _taken: Taken::default(),
        }
    }

    fn going(&self) -> MutexGuard<'_, Going> {
        self.0.going.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permitted {
    /// What bounds it under `policy`; nothing if that does not permit it.
    fn still(&self, policy: &LoadedPolicy) -> Option<Caps> {
        let (scheme, authority) = (self.route.scheme(), self.route.authority());
        let request = policy::Request {
            scheme,
            authority,
            method: self.method.as_str(),
            target: classify::target(&self.uri),
        };
        match policy.policy.route(scheme, authority) {
            Routing::Route(route) if route == self.route => {
                let permit = match policy.policy.decide(&route, &request, &self.facts) {
                    Decision::Permit(permit) => permit,
                    // What was approved goes on; what nobody was asked about would have to wait now.
                    Decision::Hold(held) => held.approved(self.approved.as_deref()?).ok()?,
                    Decision::Refuse(_) | Decision::Inspect(_) => return None,
                };
                let same = permit.credential() == self.credential.as_ref()
                    && (permit.opens_websocket() || !self.websocket)
                    && (permit.opens_trailers() || !self.trailers);
                same.then(|| permit.caps())
            }
            Routing::Route(_) | Routing::Refuse(_) => None,
        }
    }
}
