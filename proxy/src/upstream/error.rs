//! Why an upstream could not be used, and how an agent hears of it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use policy::{Code, Refusal, Route};
use rustls::AlertDescription;

use super::verify::{Distrust, Flaw};
use crate::descriptors::are_used_up;

/// Why an upstream could not be used. The text is for the operator; the agent gets
/// [`UpstreamError::refusal`].
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    #[error("this machine has no usable resolver configuration")]
    NoResolver,
    #[error("resolving the name")]
    Resolve(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the name could not be resolved in time")]
    ResolveTimeout,
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
    #[error("the upstream's answer is in a transfer coding that nobody asked for")]
    TransferCoding,
    #[error("the upstream answered 101 to a request that asked for no upgrade")]
    UnsolicitedUpgrade,
    #[error("the upstream did not answer in time")]
    Timeout,
    #[error("the client stopped in the middle of its request")]
    ClientStalled,
    #[error("no connection came about in time")]
    Late,
    #[error("the gate has no descriptors left for another connection")]
    NoDescriptors,
    #[error("another request of the same asker failed while this one waited for it")]
    Shared(#[source] Arc<UpstreamError>),
    #[error("the permit is for another authority than the route")]
    WrongPermit,
}

impl UpstreamError {
    /// The refusal that the agent reads: fixed texts, nothing of the request and nothing of the
    /// credential.
    pub fn refusal(&self, route: &Route) -> Refusal {
        if let Self::Shared(error) = self {
            return error.refusal(route);
        }
        let authority = route.authority();
        let (code, sentence, remedy) = match self {
            Self::NoResolver | Self::Resolve(_) | Self::ResolveTimeout | Self::NoAddress => (
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
            error if error.is_for_want_of_descriptors() => (
                Code::LimitReached,
                "the gate has no descriptors left for another connection".to_owned(),
                "wait a little, and ask again",
            ),
            Self::Connect { .. } | Self::ConnectTimeout(_) | Self::Board(_) | Self::NoBoard => (
                Code::UpstreamUnreachable,
                format!("{authority} could not be reached"),
                "this is not a policy decision: the upstream is down or unreachable; try again later",
            ),
            Self::TlsSettings(_) | Self::CaFile { .. } | Self::ServerName | Self::Tls(_) => {
                return self.tls_refusal(authority);
            }
            Self::TlsTimeout | Self::Timeout | Self::Late => (
                Code::UpstreamTimeout,
                format!("{authority} did not answer in time"),
                "this is not a policy decision: try again later",
            ),
            Self::TransferCoding => (
                Code::UpstreamProtocol,
                format!("{authority} answered in a transfer coding that the gate did not ask for"),
                "this is not a policy decision: the server must send `Transfer-Encoding: chunked` alone, or none",
            ),
            Self::Http(_) | Self::InterimFlood | Self::UnsolicitedUpgrade => (
                Code::UpstreamProtocol,
                format!("{authority} broke the connection or the protocol"),
                "this is not a policy decision: try again later",
            ),
            Self::ClientStalled => (
                Code::ClientTimeout,
                "the rest of the request's body did not arrive in time".to_owned(),
                "send the request's body without a pause",
            ),
            // The former two were looked at before.
            Self::Shared(_) | Self::NoDescriptors | Self::WrongPermit => (
                Code::GateFailed,
                "the gate's own check failed".to_owned(),
                "report this with the audit id",
            ),
        };
        Refusal::new(code, &sentence, remedy)
    }

    /// Nothing was sent: the upstream did not prove who it is.
    fn tls_refusal(&self, authority: &policy::authority::Authority) -> Refusal {
        const RIGHT: &str = "nothing was sent; the operator can set ca_file or pin in the [[service]] if the certificate is right";
        let refuse = |code, reason: &str, remedy: &str| {
            let sentence = format!("{authority} did not prove its identity ({reason})");
            Refusal::new(code, &sentence, remedy)
        };
        let Self::Tls(error) = self else {
            let reason = "the gate's TLS settings for it are unusable";
            return refuse(Code::UpstreamTls, reason, RIGHT);
        };
        let Some(Distrust { flaw, pin }) = Distrust::of(error) else {
            let reason = "the TLS handshake failed";
            return refuse(Code::UpstreamTls, reason, RIGHT);
        };
        let pinned = format!(
            "pin = \"{pin}\" in its [[service]], once that has been compared with the server's own key"
        );
        match flaw {
            Flaw::Expired => refuse(
                Code::UpstreamTlsExpired,
                "its certificate has expired",
                "nothing was sent; whoever runs the server must renew its certificate",
            ),
            Flaw::NotYetValid => refuse(
                Code::UpstreamTlsExpired,
                "its certificate is not valid yet",
                "nothing was sent; check the clocks of this machine and of the server",
            ),
            Flaw::OtherName => refuse(
                Code::UpstreamTlsWrongName,
                "its certificate is for another name",
                "nothing was sent; call the server by a name that its certificate carries",
            ),
            Flaw::UnknownCa => refuse(
                Code::UpstreamTlsUnknownCa,
                "its certificate is signed by nobody the gate trusts",
                &format!(
                    "nothing was sent; the operator can set ca_file to the CA that signed it, or {pinned}"
                ),
            ),
            Flaw::SelfSigned => refuse(
                Code::UpstreamTlsSelfSigned,
                "its certificate is signed by itself",
                &format!("nothing was sent; the operator can set {pinned}"),
            ),
            Flaw::OtherKey => refuse(
                Code::UpstreamTlsPinMismatch,
                "its public key is not the pinned one",
                &format!(
                    "nothing was sent; if the server has a new key, the operator sets {pinned}"
                ),
            ),
            Flaw::Other => refuse(
                Code::UpstreamTls,
                "its certificate is not acceptable",
                RIGHT,
            ),
        }
    }

    fn is_for_want_of_descriptors(&self) -> bool {
        if let Self::Connect { source, .. } | Self::Board(source) = self {
            return are_used_up(source);
        }
        matches!(self, Self::NoDescriptors)
    }

    /// Whether the upstream speaks none of the protocols that it was offered.
    pub(super) fn is_other_protocol(&self) -> bool {
        let Self::Tls(error) = self else {
            return false;
        };
        let inner = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>());
        matches!(
            inner,
            Some(rustls::Error::AlertReceived(
                AlertDescription::NoApplicationProtocol
            ))
        )
    }

    /// Whether the upstream says of an HTTP/2 request that it has done nothing with it.
    pub(super) fn is_refused_stream(&self) -> bool {
        self.http2()
            .is_some_and(|error| error.reason() == Some(h2::Reason::REFUSED_STREAM))
    }

    /// Whether an HTTP/2 connection was given up by the upstream before it took the request.
    pub(super) fn is_going_away(&self) -> bool {
        self.http2()
            .is_some_and(|error| error.is_remote() && error.is_go_away())
    }

    fn http2(&self) -> Option<&h2::Error> {
        let Self::Http(error) = self else {
            return None;
        };
        std::error::Error::source(error)?.downcast_ref()
    }
}
