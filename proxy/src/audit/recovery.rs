//! Continuing a log that another process left: where its chain ends, and a last line that may have
//! been cut short by a crash.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::AuditError;
use super::chain::LineHash;
use super::segment;
use super::writer::Position;

/// So many ends that were cut at one place are kept.
const MOST_TORN: u32 = 1000;
/// Read backwards in pieces of this size.
const PIECE: u64 = 64 * 1024;

/// Where to go on.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) at: Position,
    /// Whether the log ended with its closing record, or there was none.
    pub(super) clean: bool,
    /// The closing record, if the file ends with one.
    pub(super) closing: Option<String>,
    pub(super) torn: Option<PathBuf>,
}

/// What must be known of the last line.
#[derive(Debug, Deserialize)]
struct Last {
    seq: u64,
    #[serde(default)]
    hash: Option<String>,
    #[serde(default)]
    checkpoint: Option<Closing>,
}

#[derive(Debug, Deserialize)]
struct Closing {
    closing: bool,
}

impl Last {
    fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    fn head(&self) -> LineHash {
        let hash = self.hash.as_deref().map(str::as_bytes);
        hash.and_then(LineHash::parse).unwrap_or(LineHash::NONE)
    }

    fn is_closing(&self) -> bool {
        self.checkpoint.as_ref().is_some_and(|it| it.closing)
    }
}

pub(super) fn recover(file: &File, path: &Path) -> Result<Found, AuditError> {
    let failed = |problem: std::io::Error| AuditError::Open {
        path: path.display().to_string(),
        problem: problem.to_string(),
    };
    let whole = file.metadata().map_err(failed)?.len();
    let mut reader = Backwards::new(file, whole);
    let mut torn = None;
    let len = reader.complete_until().map_err(failed)?;
    if len < whole {
        torn = Some(set_aside(file, path, len, whole).map_err(failed)?);
        file.set_len(len).map_err(failed)?;
        file.sync_data().map_err(failed)?;
    }
    if len == 0 {
        let before = before(path).map_err(failed)?;
        let (seq, head) = before
            .as_ref()
            .map_or((0, LineHash::NONE), |last| (last.seq, last.head()));
        return Ok(Found {
            at: Position {
                len,
                seq,
                head,
                first: seq + 1,
            },
            clean: before.is_none_or(|last| last.is_closing()) && torn.is_none(),
            closing: None,
            torn,
        });
    }
    // Damaged lines stay where they are; the highest number before them counts, and each of them
    // is assumed to have had one.
    let mut skipped = 0;
    while let Some(line) = reader.previous_line().map_err(failed)? {
        if let Some(last) = Last::parse(&line) {
            let first = first_line(file, len).map_err(failed)?;
            return Ok(Found {
                at: Position {
                    len,
                    seq: last.seq + skipped,
                    head: last.head(),
                    first: first.unwrap_or(last.seq),
                },
                clean: last.is_closing() && skipped == 0 && torn.is_none(),
                closing: last
                    .is_closing()
                    .then(|| String::from_utf8_lossy(&line).into_owned()),
                torn,
            });
        }
        skipped += 1;
    }
    Err(AuditError::Corrupt {
        path: path.display().to_string(),
    })
}

/// The last line of the closed segments.
fn before(path: &Path) -> std::io::Result<Option<Last>> {
    let folder = path.parent().unwrap_or(Path::new("."));
    for segment in segment::list(folder)?.iter().rev() {
        if segment.is_open() {
            continue;
        }
        // As in the open file: a line that cannot be read had a number too.
        let (mut last, mut skipped): (Option<Last>, u64) = (None, 0);
        let mut lines = segment.open()?;
        while let Some(line) = lines.read()? {
            match Last::parse(line.text) {
                Some(read) => (last, skipped) = (Some(read), 0),
                None => skipped += 1,
            }
        }
        if let Some(mut last) = last {
            last.seq += skipped;
            return Ok(Some(last));
        }
    }
    Ok(None)
}

/// The number that the file's first line has, if it can be read.
fn first_line(file: &File, len: u64) -> std::io::Result<Option<u64>> {
    let piece = read_piece(file, 0, len.min(PIECE))?;
    let line = piece.split(|byte| *byte == b'\n').next();
    Ok(line.and_then(Last::parse).map(|last| last.seq))
}

/// Copies the incomplete end into `audit.jsonl.OFFSET.torn`.
fn set_aside(file: &File, path: &Path, from: u64, to: u64) -> std::io::Result<PathBuf> {
    let (aside, mut kept) = aside(path, from)?;
    let mut at = from;
    while at < to {
        let piece = read_piece(file, at, to.min(at + PIECE))?;
        kept.write_all(&piece)?;
        at += u64::try_from(piece.len()).map_err(std::io::Error::other)?;
    }
    kept.sync_data()?;
    // The end is about to be cut off the log.
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(aside)
}

/// A new file for an incomplete end. One of that name may be there from an earlier crash: it stays.
fn aside(path: &Path, from: u64) -> std::io::Result<(PathBuf, File)> {
    let mut number = 0;
    loop {
        let mut name = path.as_os_str().to_owned();
        name.push(match number {
            0 => format!(".{from}.torn"),
            _ => format!(".{from}-{number}.torn"),
        });
        let name = PathBuf::from(name);
        let made = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&name);
        match made {
            Ok(file) => return Ok((name, file)),
            Err(problem)
                if problem.kind() == std::io::ErrorKind::AlreadyExists && number < MOST_TORN =>
            {
                number += 1;
            }
            Err(problem) => return Err(problem),
        }
    }
}

fn read_piece(file: &File, from: u64, to: u64) -> std::io::Result<Vec<u8>> {
    let mut piece = vec![0; usize::try_from(to - from).map_err(std::io::Error::other)?];
    file.read_exact_at(&mut piece, from)?;
    Ok(piece)
}

/// Lines from the end to the start.
struct Backwards<'f> {
    file: &'f File,
    /// Everything from here on has been handed out or lies in `held`.
    start: u64,
    held: Vec<u8>,
}

impl<'f> Backwards<'f> {
    fn new(file: &'f File, end: u64) -> Self {
        Self {
            file,
            start: end,
            held: Vec::new(),
        }
    }

    /// The offset just behind the last line end; 0 if there is none. What follows is dropped.
    fn complete_until(&mut self) -> std::io::Result<u64> {
        loop {
            if let Some(at) = self.held.iter().rposition(|byte| *byte == b'\n') {
                self.held.truncate(at + 1);
                return Ok(self.start + u64::try_from(at).unwrap_or(u64::MAX) + 1);
            }
            // An incomplete end may be long, but nothing before it is needed: forget it.
            self.held.clear();
            if self.start == 0 {
                return Ok(0);
            }
            self.more()?;
        }
    }

    /// The line before those already returned, without its end.
    fn previous_line(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        if self.held.last() == Some(&b'\n') {
            self.held.pop();
        } else if self.held.is_empty() && self.start == 0 {
            return Ok(None);
        }
        loop {
            if let Some(at) = self.held.iter().rposition(|byte| *byte == b'\n') {
                return Ok(Some(self.held.split_off(at + 1)));
            }
            if self.start == 0 {
                return Ok(Some(std::mem::take(&mut self.held)));
            }
            self.more()?;
        }
    }

    fn more(&mut self) -> std::io::Result<()> {
        let from = self.start.saturating_sub(PIECE);
        let mut piece = read_piece(self.file, from, self.start)?;
        piece.append(&mut self.held);
        self.held = piece;
        self.start = from;
        Ok(())
    }
}
