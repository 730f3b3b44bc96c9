//! What a rule must open: trailers and WebSocket. And what every exchange has: an end of its own, and
//! an answer for whoever has stopped writing.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::modern::{Client, Modern, full, sent};
use super::stand::{Stand, ask, get, response, until};
use super::upstream::Upstream;
use super::{BARE, HOST};

const BOTH: &[&str] = &["h2", "http/1.1"];

fn trailers(name: &'static str, value: &'static str) -> Frame<Bytes> {
    let mut fields = HeaderMap::new();
    fields.insert(name, value.parse().unwrap());
    fields.insert("authorization", "Bearer own".parse().unwrap());
    Frame::trailers(fields)
}

#[tokio::test]
async fn trailers_cross_where_a_rule_opens_them() {
    for (offered, served) in [
        (BOTH, BOTH),
        (BOTH, &["http/1.1"][..]),
        (&[][..], &["http/1.1"]),
    ] {
        for opened in [true, false] {
            let case = format!("{offered:?} to {served:?}, opened: {opened}");
            let upstream = Modern::start(HOST, served).await;
            let more = if opened { "trailers = true" } else { "" };
            let stand = upstream.stand(&upstream.policy(HOST, more));
            let mut client = Client::open(&stand, 1500, HOST, offered).await;
            let (sender, body) = sent();
            let mut request = client
                .request("POST", HOST, "/v1/trailers")
                .header("te", "trailers")
                .header("trailer", "x-late");
            if !client.is_http2() {
                request = request.header("connection", "te");
            }
            sender
                .send(Frame::data(Bytes::from("message")))
                .await
                .unwrap();
            sender.send(trailers("x-late", "1")).await.unwrap();
            drop(sender);
            let answer = client.send(request.body(body).unwrap()).await.unwrap();
            let collected = answer.into_body().collect().await.unwrap();
            let fields = collected.trailers().cloned();
            assert_eq!(collected.to_bytes(), "message", "{case}");
            let seen = upstream.seen();
            assert_eq!(seen[0].headers.contains_key("te"), opened, "{case}");
            if opened {
                let fields = fields.expect(&case);
                assert_eq!(fields["grpc-status"], "0", "{case}");
                assert!(!fields.contains_key("set-cookie"), "{case}");
                let sent = seen[0].trailers.as_ref().expect(&case);
                assert_eq!(sent["x-late"], "1", "{case}");
                assert!(!sent.contains_key("authorization"), "{case}");
            } else {
                assert!(fields.is_none_or(|fields| fields.is_empty()), "{case}");
                assert!(seen[0].trailers.is_none(), "{case}");
            }
        }
    }
}

#[tokio::test]
async fn a_call_of_grpc_streams_both_ways_and_a_refusal_is_a_status() {
    let upstream = Modern::start(HOST, &["h2"]).await;
    let open = upstream.policy(HOST, "trailers = true");
    let stand = upstream.stand(&open);
    let mut client = Client::open(&stand, 1500, HOST, &["h2"]).await;
    let (sender, body) = sent();
    let call = |client: &Client, path: &str| {
        client
            .request("POST", HOST, path)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
    };
    let request = call(&client, "/v1/bidi").body(body).unwrap();
    let mut answer = client.send(request).await.unwrap().into_body();
    assert_eq!(
        answer.frame().await.unwrap().unwrap().into_data().unwrap(),
        "first"
    );
    for message in ["one", "two"] {
        sender
            .send(Frame::data(Bytes::from(message)))
            .await
            .unwrap();
        let echo = answer.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(echo, message, "before the next is sent");
    }
    drop(sender);
    let last = answer
        .frame()
        .await
        .unwrap()
        .unwrap()
        .into_trailers()
        .unwrap();
    assert_eq!(last["grpc-status"], "0");
    // Refused while the call is still being sent: the answer does not wait for its end.
    let (_sender, body) = sent();
    let request = call(&client, "/v2/bidi").body(body).unwrap();
    let refused = client.send(request).await.unwrap();
    assert_eq!(refused.status(), StatusCode::OK);
    assert_eq!(refused.headers()["grpc-status"], "7");
    assert_eq!(refused.headers()["content-type"], "application/grpc");
    let message = refused.headers()["grpc-message"].to_str().unwrap();
    assert!(message.contains("Portcullis"), "{message}");
    stand.reload(&upstream.policy(HOST, ""));
    let request = call(&client, "/v1/x").body(full(Vec::new())).unwrap();
    let refused = client.send(request).await.unwrap();
    assert_eq!(refused.headers()["x-portcullis-code"], "feature_refused");
    assert_eq!(refused.headers()["grpc-status"], "7");
    assert_eq!(upstream.seen().len(), 1);
}

