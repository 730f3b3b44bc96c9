//! Interim answers of an upstream: the final one arrives whole behind a few, in any pairing; over HTTP/2 they are
//! dropped; a flood ends the exchange, also over several streams in turn. And what the gate puts into a head of
//! HTTP/2 is seen here as it is on the wire.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::HOST;
use super::modern::{Client, full, whole};
use super::stand::{CANARY, Stand, usual};
use super::upstream::{Identity, Upstream, identity};

const HEADERS: u8 = 1;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A server of HTTP/2, frame by frame. Once `together` requests are there it answers them in turn with
/// as many interim answers each as `interim` says, and then with the final one and a body.
async fn interim_first(together: usize, interim: usize) -> (Upstream, Arc<Mutex<Vec<Vec<u8>>>>) {
    let Identity {
        mut config,
        ca,
        pin,
    } = identity(HOST);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = Upstream {
        address: listener.local_addr().unwrap(),
        log: Arc::default(),
        ca,
        pin,
    };
    let heads = Arc::<Mutex<Vec<Vec<u8>>>>::default();
    let seen = Arc::clone(&heads);
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, seen) = (acceptor.clone(), Arc::clone(&seen));
            tokio::spawn(async move {
                // Whoever has had enough closes.
                if let Ok(stream) = acceptor.accept(stream).await {
                    let _ = serve(stream, together, interim, &seen).await;
                }
            });
        }
    });
    (upstream, heads)
}

async fn serve<IO>(
    io: IO,
    together: usize,
    interim: usize,
    seen: &Mutex<Vec<Vec<u8>>>,
) -> std::io::Result<()>
where
    IO: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let mut io = BufStream::new(io);
    let mut preface = [0; 24];
    io.read_exact(&mut preface).await?;
    io.write_all(&frame(4, 0, 0, &[])).await?;
    let mut open = Vec::new();
    loop {
        // Who is alone for a while, as a request that is sent again, is answered alone.
        let more = tokio::time::timeout(Duration::from_millis(300), io.fill_buf()).await;
        if more.is_err() && !open.is_empty() {
            answer(&mut io, &mut open, interim).await?;
        }
        let mut head = [0; 9];
        io.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        let mut payload = vec![0; length];
        io.read_exact(&mut payload).await?;
        match kind {
            4 if flags & 1 == 0 => io.write_all(&frame(4, 1, 0, &[])).await?,
            6 if flags & 1 == 0 => io.write_all(&frame(6, 1, 0, &payload)).await?,
            HEADERS => {
                seen.lock().unwrap().push(payload);
                open.push(u32::from_be_bytes(stream));
            }
            _ => {}
        }
        if open.len() < together {
            io.flush().await?;
            continue;
        }
        answer(&mut io, &mut open, interim).await?;
    }
}

/// Interim answers to all of `open` in turn, and then the final ones.
async fn answer<IO>(io: &mut IO, open: &mut Vec<u32>, interim: usize) -> std::io::Result<()>
where
    IO: tokio::io::AsyncWrite + Unpin,
{
    for _ in 0..interim {
        for stream in open.iter() {
            // `:status 103`, which no table remembers, and a field.
            let hints = b"\x08\x03103\x00\x04link\x04</a>";
            io.write_all(&frame(HEADERS, 4, *stream, hints)).await?;
        }
    }
    for stream in open.drain(..) {
        io.write_all(&frame(HEADERS, 4, stream, b"\x88")).await?;
        io.write_all(&frame(0, 1, stream, b"final")).await?;
    }
    io.flush().await
}

fn code(fields: &http::HeaderMap) -> Option<&str> {
    let code = fields.get("x-portcullis-code")?;
    Some(code.to_str().unwrap())
}

/// Attack: FRM-27
#[tokio::test]
async fn a_flood_of_interim_answers_over_streams_in_turn_ends_and_a_few_are_dropped() {
    for (together, interim, expected) in [
        (1, 5000, Some("upstream_protocol")),
        (2, 5000, Some("upstream_protocol")),
        (3, 17, Some("upstream_protocol")),
        (3, 16, None),
        (2, 0, None),
    ] {
        let case = format!("{together} streams, {interim} each");
        let (upstream, _) = interim_first(together, interim).await;
        let stand = Stand::new(&upstream, &usual(&upstream));
        let client = Client::open(&stand, 1500, HOST, &["h2"]).await;
        for turn in 0..2 {
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..together {
                let mut one = client.clone_of_http2();
                tasks.spawn(async move {
                    let request = one.request("GET", HOST, "/v1/x").body(full(Vec::new()));
                    whole(one.send(request.unwrap()).await.unwrap()).await
                });
            }
            for (status, fields, text) in tasks.join_all().await {
                assert_eq!(code(&fields), expected, "{case}, {turn}: {text}");
                let passes = expected.is_none();
                assert_eq!(status.as_u16() == 200, passes, "{case}, {turn}");
                assert_eq!(text == "final", passes, "{case}, {turn}: {text}");
                assert!(!fields.contains_key("link"), "{case}: {fields:?}");
            }
        }
    }
}

#[tokio::test]
async fn the_final_answer_is_whole_behind_interim_ones_in_any_pairing() {
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let last = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfinal";
    let processing = "HTTP/1.1 102 Processing\r\n\r\n";
    let old: &'static str = format!("{hints}{processing}{hints}{last}").leak();
    let older = super::hostile::answering(old.as_bytes()).await;
    let (newer, _) = interim_first(1, 3).await;
    for (upstream, path) in [(older, "/v1/odd"), (newer, "/v1/x")] {
        let stand = Stand::new(&upstream, &usual(&upstream));
        for offered in [&["http/1.1"][..], &["h2"]] {
            let mut client = Client::open(&stand, 1500, HOST, offered).await;
            for _ in 0..2 {
                let (status, fields, text) = client.get(HOST, path).await;
                assert_eq!(status.as_u16(), 200, "{offered:?}: {text}");
                assert_eq!(text, "final", "{offered:?}");
                assert!(!fields.contains_key("link"), "{offered:?}: {fields:?}");
                assert_eq!(code(&fields), None, "{offered:?}");
            }
        }
    }
}

/// Attack: CRD-17
#[tokio::test]
async fn a_credential_is_never_put_into_a_table_of_http_2() {
    let (upstream, heads) = interim_first(1, 0).await;
    let stand = Stand::new(&upstream, &usual(&upstream));
    for offered in [&["http/1.1"][..], &["h2"]] {
        let mut client = Client::open(&stand, 1500, HOST, offered).await;
        let (status, _, _) = client.get(HOST, "/v1/x").await;
        assert_eq!(status.as_u16(), 200, "control");
    }
    let heads = heads.lock().unwrap().clone();
    assert_eq!(heads.len(), 2);
    for head in heads {
        let has = |bytes: &[u8]| head.windows(bytes.len()).any(|window| window == bytes);
        // RFC 7541, 6.2.3: never indexed, its name the 23rd of the static table.
        assert!(has(&[0x1f, 0x08]), "{head:x?}");
        assert!(
            !has(CANARY.as_bytes()),
            "it is packed as any value: {head:x?}"
        );
    }
}
