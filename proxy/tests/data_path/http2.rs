//! HTTP/2 on either leg: the same judgement for each request, and bounds for what a peer can grow.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::body::Frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::HOST;
use super::modern::{Client, Modern, full, sent, whole};
use super::stand::{CANARY, Stand, peer, until};
use super::upstream::Upstream;

const BOTH: &[&str] = &["h2", "http/1.1"];
const OLD: &[&str] = &["http/1.1"];
const NEW: &[&str] = &["h2"];

fn code(headers: &HeaderMap) -> &str {
    headers
        .get("x-portcullis-code")
        .map_or("none", |code| code.to_str().unwrap())
}

#[tokio::test]
async fn any_version_of_a_client_reaches_any_version_of_an_upstream() {
    // What the client offers, what the upstream does, and what is then spoken on either leg.
    let (one, two) = (Version::HTTP_11, Version::HTTP_2);
    let cases = [
        (OLD, OLD, false, one),
        (OLD, NEW, false, two),
        (OLD, BOTH, false, one),
        (BOTH, OLD, false, one),
        (BOTH, NEW, true, two),
        (BOTH, BOTH, true, two),
        (NEW, OLD, true, one),
        (NEW, BOTH, true, two),
        (&[], BOTH, false, one),
    ];
    for (offered, served, http2, upstream_version) in cases {
        let case = format!("{offered:?} to {served:?}");
        let upstream = Modern::start(HOST, served).await;
        let stand = upstream.stand(&upstream.policy(HOST, ""));
        let mut client = Client::open(&stand, 1500, HOST, offered).await;
        assert_eq!(client.is_http2(), http2, "{case}");
        assert!(upstream.seen().is_empty(), "a probe asks nothing: {case}");
        let (status, _, text) = client.get(HOST, "/v1/x").await;
        assert_eq!(
            (status, text.as_str()),
            (StatusCode::OK, "received 0"),
            "{case}"
        );
        let size = 3 << 20;
        let request = client
            .request("POST", HOST, "/v1/x")
            .header("authorization", "Bearer own")
            .body(full(vec![b'y'; size]));
        let (_, _, text) = whole(client.send(request.unwrap()).await.unwrap()).await;
        assert_eq!(text, format!("received {size}"), "{case}");
        // Without a length, an HTTP/1.1 upstream must get it in chunks.
        let (sender, body) = sent();
        sender
            .send(Frame::data(Bytes::from("chunk")))
            .await
            .unwrap();
        drop(sender);
        let request = client.request("POST", HOST, "/v1/x").body(body).unwrap();
        let (_, _, text) = whole(client.send(request).await.unwrap()).await;
        assert_eq!(text, "received 5", "{case}");
        let (_, _, text) = client.get(HOST, "/v1/large").await;
        assert_eq!(text.len(), 8 << 20, "{case}");
        for (method, path, expected) in [
            ("HEAD", "/v1/x", StatusCode::OK),
            ("GET", "/v1/none", StatusCode::NO_CONTENT),
            ("GET", "/v1/same", StatusCode::NOT_MODIFIED),
        ] {
            let request = client.request(method, HOST, path).body(full(Vec::new()));
            let (status, headers, text) =
                whole(client.send(request.unwrap()).await.expect(&case)).await;
            assert_eq!(
                (status, text.as_str()),
                (expected, ""),
                "{case} {method} {path}"
            );
            let length = headers.get("content-length").map(|it| it.to_str().unwrap());
            let stated = (method == "HEAD").then_some("10");
            assert_eq!(length.filter(|it| *it != "0"), stated, "{case} {method}");
        }
        let (status, headers, text) = client.get(HOST, "/v2/x").await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{case}: {text}");
        assert_eq!(code(&headers), "path_not_allowed", "{case}");
        let seen = upstream.seen();
        assert_eq!(seen.len(), 7, "the refused one never left: {case}");
        for one in &seen {
            assert_eq!(one.version, upstream_version, "{case}");
            let credentials: Vec<_> = one.headers.get_all("authorization").iter().collect();
            assert_eq!(credentials, [&format!("Bearer {CANARY}")], "{case}");
            let (authority, host) = (one.uri.contains(HOST), one.headers.get("host"));
            match one.version {
                Version::HTTP_2 => assert!(authority && host.is_none(), "{case}: {one:?}"),
                _ => assert!(!authority && host.unwrap() == HOST, "{case}: {one:?}"),
            }
        }
        assert_eq!(
            upstream.connections(),
            1,
            "the probe's connection is used: {case}"
        );
        until("each request has both lines", || {
            let log = stand.audit();
            let count = |kind| log.iter().filter(|line| line["kind"] == kind).count();
            count("request") == 7 && count("response") == 7
        })
        .await;
    }
}

