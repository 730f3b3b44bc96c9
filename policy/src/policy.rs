//! A policy and its judgement.

use crate::authority::{Authority, Scheme};
use crate::credential::CredentialName;
use crate::diagnostics::Diagnostics;
use crate::pattern::HostPattern;
use crate::permit::{Permit, Route, RuleId};
use crate::refusal::{Code, Refusal};
use crate::request::{Facts, Inspection, Request};

/// A policy that was read without a problem. The empty policy permits nothing.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    services: Vec<ServiceView>,
}

/// May this authority be reached at all?
#[derive(Debug, Clone)]
pub enum Routing {
    /// Yes, and how.
    Route(Route),
    /// No; nothing is resolved or dialled.
    Refuse(Refusal),
}

/// May this request be sent?
#[derive(Debug)]
pub enum Decision {
    /// Yes.
    Permit(Permit),
    /// No.
    Refuse(Refusal),
    /// Read this from the request's body and ask again with the facts.
    Inspect(Inspection),
}

/// Where a service leads.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Destination {
    /// The scheme.
    pub scheme: Scheme,
    /// The host or the hosts.
    pub host: HostPattern,
    /// The port.
    pub port: u16,
}

/// One service, for people to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceView {
    /// The service's id.
    pub id: RuleId,
    /// The kind that it was written as.
    pub kind: String,
    /// Where it leads.
    pub destinations: Vec<Destination>,
    /// The credential it injects.
    pub credential: Option<CredentialName>,
    /// What it allows, as `METHOD /path` lines.
    pub allow: Vec<String>,
    /// What it denies.
    pub deny: Vec<String>,
    /// Which pushes it judges, as `POST /path` lines.
    pub push: Vec<String>,
    /// The refs that may be pushed.
    pub refs: Vec<String>,
    /// Why the service is there.
    pub why: Option<String>,
}

impl Policy {
    /// Reads a policy text. All problems are reported in one pass.
    ///
    /// # Errors
    /// [`Diagnostics`], never empty.
    pub fn parse(text: &str, source_name: &str) -> Result<Self, Diagnostics> {
        let _ = (text, source_name);
        Ok(Self::empty())
    }

    /// The policy that permits nothing.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// The services, ordered by id.
    #[must_use]
    pub fn services(&self) -> &[ServiceView] {
        &self.services
    }

    /// Which credential may go where, for the gate to check against its own binding.
    pub fn credentials(&self) -> impl Iterator<Item = (&CredentialName, &Destination)> {
        self.services.iter().flat_map(|service| {
            service.credential.iter().flat_map(|name| {
                service
                    .destinations
                    .iter()
                    .map(move |destination| (name, destination))
            })
        })
    }

    /// The policy as TOML with every kind expanded into plain rules.
    #[must_use]
    pub fn expanded(&self) -> String {
        String::from("version = 1\n")
    }

    /// Whether the authority may be reached at all, and how.
    #[must_use]
    pub fn route(&self, scheme: Scheme, authority: &Authority) -> Routing {
        let _ = scheme;
        Routing::Refuse(Refusal::new(
            Code::DestinationNotListed,
            &format!("{authority} is not listed in this policy"),
            "add a [[service]] with this host to the policy",
        ))
    }

    /// Judges one request on its route.
    ///
    /// An answer of [`Decision::Inspect`] means: read the facts and ask again. A caller that has
    /// already inspected passes [`Facts::Push`] or [`Facts::Unreadable`], never [`Facts::None`].
    #[must_use]
    pub fn decide(&self, route: &Route, request: &Request<'_>, facts: &Facts) -> Decision {
        let _ = (route, facts);
        Decision::Refuse(Refusal::new(
            Code::DestinationNotListed,
            &format!("{} is not listed in this policy", request.authority),
            "add a [[service]] with this host to the policy",
        ))
    }
}
