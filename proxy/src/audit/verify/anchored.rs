//! What is known of the log from elsewhere, held against its lines.
//!
//! Anchors may be of several logs: whoever keeps them begins to count anew when the log falls back
//! behind one. Unless the caller says which log it has, every anchor must be in it.

use std::collections::BTreeMap;

use super::report::Report;
use crate::audit::Seq;
use crate::audit::chain::LineHash;

/// A line that must be in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    /// Its number.
    pub seq: Seq,
    /// Its hash.
    pub head: LineHash,
    /// Which log it is of, for whoever keeps anchors of more than one; 1 is the first.
    pub log: u64,
    /// When it was anchored, as whoever keeps it writes times.
    pub at: Option<String>,
}

/// What is known of the log from elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Anchors(pub Vec<Anchor>);

/// The anchors of one log.
#[derive(Debug, Default)]
struct Kept {
    held: u64,
    /// Lines that are others: file, line in it, number.
    others: Vec<(String, u64, Seq)>,
    first: Seq,
    last: Seq,
    at: Option<String>,
    count: u64,
}

impl Kept {
    /// When the last one was anchored, if whoever keeps them says so.
    fn until(&self) -> String {
        self.at.as_ref().map_or_else(String::new, |at| {
            let shown: String = at.chars().filter(|c| !c.is_control()).take(40).collect();
            format!(", the last at {shown}")
        })
    }
}

/// Anchors on their way through the log.
#[derive(Debug)]
pub(super) struct Anchored {
    waiting: BTreeMap<Seq, Vec<Anchor>>,
    logs: BTreeMap<u64, Kept>,
}

impl Anchored {
    pub(super) fn new(anchors: &Anchors) -> Self {
        let mut waiting: BTreeMap<Seq, Vec<Anchor>> = BTreeMap::new();
        let mut logs: BTreeMap<u64, Kept> = BTreeMap::new();
        for anchor in &anchors.0 {
            let log = logs.entry(anchor.log).or_default();
            log.first = if log.count == 0 {
                anchor.seq
            } else {
                log.first.min(anchor.seq)
            };
            if anchor.seq >= log.last {
                log.last = anchor.seq;
                log.at.clone_from(&anchor.at);
            }
            log.count += 1;
            waiting.entry(anchor.seq).or_default().push(anchor.clone());
        }
        Self { waiting, logs }
    }

    /// A line of the log.
    pub(super) fn line(&mut self, file: &str, number: u64, seq: Seq, hash: LineHash) {
        if self.waiting.is_empty() {
            return;
        }
        for anchor in self.waiting.remove(&seq).unwrap_or_default() {
            let log = self.logs.entry(anchor.log).or_default();
            if anchor.head == hash {
                log.held += 1;
            } else {
                log.others.push((file.to_owned(), number, seq));
            }
        }
    }

    /// Says what did not hold, in a log of these lines.
    pub(super) fn finish(&mut self, first: Seq, last: Seq, report: &mut Report) {
        let newest = self.logs.keys().next_back().copied();
        let several = self.logs.len() > 1;
        for (number, log) in &self.logs {
            report.anchors += log.held;
            let older = Some(*number) != newest;
            if log.held == 0 {
                if older || log.last >= first {
                    none_held(report, *number, log, several);
                } else {
                    all_before(report, first, log);
                }
                continue;
            }
            for (file, line, seq) in &log.others {
                let problem = format!("line {seq} is not the one that was anchored");
                report.find(file, *line, problem);
            }
        }
        for (seq, anchors) in std::mem::take(&mut self.waiting) {
            let held = |anchor: &Anchor| self.logs.get(&anchor.log).is_some_and(|log| log.held > 0);
            if !anchors.iter().any(held) {
                // Said above.
                continue;
            }
            if seq > last {
                let problem = format!(
                    "line {seq} was anchored, but the log ends with {last}: it was cut back"
                );
                report.find("", 0, problem);
            } else if seq >= first {
                report.find("", 0, format!("line {seq} was anchored and is missing"));
            }
        }
    }
}

/// Whoever has the key can begin a log behind the newest anchor, with a line that says that those before
/// were removed.
fn all_before(report: &mut Report, first: Seq, log: &Kept) {
    let problem = format!(
        "the last of the {} anchored lines is {}{}, before the first one here, {first}: nothing kept \
         elsewhere tells this log from one that was begun anew behind it",
        log.count,
        log.last,
        log.until()
    );
    report.find("", 0, problem);
}

fn none_held(report: &mut Report, number: u64, log: &Kept, several: bool) {
    let which = if several {
        format!(" of log {number}")
    } else {
        String::new()
    };
    let until = log.until();
    let problem = format!(
        "none of the {} anchored lines{which} ({} to {}{until}) is in this log: it was deleted and \
         begun anew, or cut back before the first of them",
        log.count, log.first, log.last
    );
    report.find("", 0, problem);
}
