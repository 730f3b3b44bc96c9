//! Conditions beside a path: of the query, of fields of the head, and of what stands in the body.
//!
//! Each is three-valued: met, not met, or not to be told. What can be read in two ways (a parameter
//! that stands there twice, a member that another one shadows but for its letters) is not to be told,
//! and never met.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::ask::{Asked, ModelCondition};
use crate::content;
use crate::parameter::{self, Parameters};
use crate::path::Target;
use crate::pattern::{Entry, Method, text_matches};
use crate::refusal::clip;
use crate::request::{Body, Content, Operation, OperationKind, Reading, Spool, Wanted};

/// Entries that are allowed where every condition is met.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Conditional {
    pub(crate) entries: Vec<Entry>,
    pub(crate) conditions: Conditions,
}

/// Conditions that must all be met.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Conditions {
    /// By name of the parameter: what its value may be, `*` for any characters.
    pub(crate) query: BTreeMap<String, Vec<String>>,
    /// By lower-case name of the field.
    pub(crate) headers: BTreeMap<String, Vec<String>>,
    /// By JSON pointer: the values that may stand there.
    pub(crate) json: BTreeMap<Pointer, Vec<Value>>,
    /// By name of the form's field.
    pub(crate) form: BTreeMap<String, Vec<String>>,
    /// Operations of a GraphQL request.
    pub(crate) graphql: Vec<OperationWord>,
    /// What may be asked of a model.
    pub(crate) model: Option<ModelCondition>,
    /// By place in the path, from 1: what its segment may be.
    pub(crate) path: BTreeMap<usize, parameter::Value>,
    /// What the request may carry as parameters, in its query and its body together.
    pub(crate) parameters: Option<Parameters>,
    /// What it has to do with a task of Proxmox.
    pub(crate) task: Option<Task>,
    /// Never met: what it stands over is opened by other conditions, or not at all.
    pub(crate) never: bool,
}

/// What a request has to do with a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// Its answer names one, which is its asker's then.
    Given,
    /// Its path names one, which must be its asker's.
    Own,
}

impl Task {
    /// As a policy writes it.
    pub(crate) const ALL: [(Self, &'static str); 2] = [(Self::Given, "given"), (Self::Own, "own")];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::Own => "own",
        }
    }
}

/// A JSON pointer (RFC 6901) as written, with its decoded tokens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pointer {
    pub(crate) text: String,
    tokens: Vec<String>,
}

/// An operation that is permitted: every one of a type, or one root field of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OperationWord {
    pub(crate) kind: OperationKind,
    pub(crate) field: Option<String>,
}

/// Why conditions do not permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Objection {
    /// One is not met. What was found and what is wanted.
    NotMet { found: String, wanted: String },
    /// An operation that none of the words permits.
    Operation { found: String, wanted: String },
    /// Something is asked of a model that may not be.
    Model { found: String, wanted: String },
    /// It is opened by no condition.
    Shut,
    /// It could not be told; says why.
    Unreadable(String),
    /// The body is longer than the service has read.
    TooLong,
}

impl Conditional {
    /// Whether the entry stands over a request with this method. Servers take GraphQL with any.
    pub(crate) fn claims_method(&self, entry: &Entry, method: Method) -> bool {
        entry.covers_method(method) || !self.conditions.graphql.is_empty()
    }

    /// For people.
    pub(crate) fn lines(&self) -> Vec<String> {
        let conditions = self.conditions.lines().join(" and ");
        let line = |entry: &Entry| format!("{entry} when {conditions}");
        self.entries.iter().map(line).collect()
    }
}

impl Pointer {
    /// Parses a pointer; the problem and its remedy otherwise.
    pub(crate) fn parse(text: &str) -> Result<Self, (String, String)> {
        let remedy =
            || String::from("write it as in \"/items/0/state\"; `~1` is a slash, `~0` a tilde");
        let Some(rest) = text.strip_prefix('/') else {
            return Err((format!("`{text}` is no JSON pointer to a member"), remedy()));
        };
        let token = |part: &str| {
            let escapes = part.replace("~0", "").replace("~1", "");
            (!escapes.contains('~')).then(|| part.replace("~1", "/").replace("~0", "~"))
        };
        match rest.split('/').map(token).collect::<Option<Vec<_>>>() {
            Some(tokens) => Ok(Self {
                text: text.to_owned(),
                tokens,
            }),
            None => Err((format!("`{text}` has a `~` that is no escape"), remedy())),
        }
    }

