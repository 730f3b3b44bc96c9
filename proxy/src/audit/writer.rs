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
/// A line buffer that grew beyond this is not kept.
const KEPT_BUFFER_BYTES: usize = 16 * 1024;

pub(super) struct Log {
    file: Arc<File>,
    len: u64,
    seq: u64,
    torn: bool,
    line: Vec<u8>,
}

impl Log {
    pub(super) fn new(file: File, len: u64, seq: u64) -> Self {
        Self {
            file: Arc::new(file),
            len,
            seq,
            torn: false,
            line: Vec::new(),
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

    /// Numbers the record and writes its line, returned for those who listen.
    pub(super) fn write(&mut self, record: &mut Record) -> std::io::Result<&str> {
        if self.torn {
            self.file.set_len(self.len)?;
            self.torn = false;
        }
        record.seq = self.seq + 1;
        self.line.clear();
        if self.line.capacity() > KEPT_BUFFER_BYTES {
            self.line.shrink_to(KEPT_BUFFER_BYTES);
        }
        serde_json::to_writer(&mut self.line, record)?;
        self.line.push(b'\n');
        let mut file: &File = &self.file;
        if let Err(problem) = file.write_all(&self.line) {
            // Some of it may be there.
            self.torn = self.file.set_len(self.len).is_err();
            return Err(problem);
        }
        self.len += u64::try_from(self.line.len()).unwrap_or(0);
        self.seq += 1;
        std::str::from_utf8(&self.line).map_err(std::io::Error::other)
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
