//! One connection to a name's address, carried to the gate as a tunnel to that name and port. What
//! is said in it is the client's and the gate's affair.

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::pump::{GATE_AWAY, TOO_MANY};

/// How long the gate may take to open a tunnel.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a client may take to say something, when it is to be told that it is not carried.
const SILENCE: Duration = Duration::from_secs(5);
/// The longest head of the gate's answer.
const LONGEST: usize = 64 * 1024;
/// Bytes in flight in each direction.
const BUFFER: usize = 16 * 1024;

/// A TLS handshake message begins so.
const HANDSHAKE: u8 = 22;
/// Fatal alerts before any handshake: the gate does not want this, and something is amiss.
const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];
const INTERNAL_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];

/// Carries `client` to `name:port` until both directions have ended.
pub(super) async fn carry(
    mut client: TcpStream,
    gate: &Path,
    name: &str,
    port: u16,
    granted: bool,
) {
    let _best_effort = client.set_nodelay(true);
    if !granted {
        return decline(client, TOO_MANY, None, INTERNAL_ERROR).await;
    }
    let Ok(mut gate) = UnixStream::connect(gate).await else {
        return decline(client, GATE_AWAY, None, INTERNAL_ERROR).await;
    };
    match timeout(PATIENCE, open(&mut gate, name, port)).await {
        Ok(Ok(Opened {
            status: 200, rest, ..
        })) => {
            if client.write_all(&rest).await.is_ok() {
                // However it ends, both ends see it.
                let _ended = tokio::io::copy_bidirectional_with_sizes(
                    &mut client,
                    &mut gate,
                    BUFFER,
                    BUFFER,
                )
                .await;
            }
        }
        Ok(Ok(refused)) => decline(client, &refused.bytes, Some(gate), ACCESS_DENIED).await,
        Ok(Err(_)) | Err(_) => decline(client, GATE_AWAY, None, INTERNAL_ERROR).await,
    }
}

/// The gate's answer to CONNECT.
struct Opened {
    status: u16,
    /// All that was read.
    bytes: Vec<u8>,
    /// What of it came behind the head.
    rest: Vec<u8>,
}

async fn open(gate: &mut UnixStream, name: &str, port: u16) -> io::Result<Opened> {
    let request = format!("CONNECT {name}:{port} HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n");
    gate.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let status = bytes.get(9..12).and_then(|code| str::from_utf8(code).ok());
            let status = status.and_then(|code| code.parse().ok()).unwrap_or(0);
            let rest = bytes.get(end + 4..).unwrap_or_default().to_vec();
            return Ok(Opened {
                status,
                bytes,
                rest,
            });
        }
        if bytes.len() > LONGEST || gate.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Tells a client why it is not carried, in its own language: an alert where it speaks TLS, else
/// HTTP, with what more the gate has to say.
async fn decline(mut client: TcpStream, answer: &[u8], gate: Option<UnixStream>, alert: [u8; 7]) {
    let telling = async {
        // Read first, so that closing does not reset the answer away.
        let mut said = vec![0; BUFFER];
        let length = client.read(&mut said).await?;
        if said.first() == Some(&HANDSHAKE) && length > 0 {
            client.write_all(&alert).await?;
        } else {
            client.write_all(answer).await?;
            if let Some(mut gate) = gate {
                gate.shutdown().await?;
                tokio::io::copy(&mut gate, &mut client).await?;
            }
        }
        client.shutdown().await?;
        while client.read(&mut said).await? > 0 {}
        Ok::<_, io::Error>(())
    };
    // Nobody has to listen to it.
    let _unheard = timeout(SILENCE, telling).await;
}
