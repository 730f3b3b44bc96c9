//! Reading a TOML table key by key, collecting every problem with its line.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One thing that is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1.
    pub line: usize,
    /// The key path, empty for the file as a whole.
    pub key: String,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub hint: String,
}

/// Everything that is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problems {
    /// The file.
    pub path: PathBuf,
    /// In the order of the file.
    pub list: Vec<Problem>,
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (
            i,
            Problem {
                line,
                key,
                problem,
                hint,
            },
        ) in self.list.iter().enumerate()
        {
            if i > 0 {
                writeln!(f)?;
            }
            let colon = if key.is_empty() { "" } else { ": " };
            write!(
                f,
                "{}:{line}: {key}{colon}{problem}\n  hint: {hint}",
                self.path.display()
            )?;
        }
        Ok(())
    }
}

/// A table of the file and what was found wrong so far.
pub(super) struct Document<'a> {
    text: &'a str,
    path: &'a Path,
    list: Vec<Problem>,
}

impl<'a> Document<'a> {
    pub(super) fn new(path: &'a Path, text: &'a str) -> Self {
        Self {
            text,
            path,
            list: Vec::new(),
        }
    }

    /// The file's table; syntax errors are problems too.
    pub(super) fn table(&mut self) -> Option<DeTable<'a>> {
        match DeTable::parse(self.text) {
            Ok(table) => Some(table.into_inner()),
            Err(error) => {
                let span = error.span().unwrap_or(0..0);
                let message = error.message().to_owned();
                self.say(span, "", message, "the file must be TOML");
                None
            }
        }
    }

    pub(super) fn say(
        &mut self,
        span: Range<usize>,
        key: &str,
        problem: impl Into<String>,
        hint: impl Into<String>,
    ) {
        let before = self
            .text
            .get(..span.start.min(self.text.len()))
            .unwrap_or_default();
        let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
        let (problem, hint) = (problem.into(), hint.into());
        self.list.push(Problem {
            line,
            key: key.to_owned(),
            problem,
            hint,
        });
    }

    /// Says that every key left in the table is unknown.
    pub(super) fn unknown(&mut self, prefix: &str, table: &DeTable<'_>, known: &[&str]) {
        for (key, value) in table {
            let name: &str = key.get_ref();
            if known.contains(&name) {
                continue;
            }
            let nearest = known.iter().min_by_key(|word| distance(word, name));
            let hint = match nearest {
                Some(word) if distance(word, name) <= 3 => format!("did you mean `{word}`?"),
                _ => format!("known keys are {}", known.join(", ")),
            };
            let span = key.span().start..value.span().end;
            self.say(span, &format!("{prefix}{name}"), "unknown key", hint);
        }
    }

    pub(super) fn text(&mut self, table: &DeTable<'_>, key: &str) -> Option<Spanned<String>> {
        let value = table.get(key)?;
        match value.get_ref() {
            DeValue::String(text) => Some(Spanned::new(value.span(), text.to_string())),
            other => {
                let problem = format!("is {}, must be a string", kind(other));
                self.say(value.span(), key, problem, format!("write {key} = \"...\""));
                None
            }
        }
    }

    /// An absolute path; `needed` says so when it is missing and there is no default.
    pub(super) fn path(
        &mut self,
        table: &DeTable<'_>,
        key: &str,
        default: Option<PathBuf>,
    ) -> PathBuf {
        if !table.contains_key(key) {
            if default.is_none() {
                self.say(
                    0..0,
                    key,
                    "is missing",
                    format!("add {key} = \"/absolute/path\""),
                );
            }
            return default.unwrap_or_default();
        }
        let Some(text) = self.text(table, key) else {
            return PathBuf::new();
        };
        let path = PathBuf::from(text.get_ref());
        if !path.is_absolute() || text.get_ref().contains('\0') {
            let problem = format!("`{}` is not an absolute path", text.get_ref());
            self.say(text.span(), key, problem, "start it with /");
        }
        path
    }

    /// A whole number within bounds.
    pub(super) fn number(
        &mut self,
        table: &DeTable<'_>,
        prefix: &str,
        key: &str,
        range: std::ops::RangeInclusive<u64>,
        default: u64,
    ) -> u64 {
        let Some(value) = table.get(key) else {
            return default;
        };
        let number = match value.get_ref() {
            DeValue::Integer(digits) => u64::from_str_radix(digits.as_str(), digits.radix()).ok(),
            DeValue::String(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => None,
        };
        match number.filter(|n| range.contains(n)) {
            Some(number) => number,
            None => {
                let (low, high) = (range.start(), range.end());
                let problem = format!("must be a whole number from {low} to {high}");
                let hint = format!("{default} is the default");
                self.say(value.span(), &format!("{prefix}{key}"), problem, hint);
                default
            }
        }
    }

    /// What was found wrong.
    pub(super) fn problems(self) -> Problems {
        Problems {
            path: self.path.to_owned(),
            list: self.list,
        }
    }

    pub(super) fn done(self) -> Result<(), Problems> {
        if self.list.is_empty() {
            Ok(())
        } else {
            Err(self.problems())
        }
    }
}

pub(super) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Edit distance of two keys.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let next = (corner + usize::from(x != *y))
                .min(row[j] + 1)
                .min(row[j + 1] + 1);
            corner = row[j + 1];
            row[j + 1] = next;
        }
    }
    row[b.len()]
}
