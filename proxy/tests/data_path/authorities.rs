//! Heads that name another host than their tunnel, and tunnels to nowhere, group AUT of the attack
//! list: raw bytes, each row by its id, each table beside the clean form that is served.

use super::heads::sends;
use super::stand::{CANARY, Stand, ask, connect, get, until, usual};
use super::upstream::Upstream;
use super::{BARE, HOST, code, usual_stand};

/// Attack: AUT-01, AUT-05, AUT-08, AUT-10
#[tokio::test]
async fn a_request_names_the_host_of_its_tunnel_once() {
    let (upstream, stand) = usual_stand().await;
    let get = |target: &str, hosts: &str| format!("GET {target} HTTP/1.1\r\n{hosts}\r\n");
    let (good, evil) = (
        format!("Host: {HOST}\r\n"),
        "Host: evil.example\r\n".to_owned(),
    );
    let cases = [
        ("AUT-01", get("/v1/x", &evil), "authority_mismatch"),
        (
            "AUT-01 listed elsewhere",
            get("/v1/x", &format!("Host: {BARE}\r\n")),
            "authority_mismatch",
        ),
        (
            "AUT-01 a name behind",
            get("/v1/x", &format!("Host: {HOST}.evil.example\r\n")),
            "authority_mismatch",
        ),
        ("AUT-01 none", get("/v1/x", ""), "malformed_"),
        ("AUT-01 empty", get("/v1/x", "Host:\r\n"), "malformed_"),
        (
            "AUT-01 user information",
            get("/v1/x", &format!("Host: {HOST}@evil.example\r\n")),
            "malformed_",
        ),
        (
            "AUT-01 a path",
            get("/v1/x", &format!("Host: {HOST}/x\r\n")),
            "malformed_",
        ),
        (
            "AUT-01 a list",
            get("/v1/x", &format!("Host: {HOST}, evil.example\r\n")),
            "malformed_",
        ),
        (
            "AUT-05",
            get("https://evil.example/v1/x", &good),
            "malformed_",
        ),
        (
            "AUT-05 both",
            get("https://evil.example/v1/x", &evil),
            "malformed_",
        ),
        (
            "AUT-05 user information",
            get(&format!("https://{HOST}@evil.example/v1/x"), &good),
            "malformed_",
        ),
        (
            "AUT-05 scheme",
            get(&format!("http://{HOST}/v1/x"), &good),
            "malformed_",
        ),
        (
            "AUT-08",
            get("/v1/x", &format!("{good}{evil}")),
            "malformed_",
        ),
        (
            "AUT-08 reversed",
            get("/v1/x", &format!("{evil}{good}")),
            "malformed_",
        ),
        (
            "AUT-08 the same twice",
            get("/v1/x", &format!("{good}{good}")),
            "malformed_",
        ),
        (
            "AUT-08 apart, in capitals",
            get("/v1/x", &format!("{good}X: a\r\nHOST: {HOST}\r\n")),
            "malformed_",
        ),
        (
            "AUT-10 another port",
            get("/v1/x", &format!("Host: {HOST}:8443\r\n")),
            "authority_mismatch",
        ),
        (
            "AUT-10 the other scheme's",
            get("/v1/x", &format!("Host: {HOST}:80\r\n")),
            "authority_mismatch",
        ),
        (
            "AUT-10 no number",
            get("/v1/x", &format!("Host: {HOST}:+443\r\n")),
            "malformed_",
        ),
        (
            "AUT-10 empty",
            get("/v1/x", &format!("Host: {HOST}:\r\n")),
            "malformed_",
        ),
    ];
    for (id, request, expected) in &cases {
        let mut tls = stand.tunnel(HOST).await;
        let answer = ask(&mut tls, request).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{id}: {answer}");
        assert!(code(&answer).starts_with(expected), "{id}: {answer}");
    }
    assert_eq!(upstream.connections(), 0, "nothing was dialled");
    assert_eq!(stand.refusals().len(), cases.len());
    for (id, request) in [
        ("AUT-01 control", get("/v1/x", "Host: API.Example.COM\r\n")),
        (
            "AUT-05 control",
            get(&format!("https://{HOST}/v1/x"), &good),
        ),
        ("AUT-08 control", get("/v1/x", &good)),
        (
            "AUT-10 control",
            get("/v1/x", &format!("Host: {HOST}:443\r\n")),
        ),
    ] {
        let mut tls = stand.tunnel(HOST).await;
        let answer = ask(&mut tls, &request).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{id}: {answer}");
    }
}

