//! Problems of a configuration file, all of them at once, each with its place and its remedy.
//!
//! ```text
//! boundary.toml:4: proxy: uid 0 cannot be the gate
//!   hint: create a system user for the proxy and name it here
//! ```

use std::fmt;

/// One problem at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// 1-based line; 0 when the problem has no line (a missing key, a file that cannot be read).
    pub line: usize,
    /// The key, dotted and indexed: `exception[0].expires`.
    pub key: String,
    pub text: String,
    pub hint: String,
}

/// Every problem found in one file. Never empty when returned as an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostics {
    /// The file as the person named it.
    pub file: String,
    pub problems: Vec<Problem>,
}

impl Diagnostics {
    pub fn new(file: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            problems: Vec::new(),
        }
    }

    /// Notes one problem and goes on.
    pub fn add(
        &mut self,
        line: usize,
        key: impl Into<String>,
        text: impl Into<String>,
        hint: impl Into<String>,
    ) {
        let problem = Problem {
            line,
            key: key.into(),
            text: text.into(),
            hint: hint.into(),
        };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// `value` when nothing was noted, otherwise every problem.
    pub fn finish<T>(self, value: Option<T>) -> Result<T, Diagnostics> {
        match value {
            Some(value) if self.problems.is_empty() => Ok(value),
            _ => Err(self),
        }
    }
}

impl std::error::Error for Diagnostics {}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{}", self.file)?;
            if problem.line > 0 {
                write!(f, ":{}", problem.line)?;
            }
            if !problem.key.is_empty() {
                write!(f, ": {}", problem.key)?;
            }
            write!(f, ": {}", problem.text)?;
            if !problem.hint.is_empty() {
                write!(f, "\n  hint: {}", problem.hint)?;
            }
        }
        Ok(())
    }
}
