//! Parameters of a request, wherever it carries them: in the query, in a form, in JSON. The list is closed: what
//! it does not name must not be there.

mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

pub(crate) use self::value::Value;
use crate::condition::Objection;
use crate::refusal::clip;

/// What each parameter may be. What is not listed is not permitted.
pub(crate) type Parameters = BTreeMap<Name, Value>;

/// Names a parameter, or a numbered family of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    stem: String,
    /// `mp#`: behind the stem stands a number as computers write it.
    numbered: bool,
    /// `unprivileged!`: it must be there.
    required: bool,
    /// `command+`: it may stand there several times.
    repeated: bool,
}

impl Name {
    /// Parses `newid`, `unprivileged!`, `mp#`, `command+`; the problem and its remedy otherwise.
    pub(crate) fn parse(text: &str) -> Result<Self, (String, String)> {
        let (rest, repeated) = cut(text, '+');
        let (rest, required) = cut(rest, '!');
        let (stem, numbered) = cut(rest, '#');
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if stem.is_empty() || !stem.bytes().all(good) {
            let remedy = "write a name of letters, digits, `-`, `_` and `.`, and behind it `#` for any number, `!` if it must be there, `+` if it may be repeated";
            return Err((
                format!("`{text}` is no name of a parameter"),
                remedy.to_owned(),
            ));
        }
        Ok(Self {
            stem: stem.to_owned(),
            numbered,
            required,
            repeated,
        })
    }

    /// Whether a parameter of exactly this name is meant.
    pub(crate) fn covers(&self, name: &str) -> bool {
        match name.strip_prefix(self.stem.as_str()) {
            Some(rest) if self.numbered => is_number(rest),
            Some(rest) => rest.is_empty(),
            None => false,
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = |there: bool, mark: &'static str| if there { mark } else { "" };
        let (numbered, required) = (mark(self.numbered, "#"), mark(self.required, "!"));
        let repeated = mark(self.repeated, "+");
        write!(f, "{}{numbered}{required}{repeated}", self.stem)
    }
}

/// Judges what the request carries, in whatever order.
pub(crate) fn judge(rules: &Parameters, carried: &[(String, String)]) -> Result<(), Objection> {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (name, value) in carried {
        let rule = rules.iter().find(|(rule, _)| rule.covers(name));
        let Some((rule, wanted)) = rule else {
            return Err(Objection::NotMet {
                found: format!(
                    "parameter `{}` is there, which it does not name",
                    clip(name)
                ),
                wanted: String::from("left out"),
            });
        };
        if !seen.insert(name) && !rule.repeated {
            return Err(Objection::Unreadable(format!(
                "parameter `{}` stands there more than once",
                clip(name)
            )));
        }
        if let Err(problem) = wanted.judge(value) {
            return Err(Objection::NotMet {
                found: format!("parameter `{}` {problem}", clip(name)),
                wanted: wanted.to_string(),
            });
        }
    }
    let missing = rules
        .iter()
        .find(|(rule, _)| rule.required && !seen.iter().any(|name| rule.covers(name)));
    match missing {
        Some((rule, wanted)) => Err(Objection::NotMet {
            found: format!("parameter `{}` is missing", rule.stem),
            wanted: wanted.to_string(),
        }),
        None => Ok(()),
    }
}

/// A number in the one form in which computers write it.
pub(crate) fn is_number(text: &str) -> bool {
    let plain = text == "0" || !text.starts_with('0');
    !text.is_empty() && text.len() <= 18 && plain && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn cut(text: &str, mark: char) -> (&str, bool) {
    match text.strip_suffix(mark) {
        Some(rest) => (rest, true),
        None => (text, false),
    }
}

#[cfg(test)]
mod tests;
