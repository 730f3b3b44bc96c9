//! One file, whole lines only. What counts as written moves after a complete line; half a line
//! from a full disk is cut off again before the next one.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use policy::record::Record;

/// Space that must be free before a failed log is tried again, so that it does not recover for the
/// length of one short line.
const ROOM_BYTES: u64 = 16 * 1024;
/// A buffer that grew beyond this is not kept.
const KEPT_BUFFER_BYTES: usize = 64 * 1024;

pub(super) struct Log {
    file: Arc<File>,
    len: u64,
    seq: u64,
    torn: bool,
    /// Whole lines, numbered up to `seq`; not written yet unless `written` says so.
    lines: Vec<u8>,
    written: bool,
    /// The number of the last line that was written, or is known to be missing.
    settled: u64,
    /// How many of `lines` tell what has happened already.
    owed: u64,
}

impl Log {
    pub(super) fn new(file: File, len: u64, seq: u64) -> Self {
        Self {
            file: Arc::new(file),
            len,
            seq,
            torn: false,
            lines: Vec::new(),
            written: true,
            settled: seq,
            owed: 0,
        }
    }

    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    pub(super) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    pub(super) fn sync(&self) -> std::io::Result<()> {
        self.file.sync_data()
    }

    /// Numbers the record and makes its line; [`Log::write`] writes it.
    pub(super) fn push(&mut self, record: &mut Record) -> std::io::Result<()> {
        if self.written {
            self.lines.clear();
            self.lines.shrink_to(KEPT_BUFFER_BYTES);
            self.written = false;
        }
        record.seq = self.seq + 1;
        let before = self.lines.len();
        if let Err(problem) = serde_json::to_writer(&mut self.lines, record) {
            self.lines.truncate(before);
            return Err(problem.into());
        }
        self.lines.push(b'\n');
        self.seq += 1;
        Ok(())
    }

    /// The line just made tells what has happened: were it lost, there would be a gap.
    pub(super) fn owe(&mut self) {
        self.owed += 1;
    }

    /// Bytes that are not written yet.
    pub(super) fn pending(&self) -> usize {
        if self.written { 0 } else { self.lines.len() }
    }

    /// Writes the lines made since the last call, returned for those who listen. If that fails they
    /// are gone, and with them their numbers, but for as many as are missing in the log.
    pub(super) fn write(&mut self) -> std::io::Result<&[u8]> {
        if self.pending() == 0 {
            return Ok(&[]);
        }
        let result = self.write_pending();
        self.written = true;
        if result.is_ok() {
            self.len += u64::try_from(self.lines.len()).unwrap_or(0);
            self.settled = self.seq;
        } else {
            self.settled += self.owed;
            self.seq = self.settled;
        }
        self.owed = 0;
        result.map(|()| self.lines.as_slice())
    }

    fn write_pending(&mut self) -> std::io::Result<()> {
        if self.torn {
            self.file.set_len(self.len)?;
            self.torn = false;
        }
        let mut file: &File = &self.file;
        if let Err(problem) = file.write_all(&self.lines) {
            // Some of it may be there.
            self.torn = self.file.set_len(self.len).is_err();
            return Err(problem);
        }
        Ok(())
    }

    pub(super) fn has_room(&self) -> bool {
        match nix::sys::statvfs::fstatvfs(&*self.file) {
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

    pub(super) fn is_at(&self, path: &Path) -> bool {
        let same = |open: std::fs::Metadata, named: std::fs::Metadata| {
            open.ino() == named.ino() && open.dev() == named.dev()
        };
        match (self.file.metadata(), std::fs::symlink_metadata(path)) {
            (Ok(open), Ok(named)) => same(open, named),
            (Ok(_) | Err(_), Ok(_) | Err(_)) => false,
        }
    }

    /// Goes on in a new, empty file.
    pub(super) fn replace(&mut self, file: File) {
        self.file = Arc::new(file);
        self.len = 0;
        self.torn = false;
    }
}
