//! A service as the judgement sees it: kinds are gone, plain rules are left.

use std::net::SocketAddr;
use std::sync::Arc;

use serde::Serialize;

use crate::authority::Scheme;
use crate::caps::Caps;
use crate::condition::Conditional;
use crate::credential::CredentialName;
use crate::hold::Holding;
use crate::path::{Slashes, Target};
use crate::pattern::{Case, Entry, HostPattern, Method, RefGlob};
use crate::permit::{Reach, RuleId};
use crate::provider::Provider;
use crate::rate::Rate;
use crate::record::RefOp;

/// Where a service leads.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Destination {
    /// The scheme.
    pub scheme: Scheme,
    /// The host or the hosts.
    pub host: HostPattern,
    /// The port.
    pub port: u16,
}

/// One service, for people to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServiceView {
    /// The service's id.
    pub id: RuleId,
    /// The kind that it was written as.
    pub kind: String,
    /// Where it leads.
    pub destinations: Vec<Destination>,
    /// The file with the CA certificates that its upstreams must be signed by.
    pub ca_file: Option<String>,
    /// The address that is dialled instead of resolving the host.
    pub address: Option<SocketAddr>,
    /// Whether its upstream must carry a certain public key, whoever vouches for it.
    pub pinned: bool,
    /// The credential it injects.
    pub credential: Option<CredentialName>,
    /// What it allows, as `METHOD /path` lines.
    pub allow: Vec<String>,
    /// What it denies.
    pub deny: Vec<String>,
    /// What waits for a person.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hold: Vec<String>,
    /// Who may decide, where that is not whoever administers the gate.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hold_by: Vec<String>,
    /// How many seconds a decision is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_seconds: Option<u64>,
    /// What it allows under conditions, as `METHOD /path when CONDITION and CONDITION`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub when: Vec<String>,
    /// Which pushes it judges, as `POST /path` lines.
    pub push: Vec<String>,
    /// The refs that may be pushed.
    pub refs: Vec<String>,
    /// The refs that may be created and not moved.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub create_refs: Vec<String>,
    /// The refs that may be moved and not created.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub update_refs: Vec<String>,
    /// The refs that may be deleted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub delete_refs: Vec<String>,
    /// What is said of moving refs other than forward, where it is denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force: Option<&'static str>,
    /// Whether trailers cross, in both directions.
    pub trailers: bool,
    /// The protocols that a connection may be upgraded to.
    pub upgrade: Vec<String>,
    /// What an encoded slash in a path is, where one is opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoded_slash: Option<&'static str>,
    /// The most bytes of a body that is read to judge it, where that is not the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_inspected_bytes: Option<u64>,
    /// The most bytes of a request's body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_request_bytes: Option<u64>,
    /// The most bytes of an answer's body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_response_bytes: Option<u64>,
    /// The most seconds that a request with its answer may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_seconds: Option<u64>,
    /// How often one asker may use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// Whose models answer, where what they took is read from their answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Provider>,
    /// Why the service is there.
    pub why: Option<String>,
}

/// The kinds of service that a policy can write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    Http,
    Github,
    Proxmox,
    Npm,
    Pypi,
    Crates,
    Debian,
    Llm,
    Board,
}

/// What `encoded_slash` can say to open one.
pub(crate) const SEGMENT: &str = "segment";

/// `max_inspected_bytes` where a service does not say: 1 MiB.
pub(crate) const INSPECTED_BYTES: u64 = 1 << 20;
/// The most that it can say: 64 MiB. What is read is held in memory.
pub(crate) const MOST_INSPECTED_BYTES: u64 = 64 << 20;

/// What `force` can say to have history proven.
pub(crate) const DENY: &str = "deny";
/// `max_inspected_bytes` where history is proven: 32 MiB.
pub(crate) const HISTORY_BYTES: u64 = 32 << 20;

/// The protocol that `upgrade` can name.
pub(crate) const WEBSOCKET: &str = "websocket";

