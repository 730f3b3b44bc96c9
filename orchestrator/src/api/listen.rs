//! The unix sockets: binding them, and who is at the other end.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use axum::Router;
use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use tokio::net::UnixListener;
use tokio::sync::watch;

/// The process at the other end of a connection, as the kernel knows it.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// Its uid; `u32::MAX`, which is nobody, when the kernel does not say.
    pub uid: u32,
}

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        let uid = stream.io().peer_cred().map_or(u32::MAX, |cred| cred.uid());
        Self { uid }
    }
}

/// Binds a socket that everyone may connect to: the peer's uid is judged, not the file's mode. A
/// socket left by a dead process is replaced; a living one's is not.
///
/// # Errors
/// The path is in use, or is something else.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => {
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(io::Error::new(
                    io::ErrorKind::AddrInUse,
                    "somebody listens there already",
                ));
            }
            fs::remove_file(path)?;
        }
        Ok(_) => {
            let error = "there is a file that is no socket";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, error));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// Serves webhooks until `stop` turns true.
///
/// # Errors
/// Accepting failed for good.
pub async fn serve_hooks<L>(
    listener: L,
    router: Router,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()>
where
    L: axum::serve::Listener,
    L::Addr: std::fmt::Debug,
{
    axum::serve(listener, router)
        .with_graceful_shutdown(async move {
            // A sender that is gone stops the server too.
            let _stopped = stop.wait_for(|stop| *stop).await;
        })
        .await
}

/// Serves until `stop` turns true.
///
/// # Errors
/// Accepting failed for good.
pub async fn serve(
    listener: UnixListener,
    router: Router,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let service = router.into_make_service_with_connect_info::<Peer>();
    axum::serve(listener, service)
        .with_graceful_shutdown(async move {
            // A sender that is gone stops the server too.
            let _stopped = stop.wait_for(|stop| *stop).await;
        })
        .await
}
