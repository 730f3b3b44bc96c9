//! `[[service.when]]`: entries that are allowed under conditions.

use std::collections::BTreeMap;

use serde_json::Value;

use super::lines;
use crate::ask::ModelCondition;
use crate::condition::{Conditional, Conditions, OperationWord, Pointer, Task};
use crate::parameter::{self, Parameters, Value as Wanted};
use crate::path::Slashes;
use crate::source::document::{Field, Member, Place, Problems, Scalar, Table, did_you_mean};

/// The keys of `[[service.when]]`.
pub(in crate::source) const KEYS: &[&str] = &[
    "allow",
    "query",
    "headers",
    "json",
    "form",
    "graphql",
    "models",
    "max_tokens",
    "tools",
    "path",
    "parameters",
    "task",
    "never",
];

/// What the names of fields end in that carry secrets; those never cross the gate.
const SECRET_ENDINGS: &[&str] = &[
    "auth",
    "authorization",
    "authentication",
    "cookie",
    "credential",
    "jwt",
    "key",
    "otp",
    "password",
    "secret",
    "session",
    "token",
];

/// Reads every `[[service.when]]` of a service.
pub(super) fn read(
    table: &mut Table<'_>,
    slashes: Slashes,
    problems: &mut Problems,
) -> Vec<Conditional> {
    let tables = table.tables("when", problems);
    tables
        .into_iter()
        .filter_map(|mut when| conditional(&mut when, slashes, problems))
        .collect()
}

fn conditional(
    table: &mut Table<'_>,
    slashes: Slashes,
    problems: &mut Problems,
) -> Option<Conditional> {
    let entries = lines::allow(table, slashes, problems);
    if entries.is_none() {
        problems.add(
            &table.place.key("allow"),
            String::from("the conditions stand over nothing"),
            String::from("add `allow = [\"POST /v1/jobs\"]`"),
        );
    }
    let conditions = Conditions {
        query: texts(table, "query", problems, |name| {
            let odd = name.is_empty() || name.chars().any(char::is_control);
            odd.then(|| {
                let problem = format!("`{name}` is no name of a parameter");
                (
                    problem,
                    String::from("write the name as it is when decoded"),
                )
            })
        }),
        headers: texts(table, "headers", problems, header_problem),
        json: json(table, problems),
        form: texts(table, "form", problems, |name| {
            name.is_empty().then(|| {
                let remedy = String::from("write the name of a field");
                (String::from("a field without a name"), remedy)
            })
        }),
        graphql: graphql(table, problems),
        model: model(table, problems),
        path: path(table, problems),
        parameters: parameters(table, problems),
        task: task(table, problems),
        never: table
            .flag("never", problems)
            .is_some_and(|field| field.value),
    };
    let bodies = [
        ("json", !conditions.json.is_empty()),
        ("form", !conditions.form.is_empty()),
        ("graphql", !conditions.graphql.is_empty()),
        (
            "models",
            conditions.model.is_some() && conditions.json.is_empty(),
        ),
        ("parameters", conditions.parameters.is_some()),
    ];
    let mut bodies = bodies.into_iter().filter(|(_, there)| *there);
    if let (Some((one, _)), Some((other, _))) = (bodies.next(), bodies.next()) {
        problems.add(
            &table.place.key(other),
            format!("no body is read both as `{one}` and as `{other}`"),
            String::from("write a [[service.when]] for each"),
        );
    }
    let unknown = table.rest(problems);
    for Field { value: key, place } in &unknown {
        let remedy = did_you_mean(key, KEYS.iter().copied());
        problems.add(place, format!("`{key}` is not a condition"), remedy);
    }
    if conditions.is_empty() && unknown.is_empty() && !problems.concern(&table.place) {
        problems.add(
            &table.place,
            String::from("there is no condition"),
            String::from(
                "add one of query, headers, json, form, graphql, path, parameters; or move `allow` to the service",
            ),
        );
    }
    Some(Conditional {
        entries: entries?,
        conditions,
    })
}

/// Reads `models`, `max_tokens` and `tools`.
fn model(table: &mut Table<'_>, problems: &mut Problems) -> Option<ModelCondition> {
    let there = ["models", "max_tokens", "tools"];
    there.iter().find_map(|key| table.find(key, problems))?;
    let models = super::llm::models(table, problems);
    let max_tokens = table.number("max_tokens", super::llm::MOST_TOKENS, problems);
    let tools = table.flag("tools", problems);
    Some(ModelCondition {
        models,
        max_tokens: max_tokens.map(|field| field.value),
        tools: tools.is_none_or(|field| field.value),
    })
}

/// A table of names, each with the texts that it may have.
fn texts(
    table: &mut Table<'_>,
    key: &str,
    problems: &mut Problems,
    check: impl Fn(&str) -> Option<(String, String)>,
) -> BTreeMap<String, Vec<String>> {
    let mut read = BTreeMap::new();
    for member in members(table, key, problems) {
        if let Some((problem, remedy)) = check(&member.name) {
            problems.add(&member.place, problem, remedy);
            continue;
        }
        let text = |scalar: Scalar| match scalar {
            Scalar::Text(text) => text,
            Scalar::Number(number) => number.to_string(),
            Scalar::Flag(flag) => flag.to_string(),
        };
        let values: Vec<String> = member.values.into_iter().map(text).collect();
        if values
            .iter()
            .any(|value| value.chars().any(char::is_control))
        {
            problems.add(
                &member.place,
                String::from("the value has a control character"),
                String::from("write one line of text"),
            );
        }
        read.insert(member.name, values);
    }
    read
}

