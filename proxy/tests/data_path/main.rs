//! The data path as clients meet it: a gate in this process, raw bytes on the client's side, and an
//! upstream that keeps every byte it receives. Each refusal stands beside a clean request that
//! passes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod attacks;
mod certificates;
mod curl;
mod destinations;
mod features;
mod heads;
mod hostile;
mod http2;
mod limits;
mod minted;
mod minted_answers;
mod modern;
mod names;
mod pressure;
mod reflected;
mod stand;
mod tls;
mod upstream;

use proxy::entrance::client::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use stand::{CANARY, Stand, ask, connect, get, peer, response, until, usual};
use upstream::Upstream;

const HOST: &str = "api.example.com";
const BARE: &str = "bare.example.com";

async fn usual_stand() -> (Upstream, Stand) {
    let upstream = Upstream::start(HOST).await;
    let stand = Stand::new(&upstream, &usual(&upstream));
    (upstream, stand)
}

fn code(answer: &str) -> &str {
    let rest = answer
        .split("x-portcullis-code: ")
        .nth(1)
        .unwrap_or("none\r\n");
    rest.split("\r\n").next().unwrap()
}

/// Attack: AUT-13, CRD-01, CRD-02, CRD-03, CRD-04, CRD-05
#[tokio::test]
async fn the_credential_arrives_once_and_the_clients_own_never() {
    let (upstream, stand) = usual_stand().await;
    let mut tls = stand.tunnel(HOST).await;
    let answer = ask(
        &mut tls,
        "GET /v1/x HTTP/1.1\r\nHost: api.example.com\r\nAuthorization: Bearer own-one\r\nauthorization: Basic own-two\r\n\
         Cookie: own-three\r\nX-Api-Key: own-four\r\nProxy-Authorization: Basic own-five\r\nConnection: authorization\r\n\
         X-Forwarded-Host: own-six\r\nAccept: */*\r\n\r\n",
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let seen = upstream.text();
    assert_eq!(seen.matches(CANARY).count(), 1, "{seen}");
    assert_eq!(
        seen.to_ascii_lowercase().matches("authorization:").count(),
        1,
        "{seen}"
    );
    assert!(!seen.contains("own-"), "{seen}");
    assert!(
        seen.contains("host: api.example.com\r\n") && seen.contains("accept: */*"),
        "{seen}"
    );
    assert!(!answer.contains(CANARY));
    until("the record is closed", || {
        stand.audit().iter().any(|line| line["kind"] == "response")
    })
    .await;
    let log = stand.audit();
    assert!(!format!("{log:?}").contains(CANARY));
    let sent = log.iter().find(|line| line["kind"] == "request").unwrap();
    assert_eq!(sent["credential"], "api");
    let ended = log.iter().find(|line| line["kind"] == "response").unwrap();
    assert_eq!(ended["id"], sent["id"]);
    assert_eq!(ended["status"], 200);
    assert_eq!(ended["address"], upstream.address.to_string());
}

#[tokio::test]
async fn a_bare_service_gets_no_credential_of_anybody() {
    let (upstream, stand) = usual_stand().await;
    let mut tls = stand.tunnel(BARE).await;
    let request =
        "GET /v1/x HTTP/1.1\r\nHost: bare.example.com\r\nAuthorization: Bearer own\r\n\r\n";
    let answer = ask(&mut tls, request).await;
    assert!(
        answer.starts_with("HTTP/1.1 200"),
        "a pin stands in for the name: {answer}"
    );
    assert!(
        !upstream
            .text()
            .to_ascii_lowercase()
            .contains("authorization")
    );
}

/// Attack: AUT-01, AUT-05, AUT-08, AUT-10, CRD-11
#[tokio::test]
async fn disagreeing_authorities_are_refused_and_nothing_leaves() {
    let (upstream, stand) = usual_stand().await;
    let cases = [
        (
            "GET /v1/x HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            "authority_mismatch",
        ),
        (
            "GET /v1/x HTTP/1.1\r\nHost: api.example.com:8443\r\n\r\n",
            "authority_mismatch",
        ),
        (
            "GET /v1/x HTTP/1.1\r\nHost: api.example.com\r\nHost: evil.example\r\n\r\n",
            "malformed_request",
        ),
        (
            "GET /v1/x HTTP/1.1\r\nHost: evil.example\r\nHost: api.example.com\r\n\r\n",
            "malformed_request",
        ),
        (
            "GET /v1/x HTTP/1.1\r\nHost: api.example.com\r\nHost: api.example.com\r\n\r\n",
            "malformed_request",
        ),
        ("GET /v1/x HTTP/1.1\r\n\r\n", "malformed_request"),
        (
            "GET https://evil.example/v1/x HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
            "malformed_request",
        ),
        (
            "TRACE /v1/x HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
            "method_refused",
        ),
        (
            "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n",
            "method_refused",
        ),
        (
            "GET /v1/x HTTP/1.1\r\nHost: api.example.com\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
            "feature_refused",
        ),
    ];
    for (request, expected) in cases {
        let mut tls = stand.tunnel(HOST).await;
        let answer = ask(&mut tls, request).await;
        assert_eq!(code(&answer), expected, "{request}\n{answer}");
        assert!(answer.contains(" Portcullis: "), "{answer}");
    }
    assert_eq!(upstream.connections(), 0, "nothing was dialled");
    assert_eq!(stand.refusals().len(), cases.len());
    // The control: the same request in its clean forms.
    for request in [
        "GET /v1/x HTTP/1.1\r\nHost: API.example.com:443\r\n\r\n",
        "GET https://api.example.com/v1/x HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
    ] {
        let mut tls = stand.tunnel(HOST).await;
        let answer = ask(&mut tls, request).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{request}\n{answer}");
    }
    assert!(
        upstream.text().contains("GET /v1/x HTTP/1.1"),
        "only the origin form is sent"
    );
}

/// Attack: AUT-02
#[tokio::test]
async fn another_server_name_ends_the_handshake() {
    let (upstream, stand) = usual_stand().await;
    let stream = connect(stand.open(1500), "api.example.com:443").await;
    assert!(stand.tls(stream, "evil.example").await.is_err());
    until("it is recorded", || stand.refusals() == ["sni_mismatch"]).await;
    assert_eq!(upstream.connections(), 0);
    let mut tls = stand.tunnel(HOST).await;
    assert!(
        ask(&mut tls, &get(HOST, "/v1/x"))
            .await
            .starts_with("HTTP/1.1 200"),
        "control"
    );
}

/// Attack: TLS-12
#[tokio::test]
async fn what_is_not_tls_is_closed() {
    let (upstream, stand) = usual_stand().await;
    for bytes in [
        "SSH-2.0-OpenSSH_9.2\r\n",
        "GET /v1/x HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
    ] {
        let mut stream = connect(stand.open(1500), "api.example.com:443").await;
        stream.write_all(bytes.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // Reading to the end is the point; how it ends is not.
        let _ = stream.read_to_end(&mut answer).await;
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    }
    until("both are recorded", || stand.refusals().len() == 2).await;
    assert_eq!(stand.refusals(), ["malformed_request", "malformed_request"]);
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn an_unlisted_host_is_refused_inside_tls_without_a_dial() {
    let (upstream, stand) = usual_stand().await;
    let mut tls = stand.tunnel("unlisted.example.org").await;
    let request = "GET /secret?token=abc HTTP/1.1\r\nHost: unlisted.example.org\r\nUser-Agent: git/2.47.3\r\n\r\n";
    let answer = ask(&mut tls, request).await;
    assert!(answer.starts_with("HTTP/1.1 403 Portcullis: "), "{answer}");
    assert_eq!(code(&answer), "destination_not_listed");
    assert!(
        answer.contains("content-type: text/plain"),
        "git reads text: {answer}"
    );
    assert_eq!(upstream.connections(), 0);
    let log = stand.audit();
    let refused = log.iter().find(|line| line["kind"] == "refusal").unwrap();
    assert_eq!(refused["path"], "/secret?token=...");
    assert!(answer.contains(refused["id"].as_str().unwrap()));
    drop(tls);
    // A tunnel in which nothing was asked is on record as well.
    let tls = stand.tunnel("unlisted.example.org").await;
    drop(tls);
    until("the second is recorded", || stand.refusals().len() == 2).await;
}

#[tokio::test]
async fn an_unlisted_host_is_refused_on_connect_where_the_configuration_wants_it() {
    let upstream = Upstream::start(HOST).await;
    let stand = Stand::with_limits(&upstream, &usual(&upstream), "refuse_inside_tls = false");
    let mut stream = stand.open(1500);
    let answer = ask(
        &mut stream,
        "CONNECT unlisted.example.org:443 HTTP/1.1\r\n\r\n",
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 403 Portcullis: "), "{answer}");
    assert_eq!(stand.refusals(), ["destination_not_listed"]);
    let mut tls = stand.tunnel(HOST).await;
    assert!(
        ask(&mut tls, &get(HOST, "/v1/x"))
            .await
            .starts_with("HTTP/1.1 200"),
        "control"
    );
}

/// Attack: RES-05
#[tokio::test]
async fn a_client_that_stops_moving_is_cut_and_one_too_many_is_told() {
    let upstream = Upstream::start(HOST).await;
    let limits = "idle_timeout_seconds = 1\nhead_timeout_seconds = 60\nconnections_per_run = 2";
    let stand = Stand::with_limits(&upstream, &usual(&upstream), limits);
    let mut tls = stand.tunnel(HOST).await;
    tls.write_all(get(HOST, "/v1/hang").as_bytes())
        .await
        .unwrap();
    let mut seen = Vec::new();
    // A cut is an end without goodbye.
    let _ = tls.read_to_end(&mut seen).await;
    assert!(String::from_utf8_lossy(&seen).contains("first"));
    let owner: std::sync::Arc<str> = "uid:1".into();
    let (one, _two) = (
        stand.gate.admit(&owner).unwrap(),
        stand.gate.admit(&owner).unwrap(),
    );
    assert!(stand.gate.admit(&owner).is_none(), "the third is refused");
    assert!(
        stand.gate.admit(&"uid:2".into()).is_some(),
        "others are not affected"
    );
    drop(one);
    assert!(stand.gate.admit(&owner).is_some(), "there is room again");
}

/// Attack: PTH-01
#[tokio::test]
async fn a_refused_path_and_an_ambiguous_one_leave_nothing_and_the_connection_goes_on() {
    let (upstream, stand) = usual_stand().await;
    let mut tls = stand.tunnel(HOST).await;
    assert_eq!(
        code(&ask(&mut tls, &get(HOST, "/v2/x")).await),
        "path_not_allowed"
    );
    assert_eq!(
        code(&ask(&mut tls, &get(HOST, "/v1/../v2/x")).await),
        "ambiguous_path"
    );
    assert!(upstream.is_untouched());
    let answer = ask(&mut tls, &get(HOST, "/v1/x")).await;
    assert!(
        answer.starts_with("HTTP/1.1 200"),
        "kept alive after refusals: {answer}"
    );
}

/// Attack: FRM-01, FRM-03, FRM-05, FRM-12, FRM-13
#[tokio::test]
async fn ambiguous_framing_is_400_and_the_connection_ends() {
    let (upstream, stand) = usual_stand().await;
    let heads = [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/smuggled HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        "Content-Length: 5\r\nContent-Length: 0\r\n\r\nhello",
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "X-A: b\r\n Authorization: y\r\n\r\n",
        "Authorization : x\r\n\r\n",
    ];
    for head in heads {
        let mut tls = stand.tunnel(HOST).await;
        let answer = ask(
            &mut tls,
            &format!("POST /v1/x HTTP/1.1\r\nHost: api.example.com\r\n{head}"),
        )
        .await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{head}\n{answer}");
        let mut rest = Vec::new();
        // A reset is an end as well.
        let _ = tls.read_to_end(&mut rest).await;
        assert!(rest.is_empty(), "nothing behind it is served: {rest:?}");
    }
    assert_eq!(upstream.connections(), 0);
    let mut tls = stand.tunnel(HOST).await;
    let clean = "POST /v1/x HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 5\r\n\r\nhello";
    assert!(
        ask(&mut tls, clean).await.ends_with("received 5"),
        "control"
    );
}

/// Attack: AUT-07, AUT-14, FRM-25
#[tokio::test]
async fn connect_targets_are_strict() {
    let (upstream, stand) = usual_stand().await;
    let heads = [
        "CONNECT api.example.com HTTP/1.1\r\n\r\n",
        "CONNECT u@api.example.com:443 HTTP/1.1\r\n\r\n",
        "CONNECT api.example.com:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n",
        "CONNECT api.example.com:443 HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody",
        "GET /v1/x HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
        "GET http://api.example.com/v1/x HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    ];
    for head in heads {
        let mut stream = stand.open(1500);
        let answer = ask(&mut stream, head).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{head}\n{answer}");
    }
    let mut stream = stand.open(1500);
    let plain = "GET http://api.example.com/v1/x HTTP/1.1\r\nHost: api.example.com\r\n\r\n";
    let answer = ask(&mut stream, plain).await;
    assert!(
        answer.starts_with("HTTP/1.1 403"),
        "no credentialed service over plain http: {answer}"
    );
    assert_eq!(upstream.connections(), 0);
    connect(stand.open(1500), "api.example.com:443").await;
}

/// Attack: TLS-05, TLS-06, TLS-08
#[tokio::test]
async fn an_upstream_must_prove_itself() {
    let (upstream, stand) = usual_stand().await;
    let address = upstream.address;
    let other = Upstream::start("other.example").await;
    let wrong_pin = &other.pin;
    let named = Upstream::start("ca.example.com").await;
    stand.reload(&format!(
        r#"
version = 1
[[service]]
kind = "http"
host = "no-ca.example.com"
address = "{address}"
allow = ["* /**"]
[[service]]
kind = "http"
host = "other-name.example.com"
address = "{address}"
ca_file = "CA_FILE"
allow = ["* /**"]
[[service]]
kind = "http"
host = "ca.example.com"
address = "{}"
ca_file = "CA_FILE"
allow = ["* /**"]
[[service]]
kind = "http"
host = "wrong-pin.example.com"
address = "{address}"
pin = "{wrong_pin}"
allow = ["* /**"]
[[service]]
kind = "http"
host = "bare.example.com"
address = "{address}"
pin = "{pin}"
allow = ["* /**"]
"#,
        named.address,
        pin = upstream.pin
    ));
    for (host, expected) in [
        ("no-ca.example.com", "upstream_tls_unknown_ca"),
        ("other-name.example.com", "upstream_tls_wrong_name"),
        ("wrong-pin.example.com", "upstream_tls_pin_mismatch"),
    ] {
        let mut tls = stand.tunnel(host).await;
        let answer = ask(&mut tls, &get(host, "/v1/x")).await;
        assert!(answer.starts_with("HTTP/1.1 502"), "{host}: {answer}");
        assert_eq!(code(&answer), expected, "{host}");
    }
    assert!(upstream.is_untouched(), "no request byte reached it");
    std::fs::write(stand.upstream_ca(), "nothing").unwrap();
    let mut tls = stand.tunnel("ca.example.com").await;
    let answer = ask(&mut tls, &get("ca.example.com", "/v1/x")).await;
    assert_eq!(
        code(&answer),
        "upstream_tls",
        "a CA file without a certificate: {answer}"
    );
    std::fs::write(stand.upstream_ca(), &named.ca).unwrap();
    let answer = ask(&mut tls, &get("ca.example.com", "/v1/x")).await;
    assert!(
        answer.starts_with("HTTP/1.1 200"),
        "repaired without a restart: {answer}"
    );
    let mut tls = stand.tunnel(BARE).await;
    assert!(
        ask(&mut tls, &get(BARE, "/v1/x"))
            .await
            .starts_with("HTTP/1.1 200"),
        "control: the pin"
    );
}

#[tokio::test]
async fn connections_are_kept_for_the_same_asker_only() {
    let (upstream, stand) = usual_stand().await;
    let mut first = stand.tunnel_of(1500, HOST).await;
    for _ in 0..3 {
        assert!(
            ask(&mut first, &get(HOST, "/v1/x"))
                .await
                .starts_with("HTTP/1.1 200")
        );
    }
    assert_eq!(upstream.connections(), 1, "kept alive");
    let mut again = stand.tunnel_of(1500, HOST).await;
    assert!(
        ask(&mut again, &get(HOST, "/v1/x"))
            .await
            .starts_with("HTTP/1.1 200")
    );
    assert_eq!(
        upstream.connections(),
        1,
        "kept over client connections of the same asker"
    );
    let mut other = stand.tunnel_of(1501, HOST).await;
    assert!(
        ask(&mut other, &get(HOST, "/v1/x"))
            .await
            .starts_with("HTTP/1.1 200")
    );
    assert_eq!(upstream.connections(), 2, "another asker gets its own");
    let mut bare = stand.tunnel_of(1500, BARE).await;
    assert!(
        ask(&mut bare, &get(BARE, "/v1/x"))
            .await
            .starts_with("HTTP/1.1 200")
    );
    assert_eq!(upstream.connections(), 3, "another authority gets its own");
}

#[tokio::test]
async fn a_kept_connection_that_went_stale_is_replaced() {
    let (upstream, stand) = usual_stand().await;
    let mut tls = stand.tunnel(HOST).await;
    for _ in 0..5 {
        let answer = ask(&mut tls, &get(HOST, "/v1/close")).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert_eq!(upstream.connections(), 5);
}

#[tokio::test]
async fn bodies_stream_both_ways() {
    let (_upstream, stand) = usual_stand().await;
    let size = 20 * 1024 * 1024;
    let mut tls = stand.tunnel(HOST).await;
    tls.write_all(get(HOST, "/v1/large").as_bytes())
        .await
        .unwrap();
    assert!(response(&mut tls, false).await.len() > size);
    let head = format!("POST /v1/x HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {size}\r\n\r\n");
    tls.write_all(head.as_bytes()).await.unwrap();
    let block = vec![b'y'; 64 * 1024];
    for _ in 0..size / block.len() {
        tls.write_all(&block).await.unwrap();
    }
    tls.flush().await.unwrap();
    let answer = response(&mut tls, false).await;
    assert!(answer.ends_with(format!("received {size}").as_bytes()));
    let chunked = format!(
        "POST /v1/x HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n"
    );
    assert!(ask(&mut tls, &chunked).await.ends_with("received 7"));
    until("both are metered", || {
        let lines = stand.audit();
        let ends = lines.iter().filter(|line| line["kind"] == "response");
        let metered = ends
            .map(|line| line["bytes_in"].as_u64().unwrap() + line["bytes_out"].as_u64().unwrap());
        metered.filter(|bytes| *bytes >= size as u64).count() == 2
    })
    .await;
}

#[tokio::test]
async fn the_first_chunk_arrives_before_the_last_is_made_and_a_closed_run_is_cut() {
    let (_upstream, mut stand) = usual_stand().await;
    let open = stand.run("run-1", None).await;
    let run = open.id().clone();
    let stream = stand.open_as(Client::of_run(open, 200_001));
    let stream = connect(stream, "api.example.com:443").await;
    let mut tls = stand.tls(stream, HOST).await.unwrap();
    tls.write_all(get(HOST, "/v1/hang").as_bytes())
        .await
        .unwrap();
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("first") {
        let mut buffer = [0; 1024];
        let read = tls.read(&mut buffer).await.unwrap();
        assert!(read > 0, "the stream is alive");
        seen.extend_from_slice(&buffer[..read]);
    }
    assert!(stand.gate.runs.close(&run, 1, &peer()).unwrap());
    let mut rest = Vec::new();
    // A cut is an end without goodbye.
    let _ = tls.read_to_end(&mut rest).await;
    until("the cut is recorded", || {
        stand
            .audit()
            .iter()
            .any(|line| line["kind"] == "response" && line["reason"] == "cut before the end")
    })
    .await;
}

#[tokio::test]
async fn the_board_gets_the_runs_token_and_nothing_of_the_agent() {
    let upstream = Upstream::start(HOST).await;
    let policy =
        "version = 1\n[[service]]\nkind = \"board\"\nhost = \"board.portcullis.internal\"\n";
    let mut stand = Stand::new(&upstream, policy);
    let board = tokio::net::UnixListener::bind(stand.board()).unwrap();
    let seen = tokio::spawn(async move {
        let (mut stream, _) = board.accept().await.unwrap();
        let mut head = vec![0; 4096];
        let read = stream.read(&mut head).await.unwrap();
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        stream.write_all(answer).await.unwrap();
        String::from_utf8_lossy(&head[..read]).into_owned()
    });
    let request = "GET http://board.portcullis.internal/api/agents/me HTTP/1.1\r\n\
        Host: board.portcullis.internal\r\nAuthorization: Bearer injected-by-portcullis\r\n\r\n";
    let mut nobody = stand.open(1500);
    assert_eq!(
        code(&ask(&mut nobody, request).await),
        "credential_missing",
        "no run, no token"
    );
    let run = stand.run("run-1", Some("run-token-0123456789")).await;
    let mut stream = stand.open_as(Client::of_run(run, 200_001));
    let answer = ask(&mut stream, request).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let seen = seen.await.unwrap();
    assert!(
        seen.starts_with("GET /api/agents/me HTTP/1.1\r\n"),
        "{seen}"
    );
    assert!(
        seen.contains("authorization: Bearer run-token-0123456789\r\n"),
        "{seen}"
    );
    assert!(!seen.contains("injected-by"), "{seen}");
    assert!(!format!("{:?}", stand.audit()).contains("run-token"));
}

/// Attack: CRD-14, FRM-23, FRM-27, SSR-13, SSR-17
#[tokio::test]
async fn answers_are_stripped_and_odd_upstreams_are_502() {
    let (_upstream, stand) = usual_stand().await;
    let mut tls = stand.tunnel(HOST).await;
    let answer = ask(&mut tls, &get(HOST, "/v1/echo-head"))
        .await
        .to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 502"), "{answer}");
    assert_eq!(code(&answer), "credential_reflected");
    for gone in ["x-echo", "set-cookie", "alt-svc", CANARY] {
        assert!(!answer.contains(gone), "{gone}: {answer}");
    }
    let answer = ask(&mut tls, &get(HOST, "/v1/unauthorized"))
        .await
        .to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 502"), "{answer}");
    assert!(
        !answer.contains("www-authenticate") && answer.contains("credential_refused"),
        "{answer}"
    );
    let git = ask(&mut tls, &get(HOST, "/v1/unauthorized/info/refs")).await;
    assert!(
        git.starts_with("HTTP/1.1 502"),
        "git would ask for a password on a 401: {git}"
    );
    assert_eq!(code(&git), "credential_refused");
    let noted = |line: &serde_json::Value| line["code"] == "credential_refused";
    until("both are noted", || {
        stand.audit().iter().filter(|line| noted(line)).count() == 2
    })
    .await;
    let answer = ask(&mut tls, &get(HOST, "/v1/redirect"))
        .await
        .to_ascii_lowercase();
    assert!(
        answer.contains("location: https://evil.example/"),
        "redirects are passed, not followed"
    );
    let head = format!("HEAD /v1/head HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    let answer = ask(&mut tls, &head).await.to_ascii_lowercase();
    assert!(answer.contains("content-length: 1234"), "{answer}");
    assert!(
        ask(&mut tls, &get(HOST, "/v1/empty"))
            .await
            .starts_with("HTTP/1.1 204")
    );
    assert_eq!(
        code(&ask(&mut tls, &get(HOST, "/v1/upgrade")).await),
        "upstream_protocol"
    );
    assert_eq!(
        code(&ask(&mut tls, &get(HOST, "/v1/interim")).await),
        "upstream_protocol"
    );
    let mut bare = stand.tunnel(BARE).await;
    let answer = ask(&mut bare, &get(BARE, "/v1/unauthorized"))
        .await
        .to_ascii_lowercase();
    assert!(
        answer.contains("www-authenticate"),
        "an uncredentialed challenge is the client's: {answer}"
    );
}

#[tokio::test]
async fn expect_100_continue_is_the_upstreams_to_answer() {
    let (upstream, stand) = usual_stand().await;
    let mut tls = stand.tunnel(HOST).await;
    let head = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
        )
    };
    // One that asks for the body, and one that says nothing, as old servers do.
    for path in ["/v1/asked", "/v1/x"] {
        let interim = ask(&mut tls, &head(path)).await;
        assert!(interim.starts_with("HTTP/1.1 100"), "{interim}");
        assert!(ask(&mut tls, "hello").await.ends_with("received 5"));
    }
    assert!(upstream.text().contains("expect: 100-continue"));
    let refused = ask(&mut tls, &head("/v2/x")).await;
    assert!(
        refused.starts_with("HTTP/1.1 403"),
        "refused without asking for the body: {refused}"
    );
    let mut tls = stand.tunnel(HOST).await;
    let unwanted = ask(&mut tls, &head("/v1/unwanted")).await;
    assert!(
        unwanted.starts_with("HTTP/1.1 413"),
        "the upstream's answer, and no 100 before it: {unwanted}"
    );
}

/// Attack: LIF-16
#[tokio::test]
async fn a_reload_judges_the_next_request_of_an_open_tunnel() {
    let (upstream, stand) = usual_stand().await;
    let mut tls = stand.tunnel(HOST).await;
    assert!(
        ask(&mut tls, &get(HOST, "/v1/x"))
            .await
            .starts_with("HTTP/1.1 200")
    );
    stand.reload("version = 1\n[[service]]\nkind = \"http\"\nhost = \"else.example.com\"\nallow = [\"GET /**\"]\n");
    assert_eq!(
        code(&ask(&mut tls, &get(HOST, "/v1/x")).await),
        "destination_not_listed"
    );
    stand.reload(&usual(&upstream));
    assert!(
        ask(&mut tls, &get(HOST, "/v1/x"))
            .await
            .starts_with("HTTP/1.1 200")
    );
}

/// Attack: LIF-16
#[tokio::test]
async fn a_reload_cuts_a_stream_that_is_no_longer_permitted() {
    let (upstream, stand) = usual_stand().await;
    let mut streams = Vec::new();
    for path in ["/v1/hang", "/v1/hang"] {
        let mut tls = stand.tunnel(HOST).await;
        tls.write_all(get(HOST, path).as_bytes()).await.unwrap();
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains("first") {
            let mut buffer = [0; 1024];
            let read = tls.read(&mut buffer).await.unwrap();
            assert!(read > 0, "the stream is alive");
            seen.extend_from_slice(&buffer[..read]);
        }
        streams.push(tls);
    }
    let usual = usual(&upstream);
    stand.reload(&format!("{usual}\n# another text that permits the same\n"));
    let none =
        tokio::time::timeout(std::time::Duration::from_millis(200), streams[0].read_u8()).await;
    assert!(none.is_err(), "the stream goes on");
    stand.reload(&usual.replace("* /v1/**", "* /v2/**"));
    for mut stream in streams {
        let mut rest = Vec::new();
        // A cut is an end without goodbye.
        let _ = stream.read_to_end(&mut rest).await;
    }
    until("both cuts are recorded", || {
        let log = stand.audit();
        log.iter()
            .filter(|line| line["reason"] == "cut before the end")
            .count()
            == 2
    })
    .await;
}

/// Attack: PTH-11
#[tokio::test]
async fn pushes_are_judged_on_their_commands_before_anything_leaves() {
    let upstream = Upstream::start("git.example.com").await;
    let stand = Stand::new(
        &upstream,
        &format!(
            "version = 1\n[[service]]\nkind = \"github\"\nhost = \"git.example.com\"\naddress = \"{}\"\nca_file = \"CA_FILE\"\n\
             repos = [\"acme/web\"]\ngit = \"push\"\nrefs = [\"refs/heads/agent/*\"]\n",
            upstream.address
        ),
    );
    let (zero, one) = ("0".repeat(40), "1".repeat(40));
    let push = |old: &str, new: &str, name: &str, extra: &str| {
        let line = format!("{old} {new} {name}\0 report-status");
        let body = format!("{:04x}{line}0000PACKdata", line.len() + 4);
        format!(
            "POST /acme/web.git/git-receive-pack HTTP/1.1\r\nHost: git.example.com\r\nUser-Agent: git/2.47\r\n{extra}\
             Content-Type: application/x-git-receive-pack-request\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let mut tls = stand.tunnel("git.example.com").await;
    let answer = ask(&mut tls, &push(&zero, &one, "refs/heads/main", "")).await;
    assert_eq!(code(&answer), "ref_not_allowed", "{answer}");
    assert!(
        answer.contains("ng refs/heads/main Portcullis: ref_not_allowed"),
        "{answer}"
    );
    let answer = ask(&mut tls, &push(&one, &zero, "refs/heads/agent/x", "")).await;
    assert_eq!(code(&answer), "delete_not_allowed", "{answer}");
    let answer = ask(
        &mut tls,
        &push(
            &zero,
            &one,
            "refs/heads/agent/x",
            "Content-Encoding: gzip\r\n",
        ),
    )
    .await;
    assert_eq!(code(&answer), "could_not_inspect", "{answer}");
    assert_eq!(upstream.connections(), 0, "no refused push was dialled");
    let allowed = push(&zero, &one, "refs/heads/agent/x", "");
    let answer = ask(&mut tls, &allowed).await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("received"),
        "{answer}"
    );
    let body = allowed.split("\r\n\r\n").nth(1).unwrap();
    assert!(
        upstream.text().ends_with(body),
        "the commands that were read are sent on, and the pack behind them"
    );
    let sent = stand
        .audit()
        .into_iter()
        .find(|line| line["kind"] == "request")
        .unwrap();
    assert_eq!(sent["facts"]["push"][0]["ref"], "refs/heads/agent/x");
}
