//! Upstreams that answer badly, groups FRM, TLS and CRD of the attack list: whatever they send, the
//! next client never sees it, and what the gate says of it is its own.

use std::sync::Arc;

use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::heads::sends;
use super::stand::{CANARY, Stand, ask, get, until, usual};
use super::upstream::{Identity, Upstream, identity};
use super::{HOST, code};

/// A server that answers each request for `/v1/odd` with these bytes as they stand, and any other
/// cleanly; it never closes.
pub(crate) async fn answering(odd: &'static [u8]) -> Upstream {
    let Identity { config, ca, pin } = identity(HOST);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = Upstream {
        address: listener.local_addr().unwrap(),
        log: Arc::default(),
        ca,
        pin,
    };
    let log = Arc::clone(&upstream.log);
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, log) = (acceptor.clone(), Arc::clone(&log));
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                let index = {
                    let mut log = log.lock().unwrap();
                    log.push(Vec::new());
                    log.len() - 1
                };
                let mut head = Vec::new();
                while let Ok(byte) = stream.read_u8().await {
                    head.push(byte);
                    log.lock().unwrap()[index].push(byte);
                    if head.ends_with(b"\r\n\r\n") {
                        let clean = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nclean";
                        let answer = if head.starts_with(b"GET /v1/odd ") {
                            odd
                        } else {
                            clean
                        };
                        // A gate that has had enough closes.
                        let _ = stream.write_all(answer).await;
                        let _ = stream.flush().await;
                        head.clear();
                    }
                }
            });
        }
    });
    upstream
}

/// Attack: FRM-18, FRM-23
#[tokio::test]
async fn what_an_upstream_sends_beyond_its_answer_reaches_nobody() {
    let refused = "upstream_protocol";
    let cases: &[(&str, &[u8], &str)] = &[
        (
            "FRM-18 a second answer",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison",
            "none",
        ),
        (
            "FRM-18 loose bytes",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokpoison",
            "none",
        ),
        (
            "FRM-18 a body behind 204",
            b"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison",
            "none",
        ),
        (
            "FRM-18 both lengths",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\npoison",
            "any",
        ),
        (
            "FRM-18 both lengths, reversed",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 30\r\n\r\n2\r\nok\r\n0\r\n\r\npoison",
            "any",
        ),
        (
            "FRM-18 both lengths and nothing else",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            "any",
        ),
        (
            "FRM-18 both lengths and nothing else, reversed",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 30\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            "any",
        ),
        (
            "FRM-18 the same length twice",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
            "any",
        ),
        (
            "FRM-18 the same length twice in a list",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok",
            "any",
        ),
        (
            "FRM-18 two lengths",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 8\r\n\r\nokpoison",
            refused,
        ),
        (
            "FRM-18 odd length",
            b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nokpoison",
            refused,
        ),
        (
            "FRM-18 no answer",
            b"poison poison\r\n\r\n",
            refused,
        ),
        (
            "FRM-23",
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\npoison",
            refused,
        ),
        (
            "FRM-23 without a protocol",
            b"HTTP/1.1 101 Switching Protocols\r\n\r\npoison",
            refused,
        ),
        (
            "FRM-23 the protocol that nobody asked for",
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\npoison",
            refused,
        ),
    ];
    for &(id, odd, expected) in cases {
        let upstream = answering(odd).await;
        let stand = Stand::new(&upstream, &usual(&upstream));
        let mut tls = stand.tunnel(HOST).await;
        let answer = ask(&mut tls, &get(HOST, "/v1/odd")).await;
        if expected != "any" {
            assert_eq!(code(&answer), expected, "{id}: {answer}");
        }
        let lower = answer.to_ascii_lowercase();
        assert!(
            lower.matches("\r\ncontent-length:").count() < 2 && !lower.contains("2, 2"),
            "{id}: {answer}"
        );
        assert!(
            !(lower.contains("\r\ncontent-length:") && lower.contains("\r\ntransfer-encoding:")),
            "{id}: {answer}"
        );
        assert!(!answer.contains("poison"), "{id}: {answer}");
        for turn in 0..2 {
            let mut next = stand.tunnel(HOST).await;
            let answer = ask(&mut next, &get(HOST, "/v1/x")).await;
            assert!(answer.ends_with("clean"), "{id} {turn}: {answer}");
        }
        let log = upstream.log.lock().unwrap().clone();
        let odd = String::from_utf8_lossy(&log[0]).into_owned();
        assert_eq!(
            odd.matches("HTTP/1.1\r\n").count(),
            1,
            "{id}: that connection is used no more: {odd}"
        );
    }
    let clean: [&[u8]; 2] = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    ];
    for clean in clean {
        let upstream = answering(clean).await;
        let stand = Stand::new(&upstream, &usual(&upstream));
        let mut tls = stand.tunnel(HOST).await;
        for path in ["/v1/odd", "/v1/x", "/v1/odd"] {
            let enough = |seen: &str| {
                seen.ends_with("ok\r\n0\r\n\r\n")
                    || seen.ends_with("\r\n\r\nok")
                    || seen.ends_with("clean")
            };
            let answer = sends(&mut tls, &get(HOST, path), enough).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "control: {answer}");
        }
        assert_eq!(upstream.connections(), 1, "control: a clean one is kept");
    }
}

