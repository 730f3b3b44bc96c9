//! What the gate puts into a request, takes off it, and takes off its answer.

use proxy::entrance::client::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::heads::sends;
use super::stand::{CANARY, Stand, ask, get, until};
use super::upstream::Upstream;
use super::{BARE, HOST, code, usual_stand};

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
        code(
            &sends(&mut tls, &get(HOST, "/v1/interim"), |seen| seen
                .contains(" 502 "))
            .await
        ),
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
