//! `[[test]]`: what a policy file says of itself.

use crate::case::{Case, Expected};
use crate::refusal::Code;
use crate::request::Facts;
use crate::source::document::{Field, Problems, Table, did_you_mean};
use crate::trial::{Trial, ref_update};

/// Every key of a test.
pub(super) const KEYS: &[&str] = &[
    "name",
    "request",
    "push",
    "expect",
    "code",
    "rule",
    "credential",
];
const VERDICTS: [&str; 3] = ["allow", "refuse", "hold"];

/// Reads one test. `None` when it cannot be tried; every reason has been added to the problems then.
pub(super) fn read(table: &mut Table<'_>, problems: &mut Problems) -> Option<Case> {
    let name = table.string("name", problems).map(|field| field.value);
    let request = request(table, problems);
    let push = push(table, problems);
    let expected = expected(table, problems);
    for Field { value: key, place } in table.rest(problems) {
        let problem = format!("`{key}` is not a key of a test");
        problems.add(&place, problem, did_you_mean(&key, KEYS.iter().copied()));
    }
    let (mut trial, text) = request?;
    trial.facts = push?;
    Some(Case {
        name: name.unwrap_or(text),
        line: table.place.line,
        trial,
        expected: expected?,
    })
}

fn request(table: &mut Table<'_>, problems: &mut Problems) -> Option<(Trial, String)> {
    let remedy = || String::from("write `request = \"GET https://api.example.com/v1/x\"`");
    let Some(field) = table.string("request", problems) else {
        if !problems.concern(&table.place) {
            let problem = String::from("the test asks nothing");
            problems.add(&table.place.key("request"), problem, remedy());
        }
        return None;
    };
    match Trial::parse(&field.value) {
        Ok(trial) => Some((trial, field.value)),
        Err(problem) => {
            problems.add(&field.place, problem, remedy());
            None
        }
    }
}

/// The commands of a push, as facts.
fn push(table: &mut Table<'_>, problems: &mut Problems) -> Option<Facts> {
    let Some(list) = table.strings("push", problems) else {
        return Some(Facts::None);
    };
    let mut updates = Vec::new();
    let mut whole = true;
    for command in list.value {
        match ref_update(&command.value) {
            Ok(update) => updates.push(update),
            Err(problem) => {
                let remedy =
                    String::from("write `create refs/heads/x`, `update ...` or `delete ...`");
                problems.add(&command.place, problem, remedy);
                whole = false;
            }
        }
    }
    whole.then_some(Facts::Push(updates))
}

fn expected(table: &mut Table<'_>, problems: &mut Problems) -> Option<Expected> {
    let expect = table.string("expect", problems);
    let code = table.string("code", problems);
    let rule = table.string("rule", problems).map(|field| field.value);
    let credential = table.string("credential", problems);
    let Some(expect) = expect else {
        let place = table.place.key("expect");
        let problem = String::from("the test expects nothing");
        problems.add(
            &place,
            problem,
            String::from("write `expect = \"allow\"` or `expect = \"refuse\"`"),
        );
        return None;
    };
    let misplaced = |field: Option<&Field<String>>, problems: &mut Problems| {
        if let Some(field) = field {
            let key = field.place.path.rsplit('.').next().unwrap_or_default();
            let problem = format!("`{key}` says nothing where `expect = \"{}\"`", expect.value);
            problems.add(&field.place, problem, format!("remove `{key}`"));
        }
    };
    match expect.value.as_str() {
        "allow" => {
            misplaced(code.as_ref(), problems);
            Some(Expected::Allow {
                rule,
                credential: credential.map(|field| field.value),
            })
        }
        "hold" => {
            misplaced(code.as_ref(), problems);
            Some(Expected::Hold {
                rule,
                credential: credential.map(|field| field.value),
            })
        }
        "refuse" => {
            misplaced(credential.as_ref(), problems);
            let known = code.and_then(|field| {
                let code = Code::parse(&field.value);
                if code.is_none() {
                    let problem = format!("`{}` is no code of a refusal", field.value);
                    let names = Code::ALL.iter().map(|code| code.as_str());
                    problems.add(&field.place, problem, did_you_mean(&field.value, names));
                }
                code
            });
            Some(Expected::Refuse { rule, code: known })
        }
        other => {
            let problem = format!("`{other}` is not a verdict");
            problems.add(
                &expect.place,
                problem,
                did_you_mean(other, VERDICTS.into_iter()),
            );
            None
        }
    }
}
