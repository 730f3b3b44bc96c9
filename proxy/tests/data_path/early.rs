//! Interim answers that an HTTP/1.1 client is given before the final one: which, when, how many, and
//! none that repeats a secret.

use std::sync::Arc;

use base64::Engine as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

use super::curl::{curl, port};
use super::heads::sends;
use super::hostile::answering;
use super::stand::{CANARY, Stand, connect, get, read_until, usual};
use super::upstream::{Identity, Upstream, identity, plain};
use super::{BARE, HOST, code};

const HINTS: &str = "HTTP/1.1 103 Early Hints\r\n";
const FINAL: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfinal";

/// A server that answers everything for `/v1/odd` with these bytes.
async fn saying(answer: &str) -> Upstream {
    answering(answer.to_owned().leak().as_bytes()).await
}

fn ends(seen: &str) -> bool {
    seen.ends_with("final") || seen.ends_with("}\n") || seen.ends_with('}')
}

#[tokio::test]
async fn they_reach_a_client_of_http_1_1_in_order_and_each_before_its_own_answer() {
    let hints = format!(
        "{HINTS}Link: </a>; rel=preload\r\nSet-Cookie: a=b\r\nX-Portcullis-Code: mine\r\n\
         Connection: X-Gone\r\nX-Gone: 1\r\nAlt-Svc: h3=\":443\"\r\n\r\n"
    );
    let upstream = saying(&format!(
        "{hints}HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n\
         HTTP/1.1 199 Odd\r\nX-A: 1\r\n\r\n{FINAL}"
    ))
    .await;
    let stand = Stand::new(&upstream, &usual(&upstream));
    let expected = format!(
        "{HINTS}link: </a>; rel=preload\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n\
         HTTP/1.1 199 Interim\r\nx-a: 1\r\n\r\nHTTP/1.1 200 OK\r\n"
    );
    for host in [HOST, BARE] {
        let mut tls = stand.tunnel(host).await;
        for turn in 0..3 {
            let got = sends(&mut tls, &get(host, "/v1/odd"), ends).await;
            assert!(got.starts_with(&expected), "{host}, {turn}: {got}");
            assert_eq!(got.matches("HTTP/1.1 ").count(), 4, "{host}: {got}");
            let got = sends(&mut tls, &get(host, "/v1/x"), |seen| {
                seen.ends_with("clean")
            })
            .await;
            assert!(got.starts_with("HTTP/1.1 200 OK"), "control: {got}");
        }
        // Two requests in one write: nothing of the second before the first has ended.
        let both = format!("{}{}", get(host, "/v1/odd"), get(host, "/v1/odd"));
        let got = sends(&mut tls, &both, |seen| seen.matches("final").count() == 2).await;
        let (first, second) = got.split_once("final").unwrap();
        for one in [first, second] {
            assert!(one.starts_with(&expected), "{host}: {got}");
            assert_eq!(one.matches("HTTP/1.1 ").count(), 4, "{host}: {got}");
        }
    }
}

#[tokio::test]
async fn a_client_of_http_1_0_is_given_the_final_one_alone() {
    let upstream = saying(&format!("{HINTS}Link: </a>\r\n\r\n{FINAL}")).await;
    let stand = Stand::new(&upstream, &usual(&upstream));
    for (version, hinted) in [("1.0", false), ("1.1", true)] {
        let mut tls = stand.tunnel(HOST).await;
        let request = format!("GET /v1/odd HTTP/{version}\r\nHost: {HOST}\r\n\r\n");
        let got = sends(&mut tls, &request, ends).await;
        assert!(got.ends_with("final"), "{version}: {got}");
        assert_eq!(got.contains(" 103 "), hinted, "{version}: {got}");
    }
}

/// A server that says `first`, waits, and says the rest.
async fn in_two(first: &'static str, go: Arc<Notify>) -> Upstream {
    let Identity { config, ca, pin } = identity(HOST);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = Upstream {
        address: listener.local_addr().unwrap(),
        log: Arc::default(),
        ca,
        pin,
    };
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let mut head = Vec::new();
            while let Ok(byte) = stream.read_u8().await {
                head.push(byte);
                if head.ends_with(b"\r\n\r\n") {
                    head.clear();
                    stream.write_all(first.as_bytes()).await.unwrap();
                    stream.flush().await.unwrap();
                    go.notified().await;
                    // The gate may have had enough.
                    let _ = stream.write_all(FINAL.as_bytes()).await;
                    let _ = stream.flush().await;
                }
            }
        }
    });
    upstream
}

#[tokio::test]
async fn they_are_not_kept_back_until_the_final_one_comes() {
    let go = Arc::new(Notify::new());
    let first = "HTTP/1.1 103 Early Hints\r\nLink: </early>\r\n\r\n";
    let upstream = in_two(first, Arc::clone(&go)).await;
    let stand = Stand::new(&upstream, &usual(&upstream));
    let mut tls = stand.tunnel(HOST).await;
    for _ in 0..2 {
        tls.write_all(get(HOST, "/v1/x").as_bytes()).await.unwrap();
        // Nobody has let the final one go yet.
        read_until(&mut tls, "103 Early Hints\r\nlink: </early>\r\n\r\n").await;
        go.notify_one();
        read_until(&mut tls, "final").await;
    }
}

