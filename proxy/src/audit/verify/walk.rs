//! One pass over all lines.

use std::collections::BTreeMap;
use std::fs::File;

use policy::Code;
use policy::record::{Checkpoint, LogFact, Record, RecordKind};

use super::Check;
use super::anchored::Anchored;
use super::report::{End, Report};
use crate::audit::Seq;
use crate::audit::chain::{self, LineHash};
use crate::audit::checkpoint::{Interval, Statement};
use crate::audit::segment::{self, Line, Segment};

/// How often checkpoints are written where the last one does not say.
const USUAL: Interval = Interval {
    lines: 10_000,
    seconds: 60,
};

/// What the log itself says about lines that are not there.
#[derive(Debug, Default)]
struct Explained {
    /// Lines up to this one were removed as retention asks for.
    removed: Seq,
    removed_first: bool,
    /// SHA-256 of compressed files, by the number that they begin with; of a copy that was made again,
    /// each.
    compressed: BTreeMap<Seq, Vec<String>>,
}

/// A compressed file as it is.
#[derive(Debug)]
struct Packed {
    file: String,
    first: Seq,
    sha256: String,
}

/// A check on its way through the log.
pub(super) struct Walk<'c> {
    check: &'c Check<'c>,
    /// The log is being written.
    live: bool,
    anchors: Anchored,
    report: Report,
    /// The last line that was read: its number and hash.
    last: Option<(Seq, LineHash)>,
    /// Requests without their end so far, by id, with the line that began them.
    open: BTreeMap<String, Seq>,
    explained: Explained,
    packed: Vec<Packed>,
    closed: bool,
    torn: bool,
    /// Closed files without a line, by the number that they begin with.
    emptied: BTreeMap<Seq, String>,
    /// The lines since an event that tells of an abandoned file are ends of requests that did not leave:
    /// what began them may be lost, and they are said again if the next file is abandoned too.
    abandoned: bool,
    /// What the last good signature says of the next one.
    interval: Interval,
    /// When the first line after it was written, and the last one.
    tail: Option<(String, String)>,
}

impl<'c> Walk<'c> {
    pub(super) fn new(check: &'c Check<'c>, live: bool) -> Self {
        Self {
            check,
            live,
            anchors: Anchored::new(&check.anchors),
            report: Report::default(),
            last: None,
            open: BTreeMap::new(),
            explained: Explained::default(),
            packed: Vec::new(),
            closed: false,
            torn: false,
            emptied: BTreeMap::new(),
            abandoned: false,
            interval: USUAL,
            tail: None,
        }
    }

    /// Every line of a file, which may have been opened for it.
    pub(super) fn segment(
        &mut self,
        segment: &Segment,
        held: Option<File>,
        is_last: bool,
    ) -> std::io::Result<()> {
        let (segment, opened) = match held {
            Some(held) => (segment.clone(), held),
            None => segment.found()?,
        };
        let file = segment.path.display().to_string();
        if let (true, Some(first)) = (segment.is_compressed(), segment.first) {
            self.packed.push(Packed {
                file: file.clone(),
                first,
                sha256: segment::sha256(&opened)?,
            });
        }
        let mut lines = segment.lines(opened)?;
        let mut number = 0;
        loop {
            let line = match lines.read() {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(problem) if segment.is_compressed() => {
                    self.report
                        .find(&file, number, format!("does not decompress: {problem}"));
                    break;
                }
                Err(problem) => return Err(problem),
            };
            number += 1;
            if number == 1 && line.whole {
                self.named(&segment, &file, line.text);
            }
            let ends = is_last && self.live && !line.whole;
            self.line(&file, number, line, is_last);
            if ends {
                // The rest of the line, which may have come meanwhile, is none by itself.
                break;
            }
        }
        if number == 0
            && let Some(first) = segment.first
        {
            // Only what has lines is closed. What a crash took from one is told where the next line is; what
            // stands in another file is told here.
            if self.last.is_some_and(|(seq, _)| seq >= first) {
                self.empty(&file, first);
            } else {
                self.emptied.insert(first, file);
            }
        }
        Ok(())
    }

    /// Its first line stands in another file.
    fn empty(&mut self, file: &str, first: Seq) {
        let problem = format!("is empty, and begins with line {first} as its name says");
        self.report.find(file, 0, problem);
    }

    /// The name of a file says with which line it begins.
    fn named(&mut self, segment: &Segment, file: &str, line: &[u8]) {
        let found = serde_json::from_slice::<Record>(line).map(|record| record.seq);
        if let (Some(first), Ok(seq)) = (segment.first, found)
            && first != seq
        {
            let problem = format!("begins with line {seq}, not with {first} as its name says");
            self.report.find(file, 1, problem);
        }
    }