/// One service, compiled.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) id: RuleId,
    pub(crate) kind: Kind,
    pub(crate) why: Option<String>,
    pub(crate) destinations: Vec<Destination>,
    pub(crate) reach: Arc<Reach>,
    pub(crate) credential: Option<CredentialName>,
    /// How `allow` and `push` compare letters; `deny` always ignores case.
    pub(crate) case: Case,
    /// What an encoded slash in a path is to `allow`.
    pub(crate) slashes: Slashes,
    pub(crate) allow: Vec<Entry>,
    pub(crate) deny: Vec<Entry>,
    /// What waits for a person.
    pub(crate) hold: Option<Holding>,
    /// What is allowed under conditions. Where such an entry covers a request, `allow` does not.
    pub(crate) when: Vec<Conditional>,
    /// The most bytes of a body that is read to judge it.
    pub(crate) inspected: u64,
    /// Requests whose body is a push to be judged by `refs`.
    pub(crate) push: Vec<Entry>,
    pub(crate) refs: Refs,
    /// Features of the protocol that are shut unless a service opens them.
    pub(crate) features: Features,
    /// What bounds a request that it allows.
    pub(crate) caps: Caps,
    /// How often one asker may use it.
    pub(crate) rate: Option<Rate>,
    /// Whose models answer, where what they took is to be read.
    pub(crate) usage: Option<Provider>,
}

/// What a push may do to which refs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Refs {
    /// `refs`: created and moved.
    pub(crate) both: Vec<RefGlob>,
    /// `create_refs`: created only.
    pub(crate) create: Vec<RefGlob>,
    /// `update_refs`: moved only.
    pub(crate) update: Vec<RefGlob>,
    /// `delete_refs`: deleted.
    pub(crate) delete: Vec<RefGlob>,
    /// `force = "deny"`: what is moved is moved forward, and that is proven.
    pub(crate) forward: bool,
}

impl Refs {
    /// Each list by its key in a policy.
    pub(crate) fn lists(&self) -> [(&'static str, &[RefGlob]); 4] {
        [
            ("refs", &self.both),
            ("create_refs", &self.create),
            ("update_refs", &self.update),
            ("delete_refs", &self.delete),
        ]
    }

    /// Everything that covers refs to which `op` may be done.
    pub(crate) fn of(&self, op: RefOp) -> impl Iterator<Item = &RefGlob> {
        let (both, own) = match op {
            RefOp::Create => (&self.both[..], &self.create),
            RefOp::Update => (&self.both[..], &self.update),
            RefOp::Delete => (&[][..], &self.delete),
        };
        both.iter().chain(own)
    }
}

/// Features of the protocol that a service opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Features {
    /// Trailers cross, in both directions, and `te: trailers` with them.
    pub(crate) trailers: bool,
    /// A request may ask for a WebSocket.
    pub(crate) websocket: bool,
}

impl Kind {
    pub(crate) const ALL: [Self; 9] = [
        Self::Http,
        Self::Github,
        Self::Proxmox,
        Self::Npm,
        Self::Pypi,
        Self::Crates,
        Self::Debian,
        Self::Llm,
        Self::Board,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Github => "github",
            Self::Proxmox => "proxmox",
            Self::Npm => "npm",
            Self::Pypi => "pypi",
            Self::Crates => "crates",
            Self::Debian => "debian",
            Self::Llm => "llm",
            Self::Board => "board",
        }
    }
}

impl Service {
    /// Whether the service opens anything; one that only denies does not.
    pub(crate) fn opens(&self) -> bool {
        !self.allow.is_empty() || !self.push.is_empty() || !self.when.is_empty()
    }

    /// Whether `allow` reads the target at all: an encoded slash only where the service opens it.
    pub(crate) fn reads(&self, target: &Target<'_>) -> bool {
        self.slashes == Slashes::Segment || !target.has_encoded_slash()
    }

