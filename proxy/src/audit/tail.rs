//! `audit tail -f`: what is appended to a log, line by line, over every change of its files.
//!
//! Reading only; a reader never holds up the writer. Files are closed, compressed and removed between two
//! looks: what tells where the follower stands is the number of the last line it has handed on, never a
//! name or an inode. A number that is left out is told, and so is a log that was cut back or begun anew.

mod line;

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::snapshot::{Held, Snapshot, Step, number_of};
use super::{FILE, Seq};

pub use line::{Paint, clean, render};

/// At most this much is read in one go; the rest comes with the next poll.
const PIECE_BYTES: u64 = 256 * 1024;

/// What a follower hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// A whole line, without its end.
    Line(String),
    /// Lines, from the first to the last of these numbers, that were gone before they could be read.
    Missed(Seq, Seq),
    /// The log goes on with the first of these lines, and the second was already handed on: it was cut
    /// back, or another one was begun in its place.
    Back(Seq, Seq),
}

impl std::fmt::Display for Heard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Line(line) => f.write_str(line),
            Self::Missed(first, last) => write!(
                f,
                "lines {first} to {last} were removed before they could be shown; `audit verify` says \
                 whether retention did it"
            ),
            Self::Back(next, shown) => write!(
                f,
                "the log goes on with line {next}, and line {shown} was already shown: it was cut back or \
                 begun anew"
            ),
        }
    }
}

/// Reads what is appended to a log.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    open: Option<Open>,
    /// The number of the last line that was handed on.
    last: Option<Seq>,
}

#[derive(Debug)]
struct Open {
    file: File,
    inode: (u64, u64),
    at: u64,
    /// The start of a line whose end is not there yet.
    partial: Vec<u8>,
    /// Nothing was read from it, and nothing was in it when it was opened: a line of a lower number than
    /// the last one is of another log.
    fresh: bool,
}

/// What one look at a file found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Nothing,
    More,
    /// It is shorter than what was read of it.
    Cut,
}

impl Follower {
    /// Starts at the end of what is there now: `path` is the file being written, or one by itself.
    ///
    /// # Errors
    /// What the system said about the file.
    pub fn at_end(path: &Path) -> std::io::Result<Self> {
        Self::behind(&of(path)?, path)
    }

    /// Starts behind the last line of these files, of which `path` is the one being written.
    ///
    /// # Errors
    /// What the system said about a file.
    pub fn behind(files: &Snapshot, path: &Path) -> std::io::Result<Self> {
        let (mut open, mut last) = (None, None);
        if let Some(held) = &files.last {
            last = held.number;
            open = Some(Open::new(held, held.end)?);
        }
        for segment in files.closed.iter().rev() {
            if last.is_some() {
                break;
            }
            let mut lines = match segment.found() {
                Ok((segment, file)) => segment.lines(file)?,
                Err(problem) if problem.kind() == ErrorKind::NotFound => continue,
                Err(problem) => return Err(problem),
            };
            while let Some(line) = lines.read()? {
                last = number_of(line.text).or(last);
            }
        }
        Ok(Self {
            path: path.to_owned(),
            open,
            // A log's first line is 1.
            last: last.or(is_log(path).then_some(0)),
        })
    }

    /// Hands on what came since the last call, and says whether there was anything. Lines whose numbers
    /// were handed on already are left out; whole lines without a number are handed on as they are.
    ///
    /// # Errors
    /// What the system said about a file.
    pub fn poll(&mut self, mut hear: impl FnMut(Heard)) -> std::io::Result<bool> {
        self.poll_with(&mut hear, &mut |_| {})
    }

    /// The same; `between` is called after each step of a change of files.
    pub(super) fn poll_with(
        &mut self,
        hear: &mut dyn FnMut(Heard),
        between: &mut dyn FnMut(Step),
    ) -> std::io::Result<bool> {
        if self.read_on(hear)? {
            return Ok(true);
        }
        let named = match std::fs::metadata(&self.path) {
            Ok(named) => (named.dev(), named.ino()),
            // Between a rotation's two steps there is no file.
            Err(problem) if problem.kind() == ErrorKind::NotFound => return Ok(false),
            Err(problem) => return Err(problem),
        };
        if self.open.as_ref().is_some_and(|open| open.inode == named) {
            return Ok(false);
        }
        // Nothing is written any more to the one that was open, but lines may have come between the
        // last look and the change.
        let mut any = false;
        while self.read_on(hear)? {
            any = true;
        }
        Ok(self.change(hear, between)? || any)
    }

