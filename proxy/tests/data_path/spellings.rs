//! Siblings of the attacks in groups FRM, AUT and TLS: folded fields, chunks that state their size
//! oddly, targets and methods in forms that no request needs, hellos with the same thing twice. Each
//! beside what differs in nothing else and is served.

use super::frames::{GOAWAY, HEADERS, RST_STREAM, frame, frames, frames_until};
use super::heads::sends;
use super::stand::{Stand, ask, get, until};
use super::tls::{HANDSHAKE, Hello, answer_to, extension};
use super::upstream::Upstream;
use super::{HOST, code, usual_stand};

const OK: &str = "HTTP/1.1 200 ";

/// A name and its value.
type Field<'a> = (&'a str, &'a [u8]);

async fn told(stand: &Stand, request: &str) -> String {
    let mut tls = stand.tunnel(HOST).await;
    sends(&mut tls, request, |seen| seen.trim_end().ends_with('}')).await
}

/// Attack: FRM-12, FRM-03, FRM-05
#[tokio::test]
async fn a_field_is_one_line() {
    let (upstream, stand) = usual_stand().await;
    let post = format!("POST /v1/x HTTP/1.1\r\nHost: {HOST}\r\n");
    for (what, rest) in [
        ("length", "Content-Length: 5\r\n 0\r\n\r\nhello"),
        (
            "length, value on the next line",
            "Content-Length:\r\n 5\r\n\r\nhello",
        ),
        ("coding", "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
        (
            "coding, tab",
            "Transfer-Encoding: x\r\n\tchunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "a fold of nothing",
            "X-A: b\r\n \r\nContent-Length: 0\r\n\r\n",
        ),
        ("a fold at the end", "Content-Length: 0\r\n \r\n\r\n"),
        (
            "a fold behind a fold",
            "X-A: b\r\n c\r\n d\r\nContent-Length: 0\r\n\r\n",
        ),
    ] {
        let answer = told(&stand, &format!("{post}{rest}")).await;
        assert_eq!(code(&answer), "malformed_request", "{what}: {answer}");
        assert!(answer.starts_with("HTTP/1.1 400"), "{what}: {answer}");
    }
    let folded = format!("GET /v1/x HTTP/1.1\r\nHost:\r\n {HOST}\r\n\r\n");
    assert_eq!(code(&told(&stand, &folded).await), "malformed_request");
    assert_eq!(upstream.connections(), 0);
    let mut tls = stand.tunnel(HOST).await;
    let answer = ask(
        &mut tls,
        &format!("{post}X-A: b c d\r\nContent-Length: 5\r\n\r\nhello"),
    )
    .await;
    assert!(answer.ends_with("received 5"), "control: {answer}");
}

/// Attack: FRM-08
#[tokio::test]
async fn a_chunk_states_its_size_in_one_way() {
    let (upstream, stand) = usual_stand().await;
    let head = format!("POST /v1/x HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n");
    let long = format!("2;{}\r\nxx\r\n0\r\n\r\n", "a".repeat(200_000));
    let many = format!(
        "{}0\r\n\r\n",
        format!("1;{}\r\nx\r\n", "a".repeat(100)).repeat(2_000)
    );
    for (what, body) in [
        ("beyond 64 bits", "10000000000000002\r\nxx\r\n0\r\n\r\n"),
        ("64 bits and more", "fffffffffffffffff\r\nxx\r\n0\r\n\r\n"),
        ("no size", "\r\nxx\r\n0\r\n\r\n"),
        ("an extension alone", ";a\r\nxx\r\n0\r\n\r\n"),
        ("a blank before it", " 2\r\nxx\r\n0\r\n\r\n"),
        ("a minus", "-2\r\nxx\r\n0\r\n\r\n"),
        ("an underscore", "0_2\r\nxx\r\n0\r\n\r\n"),
        ("a quoted line end", "2;a=\"\r\n\"\r\nxx\r\n0\r\n\r\n"),
        ("a NUL in an extension", "2;a\0\r\nxx\r\n0\r\n\r\n"),
        ("two line ends", "2\r\r\nxx\r\n0\r\n\r\n"),
        ("a long extension", &long),
        ("many extensions", &many),
        ("a folded trailer", "2\r\nxx\r\n0\r\nT: a\r\n b\r\n\r\n"),
        ("a trailer without a colon", "2\r\nxx\r\n0\r\nT\r\n\r\n"),
        (
            "a trailer with a blank before the colon",
            "2\r\nxx\r\n0\r\nT : a\r\n\r\n",
        ),
    ] {
        let answer = told(&stand, &format!("{head}{body}")).await;
        assert!(!answer.contains(OK), "{what}: {answer}");
        let text = upstream.text();
        assert!(
            !text.contains("\r\n0\r\n"),
            "{what}: nothing is completed: {text}"
        );
    }
    for (what, body, count) in [
        (
            "a hundred extensions",
            format!("{}0\r\n\r\n", "1;a=b\r\nx\r\n".repeat(100)),
            100,
        ),
        ("noughts before it", "0002\r\nxx\r\n0\r\n\r\n".to_owned(), 2),
        ("capitals", "A\r\n0123456789\r\n0\r\n\r\n".to_owned(), 10),
    ] {
        let mut tls = stand.tunnel(HOST).await;
        let answer = ask(&mut tls, &format!("{head}{body}")).await;
        assert!(
            answer.ends_with(&format!("received {count}")),
            "{what}: {answer}"
        );
    }
}

/// Attack: AUT-05, AUT-14
#[tokio::test]
async fn a_target_in_a_tunnel_is_a_path_or_its_own_host() {
    let (upstream, stand) = usual_stand().await;
    let ask_for = |line: &str| format!("{line}\r\nHost: {HOST}\r\n\r\n");
    for line in [
        "GET https://evil.example/v1/x HTTP/1.1".to_owned(),
        format!("GET http://{HOST}/v1/x HTTP/1.1"),
        format!("GET ftp://{HOST}/v1/x HTTP/1.1"),
        format!("GET https://user@{HOST}/v1/x HTTP/1.1"),
        format!("GET https://evil.example@{HOST}/v1/x HTTP/1.1"),
        format!("GET https://{HOST}:8443/v1/x HTTP/1.1"),
        format!("GET //{HOST}/v1/x HTTP/1.1"),
        "GET //evil.example/v1/x HTTP/1.1".to_owned(),
        format!("GET {HOST}/v1/x HTTP/1.1"),
        format!("GET {HOST}:443 HTTP/1.1"),
        "GET v1/x HTTP/1.1".to_owned(),
        "GET * HTTP/1.1".to_owned(),
        "GET ?a=b HTTP/1.1".to_owned(),
        "GET  /v1/x HTTP/1.1".to_owned(),
        "GET /v1/x  HTTP/1.1".to_owned(),
        "GET\t/v1/x HTTP/1.1".to_owned(),
        "GET /v1/x HTTP/1.1 ".to_owned(),
        "GET /v1/x\tHTTP/1.1".to_owned(),
        "GET /v1/x http/1.1".to_owned(),
        " GET /v1/x HTTP/1.1".to_owned(),
        "GET /v1/\u{e9} HTTP/1.1".to_owned(),
        "GET /v1/x\u{7f} HTTP/1.1".to_owned(),
        "GET /v1/x\\..\\..\\y HTTP/1.1".to_owned(),
        "get /v1/x HTTP/1.1".to_owned(),
        "G ET /v1/x HTTP/1.1".to_owned(),
        "TRACE /v1/x HTTP/1.1".to_owned(),
        "TRACK /v1/x HTTP/1.1".to_owned(),
        "DEBUG /v1/x HTTP/1.1".to_owned(),
        "PRI /v1/x HTTP/1.1".to_owned(),
    ] {
        let answer = told(&stand, &ask_for(&line)).await;
        assert!(!answer.contains(OK), "{line}: {answer}");
        assert!(answer.starts_with("HTTP/1.1 4"), "{line}: {answer}");
        assert_ne!(code(&answer), "none", "{line}: {answer}");
    }
    assert!(upstream.is_untouched(), "{}", upstream.text());
    for line in [
        format!("GET https://{HOST}/v1/x HTTP/1.1"),
        format!("GET HTTPS://{}:443/v1/x HTTP/1.1", HOST.to_uppercase()),
        "OPTIONS /v1/x HTTP/1.1".to_owned(),
        "GET /v1/x HTTP/1.1".to_owned(),
    ] {
        let mut tls = stand.tunnel(HOST).await;
        let answer = ask(&mut tls, &ask_for(&line)).await;
        assert!(answer.starts_with(OK), "control: {line}: {answer}");
        assert!(upstream.text().contains(" /v1/x HTTP/1.1\r\n"));
    }
    assert!(!upstream.text().contains("https://"), "{}", upstream.text());
}

/// Attack: AUT-13, CRD-03
#[tokio::test]
async fn what_a_client_nominates_takes_nothing_of_the_gates_away() {
    let (upstream, stand) = usual_stand().await;
    for named in [
        "authorization",
        "Authorization, X-Mine",
        "host, content-length, transfer-encoding",
        "close, AUTHORIZATION",
        "keep-alive, x-mine, te, trailer, upgrade",
        "\"authorization\"",
        ", ,authorization;q=1,",
    ] {
        let mut tls = stand.tunnel(HOST).await;
        let request = format!(
            "POST /v1/x HTTP/1.1\r\nHost: {HOST}\r\nConnection: {named}\r\nX-Mine: 1\r\nMax-Forwards: 0\r\n\
             HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\nContent-Length: 5\r\n\r\nhello"
        );
        let before = upstream.text().len();
        let answer = ask(&mut tls, &request).await;
        assert!(answer.ends_with("received 5"), "{named}: {answer}");
        let sent = upstream.text().get(before..).unwrap().to_ascii_lowercase();
        assert!(
            sent.contains("authorization: bearer canary-"),
            "{named}: {sent}"
        );
        assert!(
            sent.contains(&format!("host: {HOST}\r\n")),
            "{named}: {sent}"
        );
        for gone in [
            "max-forwards",
            "http2-settings",
            "\r\nconnection",
            "upgrade",
        ] {
            assert!(!sent.contains(gone), "{named}: {gone}: {sent}");
        }
        let nominated = named.to_ascii_lowercase().contains("x-mine");
        assert_eq!(!sent.contains("x-mine"), nominated, "{named}: {sent}");
    }
}

/// Fields of a header block, none of them remembered.
fn block(fields: &[Field<'_>]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for part in [name.as_bytes(), value] {
            block.push(u8::try_from(part.len()).unwrap());
            block.extend(part);
        }
    }
    block
}