    /// The value that it leads to. `Err` where another member differs from it by letter case alone:
    /// some servers take the one for the other.
    pub(crate) fn find<'v>(&self, root: &'v Value) -> Result<Option<&'v Value>, String> {
        let mut value = root;
        for token in &self.tokens {
            let next = match value {
                Value::Object(members) => {
                    let folded = fold(token);
                    let mut alike = members.iter().filter(|(name, _)| fold(name) == folded);
                    match (alike.next(), alike.next()) {
                        (_, Some(_)) => {
                            return Err(format!(
                                "members differ from `{}` in letter case alone",
                                clip(token)
                            ));
                        }
                        (Some((name, value)), None) if name == token => Some(value),
                        (Some(_) | None, None) => None,
                    }
                }
                Value::Array(items) => {
                    let plain = token == "0" || !token.starts_with('0');
                    let digits = token.bytes().all(|byte| byte.is_ascii_digit());
                    token
                        .parse::<usize>()
                        .ok()
                        .filter(|_| plain && digits)
                        .and_then(|at| items.get(at))
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
            };
            match next {
                Some(next) => value = next,
                None => return Ok(None),
            }
        }
        Ok(Some(value))
    }
}

impl OperationWord {
    /// Parses `query`, `mutation:createIssue` and their kin.
    pub(crate) fn parse(text: &str) -> Result<Self, (String, String)> {
        let (kind_text, field) = match text.split_once(':') {
            Some((kind, field)) => (kind, Some(field)),
            None => (text, None),
        };
        let kind = OperationKind::ALL
            .into_iter()
            .find(|kind| kind.as_str() == kind_text);
        let Some(kind) = kind else {
            let nearest = OperationKind::ALL
                .into_iter()
                .map(|kind| (strsim::jaro_winkler(kind_text, kind.as_str()), kind))
                .max_by(|(a, _), (b, _)| a.total_cmp(b));
            let remedy = match nearest {
                Some((score, kind)) if score > 0.75 => format!("did you mean `{}`?", kind.as_str()),
                Some(_) | None => String::from("one of: query, mutation, subscription"),
            };
            return Err((format!("`{kind_text}` is no type of operation"), remedy));
        };
        let name = |text: &str| {
            let rest = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            !text.is_empty()
                && text.bytes().all(rest)
                && !text.as_bytes().first().is_some_and(u8::is_ascii_digit)
        };
        if let Some(field) = field
            && !name(field)
        {
            return Err((
                format!("`{field}` is no name of a field"),
                String::from("write one root field, such as \"mutation:createIssue\""),
            ));
        }
        Ok(Self {
            kind,
            field: field.map(str::to_owned),
        })
    }

    pub(crate) fn covers(&self, kind: OperationKind, field: &str) -> bool {
        // The name of the root's type says nothing.
        let named = |name| name == field || field == "__typename";
        self.kind == kind && self.field.as_deref().is_none_or(named)
    }
}

impl fmt::Display for OperationWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.as_str())?;
        match &self.field {
            Some(field) => write!(f, ":{field}"),
            None => Ok(()),
        }
    }
}