/// Attack: FRM-05, FRM-18, CRD-12
#[tokio::test]
async fn an_answer_in_a_transfer_coding_is_refused_and_hides_nothing() {
    use std::io::Write as _;
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(CANARY.as_bytes()).unwrap();
    let packed = packer.finish().unwrap();
    let answer = |fields: &str, body: &[u8], chunked: bool| -> &'static [u8] {
        let mut bytes = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n").into_bytes();
        if chunked {
            bytes.extend(format!("{:x}\r\n", body.len()).bytes());
            bytes.extend(body);
            bytes.extend(b"\r\n0\r\n\r\n");
        } else {
            bytes.extend(body);
        }
        bytes.leak()
    };
    let in_chunks = "Transfer-Encoding: chunked";
    for (fields, chunked) in [
        ("Transfer-Encoding: gzip, chunked", true),
        (
            "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
            true,
        ),
        ("Transfer-Encoding: gzip", false),
        ("Transfer-Encoding: deflate", false),
        ("Transfer-Encoding: xchunked", true),
        ("Transfer-Encoding: chunked, identity", true),
        ("Transfer-Encoding: identity", false),
        ("Transfer-Encoding: identity, chunked", true),
        ("Transfer-Encoding: chunked, chunked", true),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            true,
        ),
        ("Transfer-Encoding: chunked;q=1", true),
        ("Transfer-Encoding: \"chunked\"", true),
        ("Transfer-Encoding:", true),
        (
            "Transfer-Encoding: gzip, chunked\r\nContent-Length: 4",
            true,
        ),
    ] {
        for host in [HOST, super::BARE] {
            let upstream = answering(answer(fields, &packed, chunked)).await;
            let stand = Stand::new(&upstream, &usual(&upstream));
            let mut tls = stand.tunnel(host).await;
            let got = ask(&mut tls, &get(host, "/v1/odd")).await;
            assert!(got.starts_with("HTTP/1.1 502"), "{fields}: {got}");
            assert_eq!(code(&got), "upstream_protocol", "{fields}");
            let mut next = stand.tunnel(host).await;
            let got = ask(&mut next, &get(host, "/v1/x")).await;
            assert!(got.ends_with("clean"), "{fields}: {got}");
            assert_eq!(upstream.connections(), 2, "{fields}: it is used no more");
        }
    }
    let enough = |seen: &str| seen.ends_with("0\r\n\r\n");
    let packed_once = format!("{in_chunks}\r\nContent-Encoding: gzip");
    for (fields, body, passes) in [
        (in_chunks, &b"clean"[..], true),
        ("Transfer-Encoding: CHUNKED", b"clean", true),
        (in_chunks, CANARY.as_bytes(), false),
        (&packed_once, &packed, false),
    ] {
        let upstream = answering(answer(fields, body, true)).await;
        let stand = Stand::new(&upstream, &usual(&upstream));
        let mut tls = stand.tunnel(HOST).await;
        let got = sends(&mut tls, &get(HOST, "/v1/odd"), enough).await;
        assert_eq!(
            got.contains("\r\n5\r\nclean\r\n"),
            passes,
            "control: {fields}: {got}"
        );
        assert!(!got.contains(CANARY), "{fields}: {got}");
        assert!(passes || !enough(&got), "{fields}: {got}");
    }
}

/// Attack: FRM-27
#[tokio::test]
async fn a_flood_of_interim_answers_ends_the_exchange_and_a_few_do_not() {
    let flood: &'static [u8] = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
        .repeat(5000)
        .leak()
        .as_bytes();
    let few = b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nclean";
    for (answer, expected) in [(flood, "upstream_protocol"), (&few[..], "none")] {
        let upstream = answering(answer).await;
        let stand = Stand::new(&upstream, &usual(&upstream));
        let mut tls = stand.tunnel(HOST).await;
        let enough = |seen: &str| seen.ends_with("clean") || seen.ends_with('}');
        let answer = sends(&mut tls, &get(HOST, "/v1/odd"), enough).await;
        assert_eq!(code(&answer), expected, "FRM-27: {answer}");
        let mut next = stand.tunnel(HOST).await;
        let answer = ask(&mut next, &get(HOST, "/v1/x")).await;
        assert!(answer.ends_with("clean"), "{answer}");
    }
}

