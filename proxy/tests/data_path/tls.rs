//! The client's side of TLS, group TLS of the corpus: hellos written byte by byte, each case beside
//! one that is served.

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::stand::{Stand, ask, connect, get, until};
use super::{HOST, usual_stand};

pub(super) const HANDSHAKE: u8 = 22;
const ALERT: u8 = 21;

/// A hello of TLS 1.2 and 1.3 with these server names as they stand, and these protocols.
pub(super) struct Hello<'a> {
    pub(super) names: Option<Vec<&'a [u8]>>,
    pub(super) alpn: &'a [&'a [u8]],
    /// Bytes of padding before the server name.
    pub(super) padding: usize,
    /// The newest version offered: 2 is TLS 1.1, 3 is 1.2, 4 is 1.3.
    pub(super) newest: u8,
    /// Extensions more, as they stand.
    pub(super) more: Vec<u8>,
}

impl Default for Hello<'_> {
    fn default() -> Self {
        Self {
            names: Some(vec![HOST.as_bytes()]),
            alpn: &[],
            padding: 0,
            newest: 4,
            more: Vec::new(),
        }
    }
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
    [&length, bytes].concat()
}

pub(super) fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes(), sized(content).as_slice()].concat()
}

impl Hello<'_> {
    /// The handshake message.
    fn message(&self) -> Vec<u8> {
        let mut extensions = Vec::new();
        if self.padding > 0 {
            extensions.extend(extension(21, &vec![0; self.padding]));
        }
        if let Some(names) = &self.names {
            let list: Vec<u8> = names
                .iter()
                .flat_map(|name| [vec![0], sized(name)].concat())
                .collect();
            extensions.extend(extension(0, &sized(&list)));
        }
        extensions.extend(&self.more);
        extensions.extend(extension(10, &sized(&[0, 29, 0, 23])));
        extensions.extend(extension(11, &[1, 0]));
        extensions.extend(extension(13, &sized(&[4, 3, 8, 4, 5, 3])));
        if self.newest > 3 {
            extensions.extend(extension(43, &[4, 3, 4, 3, 3]));
            let share = [vec![0, 29], sized(&[9; 32])].concat();
            extensions.extend(extension(51, &sized(&share)));
        }
        if !self.alpn.is_empty() {
            let list: Vec<u8> = self
                .alpn
                .iter()
                .flat_map(|name| [&[u8::try_from(name.len()).unwrap()], *name].concat())
                .collect();
            extensions.extend(extension(16, &sized(&list)));
        }
        let mut body = vec![3, self.newest.min(3)];
        body.extend([7; 32]);
        body.push(0);
        body.extend(sized(&[0x13, 1, 0x13, 2, 0xc0, 0x2b, 0xc0, 0x2f, 0, 0x2f]));
        body.extend([1, 0]);
        body.extend(sized(&extensions));
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[1], &length[1..], &body].concat()
    }

    /// In records of at most `most` bytes.
    pub(super) fn records(&self, most: usize) -> Vec<u8> {
        let message = self.message();
        let records = message.chunks(most);
        records
            .flat_map(|piece| [vec![HANDSHAKE, 3, 1], sized(piece)].concat())
            .collect()
    }
}

async fn tunnel(stand: &Stand) -> DuplexStream {
    connect(stand.open(1500), &format!("{HOST}:443")).await
}

/// The first seven bytes of the answer: a handshake message, or an alert with its description last.
async fn answer(stand: &Stand, bytes: &[u8], piece: usize) -> Vec<u8> {
    let mut stream = tunnel(stand).await;
    for piece in bytes.chunks(piece) {
        // The gate may have refused already.
        let _ = stream.write_all(piece).await;
        let _ = stream.flush().await;
        tokio::task::yield_now().await;
    }
    let mut first = [0; 7];
    let read = tokio::time::timeout(
        std::time::Duration::from_secs(20),
        stream.read_exact(&mut first),
    );
    match read.await.unwrap() {
        Ok(_) => first.to_vec(),
        Err(_) => Vec::new(),
    }
}

/// The first bytes of the answer to a whole hello.
pub(super) async fn answer_to(stand: &Stand, hello: &Hello<'_>) -> Vec<u8> {
    answer(stand, &hello.records(16_000), usize::MAX).await
}

async fn is_served(stand: &Stand, hello: &Hello<'_>) -> bool {
    answer_to(stand, hello).await.first() == Some(&HANDSHAKE)
}

