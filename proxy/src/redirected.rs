//! The entrance for programs that know nothing of proxies: the boundary leads an agent's own TCP
//! connections here, whatever they were meant for.
//!
//! The kernel tells who it is and which port was meant (SO_ORIGINAL_DST); the client itself tells
//! which host, by the TLS server name or by `Host`. That name goes through the same pipeline as a
//! CONNECT to it would: listed or refused, resolved and checked by the gate. The address that was
//! dialled is never used. A client that names no host is refused, and so is one that dials this
//! port directly.

pub(crate) mod peek;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use policy::record::{Entrance, RecordKind, Verdict};
use policy::{Code, Refusal};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use self::peek::{HANDSHAKE, Peek, Said, Unsaid, authority};
use crate::entrance::{self, client::Client};
use crate::gate::Gate;
use crate::identify::{self, IdentifyError};
use crate::tunnel;
use crate::tunnel::rejoined::Rejoined;

/// Descriptions of fatal alerts: this name is not known, and there is none.
const UNRECOGNIZED_NAME: u8 = 112;
const MISSING_EXTENSION: u8 = 109;
/// Read at once while the client is still to say what it means.
const PIECE: usize = 4096;
/// For telling a client that it is refused.
const TELLING: Duration = Duration::from_secs(2);

/// Accepts what the boundary redirects, until the task is dropped.
pub async fn accept(gate: Arc<Gate>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Both at once: the answers are only good while the client holds its end open.
                let meant = meant(&stream);
                let owner = meant.as_ref().ok().and_then(Option::as_ref).map_or_else(
                    || Err(IdentifyError::Gone),
                    |meant| identify::tcp_peer(peer, *meant),
                );
                tokio::spawn(serve(Arc::clone(&gate), stream, meant, owner));
            }
            Err(error) if entrance::is_dead(&error) => return entrance::gone(&error),
            Err(error) => entrance::pause(&error).await,
        }
    }
}

/// Where the client was going; `None` when it was going here.
fn meant(stream: &TcpStream) -> Result<Option<SocketAddr>, IdentifyError> {
    let own = stream.local_addr().map_err(IdentifyError::Kernel)?;
    let meant = identify::original_destination(stream)?;
    Ok(meant.filter(|meant| *meant != own))
}

async fn serve(
    gate: Arc<Gate>,
    mut stream: TcpStream,
    meant: Result<Option<SocketAddr>, IdentifyError>,
    owner: Result<u32, IdentifyError>,
) {
    let away = |uid, reason: &str| entrance::unknown(&gate, Entrance::Redirected, uid, reason);
    let port = match meant {
        Ok(Some(meant)) => meant.port(),
        Ok(None) => {
            let line = away(None, "nobody redirected this connection to the gate");
            return entrance::turn_away(&gate, &mut stream, line).await;
        }
        Err(error) => {
            let line = away(None, &error.to_string());
            return entrance::turn_away(&gate, &mut stream, line).await;
        }
    };
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a client was gone before it was served");
        return;
    }
    match entrance::identity(&gate, owner) {
        Ok((grant, uid)) => {
            let client = Arc::new(Client::of_redirected(grant, uid));
            entrance::admitted(gate, client, stream, Some(port)).await;
        }
        Err((uid, reason)) => {
            let line = away(uid, &reason);
            entrance::turn_away(&gate, &mut stream, line).await;
        }
    }
}

/// Learns which host is meant, and serves the connection as a tunnel to it.
pub(crate) async fn enter<IO>(
    gate: &Arc<Gate>,
    client: &Arc<Client>,
    port: u16,
    mut io: IO,
    pulse: &crate::entrance::pulse::Pulse,
    live: &crate::exchange::Live,
) where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = &gate.config.limits;
    let mut seen = BytesMut::new();
    let listening = listen(&mut io, &mut seen, limits.head_bytes);
    let said = timeout(limits.handshake_timeout, listening).await;
    let tls = seen.first() == Some(&HANDSHAKE);
    let authority = match said {
        Ok(Ok(said)) => authority(&said, port),
        Ok(Err(Unsaid::Left)) => return,
        Ok(Err(unsaid)) => Err(unnamed(&unsaid)),
        Err(_) => Err(Refusal::new(
            Code::ClientTimeout,
            "the connection did not say in time which host it means",
            "only TLS with a server name and HTTP with a Host are served",
        )),
    };
    match authority {
        Ok(authority) => {
            let first = seen.freeze();
            let io = Rejoined { first, io };
            tunnel::within(gate, client, authority, io, pulse, live).await;
        }
        Err(refusal) => refuse(gate, client, &mut io, &refusal, tls).await,
    }
}

/// Reads until the client has said which host it means.
async fn listen<IO>(io: &mut IO, seen: &mut BytesMut, most: usize) -> Result<Said, Unsaid>
where
    IO: AsyncRead + Unpin,
{
    let mut peek = Peek::default();
    loop {
        if let Some(said) = peek.look(seen)? {
            return Ok(said);
        }
        if seen.len() >= most {
            return Err(Unsaid::Neither);
        }
        seen.reserve(PIECE);
        match io.read_buf(seen).await {
            Ok(0) | Err(_) if seen.is_empty() => return Err(Unsaid::Left),
            Ok(0) | Err(_) => return Err(Unsaid::Neither),
            Ok(_) => {}
        }
    }
}

