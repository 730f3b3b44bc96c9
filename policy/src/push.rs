//! Judging a `git push` by its own commands.

use crate::pattern;
use crate::record::{PushFact, RecordFacts, RefOp};
use crate::refusal::{Code, Refusal, clip};
use crate::request::{Facts, History, RefUpdate};
use crate::service::Service;

/// How many refs a refusal lists.
const MOST_REFS: usize = 8;
/// A ref name of more bytes is not looked at. Git's own limit is lower: such a name, or one part of
/// it, does not fit into a path.
const REF_BYTES_MAX: usize = 1024;

/// What the commands lead to.
pub(crate) enum Judgement<'a> {
    /// The commands are needed first.
    Inspect,
    /// It must be known whether refs move forward; at most so many bytes of the push are read.
    History(u64),
    /// These services allow every command.
    Allow(Vec<&'a Service>, RecordFacts),
    /// No service allows every command.
    Refuse(Refusal),
}

/// Judges a push by the services that cover its path (never empty). A service allows a push whole
/// or not at all; an empty command list, git's probe before a large push, changes nothing and is
/// allowed.
pub(crate) fn judge<'a>(judging: &[&'a Service], facts: &Facts) -> Judgement<'a> {
    let updates = match facts {
        Facts::None => return Judgement::Inspect,
        Facts::Unreadable(problem) => return Judgement::Refuse(unreadable(judging, problem)),
        Facts::Content(_) => {
            return Judgement::Refuse(unreadable(judging, "it was not read as a push"));
        }
        Facts::Push(updates) => updates,
    };
    let mut summary = Vec::with_capacity(updates.len());
    for update in updates {
        match operation(update) {
            Ok(op) => summary.push(PushFact {
                name: update.name.clone(),
                op,
            }),
            Err(problem) => return Judgement::Refuse(unreadable(judging, problem)),
        }
    }
    let named: Vec<&Service> = judging
        .iter()
        .copied()
        .filter(|service| summary.iter().all(|fact| allows(service, fact)))
        .collect();
    let forward = |service: &&Service| updates.iter().all(|update| moves_forward(service, update));
    let allowing: Vec<&Service> = named.iter().copied().filter(forward).collect();
    if allowing.is_empty() && !named.is_empty() {
        let moved = |update: &&RefUpdate| operation(update) == Ok(RefOp::Update);
        let unasked = |update: &RefUpdate| update.history == History::NotAsked;
        let tag = |update: &RefUpdate| update.name.starts_with(TAGS);
        // A tag that moves is moved to another thing, whatever that descends from.
        if !updates.iter().filter(moved).any(tag) && updates.iter().filter(moved).any(unasked) {
            let most = named.iter().map(|service| service.inspected).max();
            return Judgement::History(most.unwrap_or_default());
        }
        let refused: Vec<&RefUpdate> = updates
            .iter()
            .filter(moved)
            .filter(|update| tag(update) || update.history != History::Forward)
            .collect();
        if let (Some(service), Some(first)) = (nearest(&named), refused.first()) {
            let mut refusal = rewrites(service, first);
            let each = |update: &&RefUpdate| (update.name.clone(), Code::ForceNotAllowed);
            refusal.refs = refused.iter().map(each).collect();
            return Judgement::Refuse(refusal);
        }
        return Judgement::Refuse(unreadable(judging, "nobody said whether it moves forward"));
    }
    if !allowing.is_empty() {
        return Judgement::Allow(
            allowing,
            RecordFacts {
                push: summary,
                ..RecordFacts::default()
            }
            .bounded(),
        );
    }
    let refusal = nearest(judging).and_then(|service| {
        let refused: Vec<&PushFact> = summary
            .iter()
            .filter(|fact| !allows(service, fact))
            .collect();
        let mut refusal = objection(service, refused.first()?);
        let each = |fact: &&PushFact| (fact.name.clone(), code(fact));
        refusal.refs = refused.iter().map(each).collect();
        Some(refusal)
    });
    // A service that did not allow has an objection; were it not so, the answer is still no.
    Judgement::Refuse(refusal.unwrap_or_else(|| unreadable(judging, "the commands changed")))
}

/// The commands that make sense, for a record.
pub(crate) fn readable(updates: &[RefUpdate]) -> Vec<PushFact> {
    let fact = |update: &RefUpdate| {
        Some(PushFact {
            name: update.name.clone(),
            op: operation(update).ok()?,
        })
    };
    updates.iter().filter_map(fact).collect()
}

/// The operation of a command, or why the command makes no sense.
fn operation(update: &RefUpdate) -> Result<RefOp, &'static str> {
    let id = |text: &str| {
        matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    if !id(&update.old) || !id(&update.new) || update.old.len() != update.new.len() {
        return Err("a command has no proper object ids");
    }
    if update.name.len() > REF_BYTES_MAX {
        return Err("a command names a ref of more than 1,024 bytes");
    }
    if !pattern::is_ref_name(&update.name) {
        return Err("a command names no proper ref");
    }
    let zero = |text: &str| text.bytes().all(|byte| byte == b'0');
    match (zero(&update.old), zero(&update.new)) {
        (true, true) => Err("a command neither creates, moves nor deletes"),
        (true, false) => Ok(RefOp::Create),
        (false, false) => Ok(RefOp::Update),
        (false, true) => Ok(RefOp::Delete),
    }
}

