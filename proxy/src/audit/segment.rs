//! The files of a log: `audit.jsonl` is being written, `audit-<first number>.jsonl` are closed, and
//! some of those are compressed (`.zst`). Their names sort in the order of their lines.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::FILE;

/// A line longer than this is no record of ours.
pub(super) const LINE_BYTES_MAX: usize = 1024 * 1024;
const PREFIX: &str = "audit-";
const PLAIN: &str = ".jsonl";
const COMPRESSED: &str = ".jsonl.zst";

/// One file of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The file.
    pub path: PathBuf,
    /// The number of its first line, as its name says; nothing for the one being written.
    pub first: Option<u64>,
}

/// The file name of a closed segment, not compressed.
pub(super) fn name(first: u64) -> String {
    format!("{PREFIX}{first:020}{PLAIN}")
}

impl Segment {
    /// A file by itself, whatever its name.
    #[must_use]
    pub fn alone(path: &Path) -> Self {
        let name = path.file_name().and_then(|name| name.to_str());
        Self {
            path: path.to_owned(),
            first: name.and_then(number),
        }
    }

    /// Whether it is being written, by its name.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.first.is_none()
    }

    /// Whether it is compressed, by its name.
    #[must_use]
    pub fn is_compressed(&self) -> bool {
        self.path.extension().is_some_and(|end| end == "zst")
    }

    /// The same file after it was compressed, if it can be.
    #[must_use]
    pub(super) fn compressed(&self) -> Option<Self> {
        if self.is_open() || self.is_compressed() {
            return None;
        }
        let mut path = self.path.as_os_str().to_owned();
        path.push(".zst");
        Some(Self {
            path: path.into(),
            first: self.first,
        })
    }

    /// The file as it is now: what was compressed since it was listed has another name.
    ///
    /// # Errors
    /// What the system said; that it is not found if it was removed since.
    pub(super) fn found(&self) -> std::io::Result<(Self, File)> {
        match (File::open(&self.path), self.compressed()) {
            (Err(problem), Some(now)) if problem.kind() == ErrorKind::NotFound => {
                let file = File::open(&now.path)?;
                Ok((now, file))
            }
            (file, _) => Ok((self.clone(), file?)),
        }
    }

    /// Opens it for reading lines.
    ///
    /// # Errors
    /// What the system said.
    pub fn open(&self) -> std::io::Result<Lines> {
        self.lines(File::open(&self.path)?)
    }

    /// The lines of the file that was opened for it.
    ///
    /// # Errors
    /// What the system said.
    pub(super) fn lines(&self, file: File) -> std::io::Result<Lines> {
        Ok(Lines::of(if self.is_compressed() {
            Box::new(zstd::Decoder::new(file)?)
        } else {
            Box::new(file)
        }))
    }
}

