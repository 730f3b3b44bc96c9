//! One file, whole lines only, each chained to the one before. What counts as written moves after a
//! complete line; half a line from a full disk is cut off again before the next one.

use std::fs::File;
use std::io::{Error, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use policy::record::Record;

use super::chain::{self, LineHash};
use super::place::{begin_file, identity, is_same, lock_directory};
use super::segment;
use super::settings::Sync;

/// Space that must be free before a failed log is tried again, so that it does not recover for the
/// length of one short line.
const ROOM_BYTES: u64 = 16 * 1024;
/// Blocks are asked for in advance in pieces of this size, behind the end of the file: a sync that
/// need not find any costs a quarter less of the processor.
const AHEAD_BYTES: u64 = 1024 * 1024;
/// A line is shorter than [`segment::LINE_BYTES_MAX`] with the members that chain it.
const UNSEALED_BYTES_MAX: usize = segment::LINE_BYTES_MAX - 512;
/// A buffer that grew beyond this is not kept.
const KEPT_BUFFER_BYTES: usize = 256 * 1024;

/// Where the log stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position {
    /// Bytes of the file.
    pub(super) len: u64,
    /// The last line's number.
    pub(super) seq: u64,
    /// The last line's hash.
    pub(super) head: LineHash,
    /// The number of the file's first line, or of the one that it will begin with.
    pub(super) first: u64,
}

pub(super) struct Log {
    path: PathBuf,
    /// The directory, locked.
    directory: File,
    /// Makes the directory's names durable.
    sync_names: Sync,
    /// The file's name may not be on the disk.
    unnamed: bool,
    file: Arc<File>,
    /// Device and inode of the file, if they could be had.
    identity: Option<(u64, u64)>,
    at: Position,
    /// Since when this process writes the file.
    begun: Instant,
    torn: bool,
    /// Blocks were asked for up to here.
    ahead: u64,
    /// Whole lines, numbered up to `at.seq`; not written yet unless `written` says so.
    lines: Vec<u8>,
    written: bool,
    /// The last line that was written.
    settled: (u64, LineHash),
    /// The last line that is known to be on the disk.
    durable: u64,
}

impl Log {
    pub(super) fn new(
        path: PathBuf,
        directory: File,
        sync_names: Sync,
        file: File,
        at: Position,
    ) -> Self {
        Self {
            path,
            directory,
            sync_names,
            unnamed: false,
            identity: file.metadata().ok().as_ref().map(identity),
            file: Arc::new(file),
            at,
            begun: Instant::now(),
            torn: false,
            ahead: 0,
            lines: Vec::new(),
            written: true,
            settled: (at.seq, at.head),
            durable: at.seq,
        }
    }

    pub(super) fn seq(&self) -> u64 {
        self.at.seq
    }

    /// The number of the file's first line.
    pub(super) fn first(&self) -> u64 {
        self.at.first
    }

    pub(super) fn head(&self) -> LineHash {
        self.at.head
    }

    /// The last line that was written.
    pub(super) fn settled(&self) -> u64 {
        self.settled.0
    }

    /// The last line that is known to be on the disk.
    pub(super) fn durable(&self) -> u64 {
        self.durable
    }

    pub(super) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Bytes in the file, and since when it is written.
    pub(super) fn extent(&self) -> (u64, Duration) {
        (self.at.len, self.begun.elapsed())
    }

    /// The lines up to this one are on the disk.
    pub(super) fn synced(&mut self, upto: u64) {
        self.durable = self.durable.max(upto);
    }

    /// Numbers the record and makes its line; [`Log::write`] writes it.
    pub(super) fn push(&mut self, record: &mut Record) -> std::io::Result<()> {
        if self.written {
            self.lines.clear();
            self.lines.shrink_to(KEPT_BUFFER_BYTES);
            self.written = false;
        }
        record.seq = self.at.seq + 1;
        (record.prev, record.hash) = (None, None);
        let before = self.lines.len();
        // Neither a text that somebody chose nor a long list may make a line that no reader takes.
        self.print(before, record)?;
        for shorten in [Record::clip, Record::strip] {
            if self.lines.len() - before < UNSEALED_BYTES_MAX {
                break;
            }
            shorten(record);
            self.print(before, record)?;
        }
        self.at.head = chain::seal(&mut self.lines, before, self.at.head);
        self.at.seq += 1;
        Ok(())
    }

