//! `audit tail`: the last records of a log, then what comes, also over truncation and rotation.
//!
//! Reading only; a reader never holds up the writer.

mod line;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use policy::record::Record;

use super::Seq;
use super::query::{Filter, Reader};
use super::segment::{self, Segment};

pub use line::{Paint, clean, render};

/// At most this much is read in one go; the rest comes with the next poll.
const PIECE_BYTES: u64 = 256 * 1024;
/// The last line is looked for in the end of this size: one line of any length, and some.
const LOOKED_BACK_BYTES: u64 = 2 * 1024 * 1024;

/// The last `count` matching lines, oldest first.
///
/// # Errors
/// What the system said about the file.
pub fn last(
    segments: &[Segment],
    filter: &Filter,
    count: usize,
) -> std::io::Result<Vec<(String, Record)>> {
    // From the newest file back, until there are enough.
    let mut found: Vec<(String, Record)> = Vec::new();
    for segment in segments.iter().rev() {
        if found.len() >= count {
            break;
        }
        let mut older = last_of(segment, filter, count - found.len())?;
        older.append(&mut found);
        found = older;
    }
    Ok(found)
}

fn last_of(
    segment: &Segment,
    filter: &Filter,
    count: usize,
) -> std::io::Result<Vec<(String, Record)>> {
    let mut kept: VecDeque<(String, Record)> = VecDeque::new();
    Reader::new(std::slice::from_ref(segment), filter).each(|line, record| {
        if kept.len() == count {
            kept.pop_front();
        }
        if count > 0 {
            kept.push_back((line.to_owned(), record.clone()));
        }
        ControlFlow::Continue(())
    })?;
    Ok(kept.into())
}

/// Reads what is appended to a file, by name.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    open: Option<Open>,
    /// The number of the last line that was seen.
    last: Option<Seq>,
}

#[derive(Debug)]
struct Open {
    file: File,
    inode: (u64, u64),
    at: u64,
    /// The start of a line whose end is not there yet.
    partial: Vec<u8>,
}

impl Follower {
    /// Starts at the end of what is there now.
    ///
    /// # Errors
    /// What the system said about the file.
    pub fn at_end(path: &Path) -> std::io::Result<Self> {
        let mut open = Open::new(File::open(path)?)?;
        open.at = open.file.metadata()?.len();
        let last = open.last_number()?;
        Ok(Self {
            path: path.to_owned(),
            open: Some(open),
            last,
        })
    }

    /// The complete lines since the last call. A file that was cut is read from its start; one
    /// that was replaced is read to its end, then the new one from its start.
    ///
    /// # Errors
    /// What the system said about the file.
    pub fn poll(&mut self) -> std::io::Result<Vec<String>> {
        let lines = self.next()?;
        self.last = lines
            .iter()
            .rev()
            .find_map(|line| number(line))
            .or(self.last);
        Ok(lines)
    }

    fn next(&mut self) -> std::io::Result<Vec<String>> {
        let mut lines = Vec::new();
        if let Some(open) = &mut self.open {
            open.read(&mut lines)?;
        }
        if !lines.is_empty() {
            return Ok(lines);
        }
        let named = match std::fs::metadata(&self.path) {
            Ok(named) => Some((named.dev(), named.ino())),
            // Between a rotation's two steps there is no file.
            Err(problem) if problem.kind() == std::io::ErrorKind::NotFound => None,
            Err(problem) => return Err(problem),
        };
        let known = self.open.as_ref().map(|open| open.inode);
        if named.is_some() && named != known {
            // Nothing is written any more to the one that was open, but lines may have come between
            // the last look and the change.
            if let Some(open) = &mut self.open {
                while open.read(&mut lines)? {}
            }
            let mut open = Open::new(File::open(&self.path)?)?;
            // Others may have been begun and closed since.
            self.between(known, open.inode, &mut lines)?;
            open.read(&mut lines)?;
            self.open = Some(open);
        }
        Ok(lines)
    }
}

/// The number of a line, if it is a record.
fn number(line: &str) -> Option<Seq> {
    #[derive(serde::Deserialize)]
    struct Numbered {
        seq: Seq,
    }
    let line: Numbered = serde_json::from_str(line).ok()?;
    Some(line.seq)
}

impl Follower {
    /// The lines of the closed files behind the last line that was seen, by their numbers: a file
    /// has another inode once it is compressed. The one that is open now is left out.
    fn between(
        &self,
        known: Option<(u64, u64)>,
        next: (u64, u64),
        lines: &mut Vec<String>,
    ) -> std::io::Result<()> {
        let seen = lines
            .iter()
            .rev()
            .find_map(|line| number(line))
            .or(self.last);
        // Of a log without numbers so far nothing was seen but its empty start.
        let seen = match (seen, known) {
            (Some(seen), _) => seen,
            (None, Some(_)) => 0,
            (None, None) => return Ok(()),
        };
        let folder = self
            .path
            .parent()
            .filter(|path| !path.as_os_str().is_empty());
        let files = segment::list(folder.unwrap_or(Path::new(".")))?;
        let closed: Vec<&Segment> = files.iter().filter(|file| !file.is_open()).collect();
        for (at, file) in closed.iter().enumerate() {
            let behind = closed.get(at + 1).and_then(|file| file.first);
            let inode = std::fs::metadata(&file.path).map(|it| (it.dev(), it.ino()));
            if behind.is_some_and(|behind| behind <= seen + 1) || inode.is_ok_and(|it| it == next) {
                continue;
            }
            let mut reader = match (file.open(), file.compressed()) {
                // It was compressed since it was listed.
                (Err(problem), Some(now)) if problem.kind() == std::io::ErrorKind::NotFound => {
                    now.open()?
                }
                (opened, _) => opened?,
            };
            let mut new = false;
            while let Some(line) = reader.read()? {
                let text = String::from_utf8_lossy(line.text).trim_end().to_owned();
                new = number(&text).map_or(new, |number| number > seen);
                if new {
                    lines.push(text);
                }
            }
        }
        Ok(())
    }
}

impl Open {
    fn new(file: File) -> std::io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            file,
            inode: (metadata.dev(), metadata.ino()),
            at: 0,
            partial: Vec::new(),
        })
    }

    /// The number of the last whole line before the place that was reached.
    fn last_number(&mut self) -> std::io::Result<Option<Seq>> {
        let start = self.at.saturating_sub(LOOKED_BACK_BYTES);
        self.file.seek(SeekFrom::Start(start))?;
        let mut end = Vec::new();
        Read::by_ref(&mut self.file)
            .take(self.at - start)
            .read_to_end(&mut end)?;
        let mut lines = end.rsplit(|byte| *byte == b'\n').skip(1);
        Ok(lines.find_map(|line| number(&String::from_utf8_lossy(line))))
    }

    /// Reads the next piece, and says whether there was anything.
    fn read(&mut self, lines: &mut Vec<String>) -> std::io::Result<bool> {
        if self.file.metadata()?.len() < self.at {
            self.at = 0;
            self.partial.clear();
        }
        self.file.seek(SeekFrom::Start(self.at))?;
        let before = self.partial.len();
        Read::by_ref(&mut self.file)
            .take(PIECE_BYTES)
            .read_to_end(&mut self.partial)?;
        let read = u64::try_from(self.partial.len() - before).unwrap_or(0);
        self.at += read;
        while let Some(end) = self.partial.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            lines.push(String::from_utf8_lossy(&line).trim_end().to_owned());
        }
        Ok(read > 0)
    }
}
