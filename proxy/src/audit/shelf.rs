//! Closed files: compressed when they are old enough, with an index beside them, and removed as
//! retention asks for. A thread of its own; nothing waits for it.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use policy::record::LogFact;
use sha2::{Digest, Sha256};

use super::index::{Index, index_path};
use super::segment::{self, Segment};
use super::{AuditError, Shared, event};

/// How fast a closed file is compressed: cheap rather than small.
const LEVEL: i32 = 1;
/// Copied in pieces of this size.
const PIECE_BYTES: usize = 64 * 1024;
/// Looked at no less and no more often than this.
const OFTEN: Duration = Duration::from_millis(50);
const SELDOM: Duration = Duration::from_secs(30);

/// What keeps a file from being looked after.
type Problem = Box<dyn std::error::Error>;

/// Looks after the closed files until the log is closed.
pub(super) fn keep(shared: &Weak<Shared>, closing: &std::sync::mpsc::Receiver<()>) {
    let mut wait = OFTEN;
    // The other end is dropped when the log is closed.
    while closing.recv_timeout(wait) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let settings = &shared.settings;
        wait = (settings.compress_after / 4).clamp(OFTEN, SELDOM);
        match tend(&shared) {
            Ok(true) => {}
            Ok(false) => wait = SELDOM,
            Err(problem) => {
                tracing::warn!("looking after closed files of the audit log: {problem}");
                wait = SELDOM;
            }
        }
    }
}

/// Whether all went well. A file that cannot be read or compressed is said, stays as it is, and keeps no
/// other from being compressed or removed.
fn tend(shared: &Arc<Shared>) -> Result<bool, Problem> {
    let folder = shared.path.parent().unwrap_or(Path::new("."));
    let (mut closed, mut well) = (Vec::new(), true);
    for segment in segment::list(folder)? {
        if segment.is_open() {
            continue;
        }
        let (len, age) = match extent(&segment) {
            Ok(extent) => extent,
            Err(problem) => {
                well = false;
                let path = segment.path.display();
                tracing::warn!("a closed file of the audit log is passed over: {path}: {problem}");
                continue;
            }
        };
        match shelve(shared, &segment, age) {
            Ok(None) => closed.push((segment, len, age)),
            Ok(Some((path, bytes))) => closed.push((Segment::alone(&path), bytes, age)),
            // Nothing can be compressed or removed while the log cannot say so.
            Err(problem) if problem.is::<AuditError>() => return Err(problem),
            Err(problem) => {
                well = false;
                let path = segment.path.display();
                tracing::warn!("a closed file of the audit log stays as it is: {path}: {problem}");
                closed.push((segment, len, age));
            }
        }
    }
    Ok(retain(shared, &closed)? && well)
}

/// A file's bytes, and how long ago its last line was written.
fn extent(segment: &Segment) -> std::io::Result<(u64, Duration)> {
    let metadata = std::fs::metadata(&segment.path)?;
    let age = SystemTime::now().duration_since(metadata.modified()?);
    Ok((metadata.len(), age.unwrap_or_default()))
}

/// Gives a closed file its index, and compresses it if it is old enough: to which file, of how many bytes.
fn shelve(
    shared: &Shared,
    segment: &Segment,
    age: Duration,
) -> Result<Option<(PathBuf, u64)>, Problem> {
    if segment.is_compressed() {
        return Ok(None);
    }
    // So that a question need not open it, long before it is compressed.
    if index_path(segment).is_some_and(|path| !path.exists()) {
        write_index_of(segment)?;
    }
    if age < shared.settings.compress_after {
        return Ok(None);
    }
    let working = segment.path.with_extension("jsonl.zst.part");
    let compressed = compress(shared, segment, &working);
    if compressed.is_err() {
        // Half a copy is of no use, and there may be no room for it.
        let _ = std::fs::remove_file(&working);
    }
    compressed.map(Some)
}

/// Puts a compressed copy in place of a closed file, once the log durably says what the copy is; it keeps
/// the time of the file's last line.
fn compress(shared: &Shared, segment: &Segment, working: &Path) -> Result<(PathBuf, u64), Problem> {
    let modified = std::fs::metadata(&segment.path)?.modified()?;
    let mut named = segment.path.as_os_str().to_owned();
    named.push(".zst");
    let named = PathBuf::from(named);
    let file = create(working)?;
    let mut encoder = zstd::Encoder::new(BufWriter::new(file), LEVEL)?;
    encoder.include_checksum(true)?;
    // Byte by byte, whatever they are: the original goes away.
    let copied = copy(&mut File::open(&segment.path)?, &mut encoder)?;
    let file = encoder.finish()?.into_inner()?;
    file.set_modified(modified)?;
    file.sync_all()?;
    let bytes = file.metadata()?.len();
    let mut packed = zstd::Decoder::new(File::open(working)?)?;
    if copy(&mut packed, &mut std::io::sink())? != copied
        || copy(&mut File::open(&segment.path)?, &mut std::io::sink())? != copied
    {
        return Err("its copy is not like it".into());
    }
    write_index_of(segment)?;
    // Of a compressed file some bytes can be others and it still decompresses to the same lines.
    let sha256 = segment::sha256(&File::open(working)?)?;
    if let Some(first) = segment.first {
        shared.record_durably(event(
            "a closed file of the log is compressed",
            Some(LogFact::Compressed { first, sha256 }),
        ))?;
    }
    std::fs::rename(working, &named)?;
    sync_folder(&named)?;
    std::fs::remove_file(&segment.path)?;
    Ok((named, bytes))
}

