//! What one asker can pile up, and what a cut must reach: a client that reads nothing, an upstream that
//! answers nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::StatusCode;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::HOST;
use super::modern::{Client, Modern, full, reading_no_further, sent, whole};
use super::stand::{Stand, ask, get, until, usual};

const BOTH: &[&str] = &["h2", "http/1.1"];
const OLD: &[&str] = &["http/1.1"];

#[tokio::test]
async fn requests_under_way_are_counted_over_all_connections_of_an_asker() {
    let upstream = Modern::start(HOST, BOTH).await;
    let limits = "idle_timeout_seconds = 60\nexchanges_per_run = 3";
    let stand = upstream.stand_with_limits(&upstream.policy(HOST, ""), limits);
    let mut many = Client::open(&stand, 1500, HOST, BOTH).await;
    let mut other = Client::open(&stand, 1500, HOST, OLD).await;
    let mut somebody_else = Client::open(&stand, 1501, HOST, BOTH).await;
    let mut same = many.clone_of_http2();
    let mut bodies = Vec::new();
    for client in [&mut many, &mut same, &mut other] {
        let request = client.request("GET", HOST, "/v1/hang");
        let answer = client.send(request.body(full(Vec::new())).unwrap()).await;
        let mut body = answer.unwrap().into_body();
        assert_eq!(
            body.frame().await.unwrap().unwrap().into_data().unwrap(),
            "first"
        );
        bodies.push(body);
    }
    let (status, fields, _) = many.get(HOST, "/v1/x").await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(fields["x-portcullis-code"], "limit_reached");
    assert_eq!(stand.refusals(), ["limit_reached"]);
    let (status, _, _) = somebody_else.get(HOST, "/v1/x").await;
    assert_eq!(status, StatusCode::OK, "control: another asker");
    drop(bodies.remove(0));
    until("the end of one is on record", || {
        stand
            .audit()
            .iter()
            .any(|line| line["kind"] == "response" && line["reason"] == "cut before the end")
    })
    .await;
    let (status, _, _) = many.get(HOST, "/v1/x").await;
    assert_eq!(status, StatusCode::OK, "a place that was left is free");
}

/// A client that keeps its connection alive and reads nothing of its answers.
#[tokio::test]
async fn a_cut_reaches_an_answer_that_its_client_does_not_read() {
    let upstream = Modern::start(HOST, BOTH).await;
    let policy = upstream.policy(HOST, "");
    let forbidding = policy.replace("/v1/**", "/v2/**");
    let ends = |stand: &Stand| {
        let log = stand.audit();
        let end = log.iter().find(|line| line["kind"] == "response").cloned();
        end.map(|line| line["reason"].clone())
    };
    for window in [0, 1000] {
        let stand = upstream.stand(&policy);
        let tls = stand.tunnel_offering(1500, HOST, BOTH).await.unwrap();
        let (mut sender, connection) = reading_no_further(tls, window).await;
        let request = http::Request::get(format!("https://{HOST}/v1/large"));
        let answer = sender.send_request(request.body(full(Vec::new())).unwrap());
        let answer = answer.await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(ends(&stand), None, "control: it goes on");
        stand.reload(&forbidding);
        until("the cut is on record", || ends(&stand).is_some()).await;
        assert_eq!(ends(&stand).unwrap(), "cut before the end");
        until("the connection ends", || connection.is_finished()).await;
        drop(answer);
    }
    let stand = upstream.stand(&policy);
    let mut tls = stand.tunnel_offering(1500, HOST, OLD).await.unwrap();
    let request = get(HOST, "/v1/large");
    tls.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(tls.read_u8().await.unwrap(), b'H');
    assert_eq!(ends(&stand), None, "control: it goes on");
    stand.reload(&forbidding);
    until("the cut is on record", || ends(&stand).is_some()).await;
    assert_eq!(ends(&stand).unwrap(), "cut before the end");
}

/// Accepts connections and says nothing on them; how many there were.
async fn silent() -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let dialled = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&dialled);
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            kept.push(stream);
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    (address, dialled)
}