/// Attack: AUT-01, AUT-08, AUT-10
#[tokio::test]
async fn every_request_of_a_connection_agrees_with_its_tunnel() {
    let upstream = Modern::start(HOST, BOTH).await;
    let stand = upstream.stand(&upstream.policy(HOST, ""));
    let mut client = Client::open(&stand, 1500, HOST, NEW).await;
    let build = |method: Method, uri: &str, fields: &[(&str, &str)]| {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(full(Vec::new())).unwrap()
    };
    let good = format!("https://{HOST}/v1/x");
    let long = "a".repeat(70_000);
    let cases = [
        (
            build(Method::GET, "https://evil.example/v1/x", &[]),
            "authority_mismatch",
        ),
        (
            build(Method::GET, &format!("https://{HOST}:8443/v1/x"), &[]),
            "authority_mismatch",
        ),
        (
            build(Method::GET, &format!("http://{HOST}/v1/x"), &[]),
            "malformed_request",
        ),
        (
            build(Method::GET, &good, &[("host", "evil.example")]),
            "authority_mismatch",
        ),
        (
            build(Method::GET, &good, &[("host", HOST), ("host", HOST)]),
            "malformed_request",
        ),
        (build(Method::TRACE, &good, &[]), "method_refused"),
        (
            build(Method::CONNECT, &format!("{HOST}:443"), &[]),
            "method_refused",
        ),
        (build(Method::GET, &good, &[("x", &long)]), "head_too_large"),
    ];
    for (request, expected) in cases {
        let shown = format!("{} {}", request.method(), request.uri());
        let response = client.send(request).await.unwrap();
        assert_eq!(code(response.headers()), expected, "{shown}");
        assert!(
            response.headers().contains_key("x-portcullis-audit"),
            "{shown}"
        );
    }
    let many: Vec<(String, &str)> = (0..200).map(|n| (format!("x-{n}"), "a")).collect();
    let many: Vec<(&str, &str)> = many
        .iter()
        .map(|(name, value)| (name.as_str(), *value))
        .collect();
    let response = client.send(build(Method::GET, &good, &many)).await.unwrap();
    assert_eq!(code(response.headers()), "head_too_large");
    assert!(upstream.seen().is_empty());
    assert_eq!(stand.refusals().len(), 9, "each is on record");
    for fields in [&[][..], &[("host", HOST)]] {
        let response = client
            .send(build(Method::GET, &good, fields))
            .await
            .unwrap();
        assert_eq!(response.status(), StatusCode::OK, "control: {fields:?}");
    }
}

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
type Fields<'a> = &'a [(&'a str, &'a [u8])];

