//! What a connection is doing by a permit at this moment, so that a changed policy can judge it
//! again while it streams.

use std::sync::{Arc, Mutex, PoisonError};

use http::request::Parts;
use http::{Method, Uri};
use policy::credential::CredentialName;
use policy::{Decision, Facts, Permit, Route, Routing};

use crate::classify;
use crate::policies::LoadedPolicy;

/// What is going on on a connection by a permit, so that a changed policy can judge it again while
/// it streams.
#[derive(Debug, Clone, Default)]
pub struct Live(Arc<Mutex<Option<Permitted>>>);

#[derive(Debug, Clone)]
struct Permitted {
    method: Method,
    uri: Uri,
    facts: Facts,
    route: Route,
    credential: Option<CredentialName>,
}

impl Live {
    /// Whether `policy` would still permit what was last permitted here, on the same way and with
    /// the same credential.
    pub fn still_permitted(&self, policy: &LoadedPolicy) -> bool {
        let last = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let Some(last) = last else {
            return true;
        };
        let (scheme, authority) = (last.route.scheme(), last.route.authority());
        let request = policy::Request {
            scheme,
            authority,
            method: last.method.as_str(),
            target: classify::target(&last.uri),
        };
        match policy.policy.route(scheme, authority) {
            Routing::Route(route) if route == last.route => {
                match policy.policy.decide(&route, &request, &last.facts) {
                    Decision::Permit(permit) => permit.credential() == last.credential.as_ref(),
                    Decision::Refuse(_) | Decision::Inspect(_) => false,
                }
            }
            Routing::Route(_) | Routing::Refuse(_) => false,
        }
    }

    /// Whether something is going on by a permit.
    pub fn is_on(&self) -> bool {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some()
    }

    pub(super) fn over(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(super) fn permitted(&self, parts: &Parts, route: &Route, permit: &Permit, facts: Facts) {
        let permitted = Permitted {
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            facts,
            route: route.clone(),
            credential: permit.credential().cloned(),
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(permitted);
    }
}
