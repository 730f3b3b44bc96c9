//! Heads that can be read in two ways, group FRM of the attack list: raw bytes, each row by its id,
//! each table beside the clean form that is served.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::stand::{Stand, ask, get, until, usual};
use super::tls::Hello;
use super::{BARE, HOST, code, usual_stand};

/// Sends this and reads until `enough` or the end.
pub(crate) async fn sends<IO>(
    stream: &mut IO,
    request: &str,
    enough: impl Fn(&str) -> bool,
) -> String
where
    IO: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    // Who is refused early may be cut off before the last byte.
    let _ = stream.write_all(request.as_bytes()).await;
    let _ = stream.flush().await;
    let reading = async {
        let mut seen = Vec::new();
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let text = String::from_utf8_lossy(&seen).into_owned();
            if enough(&text) {
                return text;
            }
            match stream.read(&mut buffer).await {
                Ok(read) if read > 0 => seen.extend_from_slice(&buffer[..read]),
                _ => return text,
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), reading)
        .await
        .expect("the gate answers or closes")
}

/// Whether this is the gate's own answer, and nothing behind it.
fn is_one_refusal(answer: &str) -> bool {
    answer.matches("x-portcullis-audit: ").count() == 1 && !answer.contains("HTTP/1.1 200")
}

/// Requests that nobody may serve, by id.
pub(crate) fn bad(host: &str) -> Vec<(&'static str, String)> {
    let post = format!("POST /v1/x HTTP/1.1\r\nHost: {host}\r\n");
    let second = format!("GET /v1/smuggled HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let length = |value: &str| format!("{post}Content-Length: {value}\r\n\r\nhello");
    let coding = |lines: &str| format!("{post}{lines}\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
    vec![
        (
            "FRM-01",
            format!(
                "{post}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{second}"
            ),
        ),
        (
            "FRM-01 reversed",
            format!(
                "{post}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n{second}"
            ),
        ),
        (
            "FRM-01 length nought",
            format!(
                "{post}Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{second}"
            ),
        ),
        (
            "FRM-03",
            format!("{post}Content-Length: 5\r\nContent-Length: 0\r\n\r\nhello"),
        ),
        (
            "FRM-03 the same twice",
            format!("{post}Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"),
        ),
        ("FRM-04 plus", length("+5")),
        ("FRM-04 minus", length("-5")),
        ("FRM-04 list", length("5,5")),
        ("FRM-04 hexadecimal", length("0x5")),
        ("FRM-04 blank inside", length("1 5")),
        ("FRM-04 letters", length("5a")),
        ("FRM-04 fraction", length("5.0")),
        ("FRM-04 empty", length("")),
        ("FRM-04 wide digit", length("\u{ff15}")),
        ("FRM-04 beyond 64 bits", length("18446744073709551621")),
        ("FRM-05 another word", coding("Transfer-Encoding: xchunked")),
        (
            "FRM-05 not the last",
            coding("Transfer-Encoding: chunked, identity"),
        ),
        (
            "FRM-05 not the only one",
            coding("Transfer-Encoding: gzip, chunked"),
        ),
        (
            "FRM-05 twice in a list",
            coding("Transfer-Encoding: chunked, chunked"),
        ),
        (
            "FRM-05 two fields",
            coding("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
        ),
        (
            "FRM-05 two fields, one of them nothing",
            coding("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"),
        ),
        ("FRM-05 parameter", coding("Transfer-Encoding: chunked;q=1")),
        ("FRM-05 quoted", coding("Transfer-Encoding: \"chunked\"")),
        (
            "FRM-05 vertical tab",
            coding("Transfer-Encoding: \u{b}chunked"),
        ),
        (
            "FRM-05 tab before it",
            coding("Transfer-Encoding:\tchunked"),
        ),
        (
            "FRM-05 tab behind it",
            coding("Transfer-Encoding: chunked\t"),
        ),
        ("FRM-05 mixed case", coding("Transfer-Encoding: ChUnKeD")),
        ("FRM-05 one capital", coding("transfer-encoding: Chunked")),
        ("FRM-05 empty", coding("Transfer-Encoding:")),
        (
            "FRM-05 blank before the colon",
            coding("Transfer-Encoding : chunked"),
        ),
        (
            "FRM-07",
            format!(
                "POST /v1/x HTTP/1.0\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            ),
        ),
        ("FRM-10", format!("GET /v1/x HTTP/1.1\nHost: {host}\n\n")),
        (
            "FRM-10 one line",
            format!("GET /v1/x HTTP/1.1\r\nHost: {host}\nX: a\r\n\r\n"),
        ),
        (
            "FRM-10 the last line",
            format!("GET /v1/x HTTP/1.1\r\nHost: {host}\r\n\n"),
        ),
        (
            "FRM-10 bare CR",
            format!("GET /v1/x HTTP/1.1\r\nHost: {host}\rX: a\r\n\r\n"),
        ),
        (
            "FRM-12",
            format!("{post}X-A: b\r\n Authorization: y\r\n\r\n"),
        ),
        (
            "FRM-12 with a tab",
            format!("{post}X-A: b\r\n\tAuthorization: y\r\n\r\n"),
        ),
        (
            "FRM-13 before the colon",
            format!("{post}Authorization : x\r\n\r\n"),
        ),
        (
            "FRM-13 tab before the colon",
            format!("{post}Authorization\t: x\r\n\r\n"),
        ),
        (
            "FRM-13 before the first field",
            format!("GET /v1/x HTTP/1.1\r\n Host: {host}\r\n\r\n"),
        ),
        ("FRM-13 no name", format!("{post}: x\r\n\r\n")),
        ("FRM-24 0.9", "GET /v1/x\r\n\r\n".to_owned()),
        (
            "FRM-24 1.2",
            format!("GET /v1/x HTTP/1.2\r\nHost: {host}\r\n\r\n"),
        ),
        (
            "FRM-24 2.0",
            format!("GET /v1/x HTTP/2.0\r\nHost: {host}\r\n\r\n"),
        ),
        (
            "FRM-24 11.1",
            format!("GET /v1/x HTTP/11.1\r\nHost: {host}\r\n\r\n"),
        ),
        (
            "FRM-24 preface",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        ),
        (
            "PTH-09 a fragment",
            format!("GET /v1/x#/../secret HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        ),
        (
            "PTH-09 a fragment of nothing",
            format!("GET /v1/x# HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        ),
        (
            "PTH-09 a fragment behind a query",
            format!("GET /v1/x?a=b#c HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        ),
        (
            "PTH-09 a fragment of an absolute form",
            format!("GET https://{host}/v1/x#c HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        ),
    ]
}

/// Attack: FRM-01, FRM-03, FRM-04, FRM-05, FRM-07, FRM-10, FRM-12, FRM-13, FRM-24, PTH-09
#[tokio::test]
async fn a_head_with_two_readings_is_refused_once_and_closed() {
    let (upstream, stand) = usual_stand().await;
    let post = format!("POST /v1/x HTTP/1.1\r\nHost: {HOST}\r\n");
    let length = |value: &str| format!("{post}Content-Length: {value}\r\n\r\nhello");
    let coding = |lines: &str| format!("{post}{lines}\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
    let cases = bad(HOST);
    for (number, (id, request)) in cases.iter().enumerate() {
        let mut tls = stand.tunnel(HOST).await;
        let answer = sends(&mut tls, request, |_| false).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{id}: {answer}");
        assert_eq!(code(&answer), "malformed_request", "{id}");
        assert!(is_one_refusal(&answer), "{id}: closed: {answer}");
        until(id, || stand.refusals().len() > number).await;
        assert_eq!(stand.refusals().len(), number + 1, "{id}: recorded once");
    }
    assert_eq!(upstream.connections(), 0);
    for (id, request) in [
        ("FRM-03 control", length("5")),
        ("FRM-04 control", length("05")),
        ("FRM-05 control", coding("Transfer-Encoding: chunked")),
        (
            "FRM-05 control: the name's case",
            coding("TRANSFER-ENCODING: chunked"),
        ),
        (
            "FRM-05 control: no blank, or one behind it",
            coding("transfer-encoding:chunked "),
        ),
    ] {
        let mut tls = stand.tunnel(HOST).await;
        let answer = ask(&mut tls, &request).await;
        assert!(answer.ends_with("received 5"), "{id}: {answer}");
    }
    let mut tls = stand.tunnel(HOST).await;
    let answer = ask(&mut tls, &get(HOST, "/v1/x%23c")).await;
    assert!(
        answer.starts_with("HTTP/1.1 200"),
        "PTH-09 control: {answer}"
    );
    let mut tls = stand.tunnel(HOST).await;
    let old = format!("GET /v1/x HTTP/1.0\r\nHost: {HOST}\r\n\r\n");
    let answer = ask(&mut tls, &old).await;
    assert!(
        answer.starts_with("HTTP/1.") && answer.contains(" 200 "),
        "FRM-07, FRM-24 control: {answer}"
    );
    let sent = upstream.text().to_ascii_lowercase();
    for head in sent
        .split("\r\n\r\n")
        .filter(|part| part.contains("http/1.1"))
    {
        let both = head.contains("content-length") && head.contains("transfer-encoding");
        assert!(!both, "framed anew: {head}");
    }
}

/// Attack: FRM-08
#[tokio::test]
async fn a_chunk_with_two_ends_breaks_the_request_off() {
    let (upstream, stand) = usual_stand().await;
    let head = format!("POST /v1/x HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (id, body) in [
        (
            "FRM-08",
            "2;a\nxx\r\n1d\r\n0\r\n\r\nGET /v1/smuggled HTTP/1.1\r\n\r\n0\r\n\r\n",
        ),
        ("FRM-08 bare CR", "2;a\rb\r\nxx\r\n0\r\n\r\n"),
        ("FRM-08 size ended by LF", "2\nxx\r\n0\r\n\r\n"),
        ("FRM-08 data ended by LF", "2\r\nxx\n0\r\n\r\n"),
        ("FRM-08 data longer than said", "2\r\nxxx\r\n0\r\n\r\n"),
        ("FRM-08 trailer ended by LF", "2\r\nxx\r\n0\r\nT: 1\n\r\n"),
        ("FRM-08 size with a sign", "+2\r\nxx\r\n0\r\n\r\n"),
        ("FRM-08 size with a prefix", "0x2\r\nxx\r\n0\r\n\r\n"),
    ] {
        let mut tls = stand.tunnel(HOST).await;
        let answer = sends(&mut tls, &format!("{head}{body}"), |_| false).await;
        assert!(!answer.contains(" 200 "), "{id}: {answer}");
        assert!(
            !upstream.text().contains("\r\n0\r\n"),
            "{id}: what was begun is never completed: {}",
            upstream.text()
        );
    }
    assert!(!upstream.text().contains("smuggled"), "{}", upstream.text());
    let mut tls = stand.tunnel(HOST).await;
    let clean = format!("{head}2;a=\"b\"\r\nxx\r\n0\r\n\r\n");
    let answer = ask(&mut tls, &clean).await;
    assert!(answer.ends_with("received 2"), "control: {answer}");
    assert!(!upstream.text().contains("a=\"b\""), "written anew");
}

/// Attack: FRM-15, AUT-01
#[tokio::test]
async fn pipelined_requests_are_judged_one_by_one() {
    let (upstream, stand) = usual_stand().await;
    for (id, second) in [
        ("FRM-15 unlisted", get("evil.example", "/v1/second")),
        ("FRM-15 listed elsewhere", get(BARE, "/v1/second")),
    ] {
        let mut tls = stand.tunnel(HOST).await;
        let both = format!("{}{second}", get(HOST, "/v1/first"));
        let answer = sends(&mut tls, &both, |seen| seen.contains("authority_mismatch")).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{id}: {answer}");
        assert!(answer.contains("authority_mismatch"), "{id}: {answer}");
    }
    assert!(!upstream.text().contains("/v1/second"));
    let mut tls = stand.tunnel(HOST).await;
    let both = format!("{}{}", get(HOST, "/v1/first"), get(HOST, "/v1/third"));
    let answer = sends(&mut tls, &both, |seen| {
        seen.matches("received 0").count() == 2
    })
    .await;
    assert_eq!(
        answer.matches("HTTP/1.1 200").count(),
        2,
        "control: {answer}"
    );
    assert!(upstream.text().contains("GET /v1/third"));
}

/// Attack: FRM-25
#[tokio::test]
async fn what_comes_with_a_connect_is_a_hello_or_lost() {
    let (upstream, stand) = usual_stand().await;
    let connect = format!("CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}:443\r\n");
    // (a) the hello in the same write.
    let mut stream = stand.open(1500);
    let hello = Hello::default().records(16_000);
    let mut bytes = format!("{connect}\r\n").into_bytes();
    bytes.extend(hello);
    stream.write_all(&bytes).await.unwrap();
    let mut seen = Vec::new();
    let reading = async {
        loop {
            if let Some(at) = seen.windows(4).position(|window| window == b"\r\n\r\n")
                && seen.len() > at + 4
            {
                return seen[at + 4];
            }
            seen.push(stream.read_u8().await.unwrap());
        }
    };
    let first = tokio::time::timeout(std::time::Duration::from_secs(20), reading).await;
    assert_eq!(first.unwrap(), 22, "FRM-25 a: a handshake message");
    // (b) a request behind a refused one, (c) a body.
    let behind = format!("GET http://{HOST}/v1/behind HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    let cases = [
        (
            "FRM-25 b",
            format!("CONNECT {HOST} HTTP/1.1\r\n\r\n{behind}"),
        ),
        (
            "FRM-25 c",
            format!("{connect}Content-Length: 4\r\n\r\nbody"),
        ),
        (
            "FRM-25 c chunked",
            format!("{connect}Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"),
        ),
    ];
    for (id, request) in cases {
        let mut stream = stand.open(1500);
        let answer = sends(&mut stream, &request, |_| false).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{id}: {answer}");
        assert!(is_one_refusal(&answer), "{id}: {answer}");
    }
    let strict = Stand::with_limits(&upstream, &usual(&upstream), "refuse_inside_tls = false");
    let mut stream = strict.open(1500);
    let unlisted = "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n";
    let answer = sends(&mut stream, &format!("{unlisted}{behind}"), |_| false).await;
    assert!(answer.starts_with("HTTP/1.1 403"), "FRM-25 b: {answer}");
    assert!(is_one_refusal(&answer), "FRM-25 b: {answer}");
    assert_eq!(upstream.connections(), 0);
}
