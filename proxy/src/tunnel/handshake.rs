//! TLS with the client: one name, and HTTP/2 only where the upstream has been found to speak it.

use std::io;

use policy::Routing;
use policy::authority::{Authority, Host, Scheme};
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use crate::entrance::client::Client;
use crate::entrance::pulse::Pulse;
use crate::gate::Gate;
use crate::upstream::Speaks;

/// Why TLS with the client did not come about.
pub(super) enum Failure {
    /// The server name differs from the CONNECT target.
    OtherName,
    /// No leaf could be minted.
    Leaf(crate::ca::CaError),
    /// The bytes were not TLS that the gate speaks, or the client refused the leaf.
    Tls(io::Error),
    /// It took too long.
    Late,
}

/// What a hello offers to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Offers {
    http1: bool,
    http2: bool,
}

/// A client's TLS stream, and whether HTTP/2 was agreed on. It is boxed, since whoever hands it on would
/// else keep its room in each place that it passed.
pub(super) async fn accept<IO>(
    gate: &Gate,
    client: &Client,
    authority: &Authority,
    io: IO,
    pulse: &Pulse,
) -> Result<(Box<TlsStream<IO>>, bool), Failure>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let limit = gate.config.limits.handshake_timeout;
    let start = timeout(limit, LazyConfigAcceptor::new(Acceptor::default(), io))
        .await
        .map_err(|_| Failure::Late)?
        .map_err(Failure::Tls)?;
    let hello = start.client_hello();
    // A hello without a name (some clients, and all that connect to an address) gets the leaf of
    // the CONNECT target.
    if let Some(name) = hello.server_name() {
        let same = Host::parse(name).is_ok_and(|host| host == *authority.host());
        if !same || name.ends_with('.') {
            return Err(Failure::OtherName);
        }
    }
    let offers = Offers::of(hello.alpn());
    let http2 = speaks_http2(gate, client, authority, offers, pulse).await;
    let config = gate.leaf(authority.host(), http2).map_err(Failure::Leaf)?;
    let stream = timeout(limit, start.into_stream(config))
        .await
        .map_err(|_| Failure::Late)?
        .map_err(Failure::Tls)?;
    let agreed = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    Ok((Box::new(stream), agreed))
}

impl Offers {
    fn of<'a>(alpn: Option<impl Iterator<Item = &'a [u8]>>) -> Self {
        let mut offers = Self {
            http1: alpn.is_none(),
            http2: false,
        };
        for protocol in alpn.into_iter().flatten() {
            offers.http1 |= protocol == b"http/1.1";
            offers.http2 |= protocol == b"h2";
        }
        offers
    }
}

/// Whether to speak HTTP/2 with the client. One that speaks both gets it where its upstream does and
/// no service there wants HTTP/1.1; one that speaks nothing else gets it always, so that it can
/// read why it is refused.
async fn speaks_http2(
    gate: &Gate,
    client: &Client,
    authority: &Authority,
    offers: Offers,
    pulse: &Pulse,
) -> bool {
    if !offers.http2 || !gate.config.limits.http2 {
        return false;
    }
    if !offers.http1 {
        return true;
    }
    let Ok(policy) = client.policy(gate) else {
        return false;
    };
    let Routing::Route(route) = policy.policy.route(Scheme::Https, authority) else {
        return false;
    };
    if policy.policy.opens_websocket(&route) || gate.boundary.check().is_err() {
        return false;
    }
    let waiting = pulse.wait();
    let learnt = gate.upstream.learn(&route, client.owner()).await;
    drop(waiting);
    match learnt {
        Ok(speaks) => speaks != Speaks::Http1,
        Err(error) => {
            // The request that follows finds out again, and says it to the client.
            tracing::info!(authority = %authority, %error, "what an upstream speaks was not found out");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_are_read_and_none_means_http_1() {
        let of = |names: &[&'static [u8]]| Offers::of(Some(names.iter().copied()));
        let pair = |offers: Offers| (offers.http1, offers.http2);
        assert_eq!(pair(of(&[b"h2", b"http/1.1"])), (true, true));
        assert_eq!(pair(of(&[b"h2"])), (false, true));
        assert_eq!(pair(of(&[b"h3", b"acme-tls/1"])), (false, false));
        let none: Option<std::iter::Empty<&[u8]>> = None;
        assert_eq!(pair(Offers::of(none)), (true, false));
    }
}