/// Attack: TLS-21
#[tokio::test]
async fn an_upstream_that_asks_for_a_certificate_gets_none() {
    for (id, version, required) in [
        ("TLS-21 asked, 1.3", &rustls::version::TLS13, false),
        ("TLS-21 asked, 1.2", &rustls::version::TLS12, false),
        ("TLS-21 required, 1.3", &rustls::version::TLS13, true),
        ("TLS-21 required, 1.2", &rustls::version::TLS12, true),
    ] {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let key = rcgen::KeyPair::generate().unwrap();
        let made = rcgen::CertificateParams::new(vec![HOST.to_owned()])
            .unwrap()
            .self_signed(&key)
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.der().clone()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
        let verifier = if required {
            verifier.build().unwrap()
        } else {
            verifier.allow_unauthenticated().build().unwrap()
        };
        let private = rustls_pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![made.der().clone()], private.into())
            .unwrap();
        use base64::Engine as _;
        use sha2::Digest as _;
        let spki = rcgen::PublicKeyData::subject_public_key_info(&key);
        let pin = base64::engine::general_purpose::STANDARD.encode(sha2::Sha256::digest(spki));
        let upstream = Upstream::serve(Identity {
            config,
            ca: made.pem(),
            pin: format!("sha256/{pin}"),
        })
        .await;
        let policy = usual(&upstream).replace(
            "ca_file = \"CA_FILE\"",
            &format!("pin = \"{}\"", upstream.pin),
        );
        let stand = Stand::new(&upstream, &policy);
        let mut tls = stand.tunnel(HOST).await;
        let answer = ask(&mut tls, &get(HOST, "/v1/x")).await;
        if required {
            assert!(answer.starts_with("HTTP/1.1 502"), "{id}: {answer}");
            assert!(upstream.is_untouched(), "{id}");
        } else {
            assert!(
                answer.starts_with("HTTP/1.1 200"),
                "{id}, control: {answer}"
            );
        }
    }
}

/// Attack: TLS-21
#[tokio::test]
async fn no_upstream_may_ask_for_a_certificate_behind_the_handshake() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let Identity { ca, pin, .. } = identity(HOST);
    let upstream = Upstream {
        address: listener.local_addr().unwrap(),
        log: Arc::default(),
        ca,
        pin,
    };
    let (sender, mut hellos) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 5];
            stream.read_exact(&mut head).await.unwrap();
            let mut hello = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
            stream.read_exact(&mut hello).await.unwrap();
            // The test may have what it wants.
            let _ = sender.send(hello).await;
        }
    });
    let stand = Stand::new(&upstream, &usual(&upstream));
    let mut tls = stand.tunnel(HOST).await;
    let answer = ask(&mut tls, &get(HOST, "/v1/x")).await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    // RFC 8446, 4.1.2: version, random, session, suites, compressions, extensions.
    let hello = hellos.recv().await.unwrap();
    let word = |at: usize| usize::from(u16::from_be_bytes([hello[at], hello[at + 1]]));
    let mut at = 4 + 2 + 32;
    at += 1 + usize::from(hello[at]);
    at += 2 + word(at);
    at += 1 + usize::from(hello[at]);
    let end = at + 2 + word(at);
    at += 2;
    let mut kinds = Vec::new();
    while at < end {
        kinds.push(word(at));
        at += 4 + word(at + 2);
    }
    assert!(
        kinds.contains(&43),
        "control: versions are offered: {kinds:?}"
    );
    assert!(!kinds.contains(&49), "post_handshake_auth: {kinds:?}");
}