impl Conditions {
    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.query.is_empty()
            && self.path.is_empty()
            && self.task.is_none()
            && !self.never
            && !self.wanted(0).is_some()
    }

    /// What must be read to judge them, with at most so many bytes of body.
    pub(crate) fn wanted(&self, most: u64) -> Wanted {
        let body = Spool {
            most,
            json: !self.json.is_empty() || self.model.is_some(),
            form: !self.form.is_empty(),
            graphql: !self.graphql.is_empty(),
            parameters: self.parameters.is_some(),
        };
        Wanted {
            headers: self.headers.keys().cloned().collect(),
            body: body.reads().then_some(body),
            task: None,
        }
    }

    /// Whether all are met; `most` is how long a body may be that is looked into.
    pub(crate) fn judge(
        &self,
        target: &Target<'_>,
        content: Option<&Content>,
        most: u64,
    ) -> Result<(), Objection> {
        if self.never {
            return Err(Objection::Shut);
        }
        self.path(target)?;
        self.task(content)?;
        for (name, values) in &self.query {
            let found = content::parameter(target.query().unwrap_or_default(), name)
                .map_err(Objection::Unreadable)?;
            text(
                &format!("query parameter `{name}`"),
                found.as_deref(),
                values,
            )?;
        }
        for (name, values) in &self.headers {
            let found = field(content, name)?;
            text(&format!("field `{name}`"), found, values)?;
        }
        if self.wanted(most).body.is_none() {
            return Ok(());
        }
        let body = content.and_then(|content| content.body.as_ref());
        let body = body.ok_or_else(|| unread("the body was not read"))?;
        if body.bytes.is_none_or(|bytes| bytes > most) {
            return Err(Objection::TooLong);
        }
        self.json(body)?;
        self.model(target, body)?;
        self.form(body)?;
        self.graphql(body)?;
        self.parameters(target, body)
    }

    /// The segments of the path, as they stand.
    fn path(&self, target: &Target<'_>) -> Result<(), Objection> {
        for (place, value) in &self.path {
            let segment = place
                .checked_sub(1)
                .and_then(|at| target.segments().nth(at));
            if segment.is_none_or(|segment| value.judge(segment).is_err()) {
                return Err(not_met(
                    &format!("segment {place} of the path"),
                    segment.is_some(),
                    &[value.to_string()],
                ));
            }
        }
        Ok(())
    }

    /// A task that the path names must be the asker's.
    fn task(&self, content: Option<&Content>) -> Result<(), Objection> {
        match (self.task, content.and_then(|content| content.task)) {
            (None | Some(Task::Given), _) | (Some(Task::Own), Some(true)) => Ok(()),
            (Some(Task::Own), Some(false) | None) => Err(Objection::NotMet {
                found: String::from("the task is none that an answer has named to you lately"),
                wanted: String::from("one that you have begun in this run"),
            }),
        }
    }

    fn parameters(&self, target: &Target<'_>, body: &Body) -> Result<(), Objection> {
        let Some(rules) = &self.parameters else {
            return Ok(());
        };
        let mut carried = content::strict_pairs(target.query().unwrap_or_default())
            .map_err(Objection::Unreadable)?;
        carried.extend(read(&body.parameters)?.iter().cloned());
        parameter::judge(rules, &carried)
    }

    fn json(&self, body: &Body) -> Result<(), Objection> {
        if self.json.is_empty() {
            return Ok(());
        }
        let root = read(&body.json)?;
        for (pointer, values) in &self.json {
            let found = pointer.find(root).map_err(Objection::Unreadable)?;
            if !found.is_some_and(|found| values.contains(found)) {
                let listed: Vec<String> = values
                    .iter()
                    .take(MOST_LISTED)
                    .map(Value::to_string)
                    .collect();
                return Err(not_met(
                    &format!("`{}` of the body", pointer.text),
                    found.is_some(),
                    &listed,
                ));
            }
        }
        Ok(())
    }

    fn model(&self, target: &Target<'_>, body: &Body) -> Result<(), Objection> {
        let Some(model) = &self.model else {
            return Ok(());
        };
        let asked = Asked::read(read(&body.json)?, target, body.bytes.unwrap_or(0));
        model.judge(&asked.map_err(Objection::Unreadable)?)
    }

    fn form(&self, body: &Body) -> Result<(), Objection> {
        if self.form.is_empty() {
            return Ok(());
        }
        let fields = read(&body.form)?;
        for (name, values) in &self.form {
            let found = content::only(fields, name).map_err(Objection::Unreadable)?;
            text(&format!("field `{name}` of the form"), found, values)?;
        }
        Ok(())
    }

    fn graphql(&self, body: &Body) -> Result<(), Objection> {
        if self.graphql.is_empty() {
            return Ok(());
        }
        let operations = read(&body.graphql)?;
        if operations.is_empty() {
            return Err(unread("it has no operation"));
        }
        for Operation { kind, fields, .. } in operations {
            if fields.is_empty() {
                return Err(unread("an operation selects nothing"));
            }
            let refused = fields
                .iter()
                .find(|field| !self.graphql.iter().any(|word| word.covers(*kind, field)));
            if let Some(field) = refused {
                let words: Vec<String> = self.graphql.iter().map(ToString::to_string).collect();
                return Err(Objection::Operation {
                    found: format!("{}:{}", kind.as_str(), clip(field)),
                    wanted: shortened(&words),
                });
            }
        }
        Ok(())
    }

    /// What the conditions are, one line each, for people.
    pub(crate) fn lines(&self) -> Vec<String> {
        let texts = |what: &str, map: &BTreeMap<String, Vec<String>>| {
            map.iter()
                .map(|(name, values)| format!("{what} {name} = {}", values.join(" | ")))
                .collect::<Vec<_>>()
        };
        let json = self.json.iter().map(|(pointer, values)| {
            let values: Vec<String> = values.iter().map(Value::to_string).collect();
            format!("json {} = {}", pointer.text, values.join(" | "))
        });
        let mut lines = texts("query", &self.query);
        lines.extend(texts("header", &self.headers));
        lines.extend(json);
        lines.extend(texts("form", &self.form));
        if !self.graphql.is_empty() {
            let words: Vec<String> = self.graphql.iter().map(ToString::to_string).collect();
            lines.push(format!("graphql {}", words.join(" | ")));
        }
        lines.extend(self.model.as_ref().map(ModelCondition::line));
        let segment = |(place, value)| format!("path {place} = {value}");
        lines.extend(self.path.iter().map(segment));
        if let Some(parameters) = &self.parameters {
            let one =
                |(name, value): (&parameter::Name, &parameter::Value)| format!("{name} = {value}");
            let all: Vec<String> = parameters.iter().map(one).collect();
            lines.push(format!("parameters {{ {} }}", all.join(", ")));
        }
        lines.extend(self.task.map(|task| format!("task {}", task.as_str())));
        lines.extend(self.never.then(|| String::from("never")));
        lines
    }
}

