//! The far side: resolve, dial, verify, keep and use connections to upstreams. A [`Route`] opens
//! the way to a connection and a [`Permit`] is consumed by [`Upstream::send`]; neither can be made
//! here. Follow [`Upstream::send`].

mod dial;
mod pool;
mod resolve;
pub(crate) mod verify;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use policy::address::is_forbidden;
use policy::authority::{Host, Scheme};
use policy::{Code, Permit, Refusal, Route};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use self::pool::{Connection, Key, Pool};
use self::resolve::Resolver;
use self::verify::{Trust, Verifiers};
use crate::exchange::body::{Meter, RequestBody};

/// Interim responses (103 and the like) taken before the final one.
const MOST_INTERIM: u32 = 16;

/// How far an upstream may try our patience.
#[derive(Debug, Clone)]
pub struct Settings {
    pub connect_timeout: Duration,
    pub handshake_timeout: Duration,
    /// From the last byte sent to the head of the answer.
    pub response_timeout: Duration,
    /// Connections kept idle for one asker and destination, and for how long.
    pub pool_idle: usize,
    pub pool_idle_timeout: Duration,
    /// The largest response head.
    pub head_bytes: usize,
    pub head_headers: usize,
    /// Where the board listens.
    pub board: Option<PathBuf>,
}