const OPENING: &str = "Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Key: a2V5a2V5a2V5a2V5a2V5aw==\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n";

pub(crate) fn opening(host: &str) -> String {
    format!("GET /v1/socket HTTP/1.1\r\nHost: {host}\r\n{OPENING}")
}

pub(crate) fn socket_policy(upstream: &Upstream) -> String {
    super::usual(upstream).replace(
        "credential = \"api\"\n",
        "credential = \"api\"\nupgrade = [\"websocket\"]\n",
    )
}

#[tokio::test]
async fn a_websocket_carries_bytes_as_they_are_and_is_metered() {
    let upstream = Upstream::start(HOST).await;
    let stand = Stand::new(&upstream, &socket_policy(&upstream));
    let mut tls = stand.tunnel_offering(1500, HOST, BOTH).await.unwrap();
    let agreed = tls.get_ref().1.alpn_protocol();
    assert_eq!(agreed, Some(&b"http/1.1"[..]), "WebSocket wants HTTP/1.1");
    let answer = ask(&mut tls, &opening(HOST)).await.to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 101"), "{answer}");
    assert!(
        answer.contains("upgrade: websocket") && answer.contains("permessage-deflate"),
        "{answer}"
    );
    assert!(!answer.contains("set-cookie"), "{answer}");
    let sent = upstream.text();
    assert!(
        sent.contains("sec-websocket-extensions: permessage-deflate"),
        "{sent}"
    );
    assert_eq!(sent.matches("authorization: Bearer").count(), 1, "{sent}");
    let odd: Vec<u8> = (0..=255)
        .chain(b"GET / HTTP/1.1\n\n".iter().copied())
        .collect();
    tls.write_all(&odd).await.unwrap();
    let mut echo = vec![0; odd.len()];
    tls.read_exact(&mut echo).await.unwrap();
    assert_eq!(echo, odd);
    tls.shutdown().await.unwrap();
    let mut rest = Vec::new();
    tls.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"goodbye", "one end that stops writing may read");
    until("it is metered", || {
        let ends = |line: &serde_json::Value| {
            line["status"] == 101 && line["bytes_in"] == 272 && line["bytes_out"] == 279
        };
        stand.audit().iter().any(ends)
    })
    .await;
}

#[tokio::test]
async fn what_no_rule_opens_is_not_upgraded() {
    let upstream = Upstream::start(HOST).await;
    let stand = Stand::new(&upstream, &socket_policy(&upstream));
    let odd = [
        opening(BARE),
        opening(HOST).replace("Upgrade: websocket", "Upgrade: h2c"),
        opening(HOST).replace("Upgrade: websocket", "Upgrade: websocket, h2c"),
        opening(HOST).replace("Upgrade: websocket", "Upgrade: tls/1.3"),
        opening(HOST).replace("GET", "POST"),
        opening(HOST).replace("Connection: keep-alive, Upgrade\r\n", ""),
        opening(HOST).replace("Sec-WebSocket-Key", "X-Key"),
        opening(HOST).replace(
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Version: 8",
        ),
        opening(HOST).replace(
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Version: 13\r\nContent-Length: 4",
        ),
        opening(HOST).replace("HTTP/1.1", "HTTP/1.0"),
    ];
    for request in odd {
        let host = if request.contains(BARE) { BARE } else { HOST };
        let mut tls = stand.tunnel(host).await;
        let answer = ask(&mut tls, &request).await;
        assert_eq!(
            super::code(&answer),
            "feature_refused",
            "{request}: {answer}"
        );
    }
    assert!(upstream.is_untouched(), "{}", upstream.text());
    let mut tls = stand.tunnel(HOST).await;
    let declined = opening(HOST).replace("/v1/socket", "/v1/x");
    let answer = ask(&mut tls, &declined).await.to_ascii_lowercase();
    assert!(
        answer.starts_with("http/1.1 200"),
        "an upstream may decline: {answer}"
    );
    assert!(
        answer.contains("connection: close"),
        "and nothing is read behind it: {answer}"
    );
    let mut tls = stand.tunnel(HOST).await;
    let other = ask(
        &mut tls,
        &opening(HOST).replace("/v1/socket", "/v1/upgrade"),
    )
    .await;
    assert_eq!(super::code(&other), "upstream_protocol", "{other}");
}

