//! Requests that wait for a person.
//!
//! A service that says `hold` has a request that something permits wait until somebody decides about
//! that very request: what is decided about is its [subject](Held::subject), and a permit comes out of a
//! [`Held`] only for the subject that was approved.

use std::fmt::Write as _;

use crate::path::{Slashes, Target};
use crate::pattern::{Entry, Method};
use crate::permit::{Permit, RuleId};
use crate::policy::Decision;
use crate::refusal::{Code, Refusal};
use crate::request::{Facts, Inspection, Request, Spool, Wanted};
use crate::service::Service;

/// `hold_seconds` where a service does not say.
pub(crate) const SECONDS: u64 = 300;
/// The most that it can say: a day.
pub(crate) const MOST_SECONDS: u64 = 24 * 60 * 60;

/// What a service says about holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holding {
    /// Read as widely as `deny`.
    pub(crate) entries: Vec<Entry>,
    /// The accounts that may decide; empty for whoever administers the gate.
    pub(crate) by: Vec<String>,
    /// How long a decision is waited for, and is good for.
    pub(crate) seconds: u64,
}

/// A permitted request that waits for a decision.
#[derive(Debug)]
pub struct Held {
    permit: Permit,
    rule: RuleId,
    why: Option<String>,
    by: Vec<String>,
    seconds: u64,
    subject: String,
}

impl Held {
    /// The rule that has it wait.
    #[must_use]
    pub fn rule(&self) -> &RuleId {
        &self.rule
    }

    /// Why that rule is there.
    #[must_use]
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// What would be permitted.
    pub fn would(&self) -> &Permit {
        &self.permit
    }

    /// The accounts that may decide; empty for whoever administers the gate.
    #[must_use]
    pub fn by(&self) -> &[String] {
        &self.by
    }

    /// How many seconds a decision is waited for, and is good for.
    #[must_use]
    pub fn seconds(&self) -> u64 {
        self.seconds
    }

    /// What is decided about, as lines: the request's authority, method and target, the credential, and its
    /// body's hash or the commands of its push. Two requests are the same if these are.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// The permit, if it is this that was approved.
    ///
    /// # Errors
    /// Itself, if it is not.
    pub fn approved(self, subject: &str) -> Result<Permit, Box<Self>> {
        if subject == self.subject {
            Ok(self.permit)
        } else {
            Err(Box::new(self))
        }
    }
}

/// What becomes of a decision about a request that services of its destination may hold.
pub(crate) fn judge(
    listed: &[&Service],
    request: &Request<'_>,
    facts: &Facts,
    decision: Decision,
) -> Result<Decision, Refusal> {
    if listed.iter().all(|service| service.hold.is_none()) {
        return Ok(decision);
    }
    let method = Method::parse(request.method);
    let target = Target::parse_with(request.target, Slashes::Segment);
    let (Some(method), Ok(target)) = (method, target) else {
        return Ok(decision);
    };
    let mut holding: Vec<(&Service, &Holding)> = listed
        .iter()
        .filter_map(|service| Some((*service, service.hold.as_ref()?)))
        .filter(|(_, hold)| {
            hold.entries
                .iter()
                .any(|entry| entry.denies(method, &target))
        })
        .collect();
    holding.sort_by(|(one, _), (other, _)| one.id.cmp(&other.id));
    let Some((first, _)) = holding.first().copied() else {
        return Ok(decision);
    };
    let most = holding.iter().map(|(service, _)| service.inspected).min();
    let body = Spool {
        most: most.unwrap_or_default(),
        json: false,
        form: false,
        graphql: false,
        parameters: false,
    };
    let permit = match decision {
        Decision::Permit(permit) => permit,
        Decision::Inspect(Inspection::Content(wanted)) => {
            // Whatever else is asked about, the whole body is.
            let body = wanted.body.map_or(body, |asked| asked.and(body));
            return Ok(Decision::Inspect(Inspection::Content(Wanted {
                body: Some(body),
                ..wanted
            })));
        }
        other @ (Decision::Inspect(Inspection::ReceivePack | Inspection::History(_))
        | Decision::Refuse(_)
        | Decision::Hold(_)) => return Ok(other),
    };
    let refuse = |code, sentence: &str, remedy: &str| {
        let refusal = Refusal::new(code, sentence, remedy);
        Err(refusal.by(&first.id, first.why.as_deref()))
    };
    let about = match facts {
        // Git's probe before a large push changes nothing.
        Facts::Push(updates) if updates.is_empty() => return Ok(Decision::Permit(permit)),
        Facts::Push(updates) => updates.iter().fold(String::new(), |mut lines, update| {
            // Writing to a String cannot fail, here and below.
            let _ = writeln!(lines, "ref {} {} {}", update.old, update.new, update.name);
            lines
        }),
        Facts::Content(content) => match &content.body {
            Some(body)
                if body
                    .bytes
                    .is_some_and(|bytes| bytes <= most.unwrap_or_default()) =>
            {
                format!("body sha256 {}\n", body.sha256)
            }
            Some(_) => {
                return refuse(
                    Code::InspectionTooLarge,
                    "the body is longer than what a person can be asked about",
                    "send less at once, or have max_inspected_bytes raised in the policy",
                );
            }
            None => return Ok(ask(body)),
        },
        Facts::None => return Ok(ask(body)),
        Facts::Unreadable(_) => {
            return refuse(
                Code::CouldNotInspect,
                "the request could not be inspected, so nobody can be asked about it",
                "send it in its plain form",
            );
        }
    };
    let mut subject = format!(
        "{}://{}\n{} {}\n",
        request.scheme, request.authority, request.method, request.target
    );
    let credential = permit.credential().map_or("-", |name| name.as_str());
    let _ = writeln!(subject, "rule {} credential {credential}", permit.rule());
    subject.push_str(&about);
    Ok(Decision::Hold(Held {
        permit,
        rule: first.id.clone(),
        why: first.why.clone(),
        by: deciders(&holding),
        seconds: holding
            .iter()
            .map(|(_, hold)| hold.seconds)
            .min()
            .unwrap_or(SECONDS),
        subject,
    }))
}

fn ask(body: Spool) -> Decision {
    Decision::Inspect(Inspection::Content(Wanted {
        headers: Vec::new(),
        body: Some(body),
        task: None,
    }))
}

/// Who may decide where several services hold: whom each of them names.
fn deciders(holding: &[(&Service, &Holding)]) -> Vec<String> {
    let mut naming = holding
        .iter()
        .map(|(_, hold)| &hold.by)
        .filter(|by| !by.is_empty());
    let Some(first) = naming.next() else {
        return Vec::new();
    };
    let rest: Vec<_> = naming.collect();
    let mut all: Vec<String> = first
        .iter()
        .filter(|name| rest.iter().all(|by| by.contains(name)))
        .cloned()
        .collect();
    if all.is_empty() {
        // Nobody is named by each: no account has this name, so nobody can.
        all.push(String::from("(nobody)"));
    }
    all
}

#[cfg(test)]
mod tests;