/// Attack: FRM-21, AUT-05, AUT-14
#[tokio::test]
async fn the_pseudo_fields_of_http_2_are_one_request_in_one_form() {
    let upstream = Upstream::start(HOST).await;
    let stand = Stand::new(&upstream, &super::usual(&upstream));
    let host = HOST.as_bytes();
    let user = [b"user@", host].concat();
    let space = [host, b" "].concat();
    let target = |method: &'static [u8], scheme: &'static [u8], path: &'static [u8]| {
        vec![
            (":method", method),
            (":scheme", scheme),
            (":path", path),
            (":authority", host),
        ]
    };
    let good = || target(b"GET", b"https", b"/v1/x");
    let and = |field: (&'static str, &'static [u8])| [good(), vec![field]].concat();
    let authority = |value| {
        let mut fields = good();
        fields[3].1 = value;
        fields
    };
    let cases: Vec<(&str, Vec<Field<'_>>)> = vec![
        (
            "CONNECT with a protocol",
            [
                target(b"CONNECT", b"https", b"/v1/x"),
                vec![(":protocol", &b"websocket"[..])],
            ]
            .concat(),
        ),
        (
            "CONNECT with a path",
            target(b"CONNECT", b"https", b"/v1/x"),
        ),
        (
            "CONNECT",
            vec![(":method", b"CONNECT"), (":authority", host)],
        ),
        (
            "CONNECT elsewhere",
            vec![(":method", b"CONNECT"), (":authority", b"evil.example:443")],
        ),
        ("a status", and((":status", b"200"))),
        ("a second method", and((":method", b"POST"))),
        ("a second scheme", and((":scheme", b"https"))),
        ("no path", vec![good()[0], good()[1], good()[3]]),
        ("no method", vec![good()[1], good()[2], good()[3]]),
        ("no scheme", vec![good()[0], good()[2], good()[3]]),
        ("an empty path", target(b"GET", b"https", b"")),
        ("a path of a star", target(b"GET", b"https", b"*")),
        ("a path without a slash", target(b"GET", b"https", b"v1/x")),
        (
            "a path that is a URL",
            target(b"GET", b"https", b"https://evil.example/v1/x"),
        ),
        (
            "a path that is a host",
            target(b"GET", b"https", b"//evil.example/v1/x"),
        ),
        (
            "a blank in the path",
            target(b"GET", b"https", b"/v1/x HTTP/1.1"),
        ),
        (
            "a line end in the path",
            target(b"GET", b"https", b"/v1/x\r\nX: y"),
        ),
        (
            "a backslash in the path",
            target(b"GET", b"https", b"/v1/..\\x"),
        ),
        ("a scheme of another kind", target(b"GET", b"ftp", b"/v1/x")),
        ("plain http", target(b"GET", b"http", b"/v1/x")),
        ("a blank in the method", target(b"GE T", b"https", b"/v1/x")),
        (
            "a line end in the method",
            target(b"GET / HTTP/1.1\r\n", b"https", b"/v1/x"),
        ),
        ("an empty method", target(b"", b"https", b"/v1/x")),
        (
            "a method in small letters",
            target(b"get", b"https", b"/v1/x"),
        ),
        ("TRACE", target(b"TRACE", b"https", b"/v1/x")),
        ("a user", authority(&user[..])),
        ("a blank behind the host", authority(&space[..])),
        ("an empty authority", authority(b"")),
        ("another host", authority(b"evil.example")),
        ("an empty name", and(("", b"x"))),
        ("a blank in a name", and(("x y", b"x"))),
        ("a colon in a name", and(("x:y", b"x"))),
        ("a line feed in a value", and(("x", b"a\nb"))),
        ("a carriage return in a value", and(("x", b"a\rb"))),
        ("connection", and(("connection", b"x-mine"))),
    ];
    for (what, fields) in &cases {
        let before = stand.refusals().len();
        let sent = [frame(HEADERS, 5, 1, &block(fields))];
        let ends = |kind| matches!(kind, HEADERS | RST_STREAM | GOAWAY);
        let got = frames_until(&stand, &sent, ends).await;
        assert!(got.iter().any(|(kind, _)| ends(*kind)), "{what}: {got:?}");
        until(what, || stand.refusals().len() > before).await;
        let told = stand.refusals()[before].clone();
        assert!(
            [
                "malformed_request",
                "method_refused",
                "authority_mismatch",
                "path_not_allowed",
                "ambiguous_path",
                "malformed_authority"
            ]
            .contains(&told.as_str()),
            "{what}: {told}"
        );
        assert!(upstream.is_untouched(), "{what}: {}", upstream.text());
    }
    for (what, fields) in [
        ("control", good()),
        ("control: a field more", and(("x", b"a b"))),
        ("control: a query", target(b"GET", b"https", b"/v1/x?a=b")),
    ] {
        let got = frames(&stand, &[frame(HEADERS, 5, 1, &block(&fields))], 0).await;
        let (_, text) = got.last().unwrap();
        assert_eq!(String::from_utf8_lossy(text), "received 0", "{what}");
    }
}