/// A request's header block: POST over https to `/v1/x`, then these fields.
fn block(fields: Fields<'_>) -> Vec<u8> {
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

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

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
    let mut tls = stand.tunnel_offering(1500, HOST, NEW).await.unwrap();
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

/// Attack: FRM-21
#[tokio::test]
async fn what_smuggles_into_http_1_is_refused_and_on_record() {
    let upstream = Upstream::start(HOST).await;
    let policy = super::usual(&upstream);
    let stand = Stand::new(&upstream, &policy);
    let authority: (&str, &[u8]) = (":authority", HOST.as_bytes());
    let cases: &[(&str, Fields<'_>)] = &[
        ("connection", &[authority, ("connection", b"close")]),
        (
            "transfer-encoding",
            &[authority, ("transfer-encoding", b"chunked")],
        ),
        ("upgrade", &[authority, ("upgrade", b"h2c")]),
        ("keep-alive", &[authority, ("keep-alive", b"1")]),
        (
            "proxy-connection",
            &[authority, ("proxy-connection", b"close")],
        ),
        ("te", &[authority, ("te", b"gzip")]),
        ("line end in a value", &[authority, ("x", b"a\r\nb: c")]),
        ("NUL in a value", &[authority, ("x", b"a\0b")]),
        ("line end in a name", &[authority, ("x\r\nb", b"a")]),
        ("capitals in a name", &[authority, ("X", b"a")]),
        ("two authorities", &[authority, authority]),
        ("two paths", &[authority, (":path", b"/v2/x")]),
        (
            "an unknown pseudo field",
            &[authority, (":protocol", b"websocket")],
        ),
        ("a pseudo field behind others", &[("x", b"a"), authority]),
        (
            "two lengths",
            &[
                authority,
                ("content-length", b"1"),
                ("content-length", b"2"),
            ],
        ),
        ("an odd length", &[authority, ("content-length", b"+1")]),
        (
            "a length without a body",
            &[authority, ("content-length", b"4")],
        ),
    ];
    for (what, fields) in cases {
        let before = stand.refusals().len();
        let got = frames(&stand, &[frame(HEADERS, 5, 1, &block(fields))], RST_STREAM).await;
        let ended = got
            .iter()
            .any(|(kind, _)| matches!(*kind, RST_STREAM | GOAWAY));
        assert!(ended, "{what}: {got:?}");
        until(what, || stand.refusals().len() > before).await;
        assert_eq!(stand.refusals()[before], "malformed_request", "{what}");
    }
    assert!(upstream.is_untouched(), "{}", upstream.text());
    let no_authority = frames(&stand, &[frame(HEADERS, 5, 1, &block(&[]))], HEADERS).await;
    assert!(
        no_authority.iter().any(|(kind, _)| *kind == HEADERS),
        "it is answered"
    );
    assert_eq!(stand.refusals().last().unwrap(), "malformed_request");
    let twice = block(&[
        authority,
        ("content-length", b"0"),
        ("content-length", b"0"),
    ]);
    frames(&stand, &[frame(HEADERS, 5, 1, &twice)], HEADERS).await;
    assert_eq!(stand.refusals().last().unwrap(), "malformed_request");
    assert!(upstream.is_untouched(), "{}", upstream.text());
    let good = block(&[authority, ("content-length", b"4")]);
    let sent = [frame(HEADERS, 4, 1, &good), frame(0, 1, 1, b"four")];
    let got = frames(&stand, &sent, 0).await;
    let text = String::from_utf8_lossy(&got.last().unwrap().1).into_owned();
    assert_eq!(text, "received 4", "control");
}

/// Attack: FRM-19
#[tokio::test]
async fn a_body_of_another_length_than_stated_leaves_nothing_usable() {
    let upstream = Upstream::start(HOST).await;
    let stand = Stand::new(&upstream, &super::usual(&upstream));
    let fields: &[(&str, &[u8])] = &[(":authority", HOST.as_bytes()), ("content-length", b"4")];
    let smuggled = b"fourGET /v1/smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
    for data in [&smuggled[..], b"thr"] {
        let sent = [frame(HEADERS, 4, 1, &block(fields)), frame(0, 1, 1, data)];
        let got = frames(&stand, &sent, RST_STREAM).await;
        assert!(got.iter().any(|(kind, _)| *kind == RST_STREAM), "{got:?}");
    }
    let mut client = Client::open(&stand, 1500, HOST, NEW).await;
    let (status, _, text) = client.get(HOST, "/v1/x").await;
    assert_eq!(
        (status, text.as_str()),
        (StatusCode::OK, "received 0"),
        "control"
    );
    assert!(!upstream.text().contains("smuggled"), "{}", upstream.text());
}

/// Attack: RES-07, RES-10
#[tokio::test]
async fn floods_end_the_connection_and_are_on_record() {
    let upstream = Upstream::start(HOST).await;
    let limits = "resets_per_second = 50\nidle_frames_per_second = 1000";
    let stand = Stand::with_limits(&upstream, &super::usual(&upstream), limits);
    let fields: &[(&str, &[u8])] = &[(":authority", HOST.as_bytes())];
    let open = |stream| frame(HEADERS, 4, stream, &block(fields));
    let reset = |stream| frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
    let rapid: Vec<Vec<u8>> = (0..200)
        .flat_map(|n| [open(2 * n + 1), reset(2 * n + 1)])
        .collect();
    let ping = vec![frame(6, 0, 0, &[0; 8]); 3000];
    let settings = vec![frame(4, 0, 0, &[]); 300];
    let tiny = vec![frame(8, 0, 0, &1_u32.to_be_bytes()); 3000];
    let nothing: Vec<Vec<u8>> = std::iter::once(open(1))
        .chain(std::iter::repeat_n(frame(0, 0, 1, &[]), 3000))
        .collect();
    let endless: Vec<Vec<u8>> = std::iter::once(frame(HEADERS, 0, 1, &block(fields)))
        .chain(std::iter::repeat_n(frame(9, 0, 1, &[]), 3000))
        .collect();
    for (what, flood) in [
        ("rapid reset", rapid),
        ("pings", ping),
        ("settings", settings),
        ("tiny windows", tiny),
        ("empty data", nothing),
        ("continuations", endless),
    ] {
        let before = stand.refusals().len();
        let got = frames(&stand, &flood, GOAWAY).await;
        assert!(
            got.iter().any(|(kind, _)| *kind == GOAWAY),
            "{what}: {:?}",
            got.last()
        );
        until(what, || stand.refusals().len() > before).await;
    }
    let mut client = Client::open(&stand, 1500, HOST, NEW).await;
    let (status, _, _) = client.get(HOST, "/v1/x").await;
    assert_eq!(status, StatusCode::OK, "control");
}

/// Attack: RES-10
#[tokio::test]
async fn a_small_block_that_unpacks_to_a_large_head_is_refused() {
    let upstream = Upstream::start(HOST).await;
    let stand = Stand::new(&upstream, &super::usual(&upstream));
    let fields: &[(&str, &[u8])] = &[(":authority", HOST.as_bytes())];
    // A field of 3 KB goes into the table, and is then referred to by one byte each time.
    let bomb = |times: usize| {
        let mut bytes = block(fields);
        bytes.extend([0x40, 1, b'x', 0x7f]);
        let mut rest = 3000_usize - 127;
        while rest >= 128 {
            bytes.push(u8::try_from(rest % 128).unwrap() | 0x80);
            rest /= 128;
        }
        bytes.push(u8::try_from(rest).unwrap());
        bytes.extend(vec![b'a'; 3000]);
        bytes.extend(vec![0xbe; times]);
        bytes
    };
    let before = stand.refusals().len();
    let got = frames(&stand, &[frame(HEADERS, 5, 1, &bomb(10_000))], HEADERS).await;
    let refused = got
        .iter()
        .any(|(kind, _)| matches!(*kind, HEADERS | RST_STREAM | GOAWAY));
    assert!(refused, "{got:?}");
    until("it is recorded", || stand.refusals().len() > before).await;
    assert!(upstream.is_untouched());
    frames(&stand, &[frame(HEADERS, 5, 1, &bomb(5))], 0).await;
    assert_eq!(stand.refusals().len(), before + 1, "control");
    assert!(upstream.text().contains("aaaa"), "control");
}

/// Attack: RES-05
#[tokio::test]
async fn one_stream_too_many_is_refused_and_on_record() {
    let upstream = Upstream::start(HOST).await;
    let stand = Stand::with_limits(&upstream, &super::usual(&upstream), "streams = 2");
    let fields: &[(&str, &[u8])] = &[(":authority", HOST.as_bytes())];
    let open = |stream| frame(HEADERS, 4, stream, &block(fields));
    let got = frames(&stand, &[open(1), open(3), open(5)], RST_STREAM).await;
    let (kind, why) = got.last().unwrap();
    assert_eq!((*kind, why.as_slice()), (RST_STREAM, &[0, 0, 0, 7][..]));
    until("it is on record", || stand.refusals() == ["limit_reached"]).await;
    // As many as there may be.
    let ended = |stream| frame(HEADERS, 5, stream, &block(fields));
    let mut tls = stand.tunnel_offering(1500, HOST, NEW).await.unwrap();
    tls.write_all(&[PREFACE, &ended(1), &ended(3)].concat())
        .await
        .unwrap();
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    let answers = |seen: &[u8]| {
        let each = seen.windows(10).filter(|window| *window == b"received 0");
        each.count()
    };
    let reading = async {
        while answers(&seen) < 2 {
            let read = tls.read(&mut buffer).await.unwrap();
            assert!(read > 0, "control: {seen:?}");
            seen.extend_from_slice(&buffer[..read]);
        }
    };
    let patience = std::time::Duration::from_secs(20);
    tokio::time::timeout(patience, reading)
        .await
        .expect("control");
    assert_eq!(stand.refusals().len(), 1, "control");
}

/// Attack: RES-01
#[tokio::test]
async fn a_head_that_drips_behind_a_first_request_is_given_up_and_a_body_is_not() {
    let upstream = Upstream::start(HOST).await;
    let limits = "head_timeout_seconds = 1\nidle_timeout_seconds = 60";
    let stand = Stand::with_limits(&upstream, &super::usual(&upstream), limits);
    let fields: &[(&str, &[u8])] = &[(":authority", HOST.as_bytes())];
    let long: &[(&str, &[u8])] = &[(":authority", HOST.as_bytes()), ("x-long", &[b'a'; 120])];
    let cut = |bytes: Vec<u8>, at: usize| (bytes[..at].to_vec(), bytes[at..].to_vec());
    let head = frame(HEADERS, 5, 3, &block(long));
    let mut pieces = vec![frame(HEADERS, 1, 3, &block(fields))];
    pieces.push(frame(
        9,
        4,
        3,
        &[0, 1, b'x', 100]
            .into_iter()
            .chain([b'a'; 100])
            .collect::<Vec<_>>(),
    ));
    let body = [
        frame(HEADERS, 4, 3, &block(fields)),
        frame(0, 1, 3, &[b'b'; 120]),
    ];
    let begun = body[0].len() + 9;
    for (what, (at_once, dripped), served) in [
        ("a frame of a head", cut(head.clone(), 0), false),
        (
            "a block in two frames",
            cut(pieces.concat(), pieces[0].len()),
            false,
        ),
        ("a body", cut(body.concat(), begun), true),
    ] {
        let before = stand.refusals().len();
        let mut tls = stand.tunnel_offering(1500, HOST, NEW).await.unwrap();
        tls.write_all(PREFACE).await.unwrap();
        let first = frame(HEADERS, 5, 1, &block(fields));
        tls.write_all(&first).await.unwrap();
        tls.write_all(&at_once).await.unwrap();
        let (mut read, mut write) = tokio::io::split(tls);
        let slow = async {
            for byte in dripped {
                if write.write_all(&[byte]).await.is_err() || write.flush().await.is_err() {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(25)).await;
            }
            if !served {
                std::future::pending::<()>().await;
            }
        };
        let mut seen = Vec::new();
        let reading = async {
            let mut buffer = [0; 4096];
            loop {
                match read.read(&mut buffer).await {
                    Ok(count) if count > 0 => seen.extend_from_slice(&buffer[..count]),
                    _ => return,
                }
                if seen.windows(12).any(|window| window == b"received 120") {
                    return;
                }
            }
        };
        let both = async {
            tokio::select! {
                () = reading => {}
                () = async { slow.await; std::future::pending::<()>().await } => {}
            }
        };
        let patience = std::time::Duration::from_secs(20);
        tokio::time::timeout(patience, both).await.expect(what);
        assert!(
            seen.windows(10).any(|window| window == b"received 0"),
            "{what}: the first is served"
        );
        let second = seen.windows(12).any(|window| window == b"received 120");
        assert_eq!(second, served, "{what}");
        if !served {
            until(what, || stand.refusals().len() > before).await;
            assert_eq!(stand.refusals()[before], "client_timeout", "{what}");
        } else {
            assert_eq!(stand.refusals().len(), before, "{what}");
        }
    }
}

#[tokio::test]
async fn many_at_once_share_a_connection_of_their_asker_only() {
    let upstream = Modern::start(HOST, BOTH).await;
    let stand = upstream.stand(&upstream.policy(HOST, ""));
    for (uid, connections) in [(1500, 1), (1501, 2)] {
        let client = Client::open(&stand, uid, HOST, BOTH).await;
        let Client::Http2(sender) = &client else {
            panic!("HTTP/2 was agreed on")
        };
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let mut one = Client::Http2(sender.clone());
            tasks.spawn(async move { one.get(HOST, "/v1/x").await.0 });
        }
        let all = tasks.join_all().await;
        assert!(all.iter().all(|status| *status == StatusCode::OK));
        assert_eq!(upstream.connections(), connections, "uid {uid}");
    }
}

#[tokio::test]
async fn a_run_that_ends_cuts_all_its_streams() {
    let upstream = Modern::start(HOST, BOTH).await;
    let mut stand = upstream.stand(&upstream.policy(HOST, ""));
    let open = stand.run("run-1", None).await;
    let run = open.id().clone();
    let client = proxy::entrance::client::Client::of_run(open, 200_001);
    let stream = super::connect(stand.open_as(client), &format!("{HOST}:443")).await;
    let tls = stand.tls_offering(stream, HOST, BOTH).await.unwrap();
    let mut client = Client::over(tls).await;
    assert!(client.is_http2());
    let mut bodies = Vec::new();
    for _ in 0..3 {
        let request = client
            .request("GET", HOST, "/v1/hang")
            .body(full(Vec::new()));
        let mut body = client.send(request.unwrap()).await.unwrap().into_body();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first, "first");
        bodies.push(body);
    }
    assert!(stand.gate.runs.close(&run, 1, &peer()).unwrap());
    for mut body in bodies {
        let end = tokio::time::timeout(std::time::Duration::from_secs(20), body.frame()).await;
        assert!(
            !matches!(end.unwrap(), Some(Ok(_))),
            "nothing comes any more"
        );
    }
    until("each cut is recorded", || {
        let log = stand.audit();
        let cut = |line: &&serde_json::Value| line["reason"] == "cut before the end";
        log.iter().filter(cut).count() == 3
    })
    .await;
}