/// Attack: TLS-09, TLS-14
#[tokio::test]
async fn an_upstream_of_an_old_version_gets_no_request() {
    // A hello of the server in TLS 1.0 and 1.1, the alert of one that speaks nothing newer, and a
    // hello in TLS 1.2 that picks a protocol which nobody offered.
    let hello = |minor: u8, cipher: [u8; 2], extensions: &[u8]| {
        let mut body = vec![3, minor];
        body.extend([5; 32]);
        body.extend([0, cipher[0], cipher[1], 0]);
        body.extend(extensions);
        let length = u8::try_from(body.len()).unwrap();
        let mut record = vec![22, 3, minor, 0, length + 4, 2, 0, 0, length];
        record.extend(body);
        record
    };
    let picked = [0, 9, 0, 16, 0, 5, 0, 3, 2, b'h', b'3'];
    for (id, answer) in [
        ("TLS-09 1.0", hello(1, [0, 0x2f], &[])),
        ("TLS-09 1.1", hello(2, [0, 0x2f], &[])),
        ("TLS-09", vec![21, 3, 1, 0, 2, 2, 70]),
        ("TLS-14", hello(3, [0xc0, 0x2b], &picked)),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let Identity { ca, pin, .. } = identity(HOST);
        let upstream = Upstream {
            address: listener.local_addr().unwrap(),
            log: Arc::default(),
            ca,
            pin,
        };
        let log = Arc::clone(&upstream.log);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut hello = vec![0; 16 * 1024];
                let read = stream.read(&mut hello).await.unwrap();
                assert_eq!(hello.first(), Some(&22), "{read}");
                stream.write_all(&answer).await.unwrap();
                let mut rest = Vec::new();
                // A reset is an end as well.
                let _ = stream.read_to_end(&mut rest).await;
                // What may still come is an alert.
                if rest.first().is_some_and(|kind| *kind != 21) {
                    log.lock().unwrap().push(rest);
                }
            }
        });
        let stand = Stand::new(&upstream, &usual(&upstream));
        let mut tls = stand.tunnel(HOST).await;
        let answer = ask(&mut tls, &get(HOST, "/v1/x")).await;
        assert!(answer.starts_with("HTTP/1.1 502"), "{id}: {answer}");
        assert!(code(&answer).starts_with("upstream_tls"), "{id}: {answer}");
        assert!(upstream.is_untouched(), "{id}: {}", upstream.text());
    }
    let upstream = Upstream::start(HOST).await;
    let stand = Stand::new(&upstream, &usual(&upstream));
    let mut tls = stand.tunnel(HOST).await;
    let answer = ask(&mut tls, &get(HOST, "/v1/x")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "control: {answer}");
}

/// Attack: CRD-16
#[tokio::test]
async fn an_error_of_the_gate_says_nothing_of_the_request_or_its_secret() {
    let upstream = Upstream::start(HOST).await;
    let gone = usual(&upstream).replace(&upstream.address.to_string(), "127.0.0.1:9");
    let stand = Stand::new(&upstream, &gone);
    let request = format!(
        "POST /v1/x?key=asked-for HTTP/1.1\r\nHost: {HOST}\r\nX-Own: own-field\r\nAuthorization: Bearer own-secret\r\n\
         Content-Length: 8\r\n\r\nown-body"
    );
    let mut tls = stand.tunnel(HOST).await;
    let answer = ask(&mut tls, &request).await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert_eq!(code(&answer), "upstream_unreachable");
    assert!(answer.contains("x-portcullis-audit: "), "{answer}");
    for hidden in [CANARY, "own-", "asked-for", "127.0.0.1"] {
        assert!(!answer.contains(hidden), "{hidden}: {answer}");
    }
    until("it is recorded", || stand.audit().len() > 1).await;
    let log = format!("{:?}", stand.audit());
    for hidden in [CANARY, "own-", "asked-for"] {
        assert!(!log.contains(hidden), "{hidden}: {log}");
    }
    stand.reload(&usual(&upstream));
    let answer = ask(&mut tls, &request).await;
    assert!(answer.ends_with("received 8"), "control: {answer}");
    assert_eq!(upstream.text().matches(CANARY).count(), 1);
}

/// Attack: CRD-09, SSR-13
#[tokio::test]
async fn a_redirect_is_the_clients_to_follow_with_what_its_own_rule_gives() {
    let upstream = Upstream::start(HOST).await;
    let stand = Stand::new(&upstream, &usual(&upstream));
    let mut tls = stand.tunnel(HOST).await;
    let answer = ask(&mut tls, &get(HOST, "/v1/redirect")).await;
    assert!(answer.starts_with("HTTP/1.1 302"), "{answer}");
    assert_eq!(upstream.text().matches("HTTP/1.1\r\n").count(), 1);
    let mut evil = stand.tunnel("evil.example").await;
    let followed = ask(&mut evil, &get("evil.example", "/")).await;
    assert_eq!(code(&followed), "destination_not_listed", "{followed}");
    let mut bare = stand.tunnel(super::BARE).await;
    let request = format!(
        "GET /v1/x HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer carried-over\r\n\r\n",
        super::BARE
    );
    let followed = ask(&mut bare, &request).await;
    assert!(followed.starts_with("HTTP/1.1 200"), "control: {followed}");
    let seen = upstream.text();
    assert_eq!(
        seen.matches(CANARY).count(),
        1,
        "the first request's alone: {seen}"
    );
    assert!(!seen.contains("carried-over"), "{seen}");
}