/// Attack: FRM-19, FRM-21
#[tokio::test]
async fn fields_behind_a_body_of_http_2_are_no_second_head() {
    let upstream = Upstream::start(HOST).await;
    let stand = Stand::new(&upstream, &super::usual(&upstream));
    let head = block(&[
        (":method", b"POST"),
        (":scheme", b"https"),
        (":path", b"/v1/x"),
        (":authority", HOST.as_bytes()),
    ]);
    let data = || frame(0, 0, 1, b"four");
    for (what, last) in [
        (
            "a connection field",
            frame(HEADERS, 5, 1, &block(&[("connection", b"x")])),
        ),
        ("capitals", frame(HEADERS, 5, 1, &block(&[("X", b"x")]))),
        (
            "fields that do not end it",
            frame(HEADERS, 4, 1, &block(&[("x", b"x")])),
        ),
    ] {
        let sent = [frame(HEADERS, 4, 1, &head), data(), last];
        let ends = |kind| matches!(kind, 0 | RST_STREAM | GOAWAY);
        let got = frames_until(&stand, &sent, ends).await;
        let text = got
            .last()
            .map(|(_, text)| String::from_utf8_lossy(text).into_owned());
        assert_ne!(text.as_deref(), Some("received 4"), "{what}: {got:?}");
        assert!(
            !upstream.text().contains("\r\n0\r\n\r\n"),
            "{what}: {}",
            upstream.text()
        );
    }
    // The library drops these; they are nowhere behind it.
    let plain = frame(
        HEADERS,
        5,
        1,
        &block(&[
            (":path", b"/v2"),
            ("authorization", b"x"),
            ("content-length", b"9"),
        ]),
    );
    let sent = [frame(HEADERS, 4, 1, &head), data(), plain];
    let got = frames(&stand, &sent, 0).await;
    let (_, text) = got.last().unwrap();
    assert_eq!(String::from_utf8_lossy(text), "received 4", "control");
    let seen = upstream.text().to_ascii_lowercase();
    assert!(
        !seen.contains("authorization: x") && !seen.contains("/v2"),
        "{seen}"
    );
    assert!(!seen.contains("content-length: 9"), "{seen}");
}

