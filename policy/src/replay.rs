//! What another policy would have said about traffic that is on record.

use crate::authority::{Authority, Scheme};
use crate::credential::CredentialName;
use crate::permit::RuleId;
use crate::policy::{Policy, Routing};
use crate::record::{PushFact, Record, RecordKind, RefOp, Verdict};
use crate::refusal::{Code, Refusal};
use crate::request::{Facts, RefUpdate};
use crate::trial::{Outcome, Trial, ref_update};

/// What would have become of one request on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replayed {
    /// The line is none that a policy judged: the end of a request, an event, a refusal for another reason.
    NotJudged,
    /// The same.
    Same,
    /// It was let through and would be refused.
    NewlyRefused(Refusal),
    /// It was refused and would be let through, by this rule with this credential; a connection, of which no
    /// request is on record, by no rule yet.
    NewlyAllowed(Option<RuleId>, Option<CredentialName>),
    /// It would wait for a person, as this rule says.
    NewlyHeld(RuleId),
    /// It would be let through in another name.
    OtherCredential(Option<CredentialName>, Option<CredentialName>),
    /// The log does not keep what the policy would have to know; says what.
    CouldNotTell(&'static str),
}

/// The value of a query parameter, as the log keeps it.
const REDACTED: &str = "...";
/// What git asks `info/refs` for.
const GIT_SERVICES: [&str; 2] = ["git-upload-pack", "git-receive-pack"];

impl Policy {
    /// What this policy would have said about the request of a line of the log.
    #[must_use]
    pub fn replay(&self, record: &Record) -> Replayed {
        let was = match (record.kind, record.verdict) {
            (RecordKind::Request, Some(Verdict::Allow)) => {
                Was::Allowed(record.credential.as_ref(), record.hold.is_some())
            }
            (RecordKind::Refusal, _) if record.code.is_some_and(judged) => Was::Refused,
            (RecordKind::Request | RecordKind::Refusal | RecordKind::Response, _)
            | (RecordKind::Event | RecordKind::Checkpoint, _) => return Replayed::NotJudged,
        };
        let scheme = match record.scheme.as_deref() {
            Some("http") => Scheme::Http,
            _ => Scheme::Https,
        };
        let authority = record.authority.as_deref().map(Authority::parse);
        let (Some(Ok(authority)), Some(method)) = (authority, &record.method) else {
            return Replayed::NotJudged;
        };
        let Some(path) = record.path.as_deref().filter(|path| path.starts_with('/')) else {
            // Not yet a request: only where it leads was asked.
            return match (self.route(scheme, &authority), was) {
                (Routing::Route(_), Was::Refused) => Replayed::NewlyAllowed(None, None),
                (Routing::Refuse(refusal), Was::Allowed(..)) => Replayed::NewlyRefused(refusal),
                (Routing::Route(_), Was::Allowed(..)) | (Routing::Refuse(_), Was::Refused) => {
                    Replayed::Same
                }
            };
        };
        if path.contains(REDACTED) && self.asks_about_queries(scheme, &authority) {
            return Replayed::CouldNotTell("the value of its query");
        }
        let mut found: Option<Replayed> = None;
        for target in self.targets(scheme, &authority, path) {
            let trial = Trial {
                scheme,
                authority: authority.clone(),
                method: method.clone(),
                target,
                facts: facts(record),
            };
            let replayed = was.against(trial.on(self));
            match &found {
                None => found = Some(replayed),
                Some(before) if same_kind(before, &replayed) => {}
                Some(_) => return Replayed::CouldNotTell("the value of its query"),
            }
        }
        found.unwrap_or(Replayed::NotJudged)
    }

    /// The targets that a path on record may have been: as it is, and with each query that a rule asks for
    /// by parameters of the same names.
    fn targets(&self, scheme: Scheme, authority: &Authority, path: &str) -> Vec<String> {
        let mut targets = vec![path.to_owned()];
        let Some((bare, query)) = path.split_once('?') else {
            return targets;
        };
        if !query.contains(REDACTED) {
            return targets;
        }
        let names = |query: &str| -> Vec<String> {
            let parts = query.split('&');
            parts
                .map(|part| part.split('=').next().unwrap_or_default().to_owned())
                .collect()
        };
        let wanted = names(query);
        // What speaks git asks for one of two things there, and nothing else is served.
        if bare.ends_with("/info/refs") && wanted == ["service"] {
            return GIT_SERVICES
                .map(|service| format!("{bare}?service={service}"))
                .to_vec();
        }
        let queries = self.queries(scheme, authority);
        let fitting = queries.iter().filter(|query| names(query) == wanted);
        targets.extend(fitting.map(|query| format!("{bare}?{query}")));
        targets.sort();
        targets.dedup();
        targets
    }
}

enum Was<'r> {
    /// With this credential; after somebody's decision or not.
    Allowed(Option<&'r CredentialName>, bool),
    Refused,
}

impl Was<'_> {
    fn against(&self, now: Outcome) -> Replayed {
        match (self, now) {
            (_, Outcome::Inspect(_)) => Replayed::CouldNotTell("what its body said"),
            (Was::Allowed(_, true), Outcome::Hold { .. }) => Replayed::Same,
            (Was::Allowed(_, false) | Was::Refused, Outcome::Hold { rule, .. }) => {
                Replayed::NewlyHeld(rule)
            }
            (Was::Allowed(..), Outcome::Refuse(refusal)) => Replayed::NewlyRefused(refusal),
            (Was::Refused, Outcome::Allow { rule, credential }) => {
                Replayed::NewlyAllowed(Some(rule), credential)
            }
            (Was::Allowed(was, _), Outcome::Allow { credential, .. })
                if *was != credential.as_ref() =>
            {
                Replayed::OtherCredential(was.cloned(), credential)
            }
            (Was::Allowed(..), Outcome::Allow { .. }) | (Was::Refused, Outcome::Refuse(_)) => {
                Replayed::Same
            }
        }
    }
}

fn same_kind(one: &Replayed, other: &Replayed) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
}

/// Whether it is a policy's judgement that the code tells of.
fn judged(code: Code) -> bool {
    matches!(
        code,
        Code::DestinationNotListed
            | Code::PortNotListed
            | Code::SchemeNotListed
            | Code::MethodNotAllowed
            | Code::MethodRefused
            | Code::PathNotAllowed
            | Code::DeniedByRule
            | Code::AmbiguousPath
            | Code::PushNotAllowed
            | Code::RefNotAllowed
            | Code::DeleteNotAllowed
            | Code::ForceNotAllowed
            | Code::LfsNotAllowed
            | Code::ConditionNotMet
            | Code::OperationNotAllowed
            | Code::AmbiguousCredential
    )
}

/// What the line says of the body.
fn facts(record: &Record) -> Facts {
    let Some(facts) = record.facts.as_ref().filter(|facts| facts.left_out == 0) else {
        return Facts::None;
    };
    let update = |fact: &PushFact| -> Option<RefUpdate> {
        let op = match fact.op {
            RefOp::Create => "create",
            RefOp::Update => "update",
            RefOp::Delete => "delete",
        };
        ref_update(&format!("{op} {}", fact.name)).ok()
    };
    let updates: Option<Vec<_>> = facts.push.iter().map(update).collect();
    match updates {
        Some(updates) if !updates.is_empty() => Facts::Push(updates),
        Some(_) | None => Facts::None,
    }
}

#[cfg(test)]
mod tests;
