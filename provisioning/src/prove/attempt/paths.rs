//! Sockets and files of this machine, opened and not changed.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::Path;

use crate::prove::task::{Outcome, Report, Task};

/// Whether somebody answers at a unix socket. One that begins with `@` has a name and no file.
///
/// # Errors
/// What the kernel said.
pub fn connects(path: &Path) -> io::Result<()> {
    let address = match path.as_os_str().as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    match UnixStream::connect_addr(&address) {
        // The other kind of socket.
        Err(error) if error.raw_os_error() == Some(nix::errno::Errno::EPROTOTYPE as i32) => {
            UnixDatagram::unbound()?.connect_addr(&address)
        }
        other => other.map(drop),
    }
}

pub(super) fn connect_paths(task: &Task) -> Report {
    each(task, connects)
}

pub(super) fn files(task: &Task, write: bool) -> Report {
    each(task, |path| open(path, write))
}

/// Tries each path. Granted when one is open, else the hardest refusal.
fn each(task: &Task, run: impl Fn(&Path) -> io::Result<()>) -> Report {
    let mut report = Report::new(Outcome::Absent, "");
    for path in &task.paths {
        match run(path) {
            Ok(()) => report.found.push(path.display().to_string()),
            Err(error) => {
                let one = Report::of_error(&error);
                if one.outcome != Outcome::Absent && report.outcome == Outcome::Absent {
                    report = Report {
                        found: report.found,
                        detail: path.display().to_string(),
                        ..one
                    };
                }
            }
        }
    }
    if !report.found.is_empty() {
        report.outcome = Outcome::Granted;
        report.errno = None;
        report.detail.clear();
    }
    report
}

/// Opens, and changes nothing: a directory is listed, or tried with a file that never gets a name.
fn open(path: &Path, write: bool) -> io::Result<()> {
    if path.is_dir() {
        if !write {
            return fs::read_dir(path).map(drop);
        }
        let unnamed = OpenOptions::new()
            .write(true)
            .custom_flags(nix::fcntl::OFlag::O_TMPFILE.bits())
            .open(path);
        return match unnamed {
            // Not every kind of file system has them.
            Err(error) if error.raw_os_error() == Some(nix::errno::Errno::EOPNOTSUPP as i32) => {
                named(path)
            }
            other => other.map(drop),
        };
    }
    OpenOptions::new()
        .read(!write)
        .append(write)
        .custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits())
        .open(path)
        .map(drop)
}

/// A file that is removed again at once.
fn named(directory: &Path) -> io::Result<()> {
    let mine = directory.join(format!(".portcullis-prove-{}", std::process::id()));
    OpenOptions::new()
        .create_new(true)
        .write(true)
        .open(&mine)?;
    fs::remove_file(mine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_open_are_found_and_missing_ones_are_absent() {
        let dir = tempfile::tempdir().unwrap();
        let mut task = Task::new(crate::prove::kind::Kind::FileReadable, 100);
        task.paths = vec![dir.path().join("none")];
        assert_eq!(files(&task, false).outcome, Outcome::Absent);
        task.paths.push(dir.path().to_owned());
        assert_eq!(files(&task, true).outcome, Outcome::Granted);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
