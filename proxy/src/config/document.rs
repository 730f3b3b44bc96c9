//! Reading a TOML document so that every problem is found in one pass, each with its line.
//!
//! A [`Section`] is one table being read: keys are taken out of it by name, and what is left when
//! it is closed was not a key we know, which is an error naming the nearest one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One thing wrong with a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, as the person named it.
    pub file: String,
    /// Line, from 1; 0 when it concerns the file as a whole.
    pub line: usize,
    /// Dotted path of the key; empty when it concerns the file as a whole.
    pub key: String,
    /// What is wrong.
    pub text: String,
    /// What to do about it.
    pub hint: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.text)?;
        if !self.hint.is_empty() {
            write!(f, "\n  hint: {}", self.hint)?;
        }
        Ok(())
    }
}

/// The problems found so far in one file.
#[derive(Debug)]
pub(super) struct Problems<'t> {
    file: &'t str,
    text: &'t str,
    found: RefCell<Vec<Problem>>,
}

impl<'t> Problems<'t> {
    pub(super) fn new(file: &'t str, text: &'t str) -> Self {
        Self {
            file,
            text,
            found: RefCell::new(Vec::new()),
        }
    }

    pub(super) fn add(&self, at: usize, key: &str, text: impl Into<String>, hint: &str) {
        self.found.borrow_mut().push(Problem {
            file: self.file.to_owned(),
            line: self.line(at),
            key: key.to_owned(),
            text: text.into(),
            hint: hint.to_owned(),
        });
    }

    pub(super) fn line(&self, at: usize) -> usize {
        let upto = self.text.get(..at).unwrap_or(self.text);
        upto.bytes().filter(|byte| *byte == b'\n').count() + 1
    }

    /// In the order of the file.
    pub(super) fn into_sorted(self) -> Vec<Problem> {
        let mut found = self.found.into_inner();
        found.sort_by_key(|problem| problem.line);
        found
    }
}

/// A value with the place it was written at.
#[derive(Debug, Clone)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) at: usize,
}

/// One table being read.
#[derive(Debug)]
pub(super) struct Section<'p, 't> {
    problems: &'p Problems<'t>,
    path: String,
    at: usize,
    left: BTreeMap<String, (usize, Spanned<DeValue<'t>>)>,
    known: Vec<&'static str>,
}

impl<'p, 't> Section<'p, 't> {
    /// The whole document; syntax errors are recorded and what could be read is kept.
    pub(super) fn document(problems: &'p Problems<'t>) -> Self {
        let (table, errors) = DeTable::parse_recoverable(problems.text);
        for error in errors {
            let at = error.span().map_or(0, |span| span.start);
            problems.add(
                at,
                "",
                error.message().trim(),
                "this is not TOML: see https://toml.io",
            );
        }
        Self::of(problems, String::new(), 0, table.into_inner())
    }

