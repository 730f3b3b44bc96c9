//! Checkpoints: a text that commits to the log up to a line and to what was in force then. With a
//! key the gate signs it; the text and the signature lie in a record of their own, so that they can
//! be checked without the gate (`gpg --verify`).
//!
//! ```text
//! Portcullis audit checkpoint, version 1
//! seq 1204
//! head 5e1d…
//! time 2026-11-30T08:00:00.123456Z
//! closing no
//! every 10000 60
//! policy default 9f86…
//! boundary 11ab…
//! refused destination_not_listed 12
//! refused-packets 231072 4
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Seq;
use super::chain::LineHash;

const TITLE: &str = "Portcullis audit checkpoint, version 1";

/// Of each kind of commitment, so many lines are written.
const MOST_LINES: usize = 1000;
/// A word of a line is cut to this.
const WORD_CHARS: usize = 128;
/// What is said of the boundary is cut to this.
const BOUNDARY_CHARS: usize = 2048;

/// What a checkpoint commits to beside the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Commitments {
    /// Hash of the policy in force, by profile.
    pub policies: BTreeMap<String, String>,
    /// Hash of the kernel boundary's rules, or why there is none.
    pub boundary: String,
    /// How many requests were refused since the gate started, by code.
    pub refused: BTreeMap<String, u64>,
    /// How many packets the kernel boundary refused, by uid.
    pub refused_packets: BTreeMap<String, u64>,
    /// How often checkpoints are written.
    pub interval: Option<Interval>,
}

/// How often checkpoints are written: after so many lines, or so long after the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// Lines.
    pub lines: u64,
    /// The time, in whole seconds rounded up.
    pub seconds: u64,
}

impl Interval {
    /// What a statement says of it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("every "))?;
        let (lines, seconds) = line.split_once(' ')?;
        Some(Self {
            lines: lines.parse().ok()?,
            seconds: seconds.parse().ok()?,
        })
    }
}

/// What a statement says about the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statement {
    /// The line up to which it speaks.
    pub seq: Seq,
    /// That line's hash.
    pub head: LineHash,
    /// Whether the log was closed.
    pub closing: bool,
}

impl Statement {
    /// The text that is signed.
    #[must_use]
    pub fn text(&self, time: &str, commitments: &Commitments) -> String {
        let mut text = String::new();
        let closing = if self.closing { "yes" } else { "no" };
        // Writing to a String cannot fail, here and below.
        let _ = write!(
            text,
            "{TITLE}\nseq {}\nhead {}\ntime {time}\nclosing {closing}\n",
            self.seq, self.head
        );
        if let Some(Interval { lines, seconds }) = commitments.interval {
            let _ = writeln!(text, "every {lines} {seconds}");
        }
        for (profile, hash) in commitments.policies.iter().take(MOST_LINES) {
            let _ = writeln!(text, "policy {} {}", word(profile), word(hash));
        }
        let boundary: String = commitments
            .boundary
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        let _ = writeln!(text, "boundary {}", short(&boundary, BOUNDARY_CHARS));
        for (code, count) in commitments.refused.iter().take(MOST_LINES) {
            let _ = writeln!(text, "refused {} {count}", word(code));
        }
        for (uid, count) in commitments.refused_packets.iter().take(MOST_LINES) {
            let _ = writeln!(text, "refused-packets {} {count}", word(uid));
        }
        // Of many, the rest is one line: a checkpoint fits into a line of the log.
        for (what, all) in [
            ("policy", commitments.policies.len()),
            ("refused", commitments.refused.len()),
            ("refused-packets", commitments.refused_packets.len()),
        ] {
            if all > MOST_LINES {
                let _ = writeln!(text, "left-out {what} {}", all - MOST_LINES);
            }
        }
        text
    }

    /// Reads what a text says about the log.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next() != Some(TITLE) {
            return None;
        }
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let seq = field("seq")?.parse().ok()?;
        let head = LineHash::parse(field("head")?.as_bytes())?;
        field("time")?;
        let closing = match field("closing")? {
            "yes" => true,
            "no" => false,
            _ => return None,
        };
        Some(Self { seq, head, closing })
    }
}

/// One word of a line.
fn word(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join("_");
    short(&text, WORD_CHARS)
}

fn short(text: &str, most: usize) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(most)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_fits_into_a_line_whatever_it_commits_to() {
        let many = |count: usize| (0..count).map(|n| (format!("{n:0>200}"), 7));
        let commitments = Commitments {
            policies: (0..3000)
                .map(|n| (format!("{n:\u{1}>9000}"), "\"".repeat(9000)))
                .collect(),
            boundary: "\"".repeat(9_000_000),
            refused: many(3000).collect(),
            refused_packets: many(65_536).collect(),
            interval: Some(Interval {
                lines: 1,
                seconds: 2,
            }),
        };
        let statement = Statement {
            seq: 12,
            head: LineHash::NONE,
            closing: false,
        };
        let text = statement.text("2026-11-30T08:00:00Z", &commitments);
        let line = serde_json::to_string(&text).unwrap();
        assert!(line.len() < super::super::segment::LINE_BYTES_MAX - 64 * 1024);
        assert_eq!(Interval::parse(&text), commitments.interval);
        assert!(text.ends_with("left-out refused-packets 64536\n"), "{text}");
        assert_eq!(Statement::parse(&text), Some(statement));
    }

    #[test]
    fn a_statement_is_read_as_it_was_meant_whatever_it_commits_to() {
        let statement = Statement {
            seq: 12,
            head: LineHash::NONE,
            closing: true,
        };
        let commitments = Commitments {
            policies: [("default".to_owned(), "9f\nseq 1".to_owned())].into(),
            boundary: "external:\nclosing no".to_owned(),
            refused: [("path_not_allowed".to_owned(), 3)].into(),
            refused_packets: [("231072".to_owned(), 4)].into(),
            interval: None,
        };
        let text = statement.text("2026-11-30T08:00:00Z", &commitments);
        assert_eq!(Statement::parse(&text), Some(statement));
        assert_eq!(text.lines().count(), 9, "{text}");
        assert!(text.ends_with(
            "boundary external: closing no\nrefused path_not_allowed 3\nrefused-packets 231072 4\n"
        ));
        assert_eq!(Statement::parse(&text.replacen("seq", "sex", 1)), None);
    }
}
