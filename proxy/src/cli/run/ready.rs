//! Saying that the gate listens: a file, and the service manager's socket.

use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};

/// Writes the process id into `file` in one step, and `READY=1` to `NOTIFY_SOCKET` if it is set.
pub(super) fn announce(file: Option<&Path>) -> std::io::Result<()> {
    if let Some(file) = file {
        let mut fresh = file.as_os_str().to_owned();
        fresh.push(".new");
        let fresh = PathBuf::from(fresh);
        let mut out = std::fs::File::create(&fresh)?;
        writeln!(out, "{}", std::process::id())?;
        std::fs::rename(&fresh, file)?;
    }
    match std::env::var("NOTIFY_SOCKET") {
        Ok(socket) => notify(&socket),
        Err(_) => Ok(()),
    }
}

/// The protocol of sd_notify: one datagram.
fn notify(socket: &str) -> std::io::Result<()> {
    let to = match socket.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(b"READY=1\n", &to)?;
    Ok(())
}