/// Copies everything, and tells its length and SHA-256.
fn copy(from: &mut impl Read, to: &mut impl Write) -> std::io::Result<(u64, [u8; 32])> {
    let (mut len, mut hash) = (0, Sha256::new());
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = match from.read(&mut piece) {
            Ok(0) => return Ok((len, hash.finalize().into())),
            Ok(read) => read,
            Err(problem) if problem.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(problem) => return Err(problem),
        };
        let part = piece.get(..read).unwrap_or_default();
        hash.update(part);
        to.write_all(part)?;
        len += u64::try_from(read).unwrap_or(0);
    }
}

/// What a file is about; nothing if it has lines too long to be read, so that whoever asks opens it
/// and is told of them.
fn index(segment: &Segment) -> std::io::Result<Option<Index>> {
    let mut index = Index::default();
    let mut lines = segment.open()?;
    while let Some(line) = lines.read()? {
        if line.long {
            return Ok(None);
        }
        index.add(line.text);
    }
    Ok(Some(index))
}

fn write_index_of(segment: &Segment) -> std::io::Result<()> {
    match index(segment)? {
        Some(index) => write_index(segment, &index),
        None => remove_index(segment),
    }
}

fn remove_index(segment: &Segment) -> std::io::Result<()> {
    match index_path(segment).map(std::fs::remove_file) {
        Some(Err(problem)) if problem.kind() != std::io::ErrorKind::NotFound => Err(problem),
        Some(_) | None => Ok(()),
    }
}

fn write_index(segment: &Segment, index: &Index) -> std::io::Result<()> {
    let Some(path) = index_path(segment) else {
        return Ok(());
    };
    let working = path.with_extension("part");
    let mut file = create(&working)?;
    file.write_all(&serde_json::to_vec(index)?)?;
    file.sync_all()?;
    std::fs::rename(working, path)
}

fn create(path: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path)
}

fn sync_folder(path: &Path) -> std::io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Removes the oldest files that are not to be kept, once the log says so durably. Whether all of them are
/// gone.
fn retain(shared: &Shared, closed: &[(Segment, u64, Duration)]) -> Result<bool, AuditError> {
    let settings = &shared.settings;
    let mut bytes: u64 = closed.iter().map(|(_, bytes, _)| bytes).sum();
    let mut count = closed.len();
    let mut gone = 0;
    for (_, len, age) in closed {
        let kept = settings.keep_files.is_none_or(|most| count <= most)
            && settings.keep_bytes.is_none_or(|most| bytes <= most)
            && settings.keep_for.is_none_or(|most| *age <= most);
        if kept {
            break;
        }
        bytes -= len;
        count -= 1;
        gone += 1;
    }
    let (Some((oldest, ..)), Some(first)) = (closed[..gone].first(), closed.first()) else {
        return Ok(true);
    };
    let next = match closed.get(gone) {
        Some((segment, ..)) => segment.first,
        None => Some(shared.first_of_open()),
    };
    let fact = LogFact::Removed {
        first: oldest.first.or(first.0.first).unwrap_or(1),
        last: next.unwrap_or(1).saturating_sub(1),
    };
    shared.record_durably(event(
        "old files of the log are removed, as retention asks for",
        Some(fact),
    ))?;
    let mut well = true;
    for (segment, ..) in &closed[..gone] {
        let removed = std::fs::remove_file(&segment.path).and_then(|()| remove_index(segment));
        if let Err(problem) = removed {
            well = false;
            let path = segment.path.display();
            tracing::warn!("a closed file of the audit log cannot be removed: {path}: {problem}");
        }
    }
    Ok(well)
}

impl Shared {
    /// The number of the first line of the file being written.
    fn first_of_open(&self) -> u64 {
        self.lock().log.first()
    }

    pub(super) fn record_durably(
        &self,
        mut record: policy::record::Record,
    ) -> Result<(), AuditError> {
        let mut state = self.lock();
        self.number(&mut state, &mut record)?;
        self.write(&mut state)?;
        self.make_durable(state).1
    }
}