#[tokio::test]
async fn an_upstream_that_says_nothing_is_found_out_once_for_all_who_wait() {
    let upstream = Modern::start(HOST, BOTH).await;
    let (address, dialled) = silent().await;
    let policy = upstream.policy(HOST, "");
    let dead = policy.replace(&upstream.address.to_string(), &address.to_string());
    let limits = "handshake_timeout_seconds = 2\nconnect_timeout_seconds = 2";
    let stand = upstream.stand_with_limits(&dead, limits);
    let client = Client::open(&stand, 1500, HOST, &["h2"]).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let mut one = client.clone_of_http2();
        tasks.spawn(async move { one.get(HOST, "/v1/x").await });
    }
    for (status, fields, _) in tasks.join_all().await {
        assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
        assert_eq!(fields["x-portcullis-code"], "upstream_timeout");
    }
    let tried = dialled.load(Ordering::SeqCst);
    assert!((1..=4).contains(&tried), "dialled {tried} times");
    stand.reload(&policy);
    let (status, _, _) = client.clone_of_http2().get(HOST, "/v1/x").await;
    assert_eq!(status, StatusCode::OK, "control: one that answers");
}

#[tokio::test]
async fn nobody_waits_for_what_another_asker_finds_out() {
    let upstream = Modern::start(HOST, BOTH).await;
    let (address, dialled) = silent().await;
    let policy = upstream.policy(HOST, "");
    let dead = policy.replace(&upstream.address.to_string(), &address.to_string());
    let stand = upstream.stand_with_limits(&dead, "handshake_timeout_seconds = 60");
    let mut waiting = tokio::task::JoinSet::new();
    for (uid, before) in [(1500, 0), (1501, 1)] {
        assert_eq!(dialled.load(Ordering::SeqCst), before);
        let mut client = Client::open(&stand, uid, HOST, &["h2"]).await;
        for _ in 0..2 {
            let mut one = client.clone_of_http2();
            waiting.spawn(async move { one.get(HOST, "/v1/x").await });
        }
        until("it dials", || dialled.load(Ordering::SeqCst) > before).await;
        assert!(client.is_http2());
        let (status, _, _) = client.get(HOST, "/v2/x").await;
        assert_eq!(status, StatusCode::FORBIDDEN, "control: judged meanwhile");
    }
    assert_eq!(dialled.load(Ordering::SeqCst), 2, "one for each asker");
}

#[tokio::test]
async fn a_client_that_stops_in_its_body_is_told_that_it_did() {
    let upstream = Modern::start(HOST, BOTH).await;
    let limits = "idle_timeout_seconds = 60\nresponse_timeout_seconds = 1";
    let stand = upstream.stand_with_limits(&upstream.policy(HOST, ""), limits);
    for protocols in [BOTH, OLD] {
        let mut client = Client::open(&stand, 1500, HOST, protocols).await;
        let (sender, body) = sent();
        let part = hyper::body::Frame::data(bytes::Bytes::from("a part"));
        sender.send(part).await.unwrap();
        let request = client.request("POST", HOST, "/v1/x").body(body);
        let (status, fields, _) = whole(client.send(request.unwrap()).await.unwrap()).await;
        assert_eq!(status, StatusCode::REQUEST_TIMEOUT);
        assert_eq!(fields["x-portcullis-code"], "client_timeout");
        drop(sender);
        let mut client = Client::open(&stand, 1500, HOST, protocols).await;
        let request = client.request("POST", HOST, "/v1/x");
        let answer = client.send(request.body(full(b"all".to_vec())).unwrap());
        let (status, _, text) = whole(answer.await.unwrap()).await;
        assert_eq!(status, StatusCode::OK, "control");
        assert_eq!(text, "received 3");
    }
}

#[tokio::test]
async fn a_cut_reaches_a_request_that_waits_for_its_token() {
    let (address, dialled) = silent().await;
    let upstream = super::upstream::Upstream {
        address,
        ..super::upstream::Upstream::start(HOST).await
    };
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
    let key = key.serialize_pem();
    let stand = Stand::with_credential(&upstream, super::minted::APP, key.as_bytes(), &[]);
    let mut tls = stand.tunnel(HOST).await;
    let asking = tokio::spawn(async move { ask(&mut tls, &get(HOST, "/v1/x")).await });
    until("the token is asked for", || {
        dialled.load(Ordering::SeqCst) == 1
    })
    .await;
    assert!(!asking.is_finished(), "control: it waits");
    stand.reload(&usual(&upstream).replace("/v1/**", "/v2/**"));
    let answer = asking.await.unwrap();
    assert_eq!(super::code(&answer), "policy_invalid", "{answer}");
    let log = stand.audit();
    let end = log.iter().find(|line| line["kind"] == "response");
    assert!(
        end.is_none_or(|line| line["reason"] == "cut before the end"),
        "{end:?}"
    );
}
