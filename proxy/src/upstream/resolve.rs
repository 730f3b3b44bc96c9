//! From a name to addresses that may be dialled: one lookup, every answer judged, and nothing
//! dialled unless all of them pass. The system's search domains never apply, so that a listed name
//! cannot become another one.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{LookupIpStrategy, ResolverOpts};
use policy::address::{is_forbidden, is_public};
use policy::authority::Host;
use tokio::time::{Instant, timeout_at};

use super::UpstreamError;

/// The system's resolver, asked directly and never through NSS.
pub(super) struct Resolver {
    inner: Option<TokioResolver>,
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver")
            .field("usable", &self.inner.is_some())
            .finish()
    }
}

impl Resolver {
    /// Reads `/etc/resolv.conf`; at most `kept` answers are remembered. A machine without a usable one gets a resolver that answers every
    /// lookup with an error: services with a fixed address still work.
    pub(super) fn system(kept: usize) -> Self {
        let built = TokioResolver::builder_tokio().and_then(|mut builder| {
            set(builder.options_mut(), kept);
            builder.build()
        });
        match built {
            Ok(inner) => Self { inner: Some(inner) },
            Err(error) => {
                tracing::warn!(%error, "no usable resolver configuration: names cannot be resolved");
                Self { inner: None }
            }
        }
    }

    /// The checked addresses of `host`, IPv4 first; found by `deadline`.
    pub(super) async fn addresses(
        &self,
        host: &Host,
        port: u16,
        deadline: Instant,
    ) -> Result<Vec<SocketAddr>, UpstreamError> {
        let found: Vec<IpAddr> = match host {
            Host::V4(address) => vec![IpAddr::V4(*address)],
            Host::V6(address) => vec![IpAddr::V6(*address)],
            Host::Name(_) => {
                let resolver = self.inner.as_ref().ok_or(UpstreamError::NoResolver)?;
                let absolute = format!("{host}.");
                let answer = timeout_at(deadline, resolver.lookup_ip(absolute))
                    .await
                    .map_err(|_| UpstreamError::ResolveTimeout)?
                    .map_err(|source| UpstreamError::Resolve(Box::new(source)))?;
                answer.iter().collect()
            }
        };
        judged(found, port)
    }
}

/// However long an answer may be kept by its own words.
const KEPT_FOR: Duration = Duration::from_secs(300);
const ABSENCE_KEPT_FOR: Duration = Duration::from_secs(10);

/// How the resolver asks: both families, and not for long. What it hears is kept within bounds.
fn set(options: &mut ResolverOpts, kept: usize) {
    options.cache_size = u64::try_from(kept).unwrap_or(u64::MAX);
    options.positive_max_ttl = Some(KEPT_FOR);
    options.negative_max_ttl = Some(ABSENCE_KEPT_FOR);
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.timeout = Duration::from_secs(3);
    options.attempts = 2;
}

/// All addresses if every one may be dialled; one bad answer spoils the lookup.
fn judged(mut found: Vec<IpAddr>, port: u16) -> Result<Vec<SocketAddr>, UpstreamError> {
    for address in &found {
        if is_forbidden(*address) {
            return Err(UpstreamError::Forbidden(*address));
        }
        if !is_public(*address) {
            return Err(UpstreamError::NotPublic(*address));
        }
    }
    if found.is_empty() {
        return Err(UpstreamError::NoAddress);
    }
    found.sort_by_key(IpAddr::is_ipv6);
    found.truncate(8);
    Ok(found
        .into_iter()
        .map(|address| SocketAddr::new(address, port))
        .collect())
}

#[cfg(test)]
mod tests;