/// Attack: LIF-16
#[tokio::test]
async fn a_reload_cuts_exactly_what_it_no_longer_permits() {
    let upstream = Upstream::start(HOST).await;
    let modern = Modern::start("h2.example.com", BOTH).await;
    let policy = format!(
        "{}[[service]]\nid = \"h2\"\nkind = \"http\"\nhost = \"h2.example.com\"\naddress = \"{}\"\nca_file = \"{{}}\"\nallow = [\"* /v1/**\"]\n",
        socket_policy(&upstream),
        modern.address
    );
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca.pem");
    std::fs::write(&ca, &modern.ca).unwrap();
    let policy = policy.replace("{}", &ca.display().to_string());
    let stand = Stand::new(&upstream, &policy);
    let hang = |path: &'static str| {
        let stand = &stand;
        async move {
            let mut tls = stand.tunnel(HOST).await;
            tls.write_all(get(HOST, path).as_bytes()).await.unwrap();
            let mut seen = Vec::new();
            while !String::from_utf8_lossy(&seen).contains("first") {
                let mut buffer = [0; 1024];
                let read = tls.read(&mut buffer).await.unwrap();
                seen.extend_from_slice(&buffer[..read]);
            }
            tls
        }
    };
    let (mut cut, mut kept) = (hang("/v1/hang/a").await, hang("/v1/hang/b").await);
    let mut socket = stand.tunnel(HOST).await;
    assert!(
        ask(&mut socket, &opening(HOST))
            .await
            .starts_with("HTTP/1.1 101")
    );
    let mut idle = stand.tunnel(HOST).await;
    assert!(
        ask(&mut idle, &get(HOST, "/v1/x"))
            .await
            .starts_with("HTTP/1.1 200")
    );
    let mut client = Client::open(&stand, 1500, "h2.example.com", BOTH).await;
    assert!(client.is_http2());
    let mut streams = Vec::new();
    for path in ["/v1/hang/a", "/v1/hang/b"] {
        let request = client
            .request("GET", "h2.example.com", path)
            .body(full(Vec::new()));
        let mut body = client.send(request.unwrap()).await.unwrap().into_body();
        assert!(body.frame().await.unwrap().is_ok());
        streams.push(body);
    }
    let narrow = policy
        .replace(
            "allow = [\"* /v1/**\"]",
            "allow = [\"* /v1/hang/b\", \"GET /v1/x\", \"GET /v1/socket\"]",
        )
        .replace("upgrade = [\"websocket\"]\n", "");
    stand.reload(&narrow);
    let mut rest = Vec::new();
    // A cut is an end without goodbye.
    let _ = cut.read_to_end(&mut rest).await;
    let _ = socket.read_to_end(&mut rest).await;
    let patience = std::time::Duration::from_secs(20);
    let ended = tokio::time::timeout(patience, streams[0].frame())
        .await
        .unwrap();
    assert!(!matches!(ended, Some(Ok(_))), "the stream is reset");
    until("the three cuts are recorded", || {
        let log = stand.audit();
        log.iter()
            .filter(|line| line["reason"] == "cut before the end")
            .count()
            == 3
    })
    .await;
    let moment = std::time::Duration::from_millis(200);
    assert!(
        tokio::time::timeout(moment, kept.read_u8()).await.is_err(),
        "it goes on"
    );
    assert!(
        tokio::time::timeout(moment, streams[1].frame())
            .await
            .is_err(),
        "it goes on"
    );
    let (status, _, _) = client.get("h2.example.com", "/v1/x").await;
    assert_eq!(status, StatusCode::OK, "so does their connection");
    let answer = ask(&mut idle, &get(HOST, "/v1/y")).await;
    assert_eq!(super::code(&answer), "path_not_allowed", "{answer}");
}

#[tokio::test]
async fn whoever_stops_writing_still_reads_the_answer() {
    let (_upstream, stand) = super::usual_stand().await;
    for path in ["/v1/slow", "/v1/x", "/v2/x"] {
        let mut tls = stand.tunnel(HOST).await;
        tls.write_all(get(HOST, path).as_bytes()).await.unwrap();
        tls.shutdown().await.unwrap();
        let answer = response(&mut tls, false).await;
        let text = String::from_utf8_lossy(&answer);
        let expected = if path == "/v2/x" { "403" } else { "200" };
        assert!(
            text.starts_with(&format!("HTTP/1.1 {expected}")),
            "{path}: {text}"
        );
    }
}

