//! What a rule bounds: bytes each way and time. What is known to be too much is refused, what turns
//! out to be is cut, and the record says so.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::Frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::HOST;
use super::features::{opening, socket_policy};
use super::modern::{Client, Modern, full, reading_no_further, sent, whole};
use super::stand::{Stand, ask, response, until};
use super::upstream::Upstream;

const NEW: &[&str] = &["h2"];
const OLD: &[&str] = &["http/1.1"];
/// Client and upstream.
const PAIRS: [(&[&str], &[&str]); 4] = [(OLD, OLD), (OLD, NEW), (NEW, OLD), (NEW, NEW)];

/// The ends in the log with this code.
fn ends(stand: &Stand, code: &str) -> Vec<serde_json::Value> {
    let log = stand.audit();
    let ends = log.into_iter().filter(|line| line["kind"] == "response");
    ends.filter(|line| line["code"] == code).collect()
}

async fn data(sender: &tokio::sync::mpsc::Sender<Frame<Bytes>>, bytes: usize) {
    let frame = Frame::data(Bytes::from(vec![b'a'; bytes]));
    sender.send(frame).await.unwrap();
}

/// Attack: RES-15
#[tokio::test]
async fn a_body_that_is_too_long_is_refused_or_never_completed() {
    for (offered, served) in PAIRS {
        let case = format!("{offered:?} to {served:?}");
        let upstream = Modern::start(HOST, served).await;
        let stand = upstream.stand(&upstream.policy(HOST, "max_request_bytes = 100"));
        let mut client = Client::open(&stand, 1500, HOST, offered).await;
        let post = |client: &Client, path: &str| client.request("POST", HOST, path);
        // It says so itself.
        let request = post(&client, "/v1/x").body(full(vec![b'a'; 101])).unwrap();
        let (status, fields, text) = whole(client.send(request).await.unwrap()).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{case}");
        assert_eq!(fields["x-portcullis-code"], "request_too_large", "{case}");
        assert!(
            text.contains("100 bytes") && text.contains("max_request_bytes"),
            "{case}: {text}"
        );
        assert!(upstream.seen().is_empty(), "{case}: nothing left");
        assert_eq!(stand.refusals(), ["request_too_large"], "{case}");
        // It turns out to be, while the upstream still waits for its end.
        let mut client = Client::open(&stand, 1500, HOST, offered).await;
        let (sender, body) = sent();
        data(&sender, 60).await;
        data(&sender, 60).await;
        let request = post(&client, "/v1/x").body(body).unwrap();
        let (status, fields, _) = whole(client.send(request).await.unwrap()).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{case}");
        assert_eq!(fields["x-portcullis-code"], "request_too_large", "{case}");
        drop(sender);
        // And while it is answered already.
        let mut client = Client::open(&stand, 1500, HOST, offered).await;
        let (sender, body) = sent();
        data(&sender, 60).await;
        let request = post(&client, "/v1/bidi").body(body).unwrap();
        let mut answer = client.send(request).await.unwrap().into_body();
        assert!(answer.frame().await.unwrap().is_ok(), "{case}");
        data(&sender, 60).await;
        while let Some(Ok(frame)) = answer.frame().await {
            assert!(frame.is_data(), "{case}: it ends as if it were whole");
        }
        until(&case, || ends(&stand, "request_too_large").len() == 2).await;
        for end in ends(&stand, "request_too_large") {
            assert!(end["bytes_in"].as_u64().unwrap() <= 100, "{case}: {end}");
        }
        assert!(
            upstream.seen().iter().all(|seen| seen.body <= 100),
            "{case}"
        );
        // What fits passes, stated or not.
        let mut client = Client::open(&stand, 1500, HOST, offered).await;
        let (sender, body) = sent();
        data(&sender, 60).await;
        data(&sender, 40).await;
        drop(sender);
        for body in [body, full(vec![b'a'; 100])] {
            let request = post(&client, "/v1/x").body(body).unwrap();
            let (status, _, text) = whole(client.send(request).await.unwrap()).await;
            assert_eq!(
                (status, text.as_str()),
                (StatusCode::OK, "received 100"),
                "{case}"
            );
        }
    }
}