/// Why an upstream could not be used. The text is for the operator; the agent gets
/// [`UpstreamError::refusal`].
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    #[error("this machine has no usable resolver configuration")]
    NoResolver,
    #[error("resolving the name")]
    Resolve(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the name has no address")]
    NoAddress,
    #[error("the name leads to {0}, which is not a public address")]
    NotPublic(IpAddr),
    #[error("{0} is a metadata, unspecified or multicast address, which is never dialled")]
    Forbidden(IpAddr),
    #[error("connecting to {address}")]
    Connect {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("{0} did not accept the connection in time")]
    ConnectTimeout(SocketAddr),
    #[error("connecting to the board's socket")]
    Board(#[source] std::io::Error),
    #[error("the configuration names no board socket")]
    NoBoard,
    #[error("preparing TLS towards the upstream")]
    TlsSettings(#[source] rustls::Error),
    #[error("reading the CA file {file}: {reason}")]
    CaFile { file: String, reason: String },
    #[error("the host cannot be named in TLS")]
    ServerName,
    #[error("the TLS handshake with the upstream")]
    Tls(#[source] std::io::Error),
    #[error("the upstream did not finish the TLS handshake in time")]
    TlsTimeout,
    #[error("speaking HTTP with the upstream")]
    Http(#[source] hyper::Error),
    #[error("the upstream sent an endless series of interim responses")]
    InterimFlood,
    #[error("the upstream answered 101 to a request that asked for no upgrade")]
    UnsolicitedUpgrade,
    #[error("the upstream did not answer in time")]
    Timeout,
    #[error("the permit is for another authority than the route")]
    WrongPermit,
}

impl UpstreamError {
    /// The refusal that the agent reads: fixed texts, nothing of the request and nothing of the
    /// credential.
    pub fn refusal(&self, route: &Route) -> Refusal {
        let authority = route.authority();
        let (code, sentence, remedy) = match self {
            Self::NoResolver | Self::Resolve(_) | Self::NoAddress => (
                Code::UpstreamDns,
                format!("the name of {authority} could not be resolved"),
                "this is not a policy decision: check the name, or try again later",
            ),
            Self::NotPublic(_) => (
                Code::UpstreamPrivate,
                format!("{authority} resolves to an address that is not public"),
                "a private service needs `address = \"IP:PORT\"` in its [[service]]",
            ),
            Self::Forbidden(_) => (
                Code::UpstreamPrivate,
                format!("{authority} leads to a metadata, unspecified or multicast address"),
                "such addresses are never reachable through the gate",
            ),
            Self::Connect { .. } | Self::ConnectTimeout(_) | Self::Board(_) | Self::NoBoard => (
                Code::UpstreamUnreachable,
                format!("{authority} could not be reached"),
                "this is not a policy decision: the upstream is down or unreachable; try again later",
            ),
            Self::TlsSettings(_) | Self::CaFile { .. } | Self::ServerName | Self::Tls(_) => (
                Code::UpstreamTls,
                format!(
                    "{authority} did not prove its identity ({})",
                    self.tls_reason()
                ),
                "nothing was sent; the operator can set ca_file or pin in the [[service]] if the certificate is right",
            ),
            Self::TlsTimeout | Self::Timeout => (
                Code::UpstreamTimeout,
                format!("{authority} did not answer in time"),
                "this is not a policy decision: try again later",
            ),
            Self::Http(_) | Self::InterimFlood | Self::UnsolicitedUpgrade => (
                Code::UpstreamProtocol,
                format!("{authority} broke the connection or the protocol"),
                "this is not a policy decision: try again later",
            ),
            Self::WrongPermit => (
                Code::GateFailed,
                "the gate's own check failed".to_owned(),
                "report this with the audit id",
            ),
        };
        Refusal::new(code, &sentence, remedy)
    }

    /// A word about what was wrong with the certificate.
    fn tls_reason(&self) -> &'static str {
        use rustls::CertificateError as Bad;
        let Self::Tls(error) = self else {
            return "the gate's TLS settings for it are unusable";
        };
        let Some(rustls::Error::InvalidCertificate(bad)) = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>())
        else {
            return "the TLS handshake failed";
        };
        match bad {
            Bad::Expired | Bad::ExpiredContext { .. } => "its certificate has expired",
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => "its certificate is not valid yet",
            Bad::UnknownIssuer => "its certificate is signed by nobody the gate trusts",
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
                "its certificate is for another name"
            }
            Bad::ApplicationVerificationFailure => "its public key is not the pinned one",
            _ => "its certificate is not acceptable",
        }
    }
}

/// A response, with the connection it came on: give that back when the body has been read to its
/// end.
#[derive(Debug)]
pub struct Answer {
    pub response: Response<Incoming>,
    pub lease: Lease,
}

/// A connection in use. Dropped: closed. [`Lease::give_back`]: kept for the same asker.
#[derive(Debug)]
pub struct Lease {
    connection: Connection,
    key: Key,
    pool: Arc<Pool>,
    sent: Arc<Meter>,
}

impl Lease {
    /// Where the connection leads; absent for the board.
    pub fn address(&self) -> Option<SocketAddr> {
        self.connection.address
    }

    /// Keeps the connection for the next request, if this one was sent whole.
    pub fn give_back(self) {
        if self.sent.is_complete() {
            self.pool.put(self.key, self.connection);
        }
    }
}

/// The gate's far side.
#[derive(Debug)]
pub struct Upstream {
    settings: Settings,
    resolver: Resolver,
    verifiers: Verifiers,
    pool: Arc<Pool>,
}

impl Upstream {
    /// Reads the system's resolver configuration and root certificates.
    pub fn new(settings: Settings, provider: Arc<CryptoProvider>) -> Self {
        let pool = Arc::new(Pool::new(settings.pool_idle, settings.pool_idle_timeout));
        Self {
            resolver: Resolver::system(),
            verifiers: Verifiers::new(provider),
            settings,
            pool,
        }
    }

    /// Sends one request, on a kept connection or a new one, and waits for the head of its answer.
    /// The permit is consumed: what it allowed has then happened. A kept connection that turns out
    /// to be closed is replaced once, but only for a request of which nothing was sent, or one
    /// without a body that may be repeated.
    pub async fn send(
        &self,
        route: &Route,
        permit: Permit,
        owner: &Arc<str>,
        request: Request<RequestBody>,
    ) -> Result<Answer, UpstreamError> {
        if permit.authority() != route.authority()
            || permit.scheme() != route.scheme()
            || permit.injects_run_token() != route.board()
        {
            return Err(UpstreamError::WrongPermit);
        }
        let key = Key::new(owner, permit.credential(), route, Trust::of(route.tls()));
        let sent = request.body().meter();
        let mut request = request;
        let mut kept = self.pool.take(&key);
        loop {
            let (mut connection, reused) = match kept.take() {
                Some(connection) => (connection, true),
                None => (self.connect(route, &key).await?, false),
            };
            if reused && connection.sender.ready().await.is_err() {
                continue;
            }
            let again = if reused { repeatable(&request) } else { None };
            match self.exchange(&mut connection, request, &sent).await {
                Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                    return Err(UpstreamError::UnsolicitedUpgrade);
                }
                Ok(response) => {
                    let lease = Lease {
                        connection,
                        key,
                        pool: Arc::clone(&self.pool),
                        sent,
                    };
                    return Ok(Answer { response, lease });
                }
                Err(Failed { unsent, error }) => {
                    let Some(next) = unsent.or(again).filter(|_| reused) else {
                        return Err(error);
                    };
                    request = next;
                }
            }
        }
    }

    /// Closes what has been idle too long; to be called now and then.
    pub fn sweep(&self) {
        self.pool.sweep();
    }

    /// Closes every idle connection of `owner`, whose run has ended.
    pub fn forget_owner(&self, owner: &str) {
        self.pool.forget(owner);
    }

    async fn exchange(
        &self,
        connection: &mut Connection,
        mut request: Request<RequestBody>,
        sent: &Meter,
    ) -> Result<Response<Incoming>, Failed> {
        let interim = Arc::new((AtomicU32::new(0), Notify::new()));
        let counter = Arc::clone(&interim);
        hyper::ext::on_informational(&mut request, move |_| {
            if counter.0.fetch_add(1, Ordering::Relaxed) + 1 > MOST_INTERIM {
                counter.1.notify_one();
            }
        });
        let answer = connection.sender.try_send_request(request);
        tokio::pin!(answer);
        let mut progress = sent.bytes();
        loop {
            tokio::select! {
                biased;
                done = &mut answer => return done.map_err(|mut failed| Failed {
                    unsent: failed.take_message(),
                    error: UpstreamError::Http(failed.into_error()),
                }),
                () = interim.1.notified() => return Err(UpstreamError::InterimFlood.into()),
                () = tokio::time::sleep(self.settings.response_timeout) => {
                    if sent.bytes() == progress {
                        return Err(UpstreamError::Timeout.into());
                    }
                    progress = sent.bytes();
                }
            }
        }
    }

    async fn connect(&self, route: &Route, key: &Key) -> Result<Connection, UpstreamError> {
        if route.board() {
            let path = self
                .settings
                .board
                .as_deref()
                .ok_or(UpstreamError::NoBoard)?;
            let stream = dial::board(path, self.settings.connect_timeout).await?;
            return Ok(Connection {
                sender: self.speak(stream).await?,
                address: None,
            });
        }
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
                    .addresses(authority.host(), authority.port())
                    .await?
            }
        };
        let config = match route.scheme() {
            Scheme::Http => None,
            Scheme::Https => Some(self.verifiers.config(key.trust())?),
        };
        let (stream, address) = dial::tcp(&addresses, self.settings.connect_timeout).await?;
        let Some(config) = config else {
            return Ok(Connection {
                sender: self.speak(stream).await?,
                address: Some(address),
            });
        };
        let name = server_name(route.authority().host())?;
        let handshake = TlsConnector::from(config).connect(name, stream);
        let stream = timeout(self.settings.handshake_timeout, handshake)
            .await
            .map_err(|_| UpstreamError::TlsTimeout)?
            .map_err(UpstreamError::Tls)?;
        Ok(Connection {
            sender: self.speak(stream).await?,
            address: Some(address),
        })
    }

    /// Starts HTTP/1.1 on a stream; the connection is driven by a task of its own that ends with
    /// it.
    async fn speak<IO>(&self, stream: IO) -> Result<http1::SendRequest<RequestBody>, UpstreamError>
    where
        IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, connection) = http1::Builder::new()
            .max_headers(self.settings.head_headers)
            .max_header_size(self.settings.head_bytes)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(UpstreamError::Http)?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "an upstream connection ended");
            }
        });
        Ok(sender)
    }
}

/// A request that did not succeed, and itself if nothing of it was sent.
struct Failed {
    unsent: Option<Request<RequestBody>>,
    error: UpstreamError,
}

impl From<UpstreamError> for Failed {
    fn from(error: UpstreamError) -> Self {
        Self {
            unsent: None,
            error,
        }
    }
}

/// A copy of a request that may be sent twice: no body, and a method without effect.
fn repeatable(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    let harmless = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS
    );
    if !harmless || !request.body().is_end_stream() {
        return None;
    }
    let mut copy = Request::new(RequestBody::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
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