/// Attack: TLS-01, TLS-02
#[tokio::test]
async fn server_names_that_are_none_are_refused() {
    let (upstream, stand) = usual_stand().await;
    assert!(is_served(&stand, &Hello::default()).await, "control");
    // TLS-01: without a name the leaf is that of the CONNECT target.
    let none = Hello {
        names: None,
        ..Hello::default()
    };
    assert!(is_served(&stand, &none).await, "TLS-01");
    let long = format!("{}.example.com", "a".repeat(300));
    let labels = format!("{}example.com", "a.".repeat(130));
    let cases: Vec<(&str, Vec<&[u8]>)> = vec![
        ("TLS-02 IPv4 literal", vec![b"127.0.0.1"]),
        ("TLS-02 IPv6 literal", vec![b"::1"]),
        ("TLS-02 IPv6 literal in brackets", vec![b"[::1]"]),
        ("TLS-02 legacy IPv4 literal", vec![b"0x7f.1"]),
        ("TLS-02 empty", vec![b""]),
        ("TLS-02 no entry", vec![]),
        ("TLS-02 one label too long", vec![long.as_bytes()]),
        ("TLS-02 name too long", vec![labels.as_bytes()]),
        ("TLS-02 trailing dot", vec![b"api.example.com."]),
        ("TLS-02 port", vec![b"api.example.com:443"]),
        ("TLS-02 NUL", vec![b"api.example.com\0.evil.example"]),
        ("TLS-02 space", vec![b"api.example.com "]),
        ("TLS-02 not ASCII", vec![b"api.ex\xc3\xa4mple.com"]),
        (
            "TLS-02 two names",
            vec![b"api.example.com", b"evil.example"],
        ),
        ("TLS-02 another name", vec![b"bare.example.com"]),
    ];
    for (id, names) in cases {
        let count = stand.refusals().len();
        let hello = Hello {
            names: Some(names),
            ..Hello::default()
        };
        assert!(!is_served(&stand, &hello).await, "{id}");
        until(id, || stand.refusals().len() > count).await;
        let code = stand.refusals().pop().unwrap();
        assert!(
            ["sni_mismatch", "malformed_request"].contains(&code.as_str()),
            "{id}: {code}"
        );
    }
    assert_eq!(upstream.connections(), 0);
}

/// Attack: TLS-09, TLS-14
#[tokio::test]
async fn old_versions_and_protocols_that_nobody_speaks_are_refused_with_an_alert() {
    let (upstream, stand) = usual_stand().await;
    let old = Hello {
        newest: 2,
        ..Hello::default()
    };
    let first = answer(&stand, &old.records(16_000), usize::MAX).await;
    assert_eq!(first.first(), Some(&ALERT), "TLS-09: {first:?}");
    assert_eq!(first.last(), Some(&70), "protocol_version");
    until("TLS-09 is recorded", || !stand.refusals().is_empty()).await;
    let cases: [&[&[u8]]; 3] = [&[b"h3"], &[b"acme-tls/1"], &[b"h3", b"spdy/3"]];
    // With TLS 1.3 the same alert comes encrypted, behind the gate's hello.
    for alpn in cases {
        let hello = Hello {
            alpn,
            newest: 3,
            ..Hello::default()
        };
        let first = answer(&stand, &hello.records(16_000), usize::MAX).await;
        assert_eq!(first.first(), Some(&ALERT), "TLS-14: {first:?}");
        assert_eq!(first.last(), Some(&120), "no_application_protocol");
    }
    let served: [&[&[u8]]; 2] = [&[], &[b"h3", b"http/1.1"]];
    for alpn in served {
        assert!(
            is_served(
                &stand,
                &Hello {
                    alpn,
                    ..Hello::default()
                }
            )
            .await,
            "control: {alpn:?}"
        );
    }
    assert_eq!(
        upstream.connections(),
        0,
        "nothing was sent for a handshake"
    );
}

/// Attack: TLS-10
#[tokio::test]
async fn a_hello_in_pieces_is_a_hello() {
    let (_upstream, stand) = usual_stand().await;
    let far = Hello {
        padding: 1500,
        ..Hello::default()
    };
    let cases = [
        ("one byte at a time", Hello::default().records(16_000), 1),
        (
            "in records of seven bytes",
            Hello::default().records(7),
            usize::MAX,
        ),
        ("both", Hello::default().records(7), 3),
        ("the name far behind", far.records(16_000), 100),
    ];
    for (id, bytes, piece) in cases {
        let first = answer(&stand, &bytes, piece).await;
        assert_eq!(first.first(), Some(&HANDSHAKE), "TLS-10 {id}: {first:?}");
    }
    let odd = Hello {
        names: Some(vec![b"127.0.0.1"]),
        ..Hello::default()
    };
    let first = answer(&stand, &odd.records(7), 3).await;
    assert_ne!(
        first.first(),
        Some(&HANDSHAKE),
        "control: pieces hide nothing"
    );
}

/// Attack: TLS-11, TLS-12
#[tokio::test]
async fn what_ends_or_is_no_tls_ends_the_connection() {
    let (upstream, stand) = usual_stand().await;
    let hello = Hello::default().records(16_000);
    let notify = [hello.as_slice(), &[ALERT, 3, 3, 0, 2, 1, 0]].concat();
    for _ in 0..50 {
        let mut stream = tunnel(&stand).await;
        stream.write_all(&notify).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        let ended = tokio::time::timeout(std::time::Duration::from_secs(20), ended).await;
        assert!(ended.is_ok(), "TLS-11");
    }
    let junk: Vec<u8> = (0..=255).rev().collect();
    let cases: [&[u8]; 6] = [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"GET /v1/x HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
        b"EHLO mail.example.com\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &[
            HANDSHAKE, 3, 1, 0, 0, HANDSHAKE, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0,
        ],
        &junk,
    ];
    for bytes in cases {
        let count = stand.refusals().len();
        let first = answer(&stand, bytes, usize::MAX).await;
        assert_ne!(first.first(), Some(&HANDSHAKE), "TLS-12 {bytes:?}");
        assert!(!first.starts_with(b"HTTP"), "TLS-12 {bytes:?}");
        until("TLS-12 is recorded", || stand.refusals().len() > count).await;
        assert_eq!(stand.refusals().pop().unwrap(), "malformed_request");
    }
    assert_eq!(upstream.connections(), 0, "nothing was relayed");
    let mut tls = stand.tunnel(HOST).await;
    let served = ask(&mut tls, &get(HOST, "/v1/x")).await;
    assert!(served.starts_with("HTTP/1.1 200"), "control: {served}");
}
