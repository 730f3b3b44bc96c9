//! What would let a push through.

use super::{Candidate, reach_lines};
use crate::pattern::RefGlob;
use crate::policy::Policy;
use crate::push;
use crate::record::RefOp;
use crate::request::Facts;
use crate::service::{Kind, Service};
use crate::trial::Trial;

/// Refs more of a service that judges the push, or a service of its own for the repository.
pub(super) fn candidates(policy: &Policy, trial: &Trial) -> Vec<Candidate> {
    let updates = match &trial.facts {
        Facts::Push(updates) => updates.as_slice(),
        Facts::None | Facts::Content(_) | Facts::Unreadable(_) => &[],
    };
    let facts = push::readable(updates);
    let wanted = |op: RefOp| -> Vec<&str> {
        let of = facts.iter().filter(|fact| fact.op == op);
        of.map(|fact| fact.name.as_str()).collect()
    };
    let keys = [
        ("create_refs", RefOp::Create),
        ("update_refs", RefOp::Update),
        ("delete_refs", RefOp::Delete),
    ];
    let mut candidates = Vec::new();
    for (at, service) in policy.opening(trial) {
        if !service.push.is_empty() {
            let mut services = policy.compiled().to_vec();
            let Some(wider) = services.get_mut(at) else {
                continue;
            };
            let mut lines = Vec::new();
            for (key, op) in keys {
                let covered = |name: &&str| !service.refs.of(op).any(|glob| glob.matches(name));
                let new: Vec<&str> = wanted(op).into_iter().filter(covered).collect();
                let list = match op {
                    RefOp::Create => &mut wider.refs.create,
                    RefOp::Update => &mut wider.refs.update,
                    RefOp::Delete => &mut wider.refs.delete,
                };
                list.extend(new.iter().filter_map(|name| RefGlob::parse(name).ok()));
                if !new.is_empty() {
                    let all: Vec<String> = list
                        .iter()
                        .map(|glob| format!("\"{}\"", glob.as_str()))
                        .collect();
                    lines.push(format!("{key} = [{}]", all.join(", ")));
                }
            }
            candidates.push(Candidate {
                place: format!("in service `{}`", service.id),
                lines,
                services,
                opens: Vec::new(),
                near: true,
            });
        }
        if service.kind == Kind::Github {
            let refs = keys.map(|(key, op)| (key, wanted(op)));
            candidates.extend(repository(policy, service, trial, &refs));
        }
    }
    candidates
}

fn repository(
    policy: &Policy,
    service: &Service,
    trial: &Trial,
    refs: &[(&str, Vec<&str>)],
) -> Option<Candidate> {
    let path = trial.target.split('?').next()?;
    let mut segments = path.trim_start_matches('/').split('/');
    let (owner, name) = (segments.next()?, segments.next()?);
    let name = name.strip_suffix(".git").unwrap_or(name);
    let mut lines = vec![
        String::from("[[service]]"),
        String::from("kind = \"github\""),
        format!("host = \"{}\"", trial.authority.host()),
        format!("repos = [\"{owner}/{name}\"]"),
        String::from("git = \"push\""),
    ];
    if refs.iter().all(|(_, names)| names.is_empty()) {
        // Which refs is not known yet; this much is asked before any is named.
        lines.push(String::from("create_refs = [\"refs/heads/agent/*\"]"));
    }
    for (key, names) in refs.iter().filter(|(_, names)| !names.is_empty()) {
        let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
        lines.push(format!("{key} = [{}]", names.join(", ")));
    }
    lines.extend(reach_lines(&service.reach));
    if let Some(name) = &service.credential {
        lines.push(format!("credential = \"{name}\""));
    }
    let place = format!("a service beside `{}`", service.id);
    policy.beside(place, lines, Some(service))
}