    /// The next piece of the open file.
    fn read_on(&mut self, hear: &mut dyn FnMut(Heard)) -> std::io::Result<bool> {
        let Some(open) = &mut self.open else {
            return Ok(false);
        };
        let mut lines = Vec::new();
        let look = open.read(&mut lines)?;
        if look == Look::Cut {
            let now = Held::of(open.file.try_clone()?)?;
            // What is still there is passed over by its numbers.
            (open.at, open.fresh) = (0, now.number.is_none());
            if let (Some(shown), Some(number)) = (self.last, now.number)
                && number < shown
            {
                hear(Heard::Back(number + 1, shown));
                self.last = Some(number);
            }
            return self.read_on(hear);
        }
        for line in lines {
            self.take(line, hear);
        }
        Ok(look == Look::More)
    }

    /// Goes on in the files that are there now. Whether any line was handed on.
    fn change(
        &mut self,
        hear: &mut dyn FnMut(Heard),
        between: &mut dyn FnMut(Step),
    ) -> std::io::Result<bool> {
        let files = match self.path.parent() {
            Some(folder) if is_log(&self.path) => Snapshot::taken(here(folder), between)?,
            Some(_) | None => Snapshot::at(&self.path)?,
        };
        let Some(held) = &files.last else {
            return Ok(false);
        };
        self.open = None;
        if let (Some(shown), Some(now)) = (self.last, held.number)
            && now < shown
        {
            let next = held.first.unwrap_or(1);
            hear(Heard::Back(next, shown));
            self.last = Some(next.saturating_sub(1));
        }
        let mut any = false;
        for (at, segment) in files.closed.iter().enumerate() {
            let seen = self.last.unwrap_or(0);
            if files.behind(at).is_some_and(|behind| behind <= seen + 1) {
                continue;
            }
            between(Step::Reading);
            let mut lines = match segment.found() {
                Ok((segment, file)) => segment.lines(file)?,
                // The next line's number tells what was in it.
                Err(problem) if problem.kind() == ErrorKind::NotFound => continue,
                Err(problem) => return Err(problem),
            };
            while let Some(line) = lines.read()? {
                // Of closed files, what is no record was never a line of the log.
                if line.whole && number_of(line.text).is_some() {
                    any = true;
                    self.take(String::from_utf8_lossy(line.text).into_owned(), hear);
                }
            }
        }
        self.open = Some(Open::new(held, 0)?);
        Ok(self.read_on(hear)? || any)
    }

    /// Hands on a line, unless it was before, and what is missing before it.
    fn take(&mut self, line: String, hear: &mut dyn FnMut(Heard)) {
        let Some(number) = number_of(line.as_bytes()) else {
            hear(Heard::Line(line));
            return;
        };
        let fresh = self
            .open
            .as_mut()
            .is_some_and(|open| std::mem::take(&mut open.fresh));
        match self.last {
            Some(last) if number <= last && !fresh => return,
            Some(last) if number <= last => hear(Heard::Back(number, last)),
            Some(last) if number > last + 1 => hear(Heard::Missed(last + 1, number - 1)),
            Some(_) | None => {}
        }
        self.last = Some(number);
        hear(Heard::Line(line));
    }
}

impl Open {
    /// The held file, to be read from `at` on.
    fn new(held: &Held, at: u64) -> std::io::Result<Self> {
        let file = Arc::clone(&held.file).try_clone()?;
        let metadata = file.metadata()?;
        Ok(Self {
            file,
            inode: (metadata.dev(), metadata.ino()),
            at,
            partial: Vec::new(),
            fresh: held.end == 0,
        })
    }

    /// Reads the next piece.
    fn read(&mut self, lines: &mut Vec<String>) -> std::io::Result<Look> {
        if self.file.metadata()?.len() < self.at {
            self.partial.clear();
            return Ok(Look::Cut);
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
        Ok(if read > 0 { Look::More } else { Look::Nothing })
    }
}

/// The log that a file belongs to, or the file by itself.
fn of(path: &Path) -> std::io::Result<Snapshot> {
    match path.parent() {
        Some(folder) if is_log(path) => Snapshot::at(here(folder)),
        Some(_) | None => Snapshot::at(path),
    }
}

/// Whether it is a log's file that is being written, by its name.
fn is_log(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == FILE)
}

fn here(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    }
}
