//! The smallest change of a policy that lets a refused request through, and what else it opens.
//!
//! Changes are tried, not guessed: each is made to a copy of the policy, the request is judged by that, and
//! what the copy permits beyond this policy is told by [`Policy::difference`].

mod condition;
mod git;

use serde::Serialize;

use crate::authority::Scheme;
use crate::expand;
use crate::path::Target;
use crate::pattern::{Entry, Method};
use crate::permit::Reach;
use crate::policy::Policy;
use crate::refusal::Code;
use crate::service::{Kind, Service};
use crate::source::{Opening, github_opening};
use crate::trial::{Outcome, Trial};

/// A change that lets a request through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Widening {
    /// Where it is made, in words.
    pub place: String,
    /// The lines, as they are written.
    pub lines: Vec<String>,
    /// Everything that becomes possible with it, the request among it.
    pub opens: Vec<String>,
}

/// A change that may do.
struct Candidate {
    place: String,
    lines: Vec<String>,
    services: Vec<Service>,
    /// What becomes possible, where the difference of the rules does not say it.
    opens: Vec<String>,
    /// Whether it changes the rule that refused.
    near: bool,
}

impl Policy {
    /// The smallest change that lets the request through; `None` where none that is known does, or where it
    /// is let through as it is.
    #[must_use]
    pub fn widening(&self, trial: &Trial) -> Option<Widening> {
        let Outcome::Refuse(refusal) = trial.on(self) else {
            return None;
        };
        let rule = refusal.rule.as_ref();
        let among = |codes: &[Code]| codes.contains(&refusal.code);
        let mut candidates = if among(&[
            Code::DestinationNotListed,
            Code::PortNotListed,
            Code::SchemeNotListed,
        ]) {
            self.unlisted(trial)
        } else if among(&[Code::MethodNotAllowed, Code::PathNotAllowed]) {
            self.entries(trial)
        } else if among(&[
            Code::PushNotAllowed,
            Code::RefNotAllowed,
            Code::DeleteNotAllowed,
        ]) {
            git::candidates(self, trial)
        } else if among(&[Code::DeniedByRule]) {
            self.denials(trial)
        } else if among(&[
            Code::ConditionNotMet,
            Code::OperationNotAllowed,
            Code::ModelNotAllowed,
        ]) {
            condition::candidates(self, trial)
        } else {
            // The others are nothing that a line of a policy opens.
            Vec::new()
        };
        for candidate in &mut candidates {
            let changed = |service: &&Service| Some(&service.id) == rule;
            candidate.near |= candidate.services.iter().any(|service| {
                changed(&service)
                    && self
                        .compiled()
                        .iter()
                        .any(|old| old.id == service.id && old.view() != service.view())
            });
        }
        let tried = candidates
            .into_iter()
            .filter_map(|candidate| self.tried(candidate, trial));
        tried
            .min_by_key(|(near, widening)| {
                (
                    widening.opens.len(),
                    widening.lines.len(),
                    !near,
                    widening.place.clone(),
                )
            })
            .map(|(_, widening)| widening)
    }

    /// What comes of a change, if it lets the request through.
    fn tried(&self, candidate: Candidate, trial: &Trial) -> Option<(bool, Widening)> {
        let Candidate {
            place,
            lines,
            services,
            mut opens,
            near,
        } = candidate;
        let wider = Self::from_services(services);
        let (Outcome::Allow { .. } | Outcome::Hold { .. }) = trial.on(&wider) else {
            return None;
        };
        let difference = self.difference(&wider);
        // What stands under other conditions than before is told by whoever changed them.
        if opens.is_empty() {
            let gained = difference.gained.iter();
            opens.extend(gained.map(|power| {
                match (power.what.strip_prefix("denied: "), &power.credential) {
                    (Some(what), _) => format!("whatever else allows of {what}"),
                    (None, Some(name)) => format!("{}, with credential `{name}`", power.what),
                    (None, None) => power.what.clone(),
                }
            }));
        }
        Some((
            near,
            Widening {
                place,
                lines,
                opens,
            },
        ))
    }

    /// The services that open something of the request's authority.
    fn opening(&self, trial: &Trial) -> impl Iterator<Item = (usize, &Service)> {
        self.listed_at(trial.scheme, &trial.authority)
            .into_iter()
            .filter_map(|at| Some((at, self.compiled().get(at)?)))
            .filter(|(_, service)| service.opens())
    }

    /// A service of its own.
    fn unlisted(&self, trial: &Trial) -> Vec<Candidate> {
        let Some(entry) = entry(trial) else {
            return Vec::new();
        };
        let lines = service_lines(trial, &entry);
        let place = String::from("a service of its own");
        self.beside(place, lines, None).into_iter().collect()
    }

