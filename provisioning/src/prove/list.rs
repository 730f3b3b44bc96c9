//! `proofs.toml`: what must fail and what must succeed, each with a reason. The file is described in `docs/prove.md`.
//!
//! ```toml
//! version = 1
//!
//! [[proof]]
//! id      = "KRN-01"
//! must    = "fail"
//! attempt = "tcp"
//! ports   = [443]
//! reason  = "a direct connection is the plainest way round the gate"
//! ```

mod read;

use std::path::Path;

use nftables::diagnostics::Diagnostics;

use super::kind::{Answer, Families, Inside, Kind, Must, OnlyIn, Who};

/// The list that this program carries.
pub const BUILT_IN: &str = include_str!("../../proofs.toml");
/// How the built-in list is called in messages.
const BUILT_IN_NAME: &str = "proofs.toml (built in)";

/// One line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// Unique, e.g. `KRN-03-quic`.
    pub id: String,
    pub must: Must,
    pub kind: Kind,
    pub who: Who,
    pub families: Families,
    pub ports: Vec<u16>,
    pub paths: Vec<String>,
    /// Variables of an environment, with `*` at the end as a wildcard.
    pub names: Vec<String>,
    /// Header fields, `Name: value`.
    pub headers: Vec<String>,
    pub inside: Option<Inside>,
    pub only_in: Option<OnlyIn>,
    pub answer: Option<Answer>,
    /// Whether it is tried once more while the gate is down.
    pub without_gate: bool,
    pub reason: String,
}

/// A rule of the boundary that may go without any proof noticing; `portcullis boundary verify` notices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redundant {
    pub only_in: Option<OnlyIn>,
    /// `chain/comment`.
    pub rule: String,
    pub reason: String,
}

/// A case that no proof tries on a machine that is at work, and the test that shows it instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elsewhere {
    /// `CRD-12`.
    pub case: String,
    /// `path/of/file.rs::name_of_the_test`.
    pub test: String,
    pub reason: String,
}

/// A whole file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct List {
    pub proofs: Vec<Proof>,
    pub redundant: Vec<Redundant>,
    pub elsewhere: Vec<Elsewhere>,
    /// Whether the file adds to the built-in list instead of replacing it.
    pub extends: bool,
}

impl List {
    /// The built-in list.
    ///
    /// # Errors
    /// Never in a released program: a test reads it.
    pub fn built_in() -> Result<Self, Diagnostics> {
        read::list(BUILT_IN, BUILT_IN_NAME)
    }

    /// The list of a file, with the built-in one in front of it when it says `extends = true`.
    ///
    /// # Errors
    /// Every problem of the file, with line, key and remedy.
    pub fn load(path: &Path) -> Result<Self, Diagnostics> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            let mut problems = Diagnostics::new(&file);
            let hint = "name the file with --proofs FILE";
            problems.add(0, "", format!("cannot be read: {error}"), hint);
            problems
        })?;
        let own = read::list(&text, &file)?;
        if !own.extends {
            return Ok(own);
        }
        let mut whole = Self::built_in()?;
        // An id of the built-in list is replaced, so that one proof can be changed or made narrower.
        whole
            .proofs
            .retain(|old| !own.proofs.iter().any(|new| new.id == old.id));
        whole.proofs.extend(own.proofs);
        whole.redundant.extend(own.redundant);
        whole.elsewhere.extend(own.elsewhere);
        Ok(whole)
    }
}

#[cfg(test)]
mod tests;
