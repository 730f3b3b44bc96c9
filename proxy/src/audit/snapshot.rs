//! The files of a log as they are at one moment, for whoever reads it while it goes on.
//!
//! The file being written is opened first and the closed ones are listed afterwards: all that came before
//! it has a closed name by then. From there on its own name means nothing. It may be closed, others may
//! follow it and be compressed: it is read by the handle, up to its last whole line at that moment, and
//! what is listed counts as far as it comes before its first line.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use super::segment::{self, Lines, Segment};
use super::{FILE, Seq};

/// The last line is looked for in the end of this size: one line of any length, and some.
const LOOKED_BACK_BYTES: u64 = 2 * 1024 * 1024;

/// Where a reading has got to, for tests that change the log between two steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The file being written is open.
    Opened,
    /// The closed files were listed once.
    Listed,
    /// They were listed again.
    Known,
    /// One of them is about to be opened.
    Reading,
}

/// The files of a log at one moment, in the order of their lines.
#[derive(Debug)]
pub struct Snapshot {
    pub(super) closed: Vec<Segment>,
    pub(super) last: Option<Held>,
}

/// The file that was being written, by its handle.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) file: Arc<File>,
    /// Behind its last whole line at that moment.
    pub(super) end: u64,
    /// The numbers of its first and its last whole line, if they are records.
    pub(super) first: Option<Seq>,
    pub(super) number: Option<Seq>,
}

impl Snapshot {
    /// Of a log, by its directory, or of one file by itself.
    ///
    /// # Errors
    /// What the system said.
    pub fn at(path: &Path) -> std::io::Result<Self> {
        Self::taken(path, &mut |_| {})
    }

    /// The same; `between` is called after each step.
    pub(super) fn taken(path: &Path, between: &mut dyn FnMut(Step)) -> std::io::Result<Self> {
        if !path.is_dir() {
            return Self::of_file(path);
        }
        let file = match File::open(path.join(FILE)) {
            Ok(file) => Some(file),
            // A copy without it, or between a rotation's two steps: all lines are in closed files.
            Err(problem) if problem.kind() == ErrorKind::NotFound => None,
            Err(problem) => return Err(problem),
        };
        between(Step::Opened);
        let before = closed(path)?;
        between(Step::Listed);
        // A long directory is not listed at one moment: a file that is compressed meanwhile may be seen
        // under neither name. That does not happen to it twice.
        let after = closed(path)?;
        between(Step::Known);
        let last = file.map(Held::of).transpose()?;
        // What is begun while the files are listed may be seen without the one before it.
        let newest = before.last().and_then(|segment| segment.first);
        let mut closed = both(before, after);
        closed.retain(|segment| match &last {
            Some(held) => held.follows(segment),
            None => segment.first <= newest,
        });
        Ok(Self { closed, last })
    }

    fn of_file(path: &Path) -> std::io::Result<Self> {
        let segment = Segment::alone(path);
        if segment.is_open() && !segment.is_compressed() {
            let held = Held::of(File::open(path)?)?;
            return Ok(Self {
                closed: Vec::new(),
                last: Some(held),
            });
        }
        let (segment, _file) = segment.found()?;
        Ok(Self {
            closed: vec![segment],
            last: None,
        })
    }

    /// Whether there is no file at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.closed.is_empty() && self.last.is_none()
    }

    /// The number of the first line behind a closed file, as far as that is known.
    pub(super) fn behind(&self, at: usize) -> Option<Seq> {
        match self.closed.get(at + 1) {
            Some(next) => next.first,
            None => self.last.as_ref().and_then(|held| held.first),
        }
    }
}

impl Held {
    pub(super) fn of(file: File) -> std::io::Result<Self> {
        let file = Arc::new(file);
        let (end, number) = whole(&file)?;
        let mut held = Self {
            file,
            end,
            first: None,
            number,
        };
        let mut lines = held.lines();
        let first = lines.read()?.filter(|line| line.whole && !line.long);
        held.first = first.and_then(|line| number_of(line.text));
        Ok(held)
    }

    /// Whether the closed file comes before this one, which may have been closed since.
    fn follows(&self, closed: &Segment) -> bool {
        match (self.first, closed.first) {
            (Some(own), Some(first)) => first < own,
            // Without lines it is not closed, and by its name the other one is no part of a log.
            (None, _) | (_, None) => {
                let same = |found: std::fs::Metadata| {
                    let own = self.file.metadata();
                    own.is_ok_and(|own| (own.dev(), own.ino()) == (found.dev(), found.ino()))
                };
                !std::fs::metadata(&closed.path).is_ok_and(same)
            }
        }
    }

    /// Its lines up to that moment.
    pub(super) fn lines(&self) -> Lines {
        Lines::of(Box::new(Upto {
            file: Arc::clone(&self.file),
            at: 0,
            end: self.end,
        }))
    }
}

/// Reads a file that others read too.
struct Upto {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for Upto {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let most = left.min(into.len());
        let read = self
            .file
            .read_at(into.get_mut(..most).unwrap_or_default(), self.at)?;
        self.at += u64::try_from(read).unwrap_or(0);
        Ok(read)
    }
}

/// Where the last whole line of a file ends, and its number, if it is a record.
fn whole(file: &Arc<File>) -> std::io::Result<(u64, Option<Seq>)> {
    let len = file.metadata()?.len();
    let start = len.saturating_sub(LOOKED_BACK_BYTES);
    let mut tail = Vec::new();
    let mut reader = Upto {
        file: Arc::clone(file),
        at: start,
        end: len,
    };
    reader.read_to_end(&mut tail)?;
    let Some(last) = tail.iter().rposition(|byte| *byte == b'\n') else {
        // No line of ours is as long as what was looked at.
        return Ok((if start == 0 { 0 } else { len }, None));
    };
    let mut lines = tail
        .get(..last)
        .unwrap_or_default()
        .rsplit(|byte| *byte == b'\n');
    let end = start + u64::try_from(last).unwrap_or(0) + 1;
    Ok((end, lines.find_map(number_of)))
}

/// The number of a line, if it is a record.
pub(super) fn number_of(line: &[u8]) -> Option<Seq> {
    #[derive(serde::Deserialize)]
    struct Numbered {
        seq: Seq,
    }
    let line: Numbered = serde_json::from_slice(line).ok()?;
    Some(line.seq)
}

fn closed(folder: &Path) -> std::io::Result<Vec<Segment>> {
    let mut files = segment::list(folder)?;
    files.retain(|file| !file.is_open());
    Ok(files)
}

/// What either list has, in the order of the lines; of a file that both have, the later name.
fn both(before: Vec<Segment>, after: Vec<Segment>) -> Vec<Segment> {
    let mut all = after;
    all.extend(before);
    // Stable: the later list comes first.
    all.sort_by_key(|segment| segment.first);
    all.dedup_by_key(|segment| segment.first);
    all
}