/// Attack: AUT-02, AUT-04
#[tokio::test]
async fn a_good_name_in_one_place_opens_nothing_in_another() {
    let (upstream, stand) = usual_stand().await;
    // The tunnel, the server name, the Host. The bare service is at the same server, so that
    // whatever left would be seen.
    for (id, tunnel, name, host) in [
        ("AUT-04", "evil.example", "evil.example", HOST),
        ("AUT-04 an address", "127.0.0.1", "127.0.0.1", HOST),
        ("AUT-04 listed without", BARE, BARE, HOST),
        ("AUT-02", HOST, "evil.example", HOST),
        ("AUT-02 listed without", HOST, BARE, HOST),
        ("AUT-02 reversed", BARE, HOST, HOST),
    ] {
        let stream = connect(stand.open(1500), &format!("{tunnel}:443")).await;
        let before = stand.refusals().len();
        let shaken = stand.tls(stream, name).await;
        let expected = match shaken {
            Ok(mut tls) => {
                assert_eq!(tunnel, name, "{id}: the handshake is refused");
                let answer = ask(&mut tls, &get(host, "/v1/x")).await;
                assert!(answer.starts_with("HTTP/1.1 4"), "{id}: {answer}");
                code(&answer).to_owned()
            }
            Err(_) => "sni_mismatch".to_owned(),
        };
        until(id, || stand.refusals().len() > before).await;
        assert_eq!(stand.refusals()[before], expected, "{id}");
        assert_ne!(expected, "none", "{id}");
    }
    assert_eq!(upstream.connections(), 0);
    for (id, host, secrets) in [("AUT-04 control", BARE, 0), ("AUT-02 control", HOST, 1)] {
        let mut tls = stand.tunnel(host).await;
        let answer = ask(&mut tls, &get(host, "/v1/x")).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{id}: {answer}");
        assert_eq!(upstream.text().matches(CANARY).count(), secrets, "{id}");
    }
}

/// Attack: AUT-07, AUT-17
#[tokio::test]
async fn plain_requests_are_judged_like_tunnels() {
    let upstream = Upstream::start(HOST).await;
    let (address, seen) = super::names::plain_upstream().await;
    let policy = format!(
        "{}[[service]]\nid = \"plain\"\nkind = \"http\"\nscheme = \"http\"\nhost = \"plain.example.com\"\n\
         port = 80\naddress = \"{address}\"\nallow = [\"GET /v1/**\"]\n",
        usual(&upstream)
    );
    let stand = Stand::new(&upstream, &policy);
    let plain = |url: &str, host: &str| format!("GET http://{url} HTTP/1.1\r\n{host}\r\n");
    let host = "Host: plain.example.com\r\n";
    for (id, request, expected) in [
        (
            "AUT-07",
            plain("plain.example.com/v1/x", "Host: evil.example\r\n"),
            "malformed_request",
        ),
        (
            "AUT-07 reversed",
            plain("evil.example/v1/x", host),
            "malformed_request",
        ),
        (
            "AUT-07 port",
            plain("plain.example.com/v1/x", "Host: plain.example.com:443\r\n"),
            "malformed_request",
        ),
        (
            "AUT-07 two",
            plain("plain.example.com/v1/x", &format!("{host}{host}")),
            "malformed_request",
        ),
        (
            "AUT-17",
            plain("evil.example/v1/x", "Host: evil.example\r\n"),
            "destination_not_listed",
        ),
        (
            "AUT-17 path",
            plain("plain.example.com/v2/x", host),
            "path_not_allowed",
        ),
        (
            "AUT-17 method",
            plain("plain.example.com/v1/x", host).replace("GET", "POST"),
            "method_not_allowed",
        ),
    ] {
        let mut stream = stand.open(1500);
        let answer = ask(&mut stream, &request).await;
        let status = if expected == "malformed_request" {
            "400"
        } else {
            "403"
        };
        let first = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&first), "{id}: {answer}");
        assert_eq!(code(&answer), expected, "{id}: {answer}");
    }
    assert_eq!(upstream.connections(), 0);
    let mut stream = stand.open(1500);
    let answer = ask(&mut stream, &plain("plain.example.com:80/v1/x", host)).await;
    assert!(answer.ends_with("plain"), "control: {answer}");
    let head = seen.await.unwrap();
    assert!(
        head.starts_with("GET /v1/x HTTP/1.1\r\n"),
        "the plain server saw the clean one only: {head}"
    );
}

/// Attack: AUT-13
#[tokio::test]
async fn fields_that_name_another_host_or_path_are_taken_off() {
    let (upstream, stand) = usual_stand().await;
    let mut tls = stand.tunnel(HOST).await;
    let names = [
        "X-Forwarded-Host",
        "X-Forwarded-Server",
        "X-Forwarded-Port",
        "X-Forwarded-Prefix",
        "Forwarded",
        "X-Host",
        "X-Original-Host",
        "X-Original-URL",
        "X-Rewrite-URL",
        "X-HTTP-Host-Override",
        "x_forwarded_host",
    ];
    let fields: String = names
        .iter()
        .map(|name| format!("{name}: evil.example\r\n"))
        .collect();
    let request =
        format!("GET /v1/x HTTP/1.1\r\nHost: {HOST}\r\n{fields}X-Kept: evil.example\r\n\r\n");
    let answer = ask(&mut tls, &request).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let seen = upstream.text().to_ascii_lowercase();
    assert_eq!(
        seen.matches("evil.example").count(),
        1,
        "only the ordinary one crosses: {seen}"
    );
    assert!(seen.contains("x-kept: evil.example"), "control: {seen}");
}

