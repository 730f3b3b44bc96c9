//! The runs' directories and sockets on the disk.
//!
//! A directory that exists is used as it is, also one left by an earlier process: it may be bound
//! into a container, where one made anew would be missing for good.

use std::fs::{DirBuilder, Permissions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::unistd::Uid;
use policy::grant::RunId;

/// The socket's name inside a run's directory.
const SOCKET: &str = "gate.sock";
/// The longest path that a unix address holds, without its final NUL.
const ADDRESS_MAX: usize = 107;

#[derive(Debug)]
pub(super) struct RunsDirectory {
    path: PathBuf,
}

impl RunsDirectory {
    pub(super) fn open(path: &Path) -> std::io::Result<Self> {
        ensure(path, true)?;
        Ok(Self {
            path: path.to_owned(),
        })
    }

    pub(super) fn socket(&self, id: &RunId) -> PathBuf {
        self.path.join(id.as_str()).join(SOCKET)
    }

    /// A listening, non-blocking socket that anybody may connect to: who it is, is asked then.
    pub(super) fn bind(&self, id: &RunId) -> std::io::Result<UnixListener> {
        let directory = self.path.join(id.as_str());
        ensure(&directory, false)?;
        let socket = directory.join(SOCKET);
        match std::fs::remove_file(&socket) {
            Ok(()) => {}
            Err(problem) if problem.kind() == ErrorKind::NotFound => {}
            Err(problem) => return Err(problem),
        }
        let listener = bind_at(&directory, &socket)?;
        std::fs::set_permissions(&socket, Permissions::from_mode(0o666))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// Takes the socket away and leaves the directory.
    pub(super) fn unbind(&self, id: &RunId) {
        report(std::fs::remove_file(self.socket(id)), id);
    }

    /// Takes both away; for a run that was closed, not for one whose lease ended.
    pub(super) fn remove(&self, id: &RunId) {
        report(std::fs::remove_file(self.socket(id)), id);
        report(std::fs::remove_dir(self.path.join(id.as_str())), id);
    }
}

fn report(removed: std::io::Result<()>, id: &RunId) {
    match removed {
        Ok(()) => {}
        Err(problem) if problem.kind() == ErrorKind::NotFound => {}
        Err(problem) => tracing::warn!("run {id}: cannot remove its socket: {problem}"),
    }
}

/// Binds a socket whose path may be longer than an address: then through the directory's
/// descriptor.
fn bind_at(directory: &Path, socket: &Path) -> std::io::Result<UnixListener> {
    if socket.as_os_str().len() <= ADDRESS_MAX {
        return UnixListener::bind(socket);
    }
    let open = std::fs::File::open(directory)?;
    UnixListener::bind(format!("/proc/self/fd/{}/{SOCKET}", open.as_raw_fd()))
}

/// A directory of ours with mode 0711: to be passed through, not to be listed.
fn ensure(path: &Path, parents: bool) -> std::io::Result<()> {
    let made = DirBuilder::new()
        .recursive(parents)
        .mode(0o711)
        .create(path);
    match made {
        Ok(()) => {}
        Err(problem) if problem.kind() == ErrorKind::AlreadyExists => {}
        Err(problem) => return Err(problem),
    }
    let found = std::fs::symlink_metadata(path)?;
    if !found.is_dir() || found.uid() != Uid::effective().as_raw() {
        return Err(std::io::Error::new(
            ErrorKind::PermissionDenied,
            "exists and is not a directory of the gate's user",
        ));
    }
    if found.mode() & 0o7777 != 0o711 {
        std::fs::set_permissions(path, Permissions::from_mode(0o711))?;
    }
    Ok(())
}
