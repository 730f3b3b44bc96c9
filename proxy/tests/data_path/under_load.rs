//! A policy that is loaded while much is going on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::task::JoinSet;

use super::HOST;
use super::modern::{Client, Modern, full};
use super::stand::{Stand, until};

const NEW: &[&str] = &["h2"];
const OLD: &[&str] = &["http/1.1"];
/// Streams of each protocol, and clients of each that keep asking.
const STREAMS: usize = 24;
const ASKERS: usize = 4;

async fn stream(client: &mut Client, path: &str) -> Incoming {
    let request = client.request("GET", HOST, path).body(full(Vec::new()));
    let mut body = client.send(request.unwrap()).await.unwrap().into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first, "first");
    body
}

/// What came of one request: its status, or nothing if it was cut.
async fn outcome(client: &mut Client, path: &str) -> Option<StatusCode> {
    let request = client.request("GET", HOST, path).body(full(Vec::new()));
    let answer = client.send(request.unwrap()).await.ok()?;
    let status = answer.status();
    answer.into_body().collect().await.ok().map(|_| status)
}

/// Asks for what stays allowed and for what does not, until told to stop. How often it was answered
/// behind the reload.
async fn keep_asking(
    stand: &Stand,
    protocols: &[&str],
    reloaded: &AtomicBool,
    stop: &AtomicBool,
) -> usize {
    let mut behind = 0;
    let mut client = Client::open(stand, 1500, HOST, protocols).await;
    while !stop.load(Ordering::SeqCst) {
        let kept = outcome(&mut client, "/v1/kept").await;
        assert_eq!(kept, Some(StatusCode::OK), "what stays allowed is served");
        let is_behind = reloaded.load(Ordering::SeqCst);
        let gone = outcome(&mut client, "/v1/gone").await;
        if is_behind {
            assert_eq!(gone, Some(StatusCode::FORBIDDEN), "behind the reload");
            behind += 1;
        }
        if gone.is_none() {
            // It was cut, and maybe its connection with it.
            client = Client::open(stand, 1500, HOST, protocols).await;
        }
    }
    behind
}

/// Attack: LIF-16
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_cuts_exactly_the_streams_that_are_no_longer_allowed() {
    let upstream = Modern::start(HOST, &["h2", "http/1.1"]).await;
    let policy = upstream.policy(HOST, "");
    let stand = Arc::new(upstream.stand(&policy));
    let path = |at: usize| ["/v1/hang/a", "/v1/hang/b"][at % 2];
    let mut streams = Vec::new();
    let many = Client::open(&stand, 1500, HOST, NEW).await;
    for at in 0..STREAMS {
        let mut one = many.clone_of_http2();
        let body = stream(&mut one, path(at)).await;
        streams.push((path(at), one, body));
        let mut one = Client::open(&stand, 1500, HOST, OLD).await;
        let body = stream(&mut one, path(at)).await;
        streams.push((path(at), one, body));
    }
    let (reloaded, stop) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let mut askers = JoinSet::new();
    for protocols in [NEW, OLD].repeat(ASKERS) {
        let (stand, reloaded, stop) = (stand.clone(), reloaded.clone(), stop.clone());
        askers.spawn(async move { keep_asking(&stand, protocols, &reloaded, &stop).await });
    }
    let asked = || upstream.seen().len();
    until("there is load", || asked() > STREAMS * 2 + 100).await;
    stand.reload(&policy.replace("[\"* /v1/**\"]", "[\"* /v1/hang/b\", \"GET /v1/kept\"]"));
    reloaded.store(true, Ordering::SeqCst);
    let before = asked();
    for (path, _, body) in &mut streams {
        if *path == "/v1/hang/a" {
            let ended = tokio::time::timeout(Duration::from_secs(20), body.frame()).await;
            let ended = ended.expect("it is cut");
            assert!(ended.is_none_or(|frame| frame.is_err()), "it is cut");
        }
    }
    until("the load goes on", || asked() > before + 100).await;
    for (path, _, body) in &mut streams {
        if *path == "/v1/hang/b" {
            let more = tokio::time::timeout(Duration::from_millis(20), body.frame()).await;
            assert!(more.is_err(), "what stays allowed goes on: {more:?}");
        }
    }
    stop.store(true, Ordering::SeqCst);
    for behind in askers.join_all().await {
        assert!(behind > 0, "each asked behind the reload");
    }
    let log = stand.audit();
    let ends = log.iter().filter(|line| line["kind"] == "response");
    let cut = |path: &str| {
        let cut = ends
            .clone()
            .filter(|line| line["reason"] == "cut before the end");
        cut.filter(|line| line["path"] == path).count()
    };
    assert_eq!(cut("/v1/hang/a"), STREAMS, "all of them, in both protocols");
    assert_eq!((cut("/v1/hang/b"), cut("/v1/kept")), (0, 0), "and no other");
    assert_eq!(streams.len(), STREAMS * 2);
}