/// A client that goes on sending behind a body that was cut reads why, and not a reset; what it sends
/// is thrown away, and no further request is read behind it.
#[tokio::test]
async fn a_body_that_was_cut_is_read_on_and_its_connection_closed_in_words() {
    let upstream = Modern::start(HOST, OLD).await;
    for (cap, status) in [
        ("max_request_bytes = 100", "413"),
        ("max_seconds = 1", "504"),
    ] {
        let stand = upstream.stand(&upstream.policy(HOST, cap));
        let mut tls = stand.tunnel(HOST).await;
        let head =
            format!("POST /v1/x HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n");
        let chunk = format!("10000\r\n{}\r\n", "a".repeat(0x10000));
        let first = if status == "413" {
            chunk.as_str()
        } else {
            "1\r\na\r\n"
        };
        tls.write_all(head.as_bytes()).await.unwrap();
        tls.write_all(first.as_bytes()).await.unwrap();
        tls.flush().await.unwrap();
        let answer = String::from_utf8(response(&mut tls, false).await).unwrap();
        let beginning = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&beginning), "{cap}: {answer}");
        let answer = answer.to_ascii_lowercase();
        assert!(
            answer.contains("\r\nconnection: close\r\n"),
            "{cap}: {answer}"
        );
        for _ in 0..32 {
            assert!(
                tls.write_all(chunk.as_bytes()).await.is_ok(),
                "{cap}: reset"
            );
            tls.flush().await.unwrap();
        }
        let behind = format!("0\r\n\r\nGET /v1/behind HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
        tls.write_all(behind.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(20), tls.read_to_end(&mut rest));
        assert!(ended.await.is_ok(), "{cap}: it is closed");
        assert!(rest.is_empty(), "{cap}: {}", String::from_utf8_lossy(&rest));
        let mut tls = stand.tunnel(HOST).await;
        let whole = format!("{head}3\r\nabc\r\n0\r\n\r\n");
        let answer = ask(&mut tls, &whole).await.to_ascii_lowercase();
        assert!(
            answer.starts_with("http/1.1 200"),
            "{cap}: control: {answer}"
        );
        assert!(!answer.contains("connection: close"), "{cap}: control");
    }
}

/// Attack: RES-15
#[tokio::test]
async fn an_answer_that_is_too_long_is_refused_or_cut() {
    for (offered, served) in PAIRS {
        let case = format!("{offered:?} to {served:?}");
        let upstream = Modern::start(HOST, served).await;
        let stand = upstream.stand(&upstream.policy(HOST, "max_response_bytes = 1000"));
        let mut client = Client::open(&stand, 1500, HOST, offered).await;
        let (status, fields, _) = client.get(HOST, "/v1/large").await;
        assert_eq!(status, StatusCode::BAD_GATEWAY, "{case}");
        assert_eq!(fields["x-portcullis-code"], "answer_too_large", "{case}");
        let echo = async |length: usize| {
            let mut client = Client::open(&stand, 1500, HOST, offered).await;
            let request = client.request("POST", HOST, "/v1/echo/300");
            let request = request.body(full(vec![b'a'; length])).unwrap();
            // All of it may be there before the head is on its way.
            let Ok(answer) = client.send(request).await else {
                return Err(0);
            };
            let mut body = answer.into_body();
            let mut read = 0;
            loop {
                match body.frame().await {
                    None => return Ok(read),
                    Some(Err(_)) => return Err(read),
                    Some(Ok(frame)) => read += frame.data_ref().map_or(0, Bytes::len),
                }
            }
        };
        let cut = echo(1001).await;
        assert!(cut.is_err_and(|read| read <= 1000), "{case}: {cut:?}");
        until(&case, || ends(&stand, "answer_too_large").len() == 2).await;
        for end in ends(&stand, "answer_too_large") {
            assert!(end["bytes_out"].as_u64().unwrap() <= 1000, "{case}: {end}");
        }
        assert_eq!(echo(1000).await, Ok(1000), "{case}: control");
    }
}

/// Attack: RES-15
#[tokio::test]
async fn what_takes_too_long_is_told_or_cut() {
    let [a, b, c, d] = PAIRS;
    tokio::join!(too_long(a), too_long(b), too_long(c), too_long(d));
}

async fn too_long((offered, served): (&[&str], &[&str])) {
    let case = &format!("{offered:?} to {served:?}");
    let upstream = Modern::start(HOST, served).await;
    let stand = upstream.stand(&upstream.policy(HOST, "max_seconds = 3"));
    let never_answered = async {
        let mut client = Client::open(&stand, 1500, HOST, offered).await;
        let (sender, body) = sent();
        data(&sender, 1).await;
        let request = client.request("POST", HOST, "/v1/x").body(body).unwrap();
        let (status, fields, _) = whole(client.send(request).await.unwrap()).await;
        assert_eq!(status, StatusCode::GATEWAY_TIMEOUT, "{case}: no head came");
        assert_eq!(fields["x-portcullis-code"], "time_exceeded", "{case}");
        drop(sender);
    };
    let never_ended = async {
        let mut client = Client::open(&stand, 1500, HOST, offered).await;
        let request = client.request("GET", HOST, "/v1/hang");
        let answer = client.send(request.body(full(Vec::new())).unwrap()).await;
        let mut body = answer.unwrap().into_body();
        assert!(body.frame().await.unwrap().is_ok(), "{case}");
        let last = body.frame().await;
        assert!(
            last.is_none_or(|frame| frame.is_err()),
            "{case}: it was cut"
        );
    };
    tokio::join!(never_answered, never_ended);
    until(case, || ends(&stand, "time_exceeded").len() == 2).await;
    let mut client = Client::open(&stand, 1500, HOST, offered).await;
    let (status, _, _) = client.get(HOST, "/v1/x").await;
    assert_eq!(status, StatusCode::OK, "{case}: control");
}