/// SHA-256 of a file's bytes as they are, in hex; it is at its beginning afterwards.
///
/// # Errors
/// What the system said.
pub(super) fn sha256(mut file: &File) -> std::io::Result<String> {
    let mut hash = Sha256::new();
    let mut reader = BufReader::with_capacity(64 * 1024, file);
    loop {
        let piece = reader.fill_buf()?;
        if piece.is_empty() {
            break;
        }
        hash.update(piece);
        let used = piece.len();
        reader.consume(used);
    }
    file.rewind()?;
    Ok(hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

fn number(name: &str) -> Option<u64> {
    let rest = name.strip_prefix(PREFIX)?;
    let digits = rest
        .strip_suffix(COMPRESSED)
        .or_else(|| rest.strip_suffix(PLAIN))?;
    if digits.len() != 20 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// Every file of the log in a directory, in the order of their lines. Of a segment that is there
/// twice, since a crash came between its compression and the removal of the original, the original
/// counts.
///
/// # Errors
/// What the system said about the directory.
pub fn list(directory: &Path) -> std::io::Result<Vec<Segment>> {
    let mut found = Vec::new();
    let mut open = None;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if name == FILE {
            open = Some(Segment::alone(&entry.path()));
        } else if number(&name).is_some() {
            found.push(Segment::alone(&entry.path()));
        }
    }
    found.sort_by_key(|segment| (segment.first, segment.is_compressed()));
    found.dedup_by_key(|segment| segment.first);
    found.extend(open);
    Ok(found)
}

/// Whether a gate has this file's directory locked and the file is the one it writes. Where that
/// cannot be told, it is taken not to be.
#[must_use]
pub fn is_being_written(segment: &Segment) -> bool {
    let folder = segment
        .path
        .parent()
        .filter(|path| !path.as_os_str().is_empty());
    segment.is_open()
        && segment.path.file_name().is_some_and(|name| name == FILE)
        && is_locked(folder.unwrap_or(Path::new(".")))
}

/// Whether a gate has this directory locked. Where that cannot be told, it is taken not to be.
pub(super) fn is_locked(folder: &Path) -> bool {
    File::open(folder).is_ok_and(|directory| {
        matches!(
            directory.try_lock_shared(),
            Err(std::fs::TryLockError::WouldBlock)
        )
    })
}

/// The lines of one file.
#[allow(missing_debug_implementations, reason = "a reader shows nothing")]
pub struct Lines {
    reader: BufReader<Box<dyn Read + Send>>,
    line: Vec<u8>,
}

/// One line, without its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'l> {
    /// What it says.
    pub text: &'l [u8],
    /// Whether its end is there.
    pub whole: bool,
    /// Whether it is longer than any of ours: `text` is its start then.
    pub long: bool,
}

impl Lines {
    pub(super) fn of(reader: Box<dyn Read + Send>) -> Self {
        Self {
            reader: BufReader::with_capacity(64 * 1024, reader),
            line: Vec::new(),
        }
    }

    /// The next line; of one that is longer than any of ours, its start.
    ///
    /// # Errors
    /// What the system said about the file, or that it does not decompress.
    pub fn read(&mut self) -> std::io::Result<Option<Line<'_>>> {
        self.line.clear();
        let most = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX);
        let mut bounded = Read::by_ref(&mut self.reader).take(most);
        if bounded.read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        let whole = self.line.last() == Some(&b'\n');
        if whole {
            self.line.pop();
        } else if self.line.len() >= LINE_BYTES_MAX {
            let whole = self.skip()?;
            return Ok(Some(Line {
                text: &self.line,
                whole,
                long: true,
            }));
        }
        Ok(Some(Line {
            text: &self.line,
            whole,
            long: false,
        }))
    }

    /// Leaves out the rest of an overlong line, and says whether it has an end.
    fn skip(&mut self) -> std::io::Result<bool> {
        loop {
            let piece = self.reader.fill_buf()?;
            if piece.is_empty() {
                return Ok(false);
            }
            let (used, ended) = match piece.iter().position(|byte| *byte == b'\n') {
                Some(at) => (at + 1, true),
                None => (piece.len(), false),
            };
            self.reader.consume(used);
            if ended {
                return Ok(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_as_their_lines_do_and_other_files_are_none_of_ours() {
        let directory = tempfile::tempdir().unwrap();
        let names = [
            name(1),
            format!("{}.zst", name(1)),
            format!("{}.zst", name(20)),
            name(100),
            FILE.to_owned(),
            format!("{FILE}.10.torn"),
            "audit-7.jsonl".to_owned(),
            "audit-00000000000000000007.json".to_owned(),
        ];
        for name in &names {
            std::fs::write(directory.path().join(name), "a\nb").unwrap();
        }
        let found = list(directory.path()).unwrap();
        let shown: Vec<_> = found
            .iter()
            .map(|segment| (segment.first, segment.is_compressed()))
            .collect();
        assert_eq!(
            shown,
            [
                (Some(1), false),
                (Some(20), true),
                (Some(100), false),
                (None, false)
            ]
        );
    }

    #[test]
    fn lines_end_and_overlong_ones_are_cut() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let long = "x".repeat(3 * LINE_BYTES_MAX);
        std::fs::write(&path, format!("a\n{long}\nb\n{long}")).unwrap();
        let mut lines = Segment::alone(&path).open().unwrap();
        let mut seen = Vec::new();
        while let Some(line) = lines.read().unwrap() {
            seen.push((line.text.len(), line.whole, line.long));
        }
        let cut = LINE_BYTES_MAX;
        let wanted = [
            (1, true, false),
            (cut, true, true),
            (1, true, false),
            (cut, false, true),
        ];
        assert_eq!(seen, wanted);
        std::fs::write(&path, "a\nhalf").unwrap();
        let mut lines = Segment::alone(&path).open().unwrap();
        assert!(lines.read().unwrap().unwrap().whole);
        assert!(!lines.read().unwrap().unwrap().whole);
    }
}
