//! The run log: the command's output as it comes, one JSON object per line.
//!
//! ```text
//! {"ts":"2026-01-31T09:00:00.123Z","stream":"stdout","chunk":"hello\n","seq":0}
//! ```
//! `stream` is `stdout`, `stderr` or `system` (the engine's own word). A chunk is at most 64 KiB of
//! UTF-8; bytes that are not UTF-8 become U+FFFD, and a character cut by a read is kept whole.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// The log stops growing here; a last line says so. The command is not held up.
pub const LARGEST: u64 = 256 * 1024 * 1024;

/// Whose words a chunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// The command's standard output.
    Stdout,
    /// The command's standard error.
    Stderr,
    /// The engine's own.
    System,
}

/// One line of a run log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// When it was read, RFC 3339 in UTC with milliseconds.
    pub ts: String,
    /// Whose words.
    pub stream: Stream,
    /// The words.
    pub chunk: String,
    /// Counts from 0 over all streams.
    pub seq: u64,
}

/// A log being written. Shared by the readers of all streams.
#[derive(Debug)]
pub struct RunLog {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    seq: u64,
    written: u64,
}

impl RunLog {
    /// Opens for appending; created readable by its owner alone.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)?;
        let written = file.metadata()?.len();
        Ok(Self {
            inner: Mutex::new(Inner {
                file,
                seq: 0,
                written,
            }),
        })
    }

    /// Appends a chunk as one write, so that a follower never sees half a line of ours.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, stream: Stream, chunk: &str) -> io::Result<()> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.written > LARGEST {
            return Ok(());
        }
        inner.append(stream, chunk)?;
        if inner.written > LARGEST {
            inner.append(
                Stream::System,
                "the log is full; later output is not kept\n",
            )?;
        }
        Ok(())
    }
}

impl Inner {
    fn append(&mut self, stream: Stream, chunk: &str) -> io::Result<()> {
        let ts = format!("{:.3}", jiff::Timestamp::now());
        let line = Line {
            ts,
            stream,
            chunk: chunk.to_owned(),
            seq: self.seq,
        };
        let mut text = serde_json::to_vec(&line)?;
        text.push(b'\n');
        self.file.write_all(&text)?;
        self.seq += 1;
        self.written += u64::try_from(text.len()).unwrap_or(u64::MAX);
        Ok(())
    }
}

/// Turns reads of arbitrary bytes into text without cutting characters apart.
#[derive(Debug, Default)]
pub struct Decoder {
    rest: Vec<u8>,
}

impl Decoder {
    /// The text that is complete after `bytes`; the start of an unfinished character is kept back.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.rest.extend_from_slice(bytes);
        let keep = unfinished(&self.rest);
        let tail = self.rest.split_off(self.rest.len() - keep);
        let text = String::from_utf8_lossy(&self.rest).into_owned();
        self.rest = tail;
        text
    }

    /// What was kept back at the end of the stream.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.rest)).into_owned()
    }
}

/// How many trailing bytes could be the start of a longer character.
fn unfinished(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let byte = bytes[bytes.len() - back];
        let needs = match byte {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            0x80..=0xbf => continue,
            _ => return 0,
        };
        return if needs > back { back } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_never_cut_and_bad_bytes_do_not_stop_the_log() {
        let mut decoder = Decoder::default();
        let euro = "a€b".as_bytes();
        assert_eq!(decoder.push(&euro[..2]), "a");
        assert_eq!(decoder.push(&euro[2..]), "€b");
        assert_eq!(decoder.push(b"\xff\xfex"), "\u{fffd}\u{fffd}x");
        assert_eq!(decoder.push(b"\xffa\xe2\x82"), "\u{fffd}a");
        assert_eq!(decoder.push(b"\xac"), "€");
        assert_eq!(decoder.push(b"\xf0\x9f"), "");
        assert_eq!(decoder.finish(), "\u{fffd}");
    }

    #[test]
    fn lines_count_over_all_streams() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = RunLog::open(&path).unwrap();
        log.write(Stream::Stdout, "one\n").unwrap();
        log.write(Stream::Stderr, "two").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Line> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(
            lines.iter().map(|line| line.seq).collect::<Vec<_>>(),
            [0, 1]
        );
        assert_eq!(
            (lines[1].stream, lines[1].chunk.as_str()),
            (Stream::Stderr, "two")
        );
        assert!(lines[0].ts.ends_with('Z'), "{}", lines[0].ts);
    }
}
