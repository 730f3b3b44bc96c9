//! HTTP/2 on either leg: the same judgement for each request, and bounds for what a peer can grow.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::body::Frame;

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
