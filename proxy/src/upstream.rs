//! The far side: resolve, dial, verify, keep and use connections to upstreams. A [`Route`] opens
//! the way to a connection and a [`Permit`] is consumed by [`Upstream::send`]; neither can be made
//! here. Follow [`Upstream::send`].

mod alpn;
mod connection;
mod dial;
mod error;
mod framing;
mod interim;
mod pool;
mod resolve;
mod send;
mod sessions;
pub(crate) mod verify;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::Response;
use hyper::body::Incoming;
use policy::Route;
use policy::address::is_forbidden;
use policy::authority::{Host, Scheme};
use policy::credential::CredentialName;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

pub use self::alpn::Speaks;
use self::alpn::{Known, Place};
use self::connection::{Connection, Stream};
pub use self::error::UpstreamError;
pub use self::interim::Interim;
use self::pool::{Key, Pool};
use self::resolve::Resolver;
use self::verify::{Offer, Verifiers};
use crate::config::Limits;
use crate::descriptors::{Descriptors, Placed};
use crate::exchange::body::Meter;
use crate::framing::frames::Rates;

/// How long a request waits for a descriptor that an idle connection gives back.
const MAKING_ROOM: Duration = Duration::from_secs(1);

/// How far an upstream may try our patience.
#[derive(Debug, Clone)]
pub struct Settings {
    pub connect_timeout: Duration,
    pub handshake_timeout: Duration,
    /// From the last byte sent to the head of the answer.
    pub response_timeout: Duration,
    /// Connections kept for one asker, credential and destination, and for how long.
    pub pool_idle: usize,
    pub pool_idle_timeout: Duration,
    /// The largest response head.
    pub head_bytes: usize,
    pub head_headers: usize,
    /// How much of HTTP/2 an upstream may send unasked.
    pub stream_window: u32,
    pub connection_window: u32,
    pub rates: Rates,
    /// Answers of the resolver that are kept.
    pub dns_cache: usize,
    /// How many upstreams' protocols are remembered, and for how long.
    pub protocols: usize,
    pub protocols_timeout: Duration,
    /// Where the board listens.
    pub board: Option<PathBuf>,
}

impl Settings {
    /// What the configuration says.
    pub fn of(limits: &Limits, board: Option<PathBuf>) -> Self {
        Self {
            connect_timeout: limits.connect_timeout,
            handshake_timeout: limits.handshake_timeout,
            response_timeout: limits.response_timeout,
            pool_idle: limits.pool_idle,
            pool_idle_timeout: limits.pool_idle_timeout,
            head_bytes: limits.head_bytes,
            head_headers: limits.head_headers,
            stream_window: limits.stream_window_bytes,
            connection_window: limits.connection_window_bytes,
            rates: connection::rates(limits),
            dns_cache: limits.dns_cache,
            protocols: limits.protocols,
            protocols_timeout: limits.protocols_timeout,
            board,
        }
    }
}

/// What a request wants to be carried by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// HTTP/1.1, for what HTTP/2 does not carry.
    OnlyHttp1,
    /// HTTP/1.1, as its client speaks; HTTP/2 where the upstream speaks nothing else.
    Http1,
    /// HTTP/2, as its client speaks; HTTP/1.1 where the upstream speaks nothing else.
    Http2,
}

/// A response, with the connection it came on: give that back when the body has been read to its
/// end.
#[derive(Debug)]
pub struct Answer {
    pub response: Response<Incoming>,
    pub lease: Lease,
}

/// A connection in use. Dropped: closed, or its stream is if others share it.
/// [`Lease::give_back`]: kept for the same asker.
#[derive(Debug)]
pub struct Lease {
    use_of: Use,
    address: Option<SocketAddr>,
}

#[derive(Debug)]
enum Use {
    /// An HTTP/1.1 connection, all of it.
    Whole {
        connection: Box<Connection>,
        key: Box<Key>,
        pool: Arc<Pool>,
        sent: Arc<Meter>,
        /// Whether nobody could see the answer's end elsewhere.
        plain: bool,
    },
    /// A stream of an HTTP/2 connection.
    Stream { _place: Option<Stream> },
}

impl Lease {
    /// Where the connection leads; absent for the board.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Keeps the connection for the next request, if this one was sent whole.
    pub fn give_back(self) {
        if let Use::Whole {
            connection,
            key,
            pool,
            sent,
            plain,
        } = self.use_of
            && plain
            && sent.is_complete()
        {
            pool.put(*key, *connection);
        }
    }
}

/// The gate's far side.
#[derive(Debug)]
pub struct Upstream {
    settings: Settings,
    resolver: Resolver,
    verifiers: Verifiers,
    known: Known,
    pool: Arc<Pool>,
    descriptors: Arc<Descriptors>,
}

impl Upstream {
    /// Reads the system's resolver configuration and root certificates. Each connection takes one of
    /// `descriptors`.
    pub fn new(
        settings: Settings,
        provider: Arc<CryptoProvider>,
        descriptors: Arc<Descriptors>,
    ) -> Self {
        let pool = Arc::new(Pool::new(settings.pool_idle, settings.pool_idle_timeout));
        Self {
            resolver: Resolver::system(settings.dns_cache),
            verifiers: Verifiers::new(provider),
            known: Known::new(settings.protocols, settings.protocols_timeout),
            settings,
            pool,
            descriptors,
        }
    }

    /// Closes what has been idle too long; to be called now and then.
    pub fn sweep(&self) {
        self.pool.sweep();
    }

    /// Closes every idle connection of `owner`, whose run has ended, and resumes no session of its.
    pub fn forget_owner(&self, owner: &str) {
        self.verifiers.sessions().forget(owner);
        self.pool.forget(owner);
    }

