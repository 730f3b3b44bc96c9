//! Judging a request by its head and its whole body, where rules state conditions.

use std::sync::Arc;

use crate::ask::Asked;
use crate::condition::{Objection, Task};
use crate::path::Target;
use crate::pattern::Method;
use crate::record::RecordFacts;
use crate::refusal::{Code, Refusal, clip};
use crate::request::{Content, Facts, Reading, Wanted};
use crate::service::Service;

/// What the conditions lead to.
pub(crate) enum Judgement<'a> {
    /// This must be read first.
    Inspect(Wanted),
    /// These services have all their conditions met. Whether the answer names a task.
    Allow(Vec<&'a Service>, Option<RecordFacts>, bool),
    /// None has.
    Refuse(Refusal),
}

/// Judges a request by the services whose conditional entries cover it (never empty).
pub(crate) fn judge<'a>(
    claiming: &[&'a Service],
    method: Method,
    target: &Target<'_>,
    facts: &Facts,
) -> Judgement<'a> {
    let wanted = wanted(claiming, method, target);
    let content: Option<&Arc<Content>> = match facts {
        Facts::None if wanted.is_some() => return Judgement::Inspect(wanted),
        Facts::None => None,
        Facts::Content(content) => Some(content),
        Facts::Unreadable(problem) => {
            return refuse(claiming, &Objection::Unreadable(problem.clone()));
        }
        Facts::Push(_) => {
            let problem = String::from("it was read as a push");
            return refuse(claiming, &Objection::Unreadable(problem));
        }
    };
    let mut allowing = Vec::new();
    let mut gives = false;
    let mut objections: Vec<(&Service, Objection)> = Vec::new();
    for service in claiming {
        let mut nearest = None;
        let mut met = false;
        for conditional in service.conditional(method, target) {
            match conditional
                .conditions
                .judge(target, content.map(Arc::as_ref), service.inspected)
            {
                Ok(()) => {
                    met = true;
                    gives |= conditional.conditions.task == Some(Task::Given);
                }
                Err(objection) => {
                    nearest.get_or_insert(objection);
                }
            }
        }
        match nearest {
            _ if met => allowing.push(*service),
            Some(objection) => objections.push((service, objection)),
            None => {}
        }
    }
    if !allowing.is_empty() {
        return Judgement::Allow(allowing, facts.summary(), gives);
    }
    objections.sort_by(|(a, _), (b, _)| a.id.cmp(&b.id));
    match objections.into_iter().next() {
        Some((service, objection)) => Judgement::Refuse(refusal(service, &objection)),
        // A claiming service has an entry for the method, or the caller would not have come here.
        None => refuse(
            claiming,
            &Objection::Unreadable(String::from("no rule says what to look at")),
        ),
    }
}

/// What is asked of a model, where one of the services judges that.
pub(crate) fn asked(
    allowing: &[&Service],
    method: Method,
    target: &Target<'_>,
    facts: &Facts,
) -> Option<Asked> {
    let mut conditional = allowing
        .iter()
        .flat_map(|service| service.conditional(method, target));
    if !conditional.any(|when| when.conditions.model.is_some()) {
        return None;
    }
    let Facts::Content(content) = facts else {
        return None;
    };
    let body = content.body.as_ref()?;
    match &body.json {
        Reading::Read(json) => Asked::read(json, target, body.bytes?).ok(),
        Reading::NotAsked | Reading::Unreadable(_) => None,
    }
}

/// What all of them ask about.
fn wanted(claiming: &[&Service], method: Method, target: &Target<'_>) -> Wanted {
    let mut wanted = Wanted::default();
    for service in claiming {
        for conditional in service.conditional(method, target) {
            let asked = conditional.conditions.wanted(service.inspected);
            wanted.headers.extend(asked.headers);
            if conditional.conditions.task == Some(Task::Own) {
                wanted.task = task(target);
            }
            wanted.body = match (wanted.body, asked.body) {
                (Some(one), Some(other)) => Some(one.and(other)),
                (one, other) => one.or(other),
            };
        }
    }
    wanted.headers.sort();
    wanted.headers.dedup();
    wanted
}

/// What every id of a task begins with.
const TASK: &str = "UPID:";

/// The one task that the path names.
fn task(target: &Target<'_>) -> Option<String> {
    let mut tasks = target
        .segments()
        .filter(|segment| segment.starts_with(TASK));
    match (tasks.next(), tasks.next()) {
        (Some(task), None) => Some(task.to_owned()),
        (_, _) => None,
    }
}

fn refuse<'a>(claiming: &[&'a Service], objection: &Objection) -> Judgement<'a> {
    let nearest = claiming.iter().copied().min_by_key(|service| &service.id);
    Judgement::Refuse(match nearest {
        Some(service) => refusal(service, objection),
        None => Refusal::new(Code::GateFailed, "no rule was found", "report this"),
    })
}

