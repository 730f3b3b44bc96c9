//! What a peer sends over HTTP/2 to smuggle, to grow or to stall, each refused and on record.

use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::HOST;
use super::frames::{Fields, GOAWAY, HEADERS, PREFACE, RST_STREAM, block, frame, frames};
use super::modern::Client;
use super::stand::{Stand, until};
use super::upstream::Upstream;

const NEW: &[&str] = &["h2"];

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