    /// Puts the record's JSON at the end of the lines, in place of what is there.
    fn print(&mut self, before: usize, record: &Record) -> std::io::Result<()> {
        self.lines.truncate(before);
        if let Err(problem) = record.write_json(&mut self.lines) {
            self.lines.truncate(before);
            return Err(problem.into());
        }
        Ok(())
    }

    /// Bytes that are not written yet.
    pub(super) fn pending(&self) -> usize {
        if self.written { 0 } else { self.lines.len() }
    }

    /// Writes the lines made since the last call, returned for those who listen. If that fails they
    /// are gone, and their numbers are given again.
    pub(super) fn write(&mut self) -> std::io::Result<&[u8]> {
        if self.pending() == 0 {
            return Ok(&[]);
        }
        let result = self.write_pending();
        self.written = true;
        if result.is_ok() {
            self.at.len += u64::try_from(self.lines.len()).unwrap_or(0);
            self.settled = (self.at.seq, self.at.head);
        } else {
            (self.at.seq, self.at.head) = self.settled;
        }
        result.map(|()| self.lines.as_slice())
    }

    fn write_pending(&mut self) -> std::io::Result<()> {
        if self.torn {
            self.file.set_len(self.at.len)?;
            self.torn = false;
        }
        self.reserve();
        let mut file: &File = &self.file;
        if let Err(problem) = file.write_all(&self.lines) {
            // Some of it may be there.
            self.torn = self.file.set_len(self.at.len).is_err();
            return Err(problem);
        }
        Ok(())
    }

    /// Asks for blocks behind the end, which stays where it is: a reader sees whole lines alone.
    fn reserve(&mut self) {
        use nix::fcntl::{FallocateFlags, fallocate};
        let end = self.at.len + u64::try_from(self.lines.len()).unwrap_or(0);
        if end <= self.ahead {
            return;
        }
        self.ahead = end + AHEAD_BYTES;
        if let Ok(ahead) = i64::try_from(self.ahead) {
            // A file system that has no room, or no such call, is met by the write itself.
            let _ = fallocate(&*self.file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, ahead);
        }
    }

    pub(super) fn has_room(&self) -> bool {
        // Of the directory, where a new file is begun: the present one may have been moved elsewhere.
        match nix::sys::statvfs::statvfs(self.folder()) {
            // Where the file system does not say, the probe's own write will.
            Err(_) => true,
            Ok(space) => {
                space
                    .blocks_available()
                    .saturating_mul(space.fragment_size())
                    >= ROOM_BYTES
            }
        }
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    /// Makes the name of the file durable, if that is still to be done.
    pub(super) fn name(&mut self) -> std::io::Result<()> {
        if self.unnamed {
            (self.sync_names)(&self.directory)?;
            self.unnamed = false;
        }
        Ok(())
    }

    /// Whether the path names the open file.
    pub(super) fn is_in_place(&self) -> bool {
        let named = std::fs::symlink_metadata(&self.path).ok();
        self.identity.is_some() && named.as_ref().map(identity) == self.identity
    }

    /// Goes on in a new, empty file. The present one, if it is still in its place, becomes a closed
    /// segment.
    pub(super) fn begin(&mut self) -> std::io::Result<()> {
        let folder = self.folder();
        let mut other = None;
        if !is_same(&self.directory, folder)? {
            // The former directory was moved away; this one has its name now. The former stays
            // locked until a file was begun, for it may come back.
            other = Some(lock_directory(folder)?.ok_or_else(|| {
                Error::other(format!(
                    "{} is being written by another process",
                    folder.display()
                ))
            })?);
        }
        if self.is_in_place() {
            if self.at.len == 0 && !self.torn {
                return self.name();
            }
            let closed = folder.join(segment::name(self.at.first));
            if std::fs::symlink_metadata(&closed).is_ok() {
                return Err(Error::other(format!("{} exists already", closed.display())));
            }
            std::fs::rename(&self.path, closed)?;
        }
        let file = begin_file(&self.path, self.at.first, self.settled)?;
        if let Some(other) = other {
            self.directory = other;
        }
        // From here on it is this log's file, also if its name cannot be made durable yet.
        self.identity = file.metadata().ok().as_ref().map(identity);
        self.file = Arc::new(file);
        self.at.len = 0;
        self.at.first = self.settled.0 + 1;
        self.begun = Instant::now();
        self.torn = false;
        self.ahead = 0;
        self.unnamed = true;
        self.name()
    }
}