#[tokio::test]
async fn sessions_with_an_upstream_are_resumed() {
    let upstream = Modern::start(HOST, &["http/1.1"]).await;
    let limits = "idle_timeout_seconds = 60\npool_idle = 0";
    let stand = upstream.stand_with_limits(&upstream.policy(HOST, ""), limits);
    for _ in 0..3 {
        let mut client = Client::open(&stand, 1500, HOST, &[]).await;
        assert_eq!(client.get(HOST, "/v1/x").await.0, StatusCode::OK);
    }
    assert_eq!((upstream.connections(), upstream.resumed()), (3, 2));
}

#[tokio::test]
async fn a_session_is_resumed_for_the_same_asker_and_credential_only() {
    for served in [&["http/1.1"][..], &["h2"]] {
        let upstream = Modern::start(HOST, served).await;
        let bare = format!(
            "[[service]]\nid = \"open\"\nkind = \"http\"\nhost = \"{HOST}\"\naddress = \"{}\"\nca_file = \"CA_FILE\"\n\
             allow = [\"* /open/**\"]\n",
            upstream.address
        );
        let limits = "idle_timeout_seconds = 60\npool_idle = 0";
        let stand = upstream.stand_with_limits(&upstream.policy(HOST, &bare), limits);
        let mut resumed = 0;
        for (uid, path, again) in [
            (1500, "/v1/x", false),
            (1500, "/v1/x", true),
            (1501, "/v1/x", false),
            (1500, "/open/x", false),
            (1501, "/open/x", false),
            (1501, "/open/x", true),
            (1500, "/open/x", true),
            (1501, "/v1/x", true),
        ] {
            let mut client = Client::open(&stand, uid, HOST, &[]).await;
            let (status, _, text) = client.get(HOST, path).await;
            assert_eq!(status, StatusCode::OK, "{text}");
            resumed += usize::from(again);
            assert_eq!(upstream.resumed(), resumed, "{served:?}: {uid} {path}");
        }
        // A value that was replaced, and a run that has ended, leave nothing behind.
        let name = policy::credential::CredentialName::parse("api").unwrap();
        stand.gate.upstream.forget_credential(&name);
        stand.gate.upstream.forget_owner("uid-1501");
        for (uid, path, again) in [(1500, "/v1/x", false), (1500, "/open/x", true)] {
            let mut client = Client::open(&stand, uid, HOST, &[]).await;
            client.get(HOST, path).await;
            resumed += usize::from(again);
            assert_eq!(
                upstream.resumed(),
                resumed,
                "{served:?}: {uid} {path} behind"
            );
        }
    }
}

#[tokio::test]
async fn a_websocket_is_cut_when_its_run_is_closed() {
    let upstream = Upstream::start(HOST).await;
    let mut stand = Stand::new(&upstream, &socket_policy(&upstream));
    let mut sockets = Vec::new();
    let mut runs = Vec::new();
    for (name, uid) in [("run-1", 200_001), ("run-2", 200_002)] {
        let run = stand.run(name, None).await;
        runs.push(run.id().clone());
        let client = proxy::entrance::client::Client::of_run(run, uid);
        let stream = super::connect(stand.open_as(client), &format!("{HOST}:443")).await;
        let mut tls = stand.tls(stream, HOST).await.unwrap();
        let answer = ask(&mut tls, &opening(HOST)).await;
        assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
        sockets.push(tls);
    }
    let echo = async |tls: &mut tokio_rustls::client::TlsStream<tokio::io::DuplexStream>| {
        tls.write_all(b"frame").await?;
        let mut got = [0; 5];
        tls.read_exact(&mut got).await?;
        assert_eq!(&got, b"frame");
        Ok::<_, std::io::Error>(())
    };
    for socket in &mut sockets {
        echo(socket).await.unwrap();
    }
    let closed = stand.gate.runs.close(&runs[0], 1, &super::stand::peer());
    assert!(closed.unwrap());
    let mut rest = Vec::new();
    let patience = std::time::Duration::from_secs(20);
    // How it breaks off is not what is asked here.
    let ended = tokio::time::timeout(patience, sockets[0].read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "it is cut");
    assert!(rest.is_empty(), "without a goodbye: {rest:?}");
    until("the cut is on record", || {
        let log = stand.audit();
        let cut = |line: &&serde_json::Value| {
            line["status"] == 101
                && line["reason"] == "cut before the end"
                && line["run"] == "run-1"
        };
        log.iter().filter(cut).count() == 1
    })
    .await;
    echo(&mut sockets[1])
        .await
        .expect("control: the other goes on");
}