/// Attack: TLS-02, TLS-09
#[tokio::test]
async fn a_hello_says_each_thing_once() {
    let (upstream, stand) = usual_stand().await;
    let name = |kind: u8, name: &[u8]| {
        let length = u16::try_from(name.len()).unwrap().to_be_bytes();
        let entry = [&[kind], &length[..], name].concat();
        let list = u16::try_from(entry.len()).unwrap().to_be_bytes();
        extension(0, &[&list[..], &entry].concat())
    };
    let alpn = |names: &[u8]| {
        let length = u16::try_from(names.len()).unwrap().to_be_bytes();
        extension(16, &[&length[..], names].concat())
    };
    let host = name(0, HOST.as_bytes());
    let with = |more: Vec<u8>| Hello {
        names: None,
        more,
        ..Hello::default()
    };
    for (what, more) in [
        ("the name twice", [host.clone(), host.clone()].concat()),
        (
            "another name behind it",
            [host.clone(), name(0, b"evil.example")].concat(),
        ),
        (
            "another name before it",
            [name(0, b"evil.example"), host.clone()].concat(),
        ),
        ("a name cut short", extension(0, &[0, 40, 0, 0, 37, b'a'])),
        (
            "ALPN twice",
            [host.clone(), alpn(b"\x08http/1.1"), alpn(b"\x02h2")].concat(),
        ),
        (
            "ALPN with an empty name",
            [host.clone(), alpn(b"\x00\x08http/1.1")].concat(),
        ),
        (
            "ALPN cut short",
            [host.clone(), alpn(b"\x09http/1.1")].concat(),
        ),
        ("ALPN of nothing", [host.clone(), alpn(b"")].concat()),
        ("the address as a name", name(0, b"127.0.0.1")),
        (
            "a name with a dot behind",
            name(0, format!("{HOST}.").as_bytes()),
        ),
    ] {
        let got = answer_to(&stand, &with(more)).await;
        assert_ne!(got.first(), Some(&HANDSHAKE), "{what}");
    }
    assert_eq!(upstream.connections(), 0);
    for (what, more) in [
        ("control", host.clone()),
        ("control: capitals", name(0, HOST.to_uppercase().as_bytes())),
        (
            "control: ALPN",
            [host.clone(), alpn(b"\x08http/1.1\x02h2")].concat(),
        ),
        // Nobody holds its key: the outer name is what is said.
        (
            "control: ECH that stands for nothing",
            [
                host.clone(),
                extension(0xfe0d, &[0, 0, 1, 0, 1, 7, 0, 1, 9, 0, 1, 9]),
            ]
            .concat(),
        ),
        (
            "control: an extension that nobody knows",
            [host.clone(), extension(0x5a5a, &[])].concat(),
        ),
    ] {
        let got = answer_to(&stand, &with(more)).await;
        assert_eq!(got.first(), Some(&HANDSHAKE), "{what}");
    }
    // What stands behind an ECH is not what a tunnel is for: the name outside must be its own.
    let hidden = [
        name(0, b"evil.example"),
        extension(0xfe0d, &[0, 0, 1, 0, 1, 7, 0, 1, 9, 0, 1, 9]),
    ];
    let got = answer_to(&stand, &with(hidden.concat())).await;
    assert_ne!(got.first(), Some(&HANDSHAKE));
    let mut tls = stand.tunnel(HOST).await;
    assert!(ask(&mut tls, &get(HOST, "/v1/x")).await.starts_with(OK));
}