/// Whether a service allows one command.
fn allows(service: &Service, fact: &PushFact) -> bool {
    let mut globs = service.refs.of(fact.op);
    globs.any(|glob| glob.matches(&fact.name))
}

/// Where tags are.
const TAGS: &str = "refs/tags/";

/// Whether a service lets the command move its ref, if that is what it does.
fn moves_forward(service: &Service, update: &RefUpdate) -> bool {
    !service.refs.forward
        || operation(update) != Ok(RefOp::Update)
        || (update.history == History::Forward && !update.name.starts_with(TAGS))
}

/// Why a command that moves a ref is not let through.
fn rewrites(service: &Service, update: &RefUpdate) -> Refusal {
    let (id, name) = (&service.id, clip(&update.name));
    let why = match &update.history {
        _ if update.name.starts_with(TAGS) => String::from("a tag is not moved"),
        History::Unproven(why) => clip(why),
        History::NotAsked | History::Forward => String::from("it was not looked at"),
    };
    Refusal::new(
        Code::ForceNotAllowed,
        &format!("rule `{id}` permits {name} to move forward only: {why}"),
        &format!(
            "fetch, merge or rebase onto what is there, and push again; or have force = \"allow\" said by service `{id}` in the policy"
        ),
    )
    .by(id, service.why.as_deref())
}

/// Whether the other of creating and moving is allowed to the ref.
fn covered(service: &Service, fact: &PushFact) -> bool {
    let other = match fact.op {
        RefOp::Create => RefOp::Update,
        RefOp::Update => RefOp::Create,
        RefOp::Delete => return false,
    };
    let mut globs = service.refs.of(other);
    globs.any(|glob| glob.matches(&fact.name))
}

/// The code of what a service does not allow.
fn code(fact: &PushFact) -> Code {
    match fact.op {
        RefOp::Delete => Code::DeleteNotAllowed,
        RefOp::Create | RefOp::Update => Code::RefNotAllowed,
    }
}

/// Why a service does not allow one command.
fn objection(service: &Service, fact: &PushFact) -> Refusal {
    let (id, name) = (&service.id, clip(&fact.name));
    let mut listed: Vec<&str> = service
        .refs
        .of(fact.op)
        .take(MOST_REFS + 1)
        .map(|glob| glob.as_str())
        .collect();
    if listed.len() > MOST_REFS {
        listed.truncate(MOST_REFS);
        listed.push("...");
    }
    let only = match listed.as_slice() {
        [] => String::from("any"),
        listed => format!("{name}, only {}", listed.join(", ")),
    };
    let refusal = match fact.op {
        RefOp::Delete if listed.is_empty() => Refusal::new(
            Code::DeleteNotAllowed,
            &format!("the push would delete {name}; rule `{id}` permits no deletion"),
            &format!(
                "leave the ref, have a person delete it, or have \"{name}\" added to delete_refs of \
                 service `{id}` in the policy"
            ),
        ),
        RefOp::Delete => Refusal::new(
            Code::DeleteNotAllowed,
            &format!("rule `{id}` does not permit a push to delete {only}"),
            &format!(
                "leave the ref, or have \"{name}\" added to delete_refs of service `{id}` in the policy"
            ),
        ),
        RefOp::Create | RefOp::Update if covered(service, fact) => {
            let (does, other, key) = match fact.op {
                RefOp::Create => ("create", "move", "create_refs"),
                RefOp::Update | RefOp::Delete => ("move", "create", "update_refs"),
            };
            Refusal::new(
                Code::RefNotAllowed,
                &format!("rule `{id}` permits a push to {other} {name}, and not to {does} it"),
                &format!(
                    "push to another name, or have \"{name}\" added to {key} of service `{id}` in \
                     the policy"
                ),
            )
        }
        RefOp::Create | RefOp::Update => {
            let only = match listed.join(", ") {
                none if none.is_empty() => String::new(),
                listed => format!(", only to {listed}"),
            };
            Refusal::new(
                Code::RefNotAllowed,
                &format!("rule `{id}` does not permit a push to {name}{only}"),
                &format!(
                    "push to a ref that is listed, or have \"{name}\" added to refs of service \
                     `{id}` in the policy"
                ),
            )
        }
    };
    refusal.by(id, service.why.as_deref())
}

fn unreadable(judging: &[&Service], problem: &str) -> Refusal {
    let refusal = Refusal::new(
        Code::CouldNotInspect,
        &format!("the push could not be inspected: {}", clip(problem)),
        "push with an ordinary git client; what cannot be read is refused",
    );
    match nearest(judging) {
        Some(service) => refusal.by(&service.id, service.why.as_deref()),
        None => refusal,
    }
}

fn nearest<'a>(judging: &[&'a Service]) -> Option<&'a Service> {
    judging.iter().copied().min_by_key(|service| &service.id)
}
