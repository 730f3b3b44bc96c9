//! Services by host, so that judging costs the same however many other hosts a policy lists.

use std::collections::HashMap;

use crate::authority::{Authority, Host, Scheme};
use crate::metadata;
use crate::pattern::HostPattern;
use crate::service::Service;

/// Services by exact host and by suffix.
#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    exact: HashMap<Host, Vec<Listing>>,
    below: HashMap<String, Vec<Listing>>,
}

/// One service at one destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listing {
    pub(crate) scheme: Scheme,
    pub(crate) port: u16,
    /// Position in the policy's list of services.
    pub(crate) service: usize,
    /// Larger is narrower: the number of bytes of the suffix, or `usize::MAX` for an exact host.
    pub(crate) narrowness: usize,
}

impl Index {
    /// Builds the index.
    pub(crate) fn new(services: &[Service]) -> Self {
        let mut index = Self::default();
        for (at, service) in services.iter().enumerate() {
            for destination in &service.destinations {
                let listing = |narrowness| Listing {
                    scheme: destination.scheme,
                    port: destination.port,
                    service: at,
                    narrowness,
                };
                match &destination.host {
                    HostPattern::Exact(host) => {
                        index
                            .exact
                            .entry(host.clone())
                            .or_default()
                            .push(listing(usize::MAX));
                    }
                    HostPattern::Below(suffix) => {
                        let suffix = suffix.as_str();
                        let entry = index.below.entry(suffix.to_owned()).or_default();
                        entry.push(listing(suffix.len()));
                    }
                }
            }
        }
        index
    }

    /// Everything listed for a host, narrowest first, on any port and scheme.
    pub(crate) fn host<'a>(&'a self, host: &'a Host) -> impl Iterator<Item = &'a Listing> {
        let exact = self.exact.get(host).into_iter().flatten();
        // Whatever stands below a suffix, a metadata service is none that a pattern means.
        let below = host
            .as_name()
            .filter(|name| self.below.is_empty() || !metadata::is_name(name))
            .into_iter()
            .flat_map(|name| {
                name.match_indices('.')
                    .map(move |(dot, _)| &name[dot + 1..])
            })
            .filter_map(|suffix| self.below.get(suffix))
            .flatten();
        exact.chain(below)
    }

    /// Everything listed for an authority, narrowest first.
    pub(crate) fn authority<'a>(
        &'a self,
        scheme: Scheme,
        authority: &'a Authority,
    ) -> impl Iterator<Item = &'a Listing> {
        let port = authority.port();
        self.host(authority.host())
            .filter(move |listing| listing.scheme == scheme && listing.port == port)
    }
}
