//! The only place that opens a connection to anywhere. It takes addresses that were checked and
//! gives a plain stream.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout_at};

use super::UpstreamError;

/// Tries `addresses` in order until one connects; all of them share this deadline.
#[allow(
    clippy::disallowed_methods,
    reason = "this is the one function that dials"
)]
pub(super) async fn tcp(
    addresses: &[SocketAddr],
    deadline: Instant,
) -> Result<(TcpStream, SocketAddr), UpstreamError> {
    let mut last = UpstreamError::NoAddress;
    for (index, address) in addresses.iter().enumerate() {
        // An address that swallows packets must not use up the time of those behind it.
        let left = u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
        let share = Instant::now() + deadline.saturating_duration_since(Instant::now()) / left;
        match timeout_at(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                if let Err(error) = stream.set_nodelay(true) {
                    last = UpstreamError::Connect {
                        address: *address,
                        source: error,
                    };
                    continue;
                }
                return Ok((stream, *address));
            }
            Ok(Err(source)) => {
                last = UpstreamError::Connect {
                    address: *address,
                    source,
                }
            }
            Err(_) => last = UpstreamError::ConnectTimeout(*address),
        }
    }
    Err(last)
}

/// Connects to the board's unix socket.
pub(super) async fn board(path: &Path, limit: Duration) -> Result<UnixStream, UpstreamError> {
    match tokio::time::timeout(limit, UnixStream::connect(path)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(source)) => Err(UpstreamError::Board(source)),
        Err(_) => Err(UpstreamError::Board(std::io::ErrorKind::TimedOut.into())),
    }
}
