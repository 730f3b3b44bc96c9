//! What a check found, as a value and in words.

use std::fmt;

use serde::Serialize;

use crate::audit::Seq;

/// Findings beyond this are counted only.
const SHOWN: usize = 50;

/// How a log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// There is no line.
    Empty,
    /// The last line is the closing record.
    Closed,
    /// It is being written.
    Open,
    /// Whole lines, but no closing record: the gate was killed, or the end was cut off.
    Cut,
    /// Half a line.
    Torn,
}

/// Something that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file.
    pub file: String,
    /// The line in it, from 1; 0 where it concerns the whole.
    pub line: u64,
    /// What is wrong.
    pub problem: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            f.write_str(&self.file)?;
            if self.line > 0 {
                write!(f, ":{}", self.line)?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.problem)
    }
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Whether the log is what was written, as far as can be told.
    pub intact: bool,
    /// The first line's number.
    pub first: Seq,
    /// The last line's number.
    pub last: Seq,
    /// The last line's hash.
    pub head: String,
    /// How many lines were read.
    pub lines: u64,
    /// How it ends.
    pub end: End,
    /// What is wrong, in the order of the log; of many, the first.
    pub findings: Vec<Finding>,
    /// How many findings there are.
    pub problems: u64,
    /// Requests without their end: the gate was killed meanwhile, or they still go on.
    pub open: Vec<String>,
    /// How many checkpoints there are.
    pub checkpoints: u64,
    /// How many of them carry a signature that was found good.
    pub signed: u64,
    /// How many of them carry none, where a key was given.
    pub unsigned: u64,
    /// The last line that a good signature vouches for.
    pub signed_up_to: Seq,
    /// How many anchors were found in the log.
    pub anchors: u64,
    /// What should be known although nothing is wrong.
    pub notes: Vec<String>,
}

impl Default for Report {
    fn default() -> Self {
        Self {
            intact: true,
            first: 0,
            last: 0,
            head: String::new(),
            lines: 0,
            end: End::Empty,
            findings: Vec::new(),
            problems: 0,
            open: Vec::new(),
            checkpoints: 0,
            signed: 0,
            unsigned: 0,
            signed_up_to: 0,
            anchors: 0,
            notes: Vec::new(),
        }
    }
}

impl Report {
    pub(super) fn find(&mut self, file: &str, line: u64, problem: impl Into<String>) {
        self.intact = false;
        self.problems += 1;
        if self.findings.len() < SHOWN {
            self.findings.push(Finding {
                file: file.to_owned(),
                line,
                problem: problem.into(),
            });
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.intact { "intact" } else { "NOT INTACT" };
        write!(
            f,
            "{verdict}: {} lines, {} to {}",
            self.lines, self.first, self.last
        )?;
        for finding in &self.findings {
            write!(f, "\n  {finding}")?;
        }
        let hidden = self.problems - u64::try_from(self.findings.len()).unwrap_or(0);
        if hidden > 0 {
            write!(f, "\n  and {hidden} more")?;
        }
        let end = match self.end {
            End::Empty => "the log is empty",
            End::Closed => "closed by the gate",
            End::Open => "being written",
            End::Cut => {
                "cut: it has no closing record, so the gate was killed or the end was cut off"
            }
            End::Torn => "torn: the last line is not whole",
        };
        write!(f, "\nend          {end}\nhead         {}", self.head)?;
        write!(f, "\ncheckpoints  {}", self.checkpoints)?;
        match (self.signed, self.checkpoints) {
            (0, _) => f.write_str(", no signature was checked")?,
            (signed, _) => write!(
                f,
                ", {signed} with a good signature, up to line {}",
                self.signed_up_to
            )?,
        }
        if self.unsigned > 0 {
            write!(f, "\nunsigned     {} checkpoints", self.unsigned)?;
        }
        // The signed checkpoint is a line itself.
        let unsigned = self.last.saturating_sub(self.signed_up_to + 1);
        if self.signed > 0 && unsigned > 0 {
            write!(
                f,
                "\nunsigned     {unsigned} lines after the last signature"
            )?;
        }
        if self.anchors > 0 {
            write!(f, "\nanchors      {} found in the log", self.anchors)?;
        }
        if !self.open.is_empty() {
            write!(
                f,
                "\nopen         {} requests without an end:",
                self.open.len()
            )?;
            for id in &self.open {
                write!(f, "\n  {id}")?;
            }
        }
        for note in &self.notes {
            write!(f, "\nnote         {note}")?;
        }
        Ok(())
    }
}