fn unnamed(unsaid: &Unsaid) -> Refusal {
    let (code, sentence) = match unsaid {
        Unsaid::NoServerName => (Code::NameMissing, "the TLS hello has no server name"),
        Unsaid::NoHost => (Code::NameMissing, "the request has no single Host"),
        Unsaid::Neither | Unsaid::Left => (
            Code::MalformedRequest,
            "the connection carries neither TLS nor HTTP",
        ),
    };
    let remedy = "dial a listed host by its name, or let the client use the gate as its proxy";
    Refusal::new(code, sentence, remedy)
}

/// Records a refusal and tells it: an alert where the client speaks TLS, else HTTP.
async fn refuse<IO>(gate: &Gate, client: &Client, io: &mut IO, refusal: &Refusal, tls: bool)
where
    IO: AsyncWrite + Unpin,
{
    let id = gate.new_id();
    let mut record = client.record(RecordKind::Refusal, &id);
    record.verdict = Some(Verdict::Refuse);
    record.code = Some(refusal.code);
    record.reason = Some(refusal.text.clone());
    gate.refused(record);
    let answer = if tls {
        let description = if refusal.code == Code::NameMissing {
            MISSING_EXTENSION
        } else {
            UNRECOGNIZED_NAME
        };
        Bytes::copy_from_slice(&[21, 3, 3, 0, 2, 2, description])
    } else {
        Bytes::from(entrance::in_words(refusal, &id))
    };
    let telling = async {
        io.write_all(&answer).await?;
        io.shutdown().await
    };
    // Nobody has to listen to why it is refused.
    let _ = timeout(TELLING, telling).await;
}

#[cfg(test)]
mod tests {
    use policy::authority::Authority;

    use super::*;

    async fn heard(pieces: &[&[u8]]) -> Result<Said, Unsaid> {
        let (mut client, mut gate) = tokio::io::duplex(64 * 1024);
        for piece in pieces {
            client.write_all(piece).await.unwrap();
        }
        client.shutdown().await.unwrap();
        listen(&mut gate, &mut BytesMut::new(), 16 * 1024).await
    }

    #[tokio::test]
    async fn a_plain_request_names_its_host_once() {
        let host = |text: &str| Ok(Said::Host(text.to_owned()));
        let good = b"GET / HTTP/1.1\r\nAccept: */*\r\nhOsT:  a.example:8080 \r\n\r\nmore";
        assert_eq!(heard(&[good]).await, host("a.example:8080"));
        let one_by_one: Vec<&[u8]> = good.chunks(1).collect();
        assert_eq!(heard(&one_by_one).await, host("a.example:8080"));
        let cases: [(&[u8], Unsaid); 8] = [
            (b"GET / HTTP/1.1\r\nAccept: */*\r\n\r\n", Unsaid::NoHost),
            (
                b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
                Unsaid::NoHost,
            ),
            (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", Unsaid::NoHost),
            (b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n", Unsaid::NoHost),
            (
                b"GET / HTTP/1.1\r\nno colon\r\nHost: a\r\n\r\n",
                Unsaid::NoHost,
            ),
            (b"GET / HTTP/1.1\r\nHost: a\r\n", Unsaid::Neither),
            (b"\x00\x01\x02", Unsaid::Neither),
            (b"", Unsaid::Left),
        ];
        for (bytes, expected) in cases {
            let shown = String::from_utf8_lossy(bytes).into_owned();
            assert_eq!(heard(&[bytes]).await, Err(expected), "{shown}");
        }
        let long = [b"GET / HTTP/1.1\r\nA: ".as_slice(), &[b'x'; 20_000]].concat();
        assert_eq!(heard(&[&long]).await, Err(Unsaid::Neither), "bounded");
    }

    #[test]
    fn the_name_that_was_said_and_the_port_that_was_dialled_make_the_authority() {
        let code = |said: Said, port| authority(&said, port).map_err(|refusal| refusal.code);
        let tls = |name: &str| Said::ServerName(name.to_owned());
        let plain = |name: &str| Said::Host(name.to_owned());
        let wanted = |text: &str| Ok(Authority::parse(text).unwrap());
        assert_eq!(code(tls("A.example"), 8443), wanted("a.example:8443"));
        assert_eq!(code(plain("a.example"), 80), wanted("a.example:80"));
        assert_eq!(code(plain("a.example:81"), 81), wanted("a.example:81"));
        for odd in ["a.example.", "127.0.0.1", "a b", ""] {
            assert_eq!(code(tls(odd), 443), Err(Code::MalformedAuthority), "{odd}");
        }
        assert_eq!(code(plain("a.example"), 81), Err(Code::AuthorityMismatch));
        assert_eq!(
            code(plain("a.example:81"), 80),
            Err(Code::AuthorityMismatch)
        );
        assert_eq!(
            code(plain("u@a.example"), 80),
            Err(Code::MalformedAuthority)
        );
    }
}
