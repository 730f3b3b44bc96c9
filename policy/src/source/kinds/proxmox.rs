//! Kind `proxmox`: operations on guests of Proxmox VE, by preset or by line, within nodes, guests, pools and storages.

mod lines;
mod operations;
mod scope;

use self::operations::{AGENT, ALL, About, CONSOLES, Operation, SHUT_ALWAYS, Word};
use self::scope::Scope;
use super::Rules;
use super::lines::encoded_slash;
use crate::condition::{Conditional, Conditions, Task};
use crate::parameter::{Name, Parameters, Value};
use crate::pattern::Entry;
use crate::service::Features;
use crate::source::document::{Problems, Table, did_you_mean};

/// Words of `api`, each with those before it.
const PRESETS: &[(&str, Word)] = &[
    ("read", Word::Read),
    ("power", Word::Power),
    ("operator", Word::Operator),
];
/// Words of `also`.
const ALSO: &[(&str, Word)] = &[("console", Word::Console), ("agent-exec", Word::AgentExec)];

/// Reads every key of the kind.
pub(super) fn read(table: &mut Table<'_>, problems: &mut Problems) -> Rules {
    let slashes = encoded_slash(table, problems);
    let preset = preset(table, problems);
    let also = also(table, problems);
    let scope = Scope::read(table, problems);
    let opened = |word: Word| also.contains(&word) || preset.is_some_and(|preset| word <= preset);
    let chosen: Vec<Operation> = ALL.iter().filter(|one| opened(one.word)).copied().collect();
    let mut rules = Rules {
        slashes,
        features: Features {
            websocket: also.contains(&Word::Console),
            ..Features::default()
        },
        ..Rules::default()
    };
    for operation in &chosen {
        add(
            &mut rules,
            operation,
            &format!("/api2/json/{}", plain(operation)),
            &scope,
        );
    }
    let listed = lines::read(table, slashes, &scope, &also, problems);
    if listed.is_none() && chosen.is_empty() && !problems.concern(&table.place) {
        problems.add(
            &table.place.key("allow"),
            String::from("the service allows nothing"),
            String::from("add `api = \"read\"`, or `allow = [\"GET /api2/json/nodes\"]`"),
        );
    }
    let listed = listed.unwrap_or_default();
    rules.allow.extend(listed.plain);
    for (operation, path) in &listed.operations {
        add(&mut rules, operation, path, &scope);
    }
    let changes = |operation: &Operation| operation.method != "GET" && operation.word != Word::Read;
    let writes = chosen
        .iter()
        .chain(listed.operations.iter().map(|(one, _)| one));
    let writes: Vec<_> = writes.filter(|one| changes(one)).collect();
    if !writes.is_empty() {
        scope.must_bound(table, problems, preset.is_some() || !also.is_empty());
        for operation in ALL.iter().filter(|one| one.about == About::Own) {
            add(
                &mut rules,
                operation,
                &format!("/api2/json/{}", plain(operation)),
                &scope,
            );
        }
    }
    shut(&mut rules, &also);
    rules
}

/// What is opened by its word alone stays shut without it.
fn shut(rules: &mut Rules, also: &[Word]) {
    let mut lines = SHUT_ALWAYS.to_vec();
    if !also.contains(&Word::Console) {
        lines.extend(CONSOLES);
    }
    if !also.contains(&Word::AgentExec) {
        lines.extend(AGENT);
    }
    rules.when.push(Conditional {
        // The lines are this file's own, and well formed.
        entries: lines
            .iter()
            .filter_map(|line| Entry::parse(line).ok())
            .collect(),
        conditions: Conditions {
            never: true,
            ..Conditions::default()
        },
    });
}

/// The path with `*` where the scope decides.
fn plain(operation: &Operation) -> String {
    let segment = |segment: &'static str| {
        if segment.starts_with('{') {
            "*"
        } else {
            segment
        }
    };
    let segments: Vec<&str> = operation.path.split('/').map(segment).collect();
    segments.join("/")
}

/// Adds one operation at a path that it covers.
fn add(rules: &mut Rules, operation: &Operation, path: &str, scope: &Scope) {
    let Ok(entry) = Entry::parse(&format!("{} {path}", operation.method)) else {
        return;
    };
    let mut conditions = Conditions {
        task: match operation.about {
            About::Nothing => None,
            About::Gives => Some(Task::Given),
            About::Own => Some(Task::Own),
        },
        ..Conditions::default()
    };
    // `/api2/json/` comes before the operation's own path.
    for (at, segment) in operation.path.split('/').enumerate() {
        if let Some(value) = scope.of_segment(segment) {
            conditions.path.insert(at + 3, value);
        }
    }
    conditions.parameters = operation.parameters.map(|lists| parameters(lists, scope));
    if conditions == Conditions::default() {
        if !rules.allow.contains(&entry) {
            rules.allow.push(entry);
        }
        return;
    }
    let same = rules
        .when
        .iter_mut()
        .find(|when| when.conditions == conditions);
    match same {
        Some(when) if when.entries.contains(&entry) => {}
        Some(when) => when.entries.push(entry),
        None => rules.when.push(Conditional {
            entries: vec![entry],
            conditions,
        }),
    }
}

fn parameters(lists: &[&[(&str, &str)]], scope: &Scope) -> Parameters {
    let mut all = Parameters::new();
    for (name, value) in lists.iter().copied().flatten() {
        let name = Name::parse(&scope.filled(name));
        let value = Value::parse(&scope.filled(value));
        if let (Ok(name), Ok(value)) = (name, value) {
            all.insert(name, value);
        }
    }
    all
}

/// Reads `api`.
fn preset(table: &mut Table<'_>, problems: &mut Problems) -> Option<Word> {
    let field = table.string("api", problems)?;
    let found = PRESETS.iter().find(|(name, _)| *name == field.value);
    if found.is_none() {
        let problem = format!("`{}` is not a way to use the API", field.value);
        let names = PRESETS.iter().map(|(name, _)| *name);
        problems.add(&field.place, problem, did_you_mean(&field.value, names));
    }
    found.map(|(_, word)| *word)
}

/// Reads `also`.
fn also(table: &mut Table<'_>, problems: &mut Problems) -> Vec<Word> {
    let Some(list) = table.strings("also", problems) else {
        return Vec::new();
    };
    super::lines::refuse_empty(&list, problems);
    let mut words = Vec::new();
    for line in &list.value {
        match ALSO.iter().find(|(name, _)| *name == line.value) {
            Some((_, word)) => words.push(*word),
            None => {
                let names = ALSO.iter().map(|(name, _)| *name);
                let problem = format!("`{}` is nothing that can be opened", line.value);
                problems.add(&line.place, problem, did_you_mean(&line.value, names));
            }
        }
    }
    words
}
