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
        if let Err(problem) = tend(&shared) {
            tracing::warn!("looking after closed files of the audit log: {problem}");
            wait = SELDOM;
        }
    }
}

fn tend(shared: &Arc<Shared>) -> Result<(), Box<dyn std::error::Error>> {
    let folder = shared.path.parent().unwrap_or(Path::new("."));
    let mut closed = Vec::new();
    for segment in segment::list(folder)? {
        if segment.is_open() {
            continue;
        }
        let metadata = std::fs::metadata(&segment.path)?;
        let age = SystemTime::now()
            .duration_since(metadata.modified()?)
            .unwrap_or_default();
        // So that a question need not open it, long before it is compressed.
        if !segment.is_compressed() && index_path(&segment).is_some_and(|path| !path.exists()) {
            write_index_of(&segment)?;
        }
        if !segment.is_compressed() && age >= shared.settings.compress_after {
            let (path, bytes) = compress(shared, &segment)?;
            closed.push((Segment::alone(&path), bytes, age));
        } else {
            closed.push((segment, metadata.len(), age));
        }
    }
    retain(shared, &closed)?;
    Ok(())
}

/// Puts a compressed copy in place of a closed file, once the log durably says what the copy is; it keeps
/// the time of the file's last line.
fn compress(
    shared: &Shared,
    segment: &Segment,
) -> Result<(PathBuf, u64), Box<dyn std::error::Error>> {
    let modified = std::fs::metadata(&segment.path)?.modified()?;
    let mut named = segment.path.as_os_str().to_owned();
    named.push(".zst");
    let named = PathBuf::from(named);
    let working = named.with_extension("zst.part");
    let file = create(&working)?;
    let mut encoder = zstd::Encoder::new(BufWriter::new(file), LEVEL)?;
    encoder.include_checksum(true)?;
    // Byte by byte, whatever they are: the original goes away.
    let copied = copy(&mut File::open(&segment.path)?, &mut encoder)?;
    let file = encoder.finish()?.into_inner()?;
    file.set_modified(modified)?;
    file.sync_all()?;
    let bytes = file.metadata()?.len();
    let mut packed = zstd::Decoder::new(File::open(&working)?)?;
    if copy(&mut packed, &mut std::io::sink())? != copied
        || copy(&mut File::open(&segment.path)?, &mut std::io::sink())? != copied
    {
        let problem = format!("the copy of {} is not like it", segment.path.display());
        return Err(problem.into());
    }
    write_index_of(segment)?;
    // Of a compressed file some bytes can be others and it still decompresses to the same lines.
    let sha256 = segment::sha256(&File::open(&working)?)?;
    if let Some(first) = segment.first {
        shared.record_durably(event(
            "a closed file of the log is compressed",
            Some(LogFact::Compressed { first, sha256 }),
        ))?;
    }
    std::fs::rename(&working, &named)?;
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

/// Removes the oldest files that are not to be kept, once the log says so durably.
fn retain(
    shared: &Shared,
    closed: &[(Segment, u64, Duration)],
) -> Result<(), Box<dyn std::error::Error>> {
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
        return Ok(());
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
    for (segment, ..) in &closed[..gone] {
        std::fs::remove_file(&segment.path)?;
        remove_index(segment)?;
    }
    Ok(())
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
