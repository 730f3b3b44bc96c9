//! A policy and its judgement.

use crate::ask::Asked;
use crate::authority::{Authority, Host, Scheme};
use crate::caps::Caps;
use crate::credential::CredentialName;
use crate::diagnostics::Diagnostics;
use crate::explain::Explain;
use crate::hold::{self, Held};
use crate::index::Index;
use crate::path::{PathError, Slashes, Target};
use crate::pattern::{HostPattern, Method};
use crate::permit::{Permit, Route};
use crate::record::RecordFacts;
use crate::refusal::{Code, Refusal};
use crate::request::{Facts, Inspection, Request};
use crate::service::{Destination, Features, Service, ServiceView};
use crate::{content, expand, push, source};

/// A policy that was read without a problem. The empty policy permits nothing.
///
/// ```
/// use policy::authority::{Authority, Scheme};
/// use policy::{Decision, Facts, Policy, Request, Routing};
///
/// let text = r#"
/// [[service]]
/// id = "example"
/// kind = "http"
/// host = "api.example.com"
/// allow = ["GET /v1/**"]
/// credential = "example"
/// "#;
/// let policy = Policy::parse(text, "example.toml").map_err(|problems| problems.to_string())?;
/// let authority = Authority::parse("api.example.com:443").map_err(|error| error.to_string())?;
/// let Routing::Route(route) = policy.route(Scheme::Https, &authority) else { panic!("listed") };
/// let ask = |method, target| {
///     let request = Request { scheme: Scheme::Https, authority: &authority, method, target };
///     policy.decide(&route, &request, &Facts::None)
/// };
/// assert!(matches!(ask("GET", "/v1/items?page=2"), Decision::Permit(permit)
///     if permit.credential().is_some_and(|name| name.as_str() == "example")));
/// assert!(matches!(ask("DELETE", "/v1/items"), Decision::Refuse(refusal)
///     if refusal.code.as_str() == "method_not_allowed"));
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Policy {
    services: Vec<Service>,
    views: Vec<ServiceView>,
    index: Index,
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
    /// Yes, once somebody who may has approved this very request.
    Hold(Held),
    /// Read this from the request's body and ask again with the facts.
    Inspect(Inspection),
}

impl Policy {
    /// Reads a policy text. All problems are reported in one pass; `source_name` is what they call
    /// the text. An empty text is a policy that permits nothing.
    ///
    /// # Errors
    /// [`Diagnostics`], never empty.
    pub fn parse(text: &str, source_name: &str) -> Result<Self, Diagnostics> {
        source::parse(text, source_name).map(Self::from_services)
    }

    /// The policy that permits nothing.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// The services, ordered by id.
    #[must_use]
    pub fn services(&self) -> &[ServiceView] {
        &self.views
    }

    /// The hosts, by exact name, whose repositories some service opens over https: remotes that
    /// name them in another way may be rewritten to that. Sorted, each once.
    pub fn git_hosts(&self) -> Vec<String> {
        let speaks_git = |service: &&ServiceView| {
            let git = |line: &String| {
                line.contains("git-upload-pack") || line.contains("git-receive-pack")
            };
            service.allow.iter().chain(&service.push).any(git)
        };
        let listed = self.views.iter().filter(speaks_git);
        let listed = listed.flat_map(|service| &service.destinations);
        let mut hosts: Vec<_> = listed
            .filter(|to| to.scheme == Scheme::Https && to.port == Scheme::Https.default_port())
            .filter_map(|to| match &to.host {
                HostPattern::Exact(host) => host.as_name().map(str::to_owned),
                HostPattern::Below(_) => None,
            })
            .collect();
        hosts.sort();
        hosts.dedup();
        hosts
    }

    /// Which credential may go where, for the gate to check against its own binding.
    pub fn credentials(&self) -> impl Iterator<Item = (&CredentialName, &Destination)> {
        self.views.iter().flat_map(|service| {
            service.credential.iter().flat_map(|name| {
                service
                    .destinations
                    .iter()
                    .map(move |destination| (name, destination))
            })
        })
    }