    fn line(&mut self, file: &str, number: u64, line: Line<'_>, is_last: bool) {
        self.closed = false;
        if !line.whole {
            if is_last && self.live {
                // It is being written at this moment.
                return;
            }
            self.torn = true;
            self.report.find(
                file,
                number,
                "is not whole: the file was cut, or a crash cut it",
            );
            return;
        }
        self.report.lines += 1;
        if line.long {
            self.report.find(
                file,
                number,
                "is longer than any record and was not read: see the file itself",
            );
            return;
        }
        let sealed = match chain::open(line.text) {
            Ok(sealed) => sealed,
            Err(fault) => {
                self.report.find(file, number, fault.to_string());
                return;
            }
        };
        let record: Record = match serde_json::from_slice(line.text) {
            Ok(record) => record,
            Err(problem) => {
                let problem = format!("is no record: {problem}");
                self.report.find(file, number, problem);
                return;
            }
        };
        if let Some(emptied) = self.emptied.remove(&record.seq) {
            self.empty(&emptied, record.seq);
        }
        self.joins(file, number, &record, sealed.prev);
        self.anchors.line(file, number, record.seq, sealed.hash);
        self.last = Some((record.seq, sealed.hash));
        self.content(file, number, &record);
    }

    /// Whether the line follows the one before.
    fn joins(&mut self, file: &str, number: u64, record: &Record, prev: LineHash) {
        let Some((seq, hash)) = self.last else {
            self.report.first = record.seq;
            let begins = record.seq == 1;
            if begins != (prev == LineHash::NONE) {
                self.report
                    .find(file, number, "names a line before it that cannot be");
            }
            return;
        };
        if record.seq == seq + 1 && prev == hash {
            return;
        }
        let problem = match record.seq.checked_sub(seq) {
            Some(1) => format!("does not follow line {seq}: it names another hash"),
            Some(0) | None => format!("line {} stands after line {seq}", record.seq),
            Some(_) => match &record.log {
                Some(LogFact::Abandoned { durable, last })
                    if *durable <= seq && *last + 1 == record.seq =>
                {
                    format!(
                        "lines {} to {last} are missing: lost when a sync failed, as the log says",
                        seq + 1
                    )
                }
                Some(_) | None => {
                    format!("lines {} to {} are missing", seq + 1, record.seq - 1)
                }
            },
        };
        self.report.find(file, number, problem);
    }

    fn content(&mut self, file: &str, number: u64, record: &Record) {
        match &mut self.tail {
            Some((_, last)) => last.clone_from(&record.time),
            None => self.tail = Some((record.time.clone(), record.time.clone())),
        }
        self.abandoned = matches!(record.log, Some(LogFact::Abandoned { .. }))
            || self.abandoned && record.code == Some(Code::AuditUnavailable);
        match record.kind {
            RecordKind::Request => {
                self.open.insert(record.id.clone(), record.seq);
            }
            RecordKind::Response => {
                let begun = self.open.remove(&record.id).is_some() || self.abandoned;
                if !begun && self.report.first == 1 {
                    let problem = format!("ends request {}, which did not begin", record.id);
                    self.report.find(file, number, problem);
                }
            }
            RecordKind::Refusal | RecordKind::Event => {}
            RecordKind::Checkpoint => self.checkpoint(file, number, record),
        }
        match &record.log {
            Some(LogFact::Removed { last, .. }) => {
                self.explained.removed = self.explained.removed.max(*last);
                self.explained.removed_first = true;
            }
            Some(LogFact::Compressed { first, sha256 }) => {
                let said = self.explained.compressed.entry(*first).or_default();
                said.push(sha256.clone());
            }
            Some(LogFact::Torn { file }) => {
                self.report.notes.push(format!(
                    "line {}: half a line was set aside as {file}",
                    record.seq
                ));
            }
            Some(LogFact::Opened { clean: false }) => self.report.notes.push(format!(
                "line {}: the gate had been killed before it",
                record.seq
            )),
            Some(
                LogFact::Opened { clean: true } | LogFact::Abandoned { .. } | LogFact::Moved { .. },
            )
            | None => {}
        }
    }

    fn checkpoint(&mut self, file: &str, number: u64, record: &Record) {
        self.report.checkpoints += 1;
        let Some(checkpoint) = &record.checkpoint else {
            self.report.find(file, number, "is a checkpoint of nothing");
            return;
        };
        let statement = Statement::parse(&checkpoint.statement);
        // The line's own hash covers what it names before it; the statement must say the same.
        let prev = record.prev.as_deref().map(str::as_bytes);
        let fits = statement.is_some_and(|statement| {
            statement.seq + 1 == record.seq
                && prev.and_then(LineHash::parse) == Some(statement.head)
                && statement.closing == checkpoint.closing
        });
        if !fits {
            self.report.find(
                file,
                number,
                "is a checkpoint of another log, or of another line",
            );
            return;
        }
        self.closed = checkpoint.closing;
        self.signature(file, number, record.seq, checkpoint);
    }

