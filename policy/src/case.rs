//! A test that stands in a policy file: a request and what must become of it.

use crate::diagnostics::Diagnostics;
use crate::policy::Policy;
use crate::refusal::Code;
use crate::source;
use crate::trial::{Outcome, Trial};

/// One `[[test]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// Its name, or the request where it has none.
    pub name: String,
    /// The line of the file, from 1.
    pub line: usize,
    /// What is asked.
    pub trial: Trial,
    pub(crate) expected: Expected,
}

/// What must become of the request; what is absent does not matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expected {
    Allow {
        rule: Option<String>,
        credential: Option<String>,
    },
    Hold {
        rule: Option<String>,
        credential: Option<String>,
    },
    Refuse {
        rule: Option<String>,
        code: Option<Code>,
    },
}

impl Case {
    /// Reads the tests of a policy text.
    ///
    /// # Errors
    /// [`Diagnostics`], never empty, also for what is wrong with the policy itself.
    pub fn all(text: &str, source_name: &str) -> Result<Vec<Self>, Diagnostics> {
        source::cases(text, source_name)
    }

    /// Tries it.
    ///
    /// # Errors
    /// What became of the request instead, as a sentence.
    pub fn run(&self, policy: &Policy) -> Result<(), String> {
        let outcome = self.trial.on(policy);
        match (&self.expected, &outcome) {
            (
                Expected::Allow { rule, credential },
                Outcome::Allow {
                    rule: by,
                    credential: with,
                },
            ) => {
                same("rule", rule.as_deref(), Some(by.as_str()))?;
                same(
                    "credential",
                    credential.as_deref(),
                    with.as_ref().map(|name| name.as_str()),
                )
            }
            (
                Expected::Hold { rule, credential },
                Outcome::Hold {
                    rule: by,
                    credential: with,
                },
            ) => {
                same("rule", rule.as_deref(), Some(by.as_str()))?;
                same(
                    "credential",
                    credential.as_deref(),
                    with.as_ref().map(|name| name.as_str()),
                )
            }
            (Expected::Allow { .. } | Expected::Refuse { .. }, Outcome::Hold { rule, .. }) => {
                Err(format!("it waits for a person, as rule `{rule}` says"))
            }
            (Expected::Refuse { rule, code }, Outcome::Refuse(refusal)) => {
                same("code", code.map(Code::as_str), Some(refusal.code.as_str()))?;
                same(
                    "rule",
                    rule.as_deref(),
                    refusal.rule.as_ref().map(|rule| rule.as_str()),
                )
            }
            (Expected::Allow { .. } | Expected::Hold { .. }, Outcome::Refuse(refusal)) => {
                Err(format!(
                    "it is refused ({}): {}; {}",
                    refusal.code.as_str(),
                    refusal.text,
                    refusal.remedy
                ))
            }
            (Expected::Refuse { .. } | Expected::Hold { .. }, Outcome::Allow { rule, .. }) => {
                Err(format!("it is allowed by rule `{rule}`"))
            }
            (
                Expected::Allow { .. } | Expected::Hold { .. } | Expected::Refuse { .. },
                Outcome::Inspect(_),
            ) => Err(String::from(
                "the gate would look into the body first: say with `push` which refs it moves",
            )),
        }
    }
}

/// Whether a thing is as expected, if anything is expected of it.
fn same(what: &str, wanted: Option<&str>, found: Option<&str>) -> Result<(), String> {
    match wanted {
        Some(wanted) if found != Some(wanted) => Err(format!(
            "its {what} is {}, not `{wanted}`",
            found.map_or_else(|| String::from("none"), |found| format!("`{found}`"))
        )),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