/// Attack: AUT-14
#[tokio::test]
async fn a_connect_target_is_host_and_port() {
    let (upstream, stand) = usual_stand().await;
    for (id, target) in [
        ("AUT-14 no port", HOST.to_owned()),
        ("AUT-14 empty port", format!("{HOST}:")),
        ("AUT-14 port nought", format!("{HOST}:0")),
        ("AUT-14 port too large", format!("{HOST}:65536")),
        ("AUT-14 signed port", format!("{HOST}:+443")),
        ("AUT-14 two ports", format!("{HOST}:443:443")),
        ("AUT-14 user information", format!("u@{HOST}:443")),
        ("AUT-14 password", format!("u:p@{HOST}:443")),
        ("AUT-14 scheme and path", format!("http://{HOST}:443/")),
        ("AUT-14 scheme", format!("https://{HOST}:443")),
        ("AUT-14 trailing slash", format!("{HOST}:443/")),
        ("AUT-14 query", format!("{HOST}:443?x")),
        ("AUT-14 fragment", format!("{HOST}:443#x")),
        ("AUT-14 empty host", ":443".to_owned()),
        ("AUT-14 star", "*".to_owned()),
        ("AUT-14 star with a port", "*:443".to_owned()),
        ("AUT-14 path", "/".to_owned()),
    ] {
        let mut stream = stand.open(1500);
        let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {HOST}:443\r\n\r\n");
        let answer = sends(&mut stream, &request, |_| false).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{id}: {answer}");
    }
    assert_eq!(upstream.connections(), 0);
    connect(stand.open(1500), &format!("{HOST}:443")).await;
}

/// Attack: AUT-16
#[tokio::test]
async fn a_verdict_does_not_depend_on_who_carries_the_request_or_what_came_before() {
    let upstream = Upstream::start(HOST).await;
    let stand = Stand::with_limits(&upstream, &usual(&upstream), "refuse_inside_tls = false");
    let target = "evil.example:443";
    let relayed = || {
        let mut inner = stand.open(1500);
        let (ours, mut outer) = tokio::io::duplex(4096);
        tokio::spawn(async move {
            // Ends with either side.
            let _ = tokio::io::copy_bidirectional(&mut outer, &mut inner).await;
        });
        ours
    };
    let heads = [
        format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"),
        format!(
            "CONNECT {target} HTTP/1.1\r\nUser-Agent: git/2.47\r\nProxy-Connection: keep-alive\r\nHost: {target}\r\n\r\n"
        ),
        format!("CONNECT {target} HTTP/1.0\r\n\r\n"),
        format!(
            "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Basic eDp5\r\nX-Forwarded-For: 127.0.0.1\r\n\r\n"
        ),
    ];
    for round in 0..2 {
        for head in &heads {
            for mut stream in [stand.open(1500), relayed()] {
                let answer = ask(&mut stream, head).await;
                assert_eq!(code(&answer), "destination_not_listed", "{round} {head}");
            }
        }
        // What is served in between changes nothing of it; it also is the control.
        let stream = connect(relayed(), &format!("{HOST}:443")).await;
        let mut tls = stand.tls(stream, HOST).await.unwrap();
        let answer = ask(&mut tls, &get(HOST, "/v1/x")).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "control: {answer}");
    }
    assert!(!upstream.text().contains("evil"));
}

/// Attack: CRD-07
#[tokio::test]
async fn a_plain_request_carries_no_credential_of_anybody() {
    let upstream = Upstream::start(HOST).await;
    let (address, log) = super::upstream::plain().await;
    let policy = format!(
        "{}[[service]]\nid = \"plain\"\nkind = \"http\"\nscheme = \"http\"\nhost = \"plain.example.com\"\n\
         port = 80\naddress = \"{address}\"\nallow = [\"GET /v1/**\"]\n",
        usual(&upstream)
    );
    let stand = Stand::new(&upstream, &policy);
    let fields = "Host: plain.example.com\r\nAuthorization: Bearer own-secret\r\nProxy-Authorization: Basic own-secret\r\n\
        Cookie: own=own-secret\r\nX-Api-Key: own-secret\r\nPRIVATE-TOKEN: own-secret\r\nX-Kept: 1\r\n\r\n";
    let mut stream = stand.open(1500);
    let absolute = format!("GET http://plain.example.com/v1/x HTTP/1.1\r\n{fields}");
    let answer = ask(&mut stream, &absolute).await;
    assert!(answer.ends_with("received 0"), "{answer}");
    let mut tunnel = connect(stand.open(1501), "plain.example.com:80").await;
    let answer = ask(&mut tunnel, &format!("GET /v1/x HTTP/1.1\r\n{fields}")).await;
    assert!(answer.ends_with("received 0"), "{answer}");
    let heads = log.lock().unwrap().clone();
    assert_eq!(heads.len(), 2);
    for head in heads {
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        let mut lines: Vec<_> = head.trim_end().split("\r\n").collect();
        lines.sort_unstable();
        let all = ["get /v1/x http/1.1", "host: plain.example.com", "x-kept: 1"];
        assert_eq!(lines, all, "the whole head");
        assert!(!head.contains(CANARY));
    }
}
