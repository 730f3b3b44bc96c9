//! What is wrong with a policy file: every problem in one pass, each with its place and its remedy.

use std::fmt;

use serde::Serialize;

/// All problems of one policy text, in the order of their lines. Never empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostics {
    /// The file's name as it was given.
    pub source_name: String,
    /// The problems.
    pub problems: Vec<Problem>,
}

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Line, from 1.
    pub line: usize,
    /// Where in the document: `service[2].allow[1]`.
    pub key: String,
    /// What is wrong with the value.
    pub problem: String,
    /// What to do about it.
    pub remedy: String,
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            writeln!(
                f,
                "{}:{}: {}: {}",
                self.source_name, problem.line, problem.key, problem.problem
            )?;
            write!(f, "  hint: {}", problem.remedy)?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}