    /// This policy with a service more, which is written in these lines.
    fn beside(
        &self,
        place: String,
        lines: Vec<String>,
        reach: Option<&Service>,
    ) -> Option<Candidate> {
        let text = format!("{}\nid = \"the-new-one\"\n", lines.join("\n"));
        let new = Self::parse(&text, "the new service").ok()?;
        let mut services = self.compiled().to_vec();
        services.extend(new.compiled().iter().cloned().map(|service| Service {
            reach: reach.map_or(service.reach, |like| like.reach.clone()),
            ..service
        }));
        Some(Candidate {
            place,
            lines,
            services,
            opens: Vec::new(),
            near: false,
        })
    }

    /// One more entry of a service that leads there.
    fn entries(&self, trial: &Trial) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for (at, service) in self.opening(trial) {
            match service.kind {
                Kind::Http | Kind::Proxmox | Kind::Board => {
                    let Some(entry) = entry(trial) else { continue };
                    let mut services = self.compiled().to_vec();
                    if let Some(service) = services.get_mut(at) {
                        service.allow.push(entry.clone());
                    }
                    candidates.push(Candidate {
                        place: format!("in allow of service `{}`", service.id),
                        lines: vec![format!("\"{entry}\"")],
                        services,
                        opens: Vec::new(),
                        near: false,
                    });
                }
                Kind::Github => candidates.extend(self.of_github(at, service, trial)),
                // They are written by names of packages and models; an entry of one's own goes beside.
                Kind::Npm | Kind::Pypi | Kind::Crates | Kind::Debian | Kind::Llm => {}
            }
            let Some(entry) = entry(trial) else { continue };
            let mut lines = service_lines(trial, &entry);
            lines.extend(reach_lines(&service.reach));
            if let Some(name) = &service.credential {
                lines.push(format!("credential = \"{name}\""));
            }
            let place = format!("a service beside `{}`", service.written());
            candidates.extend(self.beside(place, lines, Some(service)));
        }
        candidates
    }

    /// A word of kind `github`, or a repository more.
    fn of_github(&self, at: usize, service: &Service, trial: &Trial) -> Option<Candidate> {
        let method = Method::parse(&trial.method)?;
        let target = Target::parse(&trial.target).ok()?;
        let id = service.written();
        let opening = github_opening(&service.allow, method, &target)?;
        let Opening::Line(line, entries) = opening else {
            // A repository is opened for git as well; a service of its own says less.
            return None;
        };
        let mut services = self.compiled().to_vec();
        services.get_mut(at)?.allow.extend(entries);
        Some(Candidate {
            place: format!("in service `{id}`"),
            lines: vec![line.to_owned()],
            services,
            opens: Vec::new(),
            near: false,
        })
    }

    /// Without the entries that deny it.
    fn denials(&self, trial: &Trial) -> Vec<Candidate> {
        let (Some(method), Ok(target)) = (
            Method::parse(&trial.method),
            Target::parse_with(&trial.target, crate::path::Slashes::Segment),
        ) else {
            return Vec::new();
        };
        let mut services = self.compiled().to_vec();
        let mut lines = Vec::new();
        let mut places = Vec::new();
        for at in self.listed_at(trial.scheme, &trial.authority) {
            let Some(service) = services.get_mut(at) else {
                continue;
            };
            let denies = |entry: &Entry| entry.denies(method, &target);
            let gone: Vec<String> = service
                .deny
                .iter()
                .filter(|entry| denies(entry))
                .map(|entry| format!("without \"{entry}\""))
                .collect();
            if !gone.is_empty() {
                service.deny.retain(|entry| !denies(entry));
                places.push(format!("`{}`", service.id));
                lines.extend(gone);
            }
        }
        vec![Candidate {
            place: format!("in deny of service {}", places.join(" and ")),
            lines,
            services,
            opens: Vec::new(),
            near: true,
        }]
    }
}

/// The entry for this very request, if one can be written.
fn entry(trial: &Trial) -> Option<Entry> {
    let target = trial.target.as_str();
    if target.contains(['*', '"', '\\', ' ']) {
        return None;
    }
    Entry::parse(&format!("{} {target}", trial.method)).ok()
}

/// A service that opens this very request.
fn service_lines(trial: &Trial, entry: &Entry) -> Vec<String> {
    let mut lines = vec![
        String::from("[[service]]"),
        String::from("kind = \"http\""),
        format!("host = \"{}\"", trial.authority.host()),
    ];
    if trial.scheme == Scheme::Http {
        lines.push(String::from("scheme = \"http\""));
    }
    if trial.authority.port() != trial.scheme.default_port() {
        lines.push(format!("port = {}", trial.authority.port()));
    }
    lines.push(format!("allow = [\"{entry}\"]"));
    lines
}

/// What a service beside another one must say to be reached in the same way.
fn reach_lines(reach: &Reach) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(address) = reach.address {
        lines.push(format!("address = \"{address}\""));
    }
    if let Some(file) = &reach.tls.ca_file {
        lines.push(format!("ca_file = \"{file}\""));
    }
    if let Some(pin) = &reach.tls.pin {
        lines.push(format!("pin = \"{}\"", expand::pin(pin)));
    }
    lines
}

#[cfg(test)]
mod tests;
