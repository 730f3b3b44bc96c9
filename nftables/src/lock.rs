//! One at a time: `apply`, `remove` and each round of `watch` take turns.
//!
//! Without it the watcher would see an `apply` half done, and put the old rules back in between. The
//! lock is a file beside the status file; the kernel lets go of it when its holder ends.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

/// Held until dropped.
#[derive(Debug)]
pub struct Turn {
    _lock: Flock<File>,
}

/// How long another's turn may last: a replacement takes milliseconds.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for a turn. `status` is the status file's path.
pub fn take(status: &Path) -> io::Result<Turn> {
    take_within(status, PATIENCE)?.ok_or_else(|| nix::Error::EWOULDBLOCK.into())
}

/// The same with another patience; `None` when it is over and somebody still has the turn.
pub fn take_within(status: &Path, patience: Duration) -> io::Result<Option<Turn>> {
    let directory = status.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(directory)?;
    let mut name = status.file_name().unwrap_or_default().to_owned();
    name.push(".lock");
    let path = directory.join(name);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&path)?;
    let deadline = Instant::now() + patience;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(Some(Turn { _lock: lock })),
            Err((_, nix::Error::EWOULDBLOCK)) if Instant::now() >= deadline => return Ok(None),
            Err((back, nix::Error::EWOULDBLOCK)) => file = back,
            Err((_, error)) => return Err(error.into()),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_waits_until_the_first_is_done() {
        let directory = tempfile::tempdir().unwrap();
        let status = directory.path().join("made/status.json");
        let first = take(&status).unwrap();
        let (sender, done) = std::sync::mpsc::channel();
        let second = std::thread::spawn({
            let status = status.clone();
            move || {
                let _turn = take(&status).unwrap();
                sender.send(()).unwrap();
            }
        });
        assert!(done.recv_timeout(Duration::from_millis(200)).is_err());
        drop(first);
        done.recv_timeout(Duration::from_secs(20)).unwrap();
        second.join().unwrap();
    }
}
