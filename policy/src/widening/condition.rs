//! What would let a request through whose conditions are not met.

use super::Candidate;
use crate::condition::{Conditions, OperationWord};
use crate::path::{Slashes, Target};
use crate::pattern::{Entry, Method};
use crate::policy::Policy;
use crate::request::{Content, Facts, Reading};
use crate::trial::Trial;
use crate::{ask, content, expand};

/// Each table of conditions that covers the request, with its own values in it.
pub(super) fn candidates(policy: &Policy, trial: &Trial) -> Vec<Candidate> {
    let (Some(method), Ok(target)) = (
        Method::parse(&trial.method),
        Target::parse_with(&trial.target, Slashes::Segment),
    ) else {
        return Vec::new();
    };
    let content = match &trial.facts {
        Facts::Content(content) => Some(content.as_ref()),
        Facts::None | Facts::Push(_) | Facts::Unreadable(_) => None,
    };
    let mut candidates = Vec::new();
    for (at, service) in policy.opening(trial) {
        for (table, when) in service.when.iter().enumerate() {
            let covers = |entry: &Entry| {
                entry.covers_method(method) && entry.covers_target(&target, service.case)
            };
            if !when.entries.iter().any(covers) {
                continue;
            }
            let Some((conditions, more)) = admitting(&when.conditions, &target, content) else {
                continue;
            };
            let mut services = policy.compiled().to_vec();
            let changed = services
                .get_mut(at)
                .and_then(|service| service.when.get_mut(table));
            let Some(changed) = changed else { continue };
            changed.conditions = conditions;
            let text = expand::when(changed);
            let lines = text.lines().filter(|line| !line.is_empty());
            let lines = lines.map(str::to_owned).collect();
            let entries: Vec<String> = when.entries.iter().map(Entry::to_string).collect();
            let over = entries.join(", ");
            let also =
                |what: String| format!("{over} where {what}, beside all else that the table lists");
            candidates.push(Candidate {
                place: format!(
                    "in service `{}`, this table instead of its like",
                    service.written()
                ),
                lines,
                services,
                opens: more.into_iter().map(also).collect(),
                near: true,
            });
        }
    }
    candidates
}

/// The conditions with the request's own values in them, and each of these in words. `None` where something
/// is not there or cannot be read.
fn admitting(
    conditions: &Conditions,
    target: &Target<'_>,
    content: Option<&Content>,
) -> Option<(Conditions, Vec<String>)> {
    let (mut wide, mut more) = (conditions.clone(), Vec::new());
    let mut text = |values: &mut Vec<String>, what: String, found: &str| {
        let matches = |value: &String| crate::pattern::text_matches(value, found);
        if !values.iter().any(matches) {
            values.push(found.to_owned());
            more.push(format!("{what} is \"{found}\""));
        }
    };
    for (name, values) in &mut wide.query {
        let found = content::parameter(target.query().unwrap_or_default(), name).ok()??;
        // A `*` in a value would stand for any.
        (!found.contains('*')).then_some(())?;
        text(values, format!("the query parameter `{name}`"), &found);
    }
    for (name, values) in &mut wide.headers {
        let (_, found) = content?.headers.iter().find(|(field, _)| field == name)?;
        let found = found.as_deref().filter(|found| !found.contains('*'))?;
        text(values, format!("the field `{name}`"), found);
    }
    let body = content.and_then(|content| content.body.as_ref());
    if !wide.form.is_empty() {
        let Reading::Read(fields) = &body?.form else {
            return None;
        };
        for (name, values) in &mut wide.form {
            let found = content::only(fields, name).ok()??;
            (!found.contains('*')).then_some(())?;
            text(values, format!("the form's field `{name}`"), found);
        }
    }
    if !wide.json.is_empty() || wide.model.is_some() {
        let Reading::Read(root) = &body?.json else {
            return None;
        };
        for (pointer, values) in &mut wide.json {
            let found = pointer.find(root).ok()??;
            if !values.contains(found) {
                let scalar = found.is_string() || found.is_boolean() || found.is_i64();
                scalar.then_some(())?;
                values.push(found.clone());
                more.push(format!("`{}` of the body is {found}", pointer.text));
            }
        }
        if let Some(model) = &mut wide.model {
            let asked = ask::Asked::read(root, target, body?.bytes.unwrap_or(0)).ok()?;
            more.extend(model.admit(&asked)?);
        }
    }
    if !wide.graphql.is_empty() {
        let Reading::Read(operations) = &body?.graphql else {
            return None;
        };
        for operation in operations {
            for field in &operation.fields {
                let covered = |word: &OperationWord| word.covers(operation.kind, field);
                if wide.graphql.iter().any(covered) {
                    continue;
                }
                let text = format!("{}:{field}", operation.kind.as_str());
                wide.graphql.push(OperationWord::parse(&text).ok()?);
                more.push(format!("the operation is {text}, whatever its arguments"));
            }
        }
    }
    Some((wide, more))
}
