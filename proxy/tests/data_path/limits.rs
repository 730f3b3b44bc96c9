//! What a client can make grow or wait, group RES of the attack list: each ends at its bound, and
//! whoever else asks is served meanwhile.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::modern::{Client, full};
use super::stand::{Stand, ask, connect, get, until, usual};
use super::upstream::Upstream;
use super::{BARE, HOST, code, usual_stand};

const PATIENCE: Duration = Duration::from_secs(20);

/// Attack: RES-01
#[tokio::test]
async fn a_head_that_comes_byte_by_byte_is_given_up() {
    let upstream = Upstream::start(HOST).await;
    let limits = "head_timeout_seconds = 1\nidle_timeout_seconds = 60";
    let stand = Stand::with_limits(&upstream, &usual(&upstream), limits);
    let slow = async |mut stream: Box<dyn Both>| {
        let head = format!(
            "GET /v1/x HTTP/1.1\r\nHost: {HOST}\r\nX: {}",
            "a".repeat(4000)
        );
        for byte in head.bytes() {
            if stream.write_all(&[byte]).await.is_err() || stream.flush().await.is_err() {
                return;
            }
            let mut answer = [0; 1024];
            let read = tokio::time::timeout(Duration::from_millis(20), stream.read(&mut answer));
            if let Ok(ended) = read.await {
                let read = ended.unwrap_or(0);
                let text = String::from_utf8_lossy(&answer[..read]).into_owned();
                assert!(text.starts_with("HTTP/1.1 408"), "{text}");
                assert_eq!(code(&text), "client_timeout", "{text}");
                return;
            }
        }
        panic!("the gate went on reading");
    };
    let outside: Box<dyn Both> = Box::new(stand.open(1500));
    let inside: Box<dyn Both> = Box::new(stand.tunnel(HOST).await);
    let quick = async {
        for _ in 0..20 {
            let mut tls = stand.tunnel(HOST).await;
            let answer = ask(&mut tls, &get(HOST, "/v1/x")).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "control: {answer}");
        }
    };
    let all = async { tokio::join!(slow(outside), slow(inside), quick) };
    assert!(tokio::time::timeout(PATIENCE, all).await.is_ok());
    assert!(!upstream.text().contains("aaaa"));
    until("both are recorded", || {
        stand.refusals() == ["client_timeout", "client_timeout"]
    })
    .await;
}

trait Both: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send {}
impl<IO: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send> Both for IO {}

/// Attack: RES-03
#[tokio::test]
async fn a_tunnel_in_which_nothing_is_said_is_closed() {
    let upstream = Upstream::start(HOST).await;
    let limits = "handshake_timeout_seconds = 1\nidle_timeout_seconds = 60";
    let stand = Stand::with_limits(&upstream, &usual(&upstream), limits);
    for (id, beginning) in [
        ("RES-03", &b""[..]),
        ("RES-03 a part of a hello", &[22, 3, 1, 2, 0, 1, 0, 1, 252]),
    ] {
        let before = stand.refusals().len();
        let mut stream = connect(stand.open(1500), &format!("{HOST}:443")).await;
        stream.write_all(beginning).await.unwrap();
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "{id}");
        assert!(!rest.starts_with(b"HTTP"), "{id}: {rest:?}");
        until(id, || stand.refusals().len() > before).await;
        assert_eq!(stand.refusals()[before], "client_timeout", "{id}");
    }
    assert_eq!(upstream.connections(), 0);
    let mut tls = stand.tunnel(HOST).await;
    let answer = ask(&mut tls, &get(HOST, "/v1/x")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "control: {answer}");
}

/// Attack: RES-04
#[tokio::test]
async fn a_head_that_is_too_large_is_told_so_and_closed() {
    let (upstream, stand) = usual_stand().await;
    let fields = |count: usize| "X: a\r\n".repeat(count);
    let cases = [
        (
            "RES-04 one field more than a hundred",
            format!("GET /v1/x HTTP/1.1\r\nHost: {HOST}\r\n{}\r\n", fields(100)),
        ),
        (
            "RES-04 fields",
            format!("GET /v1/x HTTP/1.1\r\nHost: {HOST}\r\n{}\r\n", fields(200)),
        ),
        (
            "RES-04 a field of a megabyte",
            format!(
                "GET /v1/x HTTP/1.1\r\nHost: {HOST}\r\nX: {}\r\n\r\n",
                "a".repeat(1 << 20)
            ),
        ),
        (
            "RES-04 the target",
            format!(
                "GET /v1/{} HTTP/1.1\r\nHost: {HOST}\r\n\r\n",
                "a".repeat(64 << 10)
            ),
        ),
        (
            "RES-04 the method",
            format!(
                "{} /v1/x HTTP/1.1\r\nHost: {HOST}\r\n\r\n",
                "A".repeat(64 << 10)
            ),
        ),
    ];
    for (id, request) in &cases {
        let before = stand.refusals().len();
        let mut tls = stand.tunnel(HOST).await;
        let (mut read, mut write) = tokio::io::split(&mut tls);
        let sending = async {
            // Whoever is refused in the middle of it is cut off.
            let _ = write.write_all(request.as_bytes()).await;
            let _ = write.flush().await;
        };
        let mut answer = Vec::new();
        let reading = async {
            // So may be whoever reads.
            let _ = read.read_to_end(&mut answer).await;
        };
        let both = async { tokio::join!(sending, reading) };
        assert!(
            tokio::time::timeout(PATIENCE, both).await.is_ok(),
            "{id}: closed"
        );
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.starts_with("HTTP/1.1 431"), "{id}: {answer}");
        assert_eq!(code(&answer), "head_too_large", "{id}");
        until(id, || stand.refusals().len() > before).await;
    }
    assert_eq!(upstream.connections(), 0);
    let mut tls = stand.tunnel(HOST).await;
    let fitting = format!("GET /v1/x HTTP/1.1\r\nHost: {HOST}\r\n{}\r\n", fields(99));
    let answer = ask(&mut tls, &fitting).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "control: {answer}");
}