fn json(table: &mut Table<'_>, problems: &mut Problems) -> BTreeMap<Pointer, Vec<Value>> {
    let mut read = BTreeMap::new();
    for member in members(table, "json", problems) {
        let value = |scalar: Scalar| match scalar {
            Scalar::Text(text) => Value::String(text),
            Scalar::Number(number) => Value::from(number),
            Scalar::Flag(flag) => Value::Bool(flag),
        };
        match Pointer::parse(&member.name) {
            Ok(pointer) => {
                read.insert(pointer, member.values.into_iter().map(value).collect());
            }
            Err((problem, remedy)) => problems.add(&member.place, problem, remedy),
        }
    }
    read
}

/// `path`: segments by their place from 1.
fn path(table: &mut Table<'_>, problems: &mut Problems) -> BTreeMap<usize, Wanted> {
    let mut read = BTreeMap::new();
    for member in members(table, "path", problems) {
        let place = Some(&member.name).filter(|name| parameter::is_number(name));
        match place.and_then(|name| name.parse().ok()) {
            Some(place @ 1..=64) => {
                if let Some(value) = wanted(&member, problems) {
                    read.insert(place, value);
                }
            }
            Some(_) | None => problems.add(
                &member.place,
                format!("`{}` is no place of a segment", member.name),
                String::from("write its number from 1, as in { \"4\" = \"one:pve\" }"),
            ),
        }
    }
    read
}

/// `parameters`, which may be empty: none may be there then.
fn parameters(table: &mut Table<'_>, problems: &mut Problems) -> Option<Parameters> {
    let map = table.map("parameters", problems)?;
    let mut read = Parameters::new();
    for member in &map.value {
        match parameter::Name::parse(&member.name) {
            Ok(name) => {
                if let Some(value) = wanted(member, problems) {
                    read.insert(name, value);
                }
            }
            Err((problem, remedy)) => problems.add(&member.place, problem, remedy),
        }
    }
    Some(read)
}

/// What a segment or a parameter may be: one text.
fn wanted(member: &Member, problems: &mut Problems) -> Option<Wanted> {
    let read = match member.values.as_slice() {
        [Scalar::Text(text)] => Wanted::parse(text),
        _ => Err((
            String::from("it is not one text"),
            String::from("write what it may be, such as \"whole:100-199\" or \"one:a,b\""),
        )),
    };
    match read {
        Ok(value) => Some(value),
        Err((problem, remedy)) => {
            problems.add(&member.place, problem, remedy);
            None
        }
    }
}

/// `task`.
fn task(table: &mut Table<'_>, problems: &mut Problems) -> Option<Task> {
    let field = table.string("task", problems)?;
    let found = Task::ALL.into_iter().find(|(_, word)| *word == field.value);
    if found.is_none() {
        let problem = format!(
            "`{}` is nothing that a request has to do with a task",
            field.value
        );
        let names = Task::ALL.iter().map(|(_, word)| *word);
        problems.add(&field.place, problem, did_you_mean(&field.value, names));
    }
    found.map(|(task, _)| task)
}

/// The members of a table of conditions; what can never be met is told.
fn members(table: &mut Table<'_>, key: &str, problems: &mut Problems) -> Vec<Member> {
    let Some(map) = table.map(key, problems) else {
        return Vec::new();
    };
    if map.value.is_empty() {
        idle(&map.place, problems);
    }
    for member in &map.value {
        if member.values.is_empty() {
            idle(&member.place, problems);
        }
    }
    map.value
}

fn idle(place: &Place, problems: &mut Problems) {
    problems.add(
        place,
        String::from("an empty condition is never met"),
        String::from("write what it may be, or remove the key"),
    );
}

/// Reads `graphql`.
pub(super) fn graphql(table: &mut Table<'_>, problems: &mut Problems) -> Vec<OperationWord> {
    let Some(list) = table.strings("graphql", problems) else {
        return Vec::new();
    };
    if list.value.is_empty() {
        idle(&list.place, problems);
    }
    let mut words = Vec::new();
    for line in &list.value {
        match OperationWord::parse(&line.value) {
            Ok(word) => words.push(word),
            Err((problem, remedy)) => problems.add(&line.place, problem, remedy),
        }
    }
    words.sort();
    words.dedup();
    words
}

fn header_problem(name: &str) -> Option<(String, String)> {
    let token =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    if name.is_empty() || !name.bytes().all(token) {
        let remedy = String::from("write it in lower case, such as \"x-api-version\"");
        return Some((format!("`{name}` is no name of a field"), remedy));
    }
    if SECRET_ENDINGS.iter().any(|ending| name.ends_with(ending)) {
        let remedy = String::from(
            "fields that carry secrets never cross the gate; the gate injects the credential",
        );
        return Some((format!("`{name}` is a field for secrets"), remedy));
    }
    None
}