#[tokio::test]
async fn a_request_that_the_upstream_has_not_touched_is_sent_again() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let super::upstream::Identity {
        mut config,
        ca,
        pin,
    } = super::upstream::identity(HOST);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = Upstream {
        address: listener.local_addr().unwrap(),
        log: Arc::default(),
        ca,
        pin,
    };
    let refused = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&refused);
    tokio::spawn(async move {
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, count) = (acceptor.clone(), Arc::clone(&count));
            tokio::spawn(async move {
                let stream = acceptor.accept(stream).await.unwrap();
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    // The first of each three is turned away untouched.
                    if count.fetch_add(1, Ordering::SeqCst) % 3 == 0 {
                        respond.send_reset(h2::Reason::REFUSED_STREAM);
                    } else {
                        respond
                            .send_response(http::Response::new(()), true)
                            .unwrap();
                    }
                }
            });
        }
    });
    let stand = Stand::new(&upstream, &super::usual(&upstream));
    let mut client = Client::open(&stand, 1500, HOST, NEW).await;
    let (status, _, _) = client.get(HOST, "/v1/x").await;
    assert_eq!(status, StatusCode::OK, "sent again");
    assert_eq!(refused.load(Ordering::SeqCst), 2);
    refused.store(0, Ordering::SeqCst);
    let request = client
        .request("POST", HOST, "/v1/x")
        .body(full(vec![b'x'; 10]));
    let response = client.send(request.unwrap()).await.unwrap();
    assert_eq!(
        code(response.headers()),
        "upstream_protocol",
        "a body is gone once it is sent"
    );
    assert_eq!(refused.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_connection_that_carried_a_replaced_value_is_not_kept() {
    for protocols in [&["http/1.1"][..], &["h2"][..]] {
        let upstream = Modern::start(HOST, protocols).await;
        let stand = upstream.stand(&upstream.policy(HOST, ""));
        let mut client = Client::open(&stand, 1500, HOST, protocols).await;
        for _ in 0..3 {
            client.get(HOST, "/v1/x").await;
        }
        let before = upstream.connections();
        client.get(HOST, "/v1/x").await;
        assert_eq!(upstream.connections(), before, "control: it is kept");
        let other = policy::credential::CredentialName::parse("other").unwrap();
        stand.gate.upstream.forget_credential(&other);
        client.get(HOST, "/v1/x").await;
        assert_eq!(upstream.connections(), before, "control: another's");
        let name = policy::credential::CredentialName::parse("api").unwrap();
        stand.gate.upstream.forget_credential(&name);
        client.get(HOST, "/v1/x").await;
        assert_eq!(upstream.connections(), before + 1);
        client.get(HOST, "/v1/x").await;
        assert_eq!(upstream.connections(), before + 1, "the next is kept again");
    }
}
