//! Refusals that explain themselves: what was asked, the nearest rule, the line that would allow it.

use crate::authority::{Authority, Scheme};
use crate::index::Index;
use crate::path::Target;
use crate::pattern::{Entry, Method};
use crate::permit::Route;
use crate::refusal::{Code, MOST_SHOWN, Refusal, clip};
use crate::request::Request;
use crate::service::{Kind, Service};
use crate::source::{Opening, github_opening};

/// Above this many services a refusal does not look for a similar host: an agent must not be able
/// to buy work by asking for nonsense.
const MOST_SERVICES: usize = 256;

/// The port of ssh, by which nothing is carried whatever a policy says.
const SSH: u16 = 22;

/// Explains refusals of one policy.
pub(crate) struct Explain<'a> {
    pub(crate) services: &'a [Service],
    pub(crate) index: &'a Index,
}

impl Explain<'_> {
    /// No service opens the authority.
    pub(crate) fn unlisted(&self, scheme: Scheme, authority: &Authority) -> Refusal {
        // The nearest first: the same port under the other scheme, then another port.
        let open = |listing: &&crate::index::Listing| {
            self.services
                .get(listing.service)
                .is_some_and(Service::opens)
        };
        let other = self
            .index
            .host(authority.host())
            .filter(open)
            .min_by_key(|listing| (listing.port != authority.port(), listing.port));
        if let Some(listing) = other
            && let Some(service) = self.services.get(listing.service)
        {
            let (code, sentence) = if listing.port == authority.port() {
                let sentence = format!(
                    "{authority} is listed for {} only, not for {scheme}",
                    listing.scheme
                );
                (Code::SchemeNotListed, sentence)
            } else {
                let sentence = format!(
                    "{} is listed on port {}, not on port {}",
                    authority.host(),
                    listing.port,
                    authority.port()
                );
                (Code::PortNotListed, sentence)
            };
            if authority.port() == SSH {
                let refusal = ssh(authority, Code::PortNotListed);
                return refusal.by(&service.id, service.why.as_deref());
            }
            let remedy = format!(
                "use {}://{}:{}, or have a service with scheme = \"{scheme}\" and port = {} added \
                 to the policy",
                listing.scheme,
                authority.host(),
                listing.port,
                authority.port()
            );
            return Refusal::new(code, &sentence, &remedy).by(&service.id, service.why.as_deref());
        }
        if authority.port() == SSH {
            return ssh(authority, Code::DestinationNotListed);
        }
        let sentence = format!("{authority} is not a permitted destination");
        let line = format!(
            "have a [[service]] with host = \"{}\"{} added to the policy",
            authority.host(),
            if authority.port() == scheme.default_port() {
                String::new()
            } else {
                format!(" and port = {}", authority.port())
            }
        );
        match self.similar(authority) {
            Some((service, host)) => Refusal::new(
                Code::DestinationNotListed,
                &sentence,
                &format!(
                    "the nearest permitted host is {host} (rule `{}`); or {line}",
                    service.id
                ),
            ),
            None => Refusal::new(Code::DestinationNotListed, &sentence, &line),
        }
    }

    /// The request names another authority than its route.
    pub(crate) fn mismatch(&self, route: &Route, request: &Request<'_>) -> Refusal {
        Refusal::new(
            Code::AuthorityMismatch,
            &format!(
                "this connection leads to {}://{} and the request names {}://{}",
                route.scheme, route.authority, request.scheme, request.authority
            ),
            "open a connection of its own for every destination",
        )
    }

    /// A method that no rule can open.
    pub(crate) fn odd_method(&self, request: &Request<'_>) -> Refusal {
        let known = Method::names().collect::<Vec<_>>().join(", ");
        Refusal::new(
            Code::MethodRefused,
            &format!("the method `{}` is never let through", clip(request.method)),
            &format!("use one of {known}, in capitals"),
        )
    }

    /// The query asks for another method than the one that is judged.
    pub(crate) fn overridden_method(&self, request: &Request<'_>) -> Refusal {
        Refusal::new(
            Code::MethodRefused,
            &format!(
                "the query of this {} asks the server to take it for another method",
                request.method
            ),
            "send the method itself",
        )
    }

    /// A deny entry hit.
    pub(crate) fn denied(&self, service: &Service, request: &Request<'_>) -> Refusal {
        Refusal::new(
            Code::DeniedByRule,
            &format!(
                "rule `{}` denies {} {}",
                service.id,
                request.method,
                shown(request)
            ),
            &format!(
                "deny always wins; only a change of deny in service `{}` would help",
                service.id
            ),
        )
        .by(&service.id, service.why.as_deref())
    }

    /// The path spells a judged push in another way than the rule does.
    pub(crate) fn nearly_a_push(&self, service: &Service, request: &Request<'_>) -> Refusal {
        Refusal::new(
            Code::AmbiguousPath,
            &format!(
                "{} may be read as a push that rule `{}` judges",
                shown(request),
                service.id
            ),
            "send the plain form of the path: no repeated, trailing or encoded slash, no `;`, \
             same letters",
        )
        .by(&service.id, service.why.as_deref())
    }

    /// The path spells what a condition stands over in another way than the rule does.
    pub(crate) fn nearly_conditional(&self, service: &Service, request: &Request<'_>) -> Refusal {
        Refusal::new(
            Code::AmbiguousPath,
            &format!(
                "{} may be read as a path over which rule `{}` has a condition",
                shown(request),
                service.id
            ),
            "send the plain form of the path: no repeated, trailing or encoded slash, no `;`, \
             same letters",
        )
        .by(&service.id, service.why.as_deref())
    }

    /// A push that no service judges by its refs.
    pub(crate) fn unjudged_push(
        &self,
        listed: &[&Service],
        request: &Request<'_>,
        target: &Target<'_>,
    ) -> Refusal {
        if let Some(refusal) = git(listed, request, target) {
            return refusal;
        }
        let refusal = Refusal::new(
            Code::PushNotAllowed,
            &format!(
                "{} takes pushes, and no rule for {} judges them",
                shown(request),
                request.authority
            ),
            "have a service with `push` and `refs` (or kind = \"github\" with git = \"push\") added \
             to the policy; `allow` never opens a push",
        );
        let nearest = listed.iter().filter(|service| service.opens());
        match nearest.min_by_key(|service| &service.id) {
            Some(service) => refusal.by(&service.id, service.why.as_deref()),
            None => refusal,
        }
    }

    /// The authority is listed and nothing allows the request.
    pub(crate) fn not_allowed(
        &self,
        listed: &[&Service],
        request: &Request<'_>,
        target: &Target<'_>,
    ) -> Refusal {
        if let Some(refusal) = git(listed, request, target) {
            return refusal;
        }
        // A line added to a service that does not read the target would not help.
        let opening = || {
            let open = |service: &&Service| service.opens() && service.reads(target);
            listed.iter().copied().filter(open)
        };
        let by_path = opening()
            .filter(|service| service.covering(target).next().is_some())
            .min_by_key(|service| &service.id);
        if let Some(service) = by_path {
            let allowed: Vec<String> = service.covering(target).map(Entry::to_string).collect();
            return Refusal::new(
                Code::MethodNotAllowed,
                &format!(
                    "rule `{}` permits `{}` and not the method {}",
                    service.id,
                    allowed.join("`, `"),
                    request.method
                ),
                &add_line(service, request, target),
            )
            .by(&service.id, service.why.as_deref());
        }
        let nearest = opening()
            .flat_map(|service| service.entries().map(move |entry| (service, entry)))
            .max_by(|(a, x), (b, y)| {
                likeness(x, target)
                    .total_cmp(&likeness(y, target))
                    // Equally like: the smaller id, whatever the order in the file.
                    .then_with(|| b.id.cmp(&a.id))
                    .then_with(|| y.pattern().cmp(x.pattern()))
            });
        let sentence = format!(
            "no rule for {} permits {} {}",
            request.authority,
            request.method,
            shown(request)
        );
        match nearest {
            Some((service, entry)) => Refusal::new(
                Code::PathNotAllowed,
                &sentence,
                &format!(
                    "the nearest rule `{}` permits `{entry}`; {}",
                    service.id,
                    add_line(service, request, target)
                ),
            )
            .by(&service.id, service.why.as_deref()),
            None => Refusal::new(
                Code::PathNotAllowed,
                &sentence,
                "have the path added to the policy",
            ),
        }
    }

    /// The opened host that is spelt most like this one, if one is.
    fn similar(&self, authority: &Authority) -> Option<(&Service, String)> {
        if self.services.len() > MOST_SERVICES {
            return None;
        }
        let wanted = authority.host().to_string();
        self.services
            .iter()
            .filter(|service| service.opens())
            .flat_map(|service| {
                service
                    .destinations
                    .iter()
                    .map(move |to| (service, to.host.to_string()))
            })
            .map(|(service, host)| (strsim::jaro_winkler(&wanted, &host), service, host))
            .filter(|(score, _, _)| *score > 0.85)
            .max_by(|(a, x, _), (b, y, _)| a.total_cmp(b).then_with(|| y.id.cmp(&x.id)))
            .map(|(_, service, host)| (service, host))
    }
}