/// Attack: RES-15
#[tokio::test]
async fn time_is_over_for_a_client_that_reads_nothing_too() {
    let upstream = Modern::start(HOST, NEW).await;
    let stand = upstream.stand(&upstream.policy(HOST, "max_seconds = 3"));
    let tls = stand.tunnel_offering(1500, HOST, NEW).await.unwrap();
    let (mut sender, connection) = reading_no_further(tls, 0).await;
    let request = http::Request::get(format!("https://{HOST}/v1/large"));
    let answer = sender.send_request(request.body(full(Vec::new())).unwrap());
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK, "control: it begins");
    until("its end is on record", || {
        ends(&stand, "time_exceeded").len() == 1
    })
    .await;
    until("the connection ends", || connection.is_finished()).await;
}

/// Attack: RES-15
#[tokio::test]
async fn a_websocket_is_bounded_like_any_exchange() {
    let upstream = Upstream::start(HOST).await;
    let bounded = |more: &str| {
        let opened = "upgrade = [\"websocket\"]\n";
        socket_policy(&upstream).replace(opened, &format!("{opened}{more}\n"))
    };
    let open = async |stand: &Stand| {
        let mut tls = stand.tunnel(HOST).await;
        let answer = ask(&mut tls, &opening(HOST)).await;
        assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
        tls
    };
    for (more, code) in [
        ("max_request_bytes = 100", "request_too_large"),
        ("max_response_bytes = 100", "answer_too_large"),
    ] {
        let stand = Stand::new(&upstream, &bounded(more));
        let mut tls = open(&stand).await;
        tls.write_all(&[b'p'; 100]).await.unwrap();
        let mut echo = [0; 100];
        tls.read_exact(&mut echo).await.unwrap();
        assert_eq!(echo, [b'p'; 100], "control: {more}");
        // Too much by one byte. A cut is an end without goodbye.
        let _ = tls.write_all(b"Q").await;
        let mut rest = Vec::new();
        let _ = tls.read_to_end(&mut rest).await;
        assert!(rest.is_empty(), "{more}: {rest:?}");
        until(more, || ends(&stand, code).len() == 1).await;
        let end = ends(&stand, code).remove(0);
        assert_eq!(end["bytes_out"], 100, "{more}: {end}");
        if code == "request_too_large" {
            assert_eq!(end["bytes_in"], 100, "{more}: {end}");
            assert!(!upstream.text().contains("pQ"), "the byte did not leave");
        }
    }
    let stand = Stand::new(&upstream, &bounded("max_seconds = 3"));
    let mut tls = open(&stand).await;
    let mut rest = Vec::new();
    let _ = tls.read_to_end(&mut rest).await;
    until("its time is over", || {
        ends(&stand, "time_exceeded").len() == 1
    })
    .await;
}

/// Attack: LIF-16, RES-15
#[tokio::test]
async fn a_reload_bounds_what_is_under_way() {
    for protocols in [OLD, NEW] {
        let upstream = Modern::start(HOST, protocols).await;
        let two = |more: &str| {
            let one = upstream.policy(HOST, more).replace("/v1/**", "/v1/hang/a");
            let rest = upstream.policy(HOST, "").replace("version = 1\n", "");
            one + &rest
                .replace("\"api\"\nkind", "\"rest\"\nkind")
                .replace("/v1/**", "/v1/hang/b")
        };
        for (more, code) in [
            ("max_response_bytes = 4", "answer_too_large"),
            ("max_seconds = 1", "time_exceeded"),
        ] {
            let stand = upstream.stand(&two(""));
            let mut bodies = Vec::new();
            for path in ["/v1/hang/a", "/v1/hang/b"] {
                let mut client = Client::open(&stand, 1500, HOST, protocols).await;
                let request = client.request("GET", HOST, path).body(full(Vec::new()));
                let mut body = client.send(request.unwrap()).await.unwrap().into_body();
                let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
                assert_eq!(first, "first");
                bodies.push((client, body));
            }
            stand.reload(&two("max_response_bytes = 5\nmax_seconds = 600"));
            let moment = Duration::from_millis(200);
            let still = tokio::time::timeout(moment, bodies[0].1.frame()).await;
            assert!(still.is_err(), "control: what fits goes on");
            stand.reload(&two(more));
            let last = bodies[0].1.frame().await;
            assert!(
                last.is_none_or(|frame| frame.is_err()),
                "{more}: it was cut"
            );
            until(more, || ends(&stand, code).len() == 1).await;
            let still = tokio::time::timeout(moment, bodies[1].1.frame()).await;
            assert!(still.is_err(), "control: the other goes on");
        }
    }
}
