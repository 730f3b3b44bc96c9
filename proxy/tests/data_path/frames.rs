//! Frames of HTTP/2 as bytes, for what no library sends.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::HOST;
use super::stand::Stand;

/// A frame of HTTP/2.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Fields as they stand in a header block.
pub(super) type Fields<'a> = &'a [(&'a str, &'a [u8])];

/// A request's header block: POST over https to `/v1/x`, then these fields.
pub(super) fn block(fields: Fields<'_>) -> Vec<u8> {
    let mut block = vec![0x83, 0x87];
    let literal = |block: &mut Vec<u8>, bytes: &[u8]| {
        block.push(u8::try_from(bytes.len()).unwrap());
        block.extend(bytes);
    };
    block.push(0x04);
    literal(&mut block, b"/v1/x");
    for (name, value) in fields {
        block.push(0x00);
        literal(&mut block, name.as_bytes());
        literal(&mut block, value);
    }
    block
}

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Sends frames on a new connection; what comes back until a frame of `kind` does, or the end. The
/// answer is the kinds and payloads.
pub(super) async fn frames(stand: &Stand, send: &[Vec<u8>], kind: u8) -> Vec<(u8, Vec<u8>)> {
    frames_until(stand, send, |one| one == kind).await
}

/// The same until a frame of a kind that is `last`.
pub(super) async fn frames_until(
    stand: &Stand,
    send: &[Vec<u8>],
    last: impl Fn(u8) -> bool,
) -> Vec<(u8, Vec<u8>)> {
    let mut tls = stand.tunnel_offering(1500, HOST, &["h2"]).await.unwrap();
    let mut bytes = PREFACE.to_vec();
    bytes.extend(send.concat());
    // A gate that has had enough closes.
    let _ = tls.write_all(&bytes).await;
    let _ = tls.flush().await;
    let reading = async {
        let mut got = Vec::new();
        loop {
            let mut head = [0; 9];
            if tls.read_exact(&mut head).await.is_err() {
                return got;
            }
            let length =
                usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            let mut payload = vec![0; length];
            if tls.read_exact(&mut payload).await.is_err() {
                return got;
            }
            got.push((head[3], payload));
            if last(head[3]) {
                return got;
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), reading)
        .await
        .expect("the gate answers or closes")
}

pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const GOAWAY: u8 = 7;
