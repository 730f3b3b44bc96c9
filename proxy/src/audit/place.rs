//! Where the log lies: its directory, which is locked, and the file in it.

use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::Error;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use policy::record::Record;

use super::FILE;
use super::chain::{self, LineHash};
use super::segment::{self, Segment};

/// So many things are set aside behind one line.
const MOST_ASIDE: u32 = 1000;
/// A directory that is locked may be so for the moment in which somebody looks whether it is.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

pub(super) fn identity(metadata: &std::fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

pub(super) fn is_same(open: &File, path: &Path) -> std::io::Result<bool> {
    Ok(identity(&open.metadata()?) == identity(&std::fs::metadata(path)?))
}

/// Makes the log's directory if need be.
pub(super) fn make_directory(folder: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Locks the directory, which says who writes the log; nothing if somebody has done so.
pub(super) fn lock_directory(folder: &Path) -> std::io::Result<Option<File>> {
    let directory = File::open(folder)?;
    match directory.try_lock() {
        Ok(()) => Ok(Some(directory)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(problem)) => Err(problem),
    }
}

/// Locks the directory, with some patience.
pub(super) fn lock(directory: &Path) -> std::io::Result<Option<File>> {
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        let lock = lock_directory(directory)?;
        if lock.is_some() || Instant::now() >= until {
            return Ok(lock);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Opens `audit.jsonl` in a directory, or makes it.
pub(super) fn open_file(folder: &Path) -> std::io::Result<File> {
    options().create(true).open(folder.join(FILE))
}

/// A new, empty file at the path, for a log whose former file began with line `first` and was written up
/// to line `last`. Who moved the former one away may have put one there: an empty one that is ours is
/// taken; the former one itself, on a disk that was mounted anew, becomes a closed file; any other thing
/// but a directory is set aside.
pub(super) fn begin_file(path: &Path, first: u64, last: (u64, LineHash)) -> std::io::Result<File> {
    let problem = match create_file(path) {
        Err(problem) if problem.kind() == std::io::ErrorKind::AlreadyExists => problem,
        created => return created,
    };
    let there = std::fs::symlink_metadata(path)?;
    if there.is_dir() {
        // No rotation does that: somebody must look.
        return Err(problem);
    }
    let own = there.uid() == nix::unistd::geteuid().as_raw() && there.nlink() == 1;
    if there.is_file() && own && there.len() == 0 {
        let file = options().open(path)?;
        // Nobody else is to read the log, whatever mode it was made with.
        file.set_permissions(Permissions::from_mode(0o600))?;
        return Ok(file);
    }
    if there.is_file() && own && is_former(path, first, last)? {
        let closed = path.with_file_name(segment::name(first));
        if std::fs::symlink_metadata(&closed).is_err() {
            std::fs::rename(path, &closed)?;
            return create_file(path);
        }
    }
    let last = last.0;
    let aside = (0..MOST_ASIDE)
        .map(|number| {
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".{last}-{number}.aside"));
            PathBuf::from(name)
        })
        .find(|name| {
            std::fs::symlink_metadata(name)
                .is_err_and(|problem| problem.kind() == std::io::ErrorKind::NotFound)
        })
        .ok_or_else(|| Error::other(format!("{} is in the way", path.display())))?;
    std::fs::rename(path, &aside)?;
    tracing::warn!(
        "what was at {} is no file of this log: it is set aside as {}",
        path.display(),
        aside.display()
    );
    create_file(path)
}

/// Whether the file is the log's former one, as far as the disk had it: it begins with this line, each is
/// as it was written and follows the one before, and the last one is none that came later.
fn is_former(path: &Path, first: u64, last: (u64, LineHash)) -> std::io::Result<bool> {
    let mut end: Option<(u64, LineHash)> = None;
    let mut lines = Segment::alone(path).open()?;
    while let Some(line) = lines.read()? {
        let (true, false, Ok(sealed)) = (line.whole, line.long, chain::open(line.text)) else {
            return Ok(false);
        };
        let seq = match end {
            None if begins_with(line.text, first) => first,
            Some((seq, hash)) if hash == sealed.prev => seq + 1,
            None | Some(_) => return Ok(false),
        };
        end = Some((seq, sealed.hash));
    }
    Ok(end.is_some_and(|end| end.0 < last.0 || end == last))
}

fn begins_with(line: &[u8], first: u64) -> bool {
    serde_json::from_slice::<Record>(line).is_ok_and(|record| record.seq == first)
}

fn create_file(path: &Path) -> std::io::Result<File> {
    options().create_new(true).open(path)
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .append(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
    options
}
