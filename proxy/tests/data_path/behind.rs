//! Behind a request to leave HTTP that came to nothing: a CONNECT in a tunnel, a WebSocket that no
//! rule opens or that its upstream declines. Its client may have sent anything behind it, none of which
//! is a request; and what is read all the same is read as strictly as before.

use tokio::io::{AsyncRead, AsyncWrite};

use super::features::{opening, socket_policy};
use super::heads::{bad, sends};
use super::stand::{Stand, ask, connect, get};
use super::upstream::{Upstream, plain};
use super::{HOST, features};

const PLAIN: &str = "plain.example.com:8080";

/// Requests that ask to leave HTTP and do not, by how the answer begins.
fn leaving(host: &str) -> Vec<(&'static str, String, &'static str)> {
    let connect = |to: &str| format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
    let clean = opening(host);
    vec![
        (
            "CONNECT elsewhere",
            connect("evil.example:443"),
            "HTTP/1.1 4",
        ),
        ("CONNECT here", connect("api.example.com:443"), "HTTP/1.1 4"),
        (
            "CONNECT with a length",
            connect("evil.example:443").replace("\r\n\r\n", "\r\nContent-Length: 0\r\n\r\n"),
            "HTTP/1.1 4",
        ),
        (
            "a WebSocket elsewhere",
            clean.replace("/v1/", "/v2/"),
            "HTTP/1.1 4",
        ),
        (
            "a WebSocket without its key",
            clean.replace("Sec-WebSocket-Key", "X-Key"),
            "HTTP/1.1 4",
        ),
        (
            "a WebSocket among others",
            clean.replace("Upgrade: websocket", "Upgrade: websocket, h2c"),
            "HTTP/1.1 4",
        ),
        (
            "another protocol",
            clean.replace("websocket", "tls/1.3"),
            "HTTP/1.1 4",
        ),
        (
            "a WebSocket that is declined",
            clean.replace("/v1/socket", "/v1/declined"),
            "HTTP/1.1 200",
        ),
    ]
}

/// Requests that nobody may serve, and one that would be served anywhere else. All of them ask for
/// `/v1/smuggled`.
fn behind(host: &str) -> Vec<(&'static str, String)> {
    let mut rows: Vec<_> = bad(host)
        .into_iter()
        .map(|(id, row)| (id, row.replacen("/v1/x", "/v1/smuggled", 1)))
        .collect();
    rows.push((
        "RES-04",
        format!(
            "GET /v1/smuggled HTTP/1.1\r\nHost: {host}\r\nX: {}\r\n\r\n",
            "a".repeat(100 << 10)
        ),
    ));
    rows.push(("FRM-25 b", get(host, "/v1/smuggled")));
    rows
}

async fn tried<IO>(what: &str, mut stream: IO, first: &str, begins: &str, row: &str, at_once: bool)
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let answer = if at_once {
        sends(&mut stream, &format!("{first}{row}"), |_| false).await
    } else {
        let answer = ask(&mut stream, first).await;
        answer + &sends(&mut stream, row, |_| false).await
    };
    assert!(answer.starts_with(begins), "{what}: {answer}");
    let served = answer.matches("HTTP/1.1 200").count();
    let own = usize::from(begins.ends_with("200"));
    assert_eq!(served, own, "{what}: {answer}");
}

/// Attack: FRM-01, FRM-03, FRM-05, FRM-10, FRM-25, RES-04
#[tokio::test]
async fn what_stands_behind_a_refused_connect_or_websocket_is_never_served() {
    let upstream = Upstream::start(HOST).await;
    let (address, log) = plain().await;
    let (host, port) = PLAIN.split_once(':').unwrap();
    let policy = format!(
        "{}[[service]]\nid = \"plain\"\nkind = \"http\"\nscheme = \"http\"\nhost = \"{host}\"\nport = {port}\n\
         address = \"{address}\"\nupgrade = [\"websocket\"]\nallow = [\"* /v1/**\"]\n",
        socket_policy(&upstream)
    );
    let stand = Stand::new(&upstream, &policy);
    let seen = || {
        let log = log.lock().unwrap();
        let plain: Vec<u8> = log.iter().flatten().copied().collect();
        upstream.text() + &String::from_utf8_lossy(&plain)
    };
    for (leaving_id, first, begins) in &leaving(HOST) {
        for (number, (id, row)) in behind(HOST).iter().enumerate() {
            let what = format!("{id} behind {leaving_id}");
            let tls = stand.tunnel(HOST).await;
            tried(&what, tls, first, begins, row, number % 2 == 0).await;
        }
    }
    for (leaving_id, first, begins) in &leaving(PLAIN) {
        for (number, (id, row)) in behind(PLAIN).iter().enumerate() {
            let what = format!("{id} behind {leaving_id}, without TLS");
            let stream = connect(stand.open(1500), PLAIN).await;
            tried(&what, stream, first, begins, row, number % 2 == 1).await;
        }
    }
    assert!(!seen().contains("smuggled"), "{}", seen());
    let mut tls = stand.tunnel(HOST).await;
    let mut stream = connect(stand.open(1500), PLAIN).await;
    for answer in [
        ask(&mut tls, &get(HOST, "/v1/smuggled")).await,
        ask(&mut stream, &get(PLAIN, "/v1/smuggled")).await,
    ] {
        assert!(answer.starts_with("HTTP/1.1 200"), "control: {answer}");
    }
    assert_eq!(seen().matches("smuggled").count(), 2, "control");
    let mut tls = stand.tunnel(HOST).await;
    let answer = ask(&mut tls, &features::opening(HOST)).await;
    assert!(answer.starts_with("HTTP/1.1 101"), "control: {answer}");
}
