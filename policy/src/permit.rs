//! The two proofs that only this room makes.
//!
//! A [`Route`] says "this grant may reach this authority" and is needed to resolve, dial and pool.
//! A [`Permit`] says "this very request may be sent": it is borrowed to inject and consumed by
//! sending. Neither can be made elsewhere, and a permit cannot be copied:
//!
//! ```compile_fail,E0451
//! fn forge(scheme: policy::authority::Scheme, authority: policy::authority::Authority) -> policy::Route {
//!     policy::Route { scheme, authority, reach: Default::default() }
//! }
//! ```
//! ```compile_fail,E0451
//! fn forge(real: policy::Permit) -> policy::Permit {
//!     policy::Permit { credential: None, ..real }
//! }
//! ```
//! ```compile_fail,E0599
//! fn twice(permit: policy::Permit) -> (policy::Permit, policy::Permit) {
//!     (permit.clone(), permit)
//! }
//! ```
//! ```compile_fail,E0382
//! fn send(_: policy::Permit) {}
//! fn twice(permit: policy::Permit) {
//!     send(permit);
//!     send(permit);
//! }
//! ```
//!
//! The controls, which differ in nothing but the offence:
//!
//! ```
//! fn send(_: policy::Permit) {}
//! fn once(permit: policy::Permit) {
//!     let _rule = permit.rule().clone();
//!     send(permit);
//! }
//! fn keep(route: policy::Route) -> (policy::Route, policy::Route) {
//!     (route.clone(), route)
//! }
//! ```

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::ask::Asked;
use crate::authority::{Authority, Scheme};
use crate::caps::Caps;
use crate::credential::CredentialName;
use crate::provider::Provider;
use crate::rate::Rate;
use crate::record::RecordFacts;
use crate::service::Features;

/// The id of a service in a policy: `[A-Za-z0-9][A-Za-z0-9._*-]{0,127}`. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(Arc<str>);

/// A text that is no rule id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "an id is 1 to 128 letters, digits, `.`, `_`, `*` and `-`, and starts with a letter or digit"
)]
pub struct RuleIdError;

/// How the upstream proves itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UpstreamTls {
    /// A file with the CA certificates to trust instead of the system's.
    pub ca_file: Option<String>,
    /// The public key that the upstream's own certificate must carry.
    pub pin: Option<SpkiPin>,
}

/// SHA-256 of a certificate's SubjectPublicKeyInfo, as `sha256/BASE64` in text.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpkiPin(pub [u8; 32]);

/// Proof that an authority is listed, with how to reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub(crate) scheme: Scheme,
    pub(crate) authority: Authority,
    pub(crate) reach: Arc<Reach>,
}

/// How to reach an authority.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Reach {
    pub(crate) tls: UpstreamTls,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) board: bool,
}

/// Proof that one request may be sent. Not cloneable: sending consumes it.
#[derive(Debug)]
#[must_use = "a permit that is dropped permits nothing"]
pub struct Permit {
    pub(crate) rule: RuleId,
    pub(crate) credential: Option<CredentialName>,
    pub(crate) run_token: bool,
    pub(crate) scheme: Scheme,
    pub(crate) authority: Authority,
    pub(crate) facts: Option<Box<RecordFacts>>,
    pub(crate) features: Features,
    pub(crate) caps: Caps,
    pub(crate) usage: Option<Provider>,
    pub(crate) rates: Vec<(RuleId, Rate)>,
    pub(crate) asked: Option<Box<Asked>>,
    pub(crate) gives_task: bool,
}

impl RuleId {
    /// Parses an id.
    ///
    /// # Errors
    /// [`RuleIdError`].
    pub fn parse(text: &str) -> Result<Self, RuleIdError> {
        let rest =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'*');
        let good = (1..=128).contains(&text.len())
            && text
                .bytes()
                .next()
                .is_some_and(|byte| byte.is_ascii_alphanumeric())
            && text.bytes().all(rest);
        if good {
            Ok(Self(text.into()))
        } else {
            Err(RuleIdError)
        }
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for RuleId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for RuleId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

impl Route {
    /// The scheme the route was asked for.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The one authority that dialling, SNI and certificate check use.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// How the upstream proves itself; meaningless for plain HTTP.
    #[must_use]
    pub fn tls(&self) -> &UpstreamTls {
        &self.reach.tls
    }

    /// The fixed address to dial instead of resolving the name: the only way to a private address.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.reach.address
    }

    /// Whether to dial the board's unix socket instead of any network.
    #[must_use]
    pub fn board(&self) -> bool {
        self.reach.board
    }
}

impl Permit {
    /// The rule that permits.
    #[must_use]
    pub fn rule(&self) -> &RuleId {
        &self.rule
    }

    /// The credential that the gate injects, by name.
    #[must_use]
    pub fn credential(&self) -> Option<&CredentialName> {
        self.credential.as_ref()
    }

    /// Whether the gate injects the run's own token (the board).
    #[must_use]
    pub fn injects_run_token(&self) -> bool {
        self.run_token
    }

    /// Whether the permit injects anything, so that the record must be durable first.
    #[must_use]
    pub fn is_credentialed(&self) -> bool {
        self.run_token || self.credential.is_some()
    }

    /// The scheme of the request that was judged.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The authority of the request that was judged.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Whether trailers may cross with this request and its answer.
    #[must_use]
    pub fn opens_trailers(&self) -> bool {
        self.features.trailers
    }

    /// Whether this request may ask for a WebSocket.
    #[must_use]
    pub fn opens_websocket(&self) -> bool {
        self.features.websocket
    }

    /// What bounds the request and its answer.
    #[must_use]
    pub fn caps(&self) -> Caps {
        self.caps
    }

    /// Whose model answers, if what the answer took is to be read from it.
    #[must_use]
    pub fn usage(&self) -> Option<Provider> {
        self.usage
    }

    /// What is asked of a model, where a rule judged that.
    #[must_use]
    pub fn asked(&self) -> Option<&Asked> {
        self.asked.as_deref()
    }

    /// How often one asker may do this, by each rule that says so.
    #[must_use]
    pub fn rates(&self) -> &[(RuleId, Rate)] {
        &self.rates
    }

    /// Whether the answer names a task that is its asker's from then on.
    #[must_use]
    pub fn gives_task(&self) -> bool {
        self.gives_task
    }

    /// What inspection found, for the audit record.
    #[must_use]
    pub fn facts_summary(&self) -> Option<&RecordFacts> {
        self.facts.as_deref()
    }
}

impl fmt::Debug for SpkiPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256/")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
