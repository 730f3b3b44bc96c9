//! A log that goes on while it is read: its last file is closed and another begun, closed files are
//! compressed and the oldest removed.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Check, Report, pass};
use crate::audit::place::is_same;
use crate::audit::segment::{self, Segment, is_being_written, is_locked};

/// How often a log is read whose files change each time, before what was found counts.
const TRIES: usize = 20;
/// How long a gate may be between closing a file and beginning the next: two steps that a busy machine can
/// keep apart.
const BETWEEN: Duration = Duration::from_secs(2);

/// The files of a log at one moment.
#[derive(Debug, PartialEq, Eq)]
struct Files {
    segments: Vec<Segment>,
    /// A gate writes the last one.
    live: bool,
}

impl Files {
    fn of(path: &Path) -> std::io::Result<Self> {
        let segments = if path.is_dir() {
            segment::list(path)?
        } else {
            vec![Segment::alone(path)]
        };
        let live = segments.last().is_some_and(is_being_written);
        Ok(Self { segments, live })
    }

    /// These files, once the gate that has the directory has begun a file to write, as far as it does so.
    fn begun(path: &Path) -> std::io::Result<Self> {
        let until = Instant::now() + BETWEEN;
        loop {
            let files = Self::of(path)?;
            let between = files.segments.last().is_some_and(|last| !last.is_open())
                && path.is_dir()
                && is_locked(path);
            if !between || Instant::now() >= until {
                return Ok(files);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// These files, and the last one opened if it is being written: all that comes before it is among the
    /// files, for it had its name before they were listed and has it after.
    fn held(path: &Path) -> std::io::Result<(Self, Option<File>)> {
        let mut files = Self::begun(path)?;
        for _ in 0..TRIES {
            let Some(last) = files.segments.last().filter(|last| last.is_open()).cloned() else {
                break;
            };
            let file = match File::open(&last.path) {
                Ok(file) => Some(file),
                // Another one is about to be begun.
                Err(problem) if problem.kind() == ErrorKind::NotFound => None,
                Err(problem) => return Err(problem),
            };
            files = Self::begun(path)?;
            if let Some(file) = file
                && files.segments.last() == Some(&last)
                && is_same(&file, &last.path).unwrap_or(false)
            {
                return Ok((files, Some(file)));
            }
        }
        Ok((files, None))
    }
}

/// Reads the whole log in a directory, or one file, and says what it found. What is wrong counts if no file
/// was closed, compressed or removed meanwhile; otherwise it is read again, a bounded number of times.
///
/// # Errors
/// What the system said about a file: nothing can be said of the log then.
pub fn verify_at(path: &Path, check: &Check<'_>) -> std::io::Result<Report> {
    until_it_stands(path, check, |_| {})
}

/// The same; `between` is called when the files of a try are known, before they are read.
pub(super) fn until_it_stands(
    path: &Path,
    check: &Check<'_>,
    mut between: impl FnMut(usize),
) -> std::io::Result<Report> {
    let mut tried = 0;
    loop {
        let (files, last) = Files::held(path)?;
        tried += 1;
        between(tried);
        let found = pass(&files.segments, last, check, check.live || files.live);
        let doubtful = match &found {
            Ok(report) => !report.intact,
            Err(problem) => problem.kind() == ErrorKind::NotFound,
        };
        if !doubtful || Files::of(path)? == files {
            return found;
        }
        if tried == TRIES {
            return found.map(|mut report| {
                report.notes.push(format!(
                    "each of the {TRIES} times that the log was read, files were closed, compressed or \
                     removed meanwhile: what is missing may have been"
                ));
                report
            });
        }
    }
}