#[tokio::test]
async fn over_plain_http_they_cross_as_well() {
    let (address, _log) = plain().await;
    let upstream = Upstream::start(HOST).await;
    let policy = format!(
        "version = 1\n[[service]]\nid = \"plain\"\nkind = \"http\"\nhost = \"plain.example.com\"\n\
         scheme = \"http\"\nport = 80\naddress = \"{address}\"\nallow = [\"GET /v1/**\"]\n"
    );
    let stand = Stand::new(&upstream, &policy);
    let host = "plain.example.com";
    let mut open = stand.open(1500);
    let request = format!("GET http://{host}/v1/few HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let got = sends(&mut open, &request, |seen| seen.ends_with("few")).await;
    assert!(got.starts_with(HINTS), "{got}");
    let mut tunnel = connect(stand.open(1500), &format!("{host}:80")).await;
    let got = sends(&mut tunnel, &get(host, "/v1/few"), |seen| {
        seen.ends_with("few")
    })
    .await;
    assert!(got.starts_with(HINTS), "{got}");
}

/// Attack: CRD-12
#[tokio::test]
async fn one_that_repeats_the_secret_ends_the_exchange() {
    let packed = base64::engine::general_purpose::STANDARD.encode(CANARY);
    for (field, passes) in [
        ("Link: </a>".to_owned(), true),
        (format!("Link: <{CANARY}>"), false),
        (format!("X-{CANARY}: 1"), false),
        (format!("X-Echo: {packed}"), false),
        (format!("X-Echo: Bearer {CANARY}"), false),
    ] {
        for before in ["", "HTTP/1.1 103 Early Hints\r\nLink: </b>\r\n\r\n"] {
            let answer = format!("{before}{HINTS}{field}\r\n\r\n{FINAL}");
            let upstream = saying(&answer).await;
            let stand = Stand::new(&upstream, &usual(&upstream));
            let mut tls = stand.tunnel(HOST).await;
            let got = sends(&mut tls, &get(HOST, "/v1/odd"), ends).await;
            let expected = if passes {
                "none"
            } else {
                "credential_reflected"
            };
            assert_eq!(code(&got), expected, "{field}: {got}");
            assert_eq!(got.ends_with("final"), passes, "{field}: {got}");
            let lower = got.to_ascii_lowercase();
            assert!(!lower.contains(CANARY), "{field}: {got}");
            assert!(!got.contains(&packed), "{field}: {got}");
            // Nobody else's secret is looked for where none was sent.
            let mut bare = stand.tunnel(BARE).await;
            let got = sends(&mut bare, &get(BARE, "/v1/odd"), ends).await;
            assert!(got.contains(&field[3..]) || got.ends_with("final"), "{got}");
        }
    }
}

/// Attack: FRM-27
#[tokio::test]
async fn they_are_bounded_in_number_and_bytes() {
    let long = format!("{HINTS}X-Long: {}\r\n\r\n", "x".repeat(7 * 1024));
    let short = format!("{HINTS}Link: </a>\r\n\r\n");
    for (one, count, passes) in [
        (&short, 16, true),
        (&short, 17, false),
        (&short, 5000, false),
        (&long, 4, true),
        (&long, 5, false),
    ] {
        let upstream = saying(&format!("{}{FINAL}", one.repeat(count))).await;
        let stand = Stand::new(&upstream, &usual(&upstream));
        let mut tls = stand.tunnel(HOST).await;
        let got = sends(&mut tls, &get(HOST, "/v1/odd"), ends).await;
        let case = format!("{count} of {} bytes", one.len());
        let expected = if passes { "none" } else { "upstream_protocol" };
        assert_eq!(code(&got), expected, "{case}: {got}");
        let seen = got.matches(HINTS).count();
        assert!(
            if passes { seen == count } else { seen <= 16 },
            "{case}: {seen}"
        );
        assert_eq!(got.ends_with("final"), passes, "{case}: {got}");
    }
}

#[tokio::test]
async fn curl_sees_them_over_http_1_1() {
    let upstream = saying(&format!("{HINTS}Link: </a>\r\n\r\n{FINAL}")).await;
    let stand = Stand::new(&upstream, &usual(&upstream));
    let port = port(&stand).await;
    let url = |path: &str| format!("https://{HOST}{path}");
    let flags = [
        "--http1.1",
        "--suppress-connect-headers",
        "--dump-header",
        "-",
    ];
    let ask = async |path: &str| {
        let url = url(path);
        let args = [&flags[..], &[&url]].concat();
        curl(&stand, port, &args).await
    };
    let got = ask("/v1/odd").await;
    let hinted = got.find("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n");
    let last = got.find("HTTP/1.1 200 OK\r\n");
    assert!(hinted.is_some() && hinted < last, "{got}");
    assert!(got.ends_with("final 1.1 200"), "{got}");
    let got = ask("/v1/x").await;
    assert!(
        !got.contains(" 103 ") && got.ends_with("clean 1.1 200"),
        "{got}"
    );
}
