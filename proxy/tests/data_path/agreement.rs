//! CONNECT target, server name, Host and target name one authority; heads have one reading.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::stand::{ask, connect, get, until};
use super::{HOST, code, usual_stand};

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