/// What git's own requests want to hear. Told by the shape of the path, so that a policy and its
/// expansion explain alike.
fn git(listed: &[&Service], request: &Request<'_>, target: &Target<'_>) -> Option<Refusal> {
    // Only where some rule speaks git at all.
    let speaks = |service: &&&Service| {
        service
            .allow
            .iter()
            .any(|entry| entry.pattern().ends_with("?service=git-upload-pack"))
    };
    let service = listed
        .iter()
        .filter(speaks)
        .min_by_key(|service| &service.id)?;
    if target.has_encoded_slash() {
        return None;
    }
    let segments: Vec<&str> = target.segments().collect();
    let rule = |refusal: Refusal| Some(refusal.by(&service.id, service.why.as_deref()));
    let repository = || {
        let text = segments
            .iter()
            .take(2)
            .copied()
            .collect::<Vec<_>>()
            .join("/");
        clip(&text)
    };
    match segments.as_slice() {
        [_, _, "info", "lfs", ..] => rule(Refusal::new(
            Code::LfsNotAllowed,
            "Git LFS is not let through",
            "set GIT_LFS_SKIP_SMUDGE=1 to clone without large files, or have a service of kind \
             http added whose allow list names this path",
        )),
        [_, _, "info", "refs"] if target.query() == Some("service=git-receive-pack") => {
            rule(no_push(service, &repository()))
        }
        [_, _, "git-receive-pack"] => rule(no_push(service, &repository())),
        [_, _, "info", "refs"] | [_, _, "git-upload-pack"]
            if target
                .query()
                .is_none_or(|query| query == "service=git-upload-pack") =>
        {
            let name = repository();
            let sentence = if target.query().is_none() && segments.last() == Some(&"refs") {
                format!("git's old protocol without `service=` is not let through for {name}")
            } else {
                format!(
                    "no rule permits fetching {name} from {}",
                    request.authority.host()
                )
            };
            rule(Refusal::new(
                Code::PathNotAllowed,
                &sentence,
                &add_repository(service, &name),
            ))
        }
        [_, _, "HEAD"] | [_, _, "objects", ..] => rule(Refusal::new(
            Code::PathNotAllowed,
            "git's old file-by-file protocol is not let through",
            "use a git client that speaks the smart protocol, as every one since 1.6.6 does",
        )),
        _ => None,
    }
}

