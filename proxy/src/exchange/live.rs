//! What a connection is doing by a permit at this moment, so that a changed policy can judge it
//! again while it streams.

use std::sync::{Arc, Mutex, PoisonError};

use http::request::Parts;
use http::{Method, Uri};
use policy::authority::{Authority, Scheme};
use policy::{Decision, Facts, Routing};

use super::Channel;
use crate::classify;
use crate::policies::LoadedPolicy;

/// What is going on on a connection by a permit, so that a changed policy can judge it again while
/// it streams.
#[derive(Debug, Clone, Default)]
pub struct Live(Arc<Mutex<Option<Permitted>>>);

#[derive(Debug, Clone)]
struct Permitted {
    scheme: Scheme,
    authority: Authority,
    method: Method,
    uri: Uri,
    facts: Facts,
}

impl Live {
    /// Whether `policy` would still permit what was last permitted here.
    pub fn still_permitted(&self, policy: &LoadedPolicy) -> bool {
        let last = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let Some(Permitted {
            scheme,
            authority,
            method,
            uri,
            facts,
        }) = last
        else {
            return true;
        };
        let request = policy::Request {
            scheme,
            authority: &authority,
            method: method.as_str(),
            target: classify::target(&uri),
        };
        match policy.policy.route(scheme, &authority) {
            Routing::Refuse(_) => false,
            Routing::Route(route) => match policy.policy.decide(&route, &request, &facts) {
                Decision::Permit(_) => true,
                Decision::Refuse(_) | Decision::Inspect(_) => false,
            },
        }
    }

    pub(super) fn over(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(super) fn permitted(&self, channel: &Channel, parts: &Parts, facts: Facts) {
        let permitted = Permitted {
            scheme: channel.scheme,
            authority: channel.authority.clone(),
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            facts,
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(permitted);
    }
}