    /// Closes every idle connection that carried a former value of `credential`.
    pub fn forget_credential(&self, credential: &CredentialName) {
        self.verifiers.sessions().forget_credential(credential);
        self.pool.forget_credential(credential);
    }

    /// Finds out what the upstream of `route` speaks, by a TLS handshake if that is not known. No
    /// request is sent by that, and the connection is kept for the asker's first request.
    pub async fn learn(&self, route: &Route, owner: &Arc<str>) -> Result<Speaks, UpstreamError> {
        if route.board() || route.scheme() == Scheme::Http {
            return Ok(Speaks::Http1);
        }
        let place = Place::of(route);
        if let Some(speaks) = self.known.get(&place) {
            return Ok(speaks);
        }
        let asking = Box::pin(self.ask(route, &place, owner));
        self.in_time(asking).await
    }

    async fn ask(
        &self,
        route: &Route,
        place: &Place,
        owner: &Arc<str>,
    ) -> Result<Speaks, UpstreamError> {
        let turn = self.known.turn(owner, place).await?;
        if let Some(speaks) = self.known.get(place) {
            return Ok(speaks);
        }
        let key = Key::unused(owner, route);
        let connection = match self.connect(route, &key, Offer::Both).await {
            Ok(connection) => connection,
            Err(error) => return Err(turn.failed(error)),
        };
        let speaks = if connection.is_http2() {
            Speaks::Http2
        } else {
            Speaks::Http1
        };
        self.pool.put(key, connection);
        Ok(speaks)
    }

    /// Waiting for a turn and then for a connection takes no longer than a connection may.
    async fn in_time<T>(
        &self,
        connecting: Pin<Box<impl Future<Output = Result<T, UpstreamError>>>>,
    ) -> Result<T, UpstreamError> {
        let patience = self.settings.connect_timeout + self.settings.handshake_timeout;
        timeout(patience, connecting)
            .await
            .unwrap_or(Err(UpstreamError::Late))
    }

    /// What to offer for a request with this wish, by what is known of the upstream.
    fn offer(&self, route: &Route, wish: Wish) -> Offer {
        if route.board() || route.scheme() == Scheme::Http || wish == Wish::OnlyHttp1 {
            return Offer::Http1;
        }
        match (wish, self.known.get(&Place::of(route))) {
            (Wish::Http2, Some(Speaks::Http1)) => Offer::Http1,
            (Wish::Http2, _) | (_, Some(Speaks::OnlyHttp2)) => Offer::Both,
            (_, _) => Offer::Http1,
        }
    }

    /// Opens a connection; one to an upstream that turns out to speak HTTP/2 alone is opened again.
    async fn open(
        &self,
        route: &Route,
        key: &Key,
        wish: Wish,
    ) -> Result<Connection, UpstreamError> {
        let offer = self.offer(route, wish);
        match self.connect(route, key, offer).await {
            Err(error)
                if offer == Offer::Http1
                    && wish != Wish::OnlyHttp1
                    && error.is_other_protocol() =>
            {
                self.known.learn(&Place::of(route), Speaks::OnlyHttp2);
                self.connect(route, key, Offer::Both).await
            }
            other => other,
        }
    }

    async fn connect(
        &self,
        route: &Route,
        key: &Key,
        offer: Offer,
    ) -> Result<Connection, UpstreamError> {
        let place = match self.descriptors.take() {
            Some(place) => place,
            None => {
                // What only idles makes room.
                self.pool.clear();
                let place = self.descriptors.take_within(MAKING_ROOM).await;
                place.ok_or(UpstreamError::NoDescriptors)?
            }
        };
        if route.board() {
            let path = self
                .settings
                .board
                .as_deref()
                .ok_or(UpstreamError::NoBoard)?;
            let io = dial::board(path, self.settings.connect_timeout).await?;
            let stream = Placed { io, _place: place };
            return Connection::http1(&self.settings, stream, None).await;
        }
        let deadline = Instant::now() + self.settings.connect_timeout;
        let addresses = match route.address() {
            Some(fixed) => {
                if is_forbidden(fixed.ip()) {
                    return Err(UpstreamError::Forbidden(fixed.ip()));
                }
                vec![fixed]
            }
            None => {
                let authority = route.authority();
                self.resolver
                    .addresses(authority.host(), authority.port(), deadline)
                    .await?
            }
        };
        let config = match route.scheme() {
            Scheme::Http => None,
            Scheme::Https => Some(self.verifiers.config(key, offer)?),
        };
        let (io, address) = dial::tcp(&addresses, deadline).await?;
        let stream = Placed { io, _place: place };
        let Some(config) = config else {
            return Connection::http1(&self.settings, stream, Some(address)).await;
        };
        let name = server_name(route.authority().host())?;
        let handshake = TlsConnector::from(config).connect(name, stream);
        let stream = timeout(self.settings.handshake_timeout, handshake)
            .await
            .map_err(|_| UpstreamError::TlsTimeout)?
            .map_err(UpstreamError::Tls)?;
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        if offer == Offer::Both {
            let speaks = if http2 { Speaks::Http2 } else { Speaks::Http1 };
            self.known.learn(&Place::of(route), speaks);
        }
        if http2 {
            Connection::http2(&self.settings, stream, Some(address)).await
        } else {
            Connection::http1(&self.settings, stream, Some(address)).await
        }
    }
}

fn server_name(host: &Host) -> Result<ServerName<'static>, UpstreamError> {
    match host {
        Host::Name(name) => {
            ServerName::try_from(name.as_str().to_owned()).map_err(|_| UpstreamError::ServerName)
        }
        Host::V4(address) => Ok(ServerName::IpAddress(IpAddr::V4(*address).into())),
        Host::V6(address) => Ok(ServerName::IpAddress(IpAddr::V6(*address).into())),
    }
}