/// How many values a refusal lists.
const MOST_LISTED: usize = 8;

/// Letters that some JSON readers take for each other are alike: also the long s and the Kelvin sign.
fn fold(text: &str) -> String {
    text.chars()
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .collect()
}

fn text(what: &str, found: Option<&str>, values: &[String]) -> Result<(), Objection> {
    let met = found.is_some_and(|found| values.iter().any(|value| text_matches(value, found)));
    if met {
        return Ok(());
    }
    let listed: Vec<String> = values.iter().map(|value| format!("\"{value}\"")).collect();
    Err(not_met(what, found.is_some(), &listed))
}

/// What was sent is not repeated: it may be anything.
fn not_met(what: &str, there: bool, listed: &[String]) -> Objection {
    Objection::NotMet {
        found: format!(
            "{} {}",
            clip(what),
            if there {
                "has another value"
            } else {
                "is missing"
            }
        ),
        wanted: shortened(listed),
    }
}

fn shortened(listed: &[String]) -> String {
    let mut out: Vec<String> = listed
        .iter()
        .take(MOST_LISTED)
        .map(|text| clip(text))
        .collect();
    if listed.len() > MOST_LISTED {
        out.push(String::from("..."));
    }
    out.join(", ")
}

fn unread(problem: &str) -> Objection {
    Objection::Unreadable(problem.to_owned())
}

fn read<T>(reading: &Reading<T>) -> Result<&T, Objection> {
    match reading {
        Reading::Read(read) => Ok(read),
        Reading::Unreadable(problem) => Err(Objection::Unreadable(problem.clone())),
        Reading::NotAsked => Err(unread("the body was not read in this way")),
    }
}

/// The one value of a field of the head.
fn field<'c>(content: Option<&'c Content>, name: &str) -> Result<Option<&'c str>, Objection> {
    let content = content.ok_or_else(|| unread("the head was not read"))?;
    let mut values = content.headers.iter().filter(|(known, _)| known == name);
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some((_, Some(value))), None) => Ok(Some(value)),
        (Some((_, None)), None) => Err(Objection::Unreadable(format!(
            "field `{name}` has a value that is no visible text"
        ))),
        (Some(_), Some(_)) => Err(Objection::Unreadable(format!(
            "field `{name}` stands there more than once"
        ))),
    }
}
