//! A request that is tried on a policy without being sent: for `policy explain`, `test` and `replay`.

use std::sync::Arc;

use crate::authority::{Authority, Scheme};
use crate::credential::CredentialName;
use crate::permit::RuleId;
use crate::policy::{Decision, Policy, Routing};
use crate::refusal::Refusal;
use crate::request::{Body, Content, Facts, History, Inspection, RefUpdate, Request};

/// One request, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    /// The scheme.
    pub scheme: Scheme,
    /// The host and the port.
    pub authority: Authority,
    /// The method.
    pub method: String,
    /// The origin-form target.
    pub target: String,
    /// What is known of the body.
    pub facts: Facts,
}

/// What would happen to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It would be let through.
    Allow {
        /// The rule that is reported.
        rule: RuleId,
        /// The credential that would be injected.
        credential: Option<CredentialName>,
    },
    /// It would wait for a person, and be let through then.
    Hold {
        /// The rule that has it wait.
        rule: RuleId,
        /// The credential that would be injected.
        credential: Option<CredentialName>,
    },
    /// It would be refused.
    Refuse(Refusal),
    /// The gate would look into the body first, and nothing of it is known.
    Inspect(Inspection),
}

impl Trial {
    /// Reads `METHOD https://HOST[:PORT]/PATH[?QUERY]`, as the gate would see it, without a body.
    ///
    /// # Errors
    /// The problem, as a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (method, url) = text
            .split_once(' ')
            .filter(|(_, url)| !url.contains(' '))
            .ok_or_else(|| format!("`{text}` is not a method and a URL"))?;
        let (scheme, authority, target) =
            split(url).map_err(|error| format!("`{url}`: {error}"))?;
        Ok(Self {
            scheme,
            authority,
            method: method.to_owned(),
            target,
            facts: Facts::None,
        })
    }

    /// The request as it is judged.
    #[must_use]
    pub fn request(&self) -> Request<'_> {
        Request {
            scheme: self.scheme,
            authority: &self.authority,
            method: &self.method,
            target: &self.target,
        }
    }

    /// What the policy says about it, exactly as the gate would ask: facts count only where it asks for
    /// them.
    #[must_use]
    pub fn on(&self, policy: &Policy) -> Outcome {
        let route = match policy.route(self.scheme, &self.authority) {
            Routing::Route(route) => route,
            Routing::Refuse(refusal) => return Outcome::Refuse(refusal),
        };
        match policy.decide(&route, &self.request(), &Facts::None) {
            Decision::Inspect(wanted) if self.facts == Facts::None && !any_will_do(&wanted) => {
                Outcome::Inspect(wanted)
            }
            Decision::Inspect(wanted) => {
                match policy.decide(&route, &self.request(), &self.known(&wanted)) {
                    Decision::Inspect(wanted) => Outcome::Inspect(wanted),
                    Decision::Permit(permit) => Outcome::of(&permit),
                    Decision::Hold(held) => Outcome::waits(&held),
                    Decision::Refuse(refusal) => Outcome::Refuse(refusal),
                }
            }
            Decision::Hold(held) => Outcome::waits(&held),
            Decision::Permit(permit) => Outcome::of(&permit),
            Decision::Refuse(refusal) => Outcome::Refuse(refusal),
        }
    }
}

/// Whether only the hash of the body is asked for, so that one body is as good as another.
fn any_will_do(wanted: &Inspection) -> bool {
    match wanted {
        Inspection::ReceivePack | Inspection::History(_) => false,
        Inspection::Content(wanted) => {
            wanted.headers.is_empty()
                && wanted.task.is_none()
                && wanted.body.is_some_and(|body| !body.reads())
        }
    }
}

impl Trial {
    fn known(&self, wanted: &Inspection) -> Facts {
        if self.facts != Facts::None || !any_will_do(wanted) {
            return self.facts.clone();
        }
        let body = Body {
            bytes: Some(0),
            ..Body::beyond()
        };
        Facts::Content(Arc::new(Content {
            headers: Vec::new(),
            body: Some(body),
            task: None,
        }))
    }
}

impl Outcome {
    fn waits(held: &crate::Held) -> Self {
        Self::Hold {
            rule: held.rule().clone(),
            credential: held.would().credential().cloned(),
        }
    }

    fn of(permit: &crate::Permit) -> Self {
        Self::Allow {
            rule: permit.rule().clone(),
            credential: permit.credential().cloned(),
        }
    }
}

/// A command of a push: `create`, `update` or `delete` and a full ref name, or the name alone for one that
/// is created.
///
/// # Errors
/// The problem, as a sentence.
pub fn ref_update(text: &str) -> Result<RefUpdate, String> {
    let (none, some, other) = ("0".repeat(40), "1".repeat(40), "2".repeat(40));
    let (op, name) = text.split_once(' ').unwrap_or(("create", text));
    let (old, new) = match op {
        "create" => (none, some),
        "update" => (some, other),
        "delete" => (some, none),
        _ => return Err(format!("`{op}` is not `create`, `update` or `delete`")),
    };
    Ok(RefUpdate {
        old,
        new,
        name: name.to_owned(),
        history: History::NotAsked,
    })
}

/// A URL as the gate would see it.
///
/// # Errors
/// The problem, as a sentence.
pub fn split(url: &str) -> Result<(Scheme, Authority, String), String> {
    let (scheme, rest) = if let Some(rest) = url.strip_prefix("https://") {
        (Scheme::Https, rest)
    } else if let Some(rest) = url.strip_prefix("http://") {
        (Scheme::Http, rest)
    } else {
        return Err("write https://HOST/PATH or http://HOST/PATH".to_owned());
    };
    let (authority, target) = match rest.find(['/', '?']) {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    let authority = Authority::with_default_port(authority, scheme.default_port())
        .map_err(|problem| problem.to_string())?;
    let target = if target.starts_with('/') {
        target.to_owned()
    } else {
        format!("/{target}")
    };
    Ok((scheme, authority, target))
}

#[cfg(test)]
mod tests;