    fn of(problems: &'p Problems<'t>, path: String, at: usize, table: DeTable<'t>) -> Self {
        let left = table
            .into_iter()
            .map(|(key, value)| {
                let at = key.span().start;
                (key.into_inner().into_owned(), (at, value))
            })
            .collect();
        Self {
            problems,
            path,
            at,
            left,
            known: Vec::new(),
        }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Whether the key is written in this table and was not taken yet.
    pub(super) fn has(&self, key: &str) -> bool {
        self.left.contains_key(key)
    }

    /// Whether the key, not taken yet, is a list of nothing.
    pub(super) fn is_empty_list(&self, key: &str) -> bool {
        let value = self.left.get(key).map(|(_, value)| value.get_ref());
        matches!(value, Some(DeValue::Array(items)) if items.is_empty())
    }

    pub(super) fn path(&self, key: &str) -> String {
        match (self.path.is_empty(), key.is_empty()) {
            (true, _) => key.to_owned(),
            (false, true) => self.path.clone(),
            (false, false) => format!("{}.{key}", self.path),
        }
    }

    pub(super) fn problem(&self, at: usize, key: &str, text: impl Into<String>, hint: &str) {
        self.problems.add(at, &self.path(key), text, hint);
    }

    fn take(&mut self, key: &'static str) -> Option<(usize, Spanned<DeValue<'t>>)> {
        self.known.push(key);
        self.left.remove(key)
    }

    fn wrong(&self, at: usize, key: &str, found: &DeValue<'_>, wanted: &str) {
        self.problem(
            at,
            key,
            format!("is a {} where {wanted} is expected", found.type_str()),
            &format!("write {wanted}"),
        );
    }

    pub(super) fn string(&mut self, key: &'static str) -> Option<At<String>> {
        let (at, value) = self.take(key)?;
        match value.into_inner() {
            DeValue::String(text) if !text.is_empty() => Some(At {
                value: text.into_owned(),
                at,
            }),
            DeValue::String(_) => {
                self.problem(at, key, "is empty", "give it a value or remove the line");
                None
            }
            other => {
                self.wrong(at, key, &other, "a \"string\"");
                None
            }
        }
    }

    pub(super) fn required_string(
        &mut self,
        key: &'static str,
        example: &str,
    ) -> Option<At<String>> {
        if !self.left.contains_key(key) {
            self.known.push(key);
            self.problem(
                self.at,
                key,
                "is missing",
                &format!("add {key} = {example}"),
            );
            return None;
        }
        self.string(key)
    }

    pub(super) fn boolean(&mut self, key: &'static str) -> Option<bool> {
        let (at, value) = self.take(key)?;
        match value.into_inner() {
            DeValue::Boolean(value) => Some(value),
            other => {
                self.wrong(at, key, &other, "true or false");
                None
            }
        }
    }

    pub(super) fn integer(&mut self, key: &'static str) -> Option<At<u64>> {
        let (at, value) = self.take(key)?;
        let number = match value.get_ref() {
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
            DeValue::String(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => None,
        };
        match number {
            Some(value) => Some(At { value, at }),
            None => {
                self.wrong(at, key, value.get_ref(), "a whole number from 0");
                None
            }
        }
    }

    /// An integer or a string, as text: users are given by name or uid.
    pub(super) fn string_or_integer(&mut self, key: &'static str) -> Option<At<String>> {
        let is_integer = self
            .left
            .get(key)
            .is_some_and(|(_, value)| value.get_ref().is_integer());
        if is_integer {
            let At { value, at } = self.integer(key)?;
            return Some(At {
                value: value.to_string(),
                at,
            });
        }
        self.string(key)
    }

    pub(super) fn strings(&mut self, key: &'static str) -> Option<At<Vec<At<String>>>> {
        let (at, value) = self.take(key)?;
        let DeValue::Array(items) = value.into_inner() else {
            self.problem(at, key, "is not a list", "write a list of strings: [\"…\"]");
            return None;
        };
        let mut strings = Vec::new();
        for item in items {
            let at = item.span().start;
            match item.into_inner() {
                DeValue::String(text) => strings.push(At {
                    value: text.into_owned(),
                    at,
                }),
                other => self.wrong(at, key, &other, "a \"string\""),
            }
        }
        Some(At { value: strings, at })
    }

    pub(super) fn section(&mut self, key: &'static str) -> Option<Section<'p, 't>> {
        let (at, value) = self.take(key)?;
        match value.into_inner() {
            DeValue::Table(table) => Some(Section::of(self.problems, self.path(key), at, table)),
            other => {
                self.wrong(at, key, &other, &format!("a table [{}]", self.path(key)));
                None
            }
        }
    }

    /// `[[key]]`: each entry's path carries its number, from 1.
    pub(super) fn sections(&mut self, key: &'static str) -> Vec<Section<'p, 't>> {
        let Some((at, value)) = self.take(key) else {
            return Vec::new();
        };
        let wanted = format!("a list of tables [[{}]]", self.path(key));
        let DeValue::Array(items) = value.into_inner() else {
            self.problem(
                at,
                key,
                "is not a list of tables",
                &format!("write {wanted}"),
            );
            return Vec::new();
        };
        let mut sections = Vec::new();
        for (index, item) in items.into_iter().enumerate() {
            let at = item.span().start;
            match item.into_inner() {
                DeValue::Table(table) => {
                    let path = format!("{}[{}]", self.path(key), index + 1);
                    sections.push(Section::of(self.problems, path, at, table));
                }
                other => self.wrong(at, key, &other, &wanted),
            }
        }
        sections
    }

    /// `[key.NAME]` for names of the person's choosing.
    pub(super) fn named_sections(
        &mut self,
        key: &'static str,
    ) -> Vec<(At<String>, Section<'p, 't>)> {
        let Some(mut outer) = self.section(key) else {
            return Vec::new();
        };
        let mut named = Vec::new();
        for (name, (at, value)) in std::mem::take(&mut outer.left) {
            match value.into_inner() {
                DeValue::Table(table) => {
                    let path = outer.path(&name);
                    let inner = Section::of(self.problems, path, at, table);
                    named.push((At { value: name, at }, inner));
                }
                other => outer.wrong(at, &name, &other, &format!("a table [{key}.NAME]")),
            }
        }
        named
    }

    /// Reports every key that nobody asked for.
    pub(super) fn close(self) {
        for (key, (at, _)) in &self.left {
            let nearest = self
                .known
                .iter()
                .map(|known| (strsim::jaro_winkler(key, known), *known))
                .max_by(|a, b| a.0.total_cmp(&b.0))
                .filter(|(likeness, _)| *likeness > 0.75);
            let hint = match nearest {
                Some((_, known)) => format!("did you mean {known}?"),
                None => format!("known keys here: {}", self.known.join(", ")),
            };
            self.problem(*at, key, "is not a key we know", &hint);
        }
    }
}