    /// The entries of `allow`, and those that are allowed under conditions.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        let conditional = self.when.iter().flat_map(|when| &when.entries);
        self.allow.iter().chain(conditional)
    }

    /// The entries that cover the target, whatever the method and the conditions.
    pub(crate) fn covering(&self, target: &Target<'_>) -> impl Iterator<Item = &Entry> {
        let reads = self.reads(target);
        self.entries()
            .filter(move |entry| reads && entry.covers_target(target, self.case))
    }

    /// Whether an entry of `allow` covers the request.
    pub(crate) fn allows(&self, method: Method, target: &Target<'_>) -> bool {
        let reads = self.reads(target);
        let covers =
            |entry: &Entry| entry.covers_method(method) && entry.covers_target(target, self.case);
        reads && self.allow.iter().any(covers)
    }

    /// Whether `refs` judges the request as a push. Git sends no encoded slash, so one with it is
    /// none that `push` covers.
    pub(crate) fn judges(&self, method: Method, target: &Target<'_>) -> bool {
        let covers =
            |entry: &Entry| entry.covers_method(method) && entry.covers_target(target, self.case);
        !target.has_encoded_slash() && self.push.iter().any(covers)
    }

    /// Whether a condition stands over the target: by an entry that covers the request, or by one
    /// for GraphQL, which is judged whatever the method.
    pub(crate) fn claims(&self, method: Method, target: &Target<'_>) -> bool {
        let reads = self.reads(target);
        let covers = |when: &Conditional, entry: &Entry| {
            when.claims_method(entry, method) && entry.covers_target(target, self.case)
        };
        reads
            && self
                .when
                .iter()
                .any(|when| when.entries.iter().any(|entry| covers(when, entry)))
    }

    /// Whether the target may be read as one that a condition stands over, and is not.
    pub(crate) fn nearly_claims(&self, method: Method, target: &Target<'_>) -> bool {
        let nearly = |when: &Conditional, entry: &Entry| {
            when.claims_method(entry, method)
                && entry.denies_target(target)
                && !(self.reads(target) && entry.covers_target(target, self.case))
        };
        self.when
            .iter()
            .any(|when| when.entries.iter().any(|entry| nearly(when, entry)))
    }

    /// What allows the request if its conditions are met.
    pub(crate) fn conditional<'s>(
        &'s self,
        method: Method,
        target: &'s Target<'_>,
    ) -> impl Iterator<Item = &'s Conditional> {
        let reads = self.reads(target);
        self.when.iter().filter(move |when| {
            reads
                && when.entries.iter().any(|entry| {
                    entry.covers_method(method) && entry.covers_target(target, self.case)
                })
        })
    }

    /// The id of the service in the file that it comes from: its API is one of its own in the github one.
    pub(crate) fn written(&self) -> &str {
        let id = self.id.as_str();
        match self.kind {
            Kind::Github => id.strip_suffix("-api").unwrap_or(id),
            Kind::Http
            | Kind::Proxmox
            | Kind::Npm
            | Kind::Pypi
            | Kind::Crates
            | Kind::Debian
            | Kind::Llm
            | Kind::Board => id,
        }
    }

    /// Whether it judges what is asked of models: only where it does is what they took read, then.
    pub(crate) fn judges_models(&self) -> bool {
        let mut when = self.when.iter();
        when.any(|when| when.conditions.model.is_some())
    }

    /// For people.
    pub(crate) fn view(&self) -> ServiceView {
        let globs = |globs: &[RefGlob]| globs.iter().map(|glob| glob.as_str().to_owned()).collect();
        let lines = |entries: &[Entry]| -> Vec<String> {
            entries.iter().map(ToString::to_string).collect()
        };
        ServiceView {
            id: self.id.clone(),
            kind: self.kind.as_str().to_owned(),
            destinations: self.destinations.clone(),
            ca_file: self.reach.tls.ca_file.clone(),
            address: self.reach.address,
            pinned: self.reach.tls.pin.is_some(),
            credential: self.credential.clone(),
            allow: lines(&self.allow),
            deny: lines(&self.deny),
            hold: self
                .hold
                .iter()
                .flat_map(|hold| lines(&hold.entries))
                .collect(),
            hold_by: self.hold.iter().flat_map(|hold| hold.by.clone()).collect(),
            hold_seconds: self.hold.as_ref().map(|hold| hold.seconds),
            when: self.when.iter().flat_map(Conditional::lines).collect(),
            push: lines(&self.push),
            refs: globs(&self.refs.both),
            create_refs: globs(&self.refs.create),
            update_refs: globs(&self.refs.update),
            delete_refs: globs(&self.refs.delete),
            force: self.refs.forward.then_some(DENY),
            trailers: self.features.trailers,
            upgrade: self
                .features
                .websocket
                .then(|| WEBSOCKET.to_owned())
                .into_iter()
                .collect(),
            encoded_slash: match self.slashes {
                Slashes::Segment => Some(SEGMENT),
                Slashes::Refused => None,
            },
            max_inspected_bytes: (self.inspected != INSPECTED_BYTES).then_some(self.inspected),
            max_request_bytes: self.caps.request_bytes,
            max_response_bytes: self.caps.response_bytes,
            max_seconds: self.caps.seconds,
            rate: self.rate.map(|rate| rate.to_string()),
            usage: self.usage,
            why: self.why.clone(),
        }
    }
}