    /// The policy as TOML with every kind expanded into plain rules. Reading it again gives a
    /// policy that decides the same.
    #[must_use]
    pub fn expanded(&self) -> String {
        expand::toml(&self.services)
    }

    /// Whether the authority may be reached at all, and how. The narrowest service that opens it
    /// says how; the loader has made sure that equally narrow ones agree.
    #[must_use]
    pub fn route(&self, scheme: Scheme, authority: &Authority) -> Routing {
        match self
            .listed(scheme, authority)
            .find(|service| service.opens())
        {
            Some(service) => Routing::Route(Route {
                scheme,
                authority: authority.clone(),
                reach: service.reach.clone(),
            }),
            None => Routing::Refuse(self.explain().unlisted(scheme, authority)),
        }
    }

    /// Whether any service of the route's authority opens WebSocket, which wants HTTP/1.1.
    #[must_use]
    pub fn opens_websocket(&self, route: &Route) -> bool {
        self.listed(route.scheme, &route.authority)
            .any(|service| service.features.websocket)
    }

    /// Where a host may be reached: the ports of every service that opens something there, in
    /// order, each once. Empty when the host is not listed. This is what a look-up of the name may
    /// be told; a request is judged all the same.
    #[must_use]
    pub fn ports(&self, host: &Host) -> Vec<u16> {
        let opens = |at: usize| self.services.get(at).is_some_and(Service::opens);
        let open = self.index.host(host).filter(|found| opens(found.service));
        let mut ports: Vec<u16> = open.map(|found| found.port).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// Judges one request on its route.
    ///
    /// An answer of [`Decision::Inspect`] means: read the facts and ask again. A caller that has
    /// already inspected passes [`Facts::Push`] or [`Facts::Unreadable`], never [`Facts::None`].
    #[must_use]
    pub fn decide(&self, route: &Route, request: &Request<'_>, facts: &Facts) -> Decision {
        let listed: Vec<&Service> = self.listed(request.scheme, request.authority).collect();
        let judged = self
            .judge(&listed, route, request, facts)
            .and_then(|decision| hold::judge(&listed, request, facts, decision));
        match judged {
            Ok(decision) => decision,
            Err(refusal) => Decision::Refuse(refusal),
        }
    }

    /// `listed` are the services of the request's authority, narrowest first.
    fn judge(
        &self,
        listed: &[&Service],
        route: &Route,
        request: &Request<'_>,
        facts: &Facts,
    ) -> Result<Decision, Refusal> {
        let explain = self.explain();
        if route.scheme != request.scheme || route.authority != *request.authority {
            return Err(explain.mismatch(route, request));
        }
        if !listed.iter().any(|service| service.opens()) {
            return Err(explain.unlisted(request.scheme, request.authority));
        }
        let method = Method::parse(request.method).ok_or_else(|| explain.odd_method(request))?;
        // Somebody must open encoded slashes here; who does is asked again where `allow` is.
        let slashes = if listed
            .iter()
            .any(|service| service.slashes == Slashes::Segment)
        {
            Slashes::Segment
        } else {
            Slashes::Refused
        };
        let target = Target::parse_with(request.target, slashes).map_err(malformed)?;

        if target.overrides_the_method() {
            return Err(explain.overridden_method(request));
        }

        // Deny first, over every service of this authority: nothing can switch it off.
        let denying = listed
            .iter()
            .filter(|service| {
                service
                    .deny
                    .iter()
                    .any(|entry| entry.denies(method, &target))
            })
            .min_by_key(|service| &service.id);
        if let Some(service) = denying {
            return Err(explain.denied(service, request));
        }

        // A spelling that an upstream may read as a judged push, and that the rule does not, is the
        // same way round `refs` through a broad `allow`.
        let nearly = |service: &&&Service| {
            service.push.iter().any(|entry| {
                let covers =
                    !target.has_encoded_slash() && entry.covers_target(&target, service.case);
                entry.denies(method, &target) && !covers
            })
        };
        if let Some(service) = listed
            .iter()
            .filter(nearly)
            .min_by_key(|service| &service.id)
        {
            return Err(explain.nearly_a_push(service, request));
        }

        // Where a rule judges pushes, only such rules count: a broad `POST /**` beside it must not
        // become the way round `refs`.
        let judging: Vec<&Service> = listed
            .iter()
            .copied()
            .filter(|service| service.judges(method, &target))
            .collect();
        if !judging.is_empty() {
            return match push::judge(&judging, facts) {
                push::Judgement::Inspect => Ok(Decision::Inspect(Inspection::ReceivePack)),
                push::Judgement::History(most) => Ok(Decision::Inspect(Inspection::History(most))),
                push::Judgement::Allow(allowing, summary) => {
                    permit(&allowing, route, request, Some(summary), Learnt::default())
                }
                push::Judgement::Refuse(refusal) => Err(refusal),
            };
        }

        // A push that no rule judges is not let through by a broad `allow`, on any host.
        if target.takes_a_push() {
            return Err(explain.unjudged_push(listed, request, &target));
        }

        // What a condition stands over is opened by conditions alone: a broad `allow` beside them, or
        // a spelling that only an upstream reads as the same, is no way round.
        let nearly = listed
            .iter()
            .filter(|service| service.nearly_claims(method, &target));
        if let Some(service) = nearly.min_by_key(|service| &service.id) {
            return Err(explain.nearly_conditional(service, request));
        }
        if listed.iter().any(|service| service.claims(method, &target)) {
            let claiming: Vec<&Service> = listed
                .iter()
                .copied()
                .filter(|service| service.conditional(method, &target).next().is_some())
                .collect();
            if claiming.is_empty() {
                return Err(explain.not_allowed(listed, request, &target));
            }
            return match content::judge(&claiming, method, &target, facts) {
                content::Judgement::Inspect(wanted) => {
                    Ok(Decision::Inspect(Inspection::Content(wanted)))
                }
                content::Judgement::Allow(allowing, summary, gives_task) => {
                    let asked = content::asked(&allowing, method, &target, facts);
                    let learnt = Learnt { asked, gives_task };
                    permit(&allowing, route, request, summary, learnt)
                }
                content::Judgement::Refuse(refusal) => Err(refusal),
            };
        }

        let allowing: Vec<&Service> = listed
            .iter()
            .copied()
            .filter(|service| service.allows(method, &target))
            .collect();
        if allowing.is_empty() {
            return Err(explain.not_allowed(listed, request, &target));
        }
        permit(&allowing, route, request, None, Learnt::default())
    }

    /// The services of an authority, narrowest first.
    fn listed<'a>(
        &'a self,
        scheme: Scheme,
        authority: &'a Authority,
    ) -> impl Iterator<Item = &'a Service> {
        self.index
            .authority(scheme, authority)
            .filter_map(|listing| self.services.get(listing.service))
    }

    /// Where these stand among all.
    pub(crate) fn listed_at(&self, scheme: Scheme, authority: &Authority) -> Vec<usize> {
        let listed = self.index.authority(scheme, authority);
        listed.map(|listing| listing.service).collect()
    }

    /// The queries that rules for an authority ask for.
    pub(crate) fn queries(&self, scheme: Scheme, authority: &Authority) -> Vec<String> {
        let entries = self
            .listed(scheme, authority)
            .flat_map(|service| service.allow.iter().chain(&service.push));
        entries
            .filter_map(|entry| entry.query().map(str::to_owned))
            .collect()
    }

    /// Whether a condition of the destination is one of a query.
    pub(crate) fn asks_about_queries(&self, scheme: Scheme, authority: &Authority) -> bool {
        let mut when = self
            .listed(scheme, authority)
            .flat_map(|service| &service.when);
        when.any(|when| !when.conditions.query.is_empty() || when.conditions.parameters.is_some())
    }

    /// The services as they are judged.
    pub(crate) fn compiled(&self) -> &[Service] {
        &self.services
    }

    fn explain(&self) -> Explain<'_> {
        Explain {
            services: &self.services,
            index: &self.index,
        }
    }

    pub(crate) fn from_services(mut services: Vec<Service>) -> Self {
        services.sort_by(|a, b| a.id.cmp(&b.id));
        let index = Index::new(&services);
        let views = services.iter().map(Service::view).collect();
        Self {
            services,
            views,
            index,
        }
    }
}

