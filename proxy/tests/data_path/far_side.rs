//! The upstream proves itself; its connections are kept for the same asker.

use super::modern::{Client, Modern, full, sent, whole};
use super::stand::{ask, get};
use super::upstream::Upstream;
use super::{BARE, HOST, code, usual_stand};

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

#[tokio::test]
async fn what_else_a_request_expects_is_refused_and_its_body_read() {
    let (upstream, stand) = usual_stand().await;
    let post = |expect: &str, version: &str| {
        format!(
            "POST /v1/x HTTP/{version}\r\nHost: {HOST}\r\nContent-Length: 5\r\n{expect}\r\n\r\nhello"
        )
    };
    let odd = [
        "Expect: anything",
        "Expect: 100-continue, anything",
        "Expect: 100-continue\r\nExpect: 100-continue",
        "Expect: 100-continue=1",
        "Expect:",
    ];
    for expect in odd {
        let mut tls = stand.tunnel(HOST).await;
        let answer = ask(&mut tls, &post(expect, "1.1")).await;
        assert!(answer.starts_with("HTTP/1.1 417"), "{expect}: {answer}");
        assert_eq!(code(&answer), "expectation_refused", "{expect}");
        if expect.starts_with("Expect: 100-continue\r\n") {
            assert!(answer.contains("connection: close"), "{answer}");
            continue;
        }
        let next = ask(&mut tls, &get(HOST, "/v1/y")).await;
        assert!(
            next.starts_with("HTTP/1.1 200"),
            "its body was read: {expect}: {next}"
        );
    }
    assert!(!upstream.text().contains("/v1/x"), "{}", upstream.text());
    assert!(
        !upstream.text().to_ascii_lowercase().contains("expect"),
        "{}",
        upstream.text()
    );
    // In HTTP/1.0 it has no meaning, and nobody is asked to go on.
    for (expect, version) in [
        ("Expect: 100-Continue", "1.1"),
        ("Expect: 100-continue", "1.0"),
    ] {
        let mut tls = stand.tunnel(HOST).await;
        let request = post(expect, version);
        let enough = |seen: &str| seen.ends_with("received 5");
        let answer = super::heads::sends(&mut tls, &request, enough).await;
        assert!(enough(&answer), "control: {version}: {answer}");
        let asked = answer.contains(" 100 Continue");
        assert!(!asked || version == "1.1", "{version}: {answer}");
    }
}

#[tokio::test]
async fn over_http_2_a_body_that_is_kept_back_is_told_so_and_one_that_is_not_passes() {
    use hyper::body::Frame;
    for served in [&["http/1.1"][..], &["h2"]] {
        let upstream = Modern::start(HOST, served).await;
        let stand = upstream.stand(&upstream.policy(HOST, ""));
        let mut client = Client::open(&stand, 1500, HOST, &["h2"]).await;
        assert!(client.is_http2());
        let post = |client: &Client, expect: &str| {
            client
                .request("POST", HOST, "/v1/x")
                .header("expect", expect)
        };
        // A client that waits for the word sends nothing; one that waits for a second sends then.
        let (kept, body) = sent();
        let request = post(&client, "100-continue").body(body).unwrap();
        let (status, fields, _) = whole(client.send(request).await.unwrap()).await;
        assert_eq!(status.as_u16(), 417);
        assert_eq!(fields["x-portcullis-code"], "expectation_refused");
        drop(kept);
        let request = post(&client, "anything").body(full(b"hello".to_vec()));
        let (status, _, _) = whole(client.send(request.unwrap()).await.unwrap()).await;
        assert_eq!(status.as_u16(), 417);
        assert!(upstream.seen().is_empty());
        let (slow, body) = sent();
        let request = post(&client, "100-continue").body(body).unwrap();
        let sending = async {
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            for piece in ["hel", "lo"] {
                slow.send(Frame::data(piece.into())).await.unwrap();
            }
            drop(slow);
        };
        let (answer, ()) = tokio::join!(client.send(request), sending);
        let (status, _, text) = whole(answer.unwrap()).await;
        assert_eq!((status.as_u16(), text.as_str()), (200, "received 5"));
        let request = post(&client, "100-continue").body(full(b"hello".to_vec()));
        let (_, _, text) = whole(client.send(request.unwrap()).await.unwrap()).await;
        assert_eq!(text, "received 5", "control");
        assert!(
            upstream
                .seen()
                .iter()
                .all(|one| !one.headers.contains_key("expect"))
        );
    }
}