/// Attack: RES-04
#[tokio::test]
async fn on_http_2_too_a_hundred_fields_pass_and_one_more_does_not() {
    let (upstream, stand) = usual_stand().await;
    let mut client = Client::open(&stand, 1500, HOST, &["h2"]).await;
    assert!(client.is_http2());
    for (count, expected) in [(101, 431), (100, 200), (101, 431)] {
        let mut request = client.request("GET", HOST, "/v1/x");
        for number in 0..count {
            // The same name again, and another one.
            request = request.header(format!("x-{}", number / 2), "a");
        }
        let answer = client.send(request.body(full(Vec::new())).unwrap()).await;
        let answer = answer.unwrap();
        assert_eq!(answer.status().as_u16(), expected, "{count}");
        let told = answer.headers().get("x-portcullis-code");
        assert_eq!(
            told.is_some_and(|code| code == "head_too_large"),
            count > 100
        );
    }
    assert_eq!(upstream.text().matches("HTTP/1.1\r\n").count(), 1);
}

/// Attack: RES-06
#[tokio::test]
async fn a_request_that_finds_no_descriptor_is_told_and_idle_ones_make_room() {
    let (upstream, stand) = usual_stand().await;
    let take_all = || std::iter::from_fn(|| stand.gate.descriptors.take()).collect::<Vec<_>>();
    let mut tls = stand.tunnel(HOST).await;
    let all = take_all();
    assert!(all.len() > 64, "control");
    let answer = ask(&mut tls, &get(HOST, "/v1/x")).await;
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    assert_eq!(code(&answer), "limit_reached", "{answer}");
    assert_eq!(upstream.connections(), 0);
    until("it is on record", || {
        let log = stand.audit();
        let mut ends = log.iter().filter(|line| line["kind"] == "response");
        ends.any(|line| line["code"] == "limit_reached")
    })
    .await;
    drop(all);
    let answer = ask(&mut tls, &get(HOST, "/v1/x")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "control: {answer}");
    // The connection of that request idles: it gives way to one for another host.
    let all = take_all();
    let mut other = stand.tunnel(BARE).await;
    let answer = ask(&mut other, &get(BARE, "/v1/x")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(
        stand.gate.descriptors.take().is_none(),
        "it took that place"
    );
    drop(all);
}

/// Attack: RES-15
#[tokio::test]
async fn a_body_without_end_stops_with_its_reader_or_its_run() {
    let (upstream, mut stand) = usual_stand().await;
    let open = stand.run("run-1", None).await;
    let run = open.id().clone();
    let client = proxy::entrance::client::Client::of_run(open, 200_001);
    let stream = connect(stand.open_as(client), &format!("{HOST}:443")).await;
    let mut tls = stand.tls(stream, HOST).await.unwrap();
    let head = format!("POST /v1/x HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n");
    tls.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("1000\r\n{}\r\n", "a".repeat(4096));
    let (arrived, arrival) = tokio::sync::oneshot::channel();
    let endless = tokio::spawn(async move {
        let mut arrived = Some(arrived);
        let mut sent = 0;
        while tls.write_all(chunk.as_bytes()).await.is_ok() && tls.flush().await.is_ok() {
            sent += 1;
            if sent == 500
                && let Some(arrived) = arrived.take()
            {
                arrived.send(()).unwrap();
            }
        }
    });
    tokio::time::timeout(PATIENCE, arrival)
        .await
        .unwrap()
        .unwrap();
    assert!(!endless.is_finished(), "control: it goes on until then");
    assert!(stand.gate.runs.close(&run, 1, &super::peer()).unwrap());
    assert!(tokio::time::timeout(PATIENCE, endless).await.is_ok(), "cut");
    until("the upload's end is recorded", || {
        let log = stand.audit();
        log.iter()
            .any(|line| line["reason"] == "cut before the end")
    })
    .await;
    assert!(!upstream.text().contains("\r\n0\r\n"), "and not completed");
    // The other way: the client leaves, and the upstream's connection goes with it.
    let mut tls = stand.tunnel(HOST).await;
    tls.write_all(get(HOST, "/v1/hang").as_bytes())
        .await
        .unwrap();
    assert!(tls.read_u8().await.is_ok());
    drop(tls);
    until("the download's end is recorded", || {
        let log = stand.audit();
        log.iter().filter(|line| line["kind"] == "response").count() == 2
    })
    .await;
}