fn refusal(service: &Service, objection: &Objection) -> Refusal {
    let id = &service.id;
    let refusal = match objection {
        Objection::NotMet { found, wanted } => Refusal::new(
            Code::ConditionNotMet,
            &format!("rule `{id}` has a condition: {found}"),
            &format!(
                "it must be {wanted}, or [[service.when]] of service `{id}` be changed in the policy"
            ),
        ),
        Objection::Operation { found, wanted } => Refusal::new(
            Code::OperationNotAllowed,
            &format!("rule `{id}` does not permit the GraphQL operation {found}, only {wanted}"),
            &format!(
                "use an operation that is listed, or have \"{found}\" added to graphql of service `{}` in the policy",
                service.written()
            ),
        ),
        Objection::Model { found, wanted } => Refusal::new(
            Code::ModelNotAllowed,
            &format!("rule `{id}` does not permit {found}"),
            &format!(
                "ask for {wanted}, or have models, max_tokens or tools of service `{id}` changed in the policy"
            ),
        ),
        Objection::Shut => Refusal::new(
            Code::PathNotAllowed,
            &format!("rule `{id}` keeps this path shut, whatever else covers it"),
            &format!("ask for something else; service `{id}` must say in the policy what opens it"),
        ),
        Objection::Unreadable(problem) => Refusal::new(
            Code::CouldNotInspect,
            &format!("the request could not be inspected: {}", clip(problem)),
            "send it in its plain form, with the content type that it has; what cannot be read is refused",
        ),
        Objection::TooLong => Refusal::new(
            Code::InspectionTooLarge,
            &format!(
                "the body is longer than the {} bytes that rule `{id}` has read",
                service.inspected
            ),
            &format!(
                "send less at once, or have max_inspected_bytes of service `{id}` raised in the policy"
            ),
        ),
    };
    refusal.by(id, service.why.as_deref())
}

/// The one value of a parameter of a raw query. `Err` where servers would not agree which it is.
pub(crate) fn parameter(query: &str, name: &str) -> Result<Option<String>, String> {
    if query.contains(';') {
        return Err(String::from(
            "the query has a `;`, at which some servers part it",
        ));
    }
    let mut pairs = Vec::new();
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let decoded = |text: &str| {
            decode(text).ok_or_else(|| String::from("the query has an escape that is none"))
        };
        pairs.push((decoded(name)?, decoded(value)?));
    }
    only(&pairs, name).map(|value| value.map(str::to_owned))
}

/// The parameters of a raw query. `Err` where servers would not agree what they are: some part a value at a
/// second `=`, some part the query at a `;`.
pub(crate) fn strict_pairs(query: &str) -> Result<Vec<(String, String)>, String> {
    if query.contains(';') {
        return Err(String::from(
            "the query has a `;`, at which some servers part it",
        ));
    }
    let mut pairs = Vec::new();
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part
            .split_once('=')
            .ok_or_else(|| String::from("a parameter of the query has no value"))?;
        if value.contains('=') {
            return Err(String::from(
                "a parameter of the query has a second `=`, at which some servers end it",
            ));
        }
        let decoded = |text: &str| {
            decode(text).ok_or_else(|| String::from("the query has an escape that is none"))
        };
        pairs.push((decoded(name)?, decoded(value)?));
    }
    Ok(pairs)
}

/// The one value of a name among pairs. `Err` where another name may be taken for it: in another
/// letter case, with an index (`name[]`), or the same again.
pub(crate) fn only<'p>(
    pairs: &'p [(String, String)],
    name: &str,
) -> Result<Option<&'p str>, String> {
    let base = |text: &str| {
        let trimmed = text.trim();
        let stem = trimmed.split(['[', '\0']).next().unwrap_or(trimmed);
        stem.to_lowercase().replace([' ', '.'], "_")
    };
    let folded = base(name);
    let mut alike = pairs.iter().filter(|(other, _)| base(other) == folded);
    match (alike.next(), alike.next()) {
        (None, _) => Ok(None),
        (Some((other, value)), None) if other == name => Ok(Some(value)),
        (Some(_), None) => Err(format!(
            "a name may be taken for `{}` and is not",
            clip(name)
        )),
        (Some(_), Some(_)) => Err(format!("`{}` stands there more than once", clip(name))),
    }
}

/// Percent escapes and `+` of a query or a form, decoded once.
pub(crate) fn decode(text: &str) -> Option<String> {
    let raw = text.as_bytes();
    let mut bytes = Vec::with_capacity(raw.len());
    let mut at = 0;
    while let Some(&byte) = raw.get(at) {
        at += 1;
        match byte {
            b'%' => {
                let digits = std::str::from_utf8(raw.get(at..at + 2)?).ok()?;
                if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                    return None;
                }
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                at += 2;
            }
            b'+' => bytes.push(b' '),
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).ok()
}
