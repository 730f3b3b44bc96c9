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

use super::query::{Filter, Reader};
use super::segment::{self, Segment};

pub use line::{Paint, clean, render};

/// At most this much is read in one go; the rest comes with the next poll.
const PIECE_BYTES: u64 = 256 * 1024;

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
        Ok(Self {
            path: path.to_owned(),
            open: Some(open),
        })
    }

    /// The complete lines since the last call. A file that was cut is read from its start; one
    /// that was replaced is read to its end, then the new one from its start.
    ///
    /// # Errors
    /// What the system said about the file.
    pub fn poll(&mut self) -> std::io::Result<Vec<String>> {
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
            // It was closed; others may have been begun and closed since.
            if let Some(known) = known {
                self.between(known, &mut lines)?;
            }
            let mut open = Open::new(File::open(&self.path)?)?;
            open.read(&mut lines)?;
            self.open = Some(open);
        }
        Ok(lines)
    }
}

impl Follower {
    /// The lines of the closed files that came after the one that was open.
    fn between(&self, known: (u64, u64), lines: &mut Vec<String>) -> std::io::Result<()> {
        let folder = self
            .path
            .parent()
            .filter(|path| !path.as_os_str().is_empty());
        let files = segment::list(folder.unwrap_or(Path::new(".")))?;
        let closed: Vec<&Segment> = files.iter().filter(|file| !file.is_open()).collect();
        let at = closed.iter().position(|file| {
            std::fs::metadata(&file.path)
                .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == known)
        });
        for file in at.map_or(&[][..], |at| &closed[at + 1..]) {
            let mut reader = file.open()?;
            while let Some(line) = reader.read()? {
                lines.push(String::from_utf8_lossy(line.text).trim_end().to_owned());
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

    fn read(&mut self, lines: &mut Vec<String>) -> std::io::Result<()> {
        if self.file.metadata()?.len() < self.at {
            self.at = 0;
            self.partial.clear();
        }
        self.file.seek(SeekFrom::Start(self.at))?;
        let before = self.partial.len();
        Read::by_ref(&mut self.file)
            .take(PIECE_BYTES)
            .read_to_end(&mut self.partial)?;
        self.at += u64::try_from(self.partial.len() - before).unwrap_or(0);
        while let Some(end) = self.partial.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            lines.push(String::from_utf8_lossy(&line).trim_end().to_owned());
        }
        Ok(())
    }
}