/// What conditions have found out about a request that is permitted.
#[derive(Default)]
struct Learnt {
    asked: Option<Asked>,
    gives_task: bool,
}

/// The permit of the allowing services (never empty). A credential comes from the rule that is
/// reported; two rules that name different credentials cancel each other.
fn permit(
    allowing: &[&Service],
    route: &Route,
    request: &Request<'_>,
    facts: Option<RecordFacts>,
    learnt: Learnt,
) -> Result<Decision, Refusal> {
    let first = |injecting: bool| {
        allowing
            .iter()
            .filter(|service| !injecting || service.credential.is_some())
            .min_by_key(|service| &service.id)
            .copied()
    };
    let Some(rule) = first(true).or_else(|| first(false)) else {
        // Unreachable by construction, and closed all the same.
        return Err(Refusal::new(
            Code::GateFailed,
            "no rule was found",
            "report this",
        ));
    };
    let other = allowing
        .iter()
        .find(|service| service.credential.is_some() && service.credential != rule.credential);
    if let Some(other) = other {
        let sentence = format!(
            "rules `{}` and `{}` both allow this request with different credentials",
            rule.id, other.id
        );
        let remedy = format!(
            "narrow the allow list of `{}` or of `{}`",
            rule.id, other.id
        );
        let refusal = Refusal::new(Code::AmbiguousCredential, &sentence, &remedy);
        return Err(refusal.by(&rule.id, rule.why.as_deref()));
    }
    // A feature is open if a service that allows this request in the same name opens it.
    let same = || {
        allowing
            .iter()
            .filter(|service| service.credential == rule.credential)
    };
    let features = Features {
        trailers: same().any(|service| service.features.trailers),
        websocket: same().any(|service| service.features.websocket),
    };
    // A bound counts for every request that its service allows, whoever else allows it.
    let caps = allowing
        .iter()
        .fold(Caps::default(), |caps, service| caps.and(service.caps));
    // So does a rate; and what an answer took is read if any of them wants it read.
    let rates = allowing
        .iter()
        .filter_map(|service| service.rate.map(|rate| (service.id.clone(), rate)));
    let mut counting = allowing
        .iter()
        .filter(|service| learnt.asked.is_some() || !service.judges_models());
    let usage = counting.find_map(|service| service.usage);
    Ok(Decision::Permit(Permit {
        rule: rule.id.clone(),
        credential: rule.credential.clone(),
        // Where the route leads decides, not the rule: a run's token goes to the board's own socket.
        run_token: route.reach.board,
        scheme: request.scheme,
        authority: request.authority.clone(),
        facts: facts.map(Box::new),
        features,
        caps,
        usage,
        rates: rates.collect(),
        asked: learnt.asked.map(Box::new),
        gives_task: learnt.gives_task,
    }))
}

fn malformed(error: PathError) -> Refusal {
    let code = match error {
        PathError::NotOriginForm | PathError::TooLong | PathError::Fragment => {
            Code::MalformedRequest
        }
        PathError::DotSegment
        | PathError::Slash
        | PathError::EdgeSlash
        | PathError::Backslash
        | PathError::Control
        | PathError::NotUtf8
        | PathError::BadEscape
        | PathError::DoubleEncoding => Code::AmbiguousPath,
    };
    let remedy = match error {
        PathError::Slash => {
            "send the plain form of the path; where such a slash is part of a name, have \
             encoded_slash = \"segment\" added to the service that allows it"
        }
        PathError::EdgeSlash
        | PathError::Backslash
        | PathError::NotOriginForm
        | PathError::TooLong
        | PathError::Fragment
        | PathError::DotSegment
        | PathError::Control
        | PathError::NotUtf8
        | PathError::BadEscape
        | PathError::DoubleEncoding => "send the plain form of the path",
    };
    Refusal::new(code, &error.to_string(), remedy)
}

#[cfg(test)]
mod tests;