    fn signature(&mut self, file: &str, number: u64, seq: Seq, checkpoint: &Checkpoint) {
        let Some(key) = self.check.key else {
            return;
        };
        let Some(signature) = &checkpoint.signature else {
            self.report.unsigned += 1;
            return;
        };
        match key(&checkpoint.statement, signature) {
            Ok(()) => {
                self.report.signed += 1;
                self.report.signed_up_to = seq - 1;
                self.interval = Interval::parse(&checkpoint.statement).unwrap_or(USUAL);
                self.tail = None;
            }
            Err(problem) => self.report.find(
                file,
                number,
                format!("its signature is not good: {problem}"),
            ),
        }
    }

    pub(super) fn finish(mut self) -> Report {
        if let Some((seq, hash)) = self.last {
            self.report.last = seq;
            self.report.head = hash.to_string();
        }
        self.report.end = match (self.last, self.torn) {
            (_, true) => End::Torn,
            (None, false) => End::Empty,
            (Some(_), false) if self.closed => End::Closed,
            (Some(_), false) if self.live => End::Open,
            (Some(_), false) => End::Cut,
        };
        match self.report.end {
            End::Cut => self.report.find(
                "",
                0,
                "the log ends without its closing record: the gate was killed, or the end was cut off",
            ),
            End::Empty => self.report.find("", 0, "there is no record at all"),
            End::Closed | End::Open | End::Torn => {}
        }
        self.beginning();
        self.compressed();
        let (first, last) = (self.report.first, self.report.last);
        self.anchors.finish(first, last, &mut self.report);
        if self.check.key.is_some() {
            self.vouched();
        }
        let mut open: Vec<(Seq, String)> =
            self.open.into_iter().map(|(id, seq)| (seq, id)).collect();
        open.sort_unstable();
        self.report.open = open.into_iter().map(|(_, id)| id).collect();
        self.report
    }

    /// Whether signatures by the key vouch for the log, up to what may be waiting for the next one.
    fn vouched(&mut self) {
        if self.report.unsigned > 0 {
            let problem = format!("{} checkpoints carry no signature", self.report.unsigned);
            self.report.find("", 0, problem);
        }
        if self.report.signed == 0 {
            let problem = "no signature by this key vouches for any line";
            self.report.find("", 0, problem);
            return;
        }
        // The last signed checkpoint is a line itself. A checkpoint may come late: once more the
        // interval is no sign of anything.
        let lines = self
            .report
            .last
            .saturating_sub(self.report.signed_up_to + 1);
        let time = |text: &str| text.parse::<jiff::Timestamp>().ok();
        let seconds = self.tail.as_ref().and_then(|(first, last)| {
            let took = time(last)?.duration_since(time(first)?).as_secs();
            u64::try_from(took).ok()
        });
        let Interval {
            lines: most,
            seconds: long,
        } = self.interval;
        if lines > most.saturating_mul(2) || seconds.unwrap_or(0) > long.saturating_mul(2) + 1 {
            let problem = format!(
                "the last {lines} lines, over {} s, carry no signature, though one was to come \
                 after {most} lines or {long} s: they were added without the key, or the gate was \
                 killed before each checkpoint",
                seconds.unwrap_or(0)
            );
            self.report.find("", 0, problem);
        }
    }

    /// A compressed file must be the one that the log speaks of: others may decompress to the same.
    fn compressed(&mut self) {
        for Packed {
            file,
            first,
            sha256,
        } in std::mem::take(&mut self.packed)
        {
            match self.explained.compressed.get(&first) {
                Some(said) if said.contains(&sha256) => {}
                Some(_) => self.report.find(
                    &file,
                    0,
                    "is not the compressed file that the log speaks of: its bytes are others",
                ),
                None => self.report.notes.push(format!(
                    "{file}: the log does not speak of this compressed file; its lines were checked"
                )),
            }
        }
    }

    /// A log that does not begin with line 1 must say why.
    fn beginning(&mut self) {
        let first = self.report.first;
        if first <= 1 {
            return;
        }
        if self.explained.removed_first && self.explained.removed + 1 >= first {
            self.report.notes.push(format!(
                "lines before {first} were removed as retention asks for, as the log says"
            ));
        } else {
            let problem = format!("lines 1 to {} are missing", first - 1);
            self.report.find("", 0, problem);
        }
    }
}