/// Nothing is added to a policy for ssh: its remotes are carried as https.
fn ssh(authority: &Authority, code: Code) -> Refusal {
    let host = authority.host();
    Refusal::new(
        code,
        &format!("{authority} is ssh, which the gate does not carry: use https://{host}/"),
        &format!(
            "use https://{host}/OWNER/NAME.git; in runs, git rewrites remotes over ssh of listed hosts to that"
        ),
    )
}

fn no_push(service: &Service, repository: &str) -> Refusal {
    Refusal::new(
        Code::PushNotAllowed,
        &format!("no rule permits a push to {repository}"),
        &format!(
            "have \"{}\" listed in repos of a service with git = \"push\" and refs (nearest rule: `{}`)",
            repository.strip_suffix(".git").unwrap_or(repository),
            service.id
        ),
    )
}

fn add_repository(service: &Service, repository: &str) -> String {
    format!(
        "have \"{}\" added to repos of service `{}` in the policy",
        repository.strip_suffix(".git").unwrap_or(repository),
        service.id
    )
}

/// The line that would allow the request, in the service's own terms.
fn add_line(service: &Service, request: &Request<'_>, target: &Target<'_>) -> String {
    match service.kind {
        Kind::Npm | Kind::Pypi | Kind::Crates | Kind::Debian => format!(
            "have the package named in packages of service `{}`, or a service of kind http added for this path",
            service.id
        ),
        Kind::Http | Kind::Proxmox | Kind::Board => {
            let path = request.target.split('?').next().unwrap_or(request.target);
            let path = if target.path().contains('*') {
                "/..."
            } else {
                path
            };
            format!(
                "have \"{} {}\" added to allow of service `{}` in the policy",
                request.method,
                clip(path),
                service.id
            )
        }
        Kind::Llm => format!(
            "use an endpoint that service `{}` lists, or have a service of kind http added for this path",
            service.id
        ),
        Kind::Github => {
            let id = service.written();
            let method = Method::parse(request.method);
            match method.and_then(|method| github_opening(&service.allow, method, target)) {
                Some(Opening::Line(line, _)) => {
                    format!("have {line} written in service `{id}` in the policy")
                }
                Some(Opening::Repository(name)) => format!(
                    "have \"{}\" added to repos of service `{id}` in the policy",
                    clip(&name)
                ),
                None => format!(
                    "nothing in service `{id}` opens this, whatever its api says; have one of kind http added for this path"
                ),
            }
        }
    }
}

fn likeness(entry: &Entry, target: &Target<'_>) -> f64 {
    let path: String = target.path().chars().take(MOST_SHOWN).collect();
    strsim::jaro_winkler(entry.pattern(), &path)
}

/// The path of a request as a text may repeat it: no query, no controls, not long.
fn shown(request: &Request<'_>) -> String {
    clip(request.target.split('?').next().unwrap_or(request.target))
}
