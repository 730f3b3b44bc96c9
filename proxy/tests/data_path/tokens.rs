//! The token entrance: whom it takes for somebody of another machine, and what asking costs.

use std::net::Shutdown;
use std::sync::Arc;

use policy::grant::{Grant, RunId, TokenDigest};
use proxy::entrance::client::Client;
use proxy::entrance::token::{Guesses, accept};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

use super::stand::{Stand, ask, until, usual};
use super::upstream::Upstream;
use super::{HOST, code};

const ASKING: &str = "GET http://bare.example.com/v1/x HTTP/1.1\r\nHost: bare.example.com\r\n\r\n";

async fn listener() -> (TcpListener, std::net::SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    (listener, at)
}

fn serve(stand: &Stand, listener: TcpListener) {
    let gate = Arc::clone(&stand.gate);
    tokio::spawn(accept(gate, Arc::<Guesses>::default(), listener));
}

#[allow(
    clippy::disallowed_methods,
    reason = "a client of the entrance, in a test"
)]
fn client(at: std::net::SocketAddr) -> TcpStream {
    let stream = std::net::TcpStream::connect(at).unwrap();
    stream.set_nonblocking(true).unwrap();
    TcpStream::from_std(stream).unwrap()
}

/// The kernel names no owner of a socket that its client has closed halfway; such a client is of this
/// machine all the same.
#[tokio::test]
async fn a_client_of_this_machine_whose_owner_is_unknown_is_nobody_and_not_remote() {
    let upstream = Upstream::start(HOST).await;
    let stand = Stand::new(&upstream, &usual(&upstream));
    let (listener, at) = listener().await;
    let (mut half, mut whole) = (client(at), client(at));
    let blocking = half.into_std().unwrap();
    std::io::Write::write_all(&mut &blocking, ASKING.as_bytes()).unwrap();
    blocking.shutdown(Shutdown::Write).unwrap();
    half = TcpStream::from_std(blocking).unwrap();
    serve(&stand, listener);
    let answer = ask(&mut half, "").await;
    assert_eq!(code(&answer), "identity_unknown", "{answer}");
    assert!(answer.contains("no owner"), "{answer}");
    let answer = ask(&mut whole, ASKING).await;
    assert_eq!(code(&answer), "token_missing", "control: {answer}");
}

/// A run's uids have a socket of their own, and no use of a token.
#[tokio::test]
async fn a_uid_of_an_open_run_is_not_let_in_by_a_token() {
    let upstream = Upstream::start(HOST).await;
    let mut stand = Stand::new(&upstream, &usual(&upstream));
    let _run = stand.run("r", None).await;
    let (listener, at) = listener().await;
    serve(&stand, listener);
    for (uid, wanted) in [(200_001, "403"), (201_024, "407")] {
        let output = Command::new("curl")
            .args(["--silent", "--max-time", "60", "--noproxy", ""])
            .args(["--output", "/dev/null", "--write-out", "%{http_code}"])
            .args([
                "--proxy",
                &format!("http://{at}"),
                "http://bare.example.com/",
            ])
            .env_clear()
            .uid(uid)
            .output()
            .await
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), wanted, "{uid}");
    }
    until("both are on record", || stand.refusals().len() == 2).await;
    assert_eq!(stand.refusals(), ["identity_unknown", "token_missing"]);
}

/// Whoever reaches the entrance can take places of those who are not known yet, and no others.
#[tokio::test]
async fn connections_without_a_token_take_no_place_of_those_who_are_known() {
    let upstream = Upstream::start(HOST).await;
    let limits = "connections = 16\nidle_timeout_seconds = 60";
    let stand = Stand::with_limits(&upstream, &usual(&upstream), limits);
    let (listener, at) = listener().await;
    serve(&stand, listener);
    let mut waiting = [client(at), client(at)];
    for one in &mut waiting {
        let answer = ask(one, ASKING).await;
        assert_eq!(code(&answer), "token_missing", "{answer}");
    }
    let answer = ask(&mut client(at), ASKING).await;
    assert_eq!(code(&answer), "limit_reached", "an eighth: {answer}");
    assert_eq!(stand.gate.connections(), 0);
    let owner: Arc<str> = "run:known".into();
    let known: Vec<_> = (0..17).map_while(|_| stand.gate.admit(&owner)).collect();
    assert_eq!(known.len(), 16, "all of them");
    drop(waiting);
    for _ in 0..200 {
        let answer = ask(&mut client(at), ASKING).await;
        if code(&answer) == "token_missing" {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("control: places that were left are free again");
}

/// Behind a head that nobody follows no further one is read, whatever the answer is.
#[tokio::test]
async fn who_shows_no_token_on_a_request_for_a_websocket_may_not_go_on() {
    let upstream = Upstream::start(HOST).await;
    let stand = Stand::new(&upstream, &usual(&upstream));
    let run = RunId::parse("token-0").unwrap();
    let grant = Grant::new("acme", "sidecar", None, run, "default").unwrap();
    let digest = TokenDigest::new([7; 32]);
    for (more, closes) in [
        ("", false),
        ("Connection: upgrade\r\nUpgrade: websocket\r\n", true),
        ("Connection: upgrade\r\nUpgrade: WebSocket\r\n", true),
        ("Connection: upgrade\r\nUpgrade: h2c\r\n", false),
    ] {
        let mut stream = stand.open_as(Client::of_known_token(grant.clone(), digest));
        let asking = ASKING.replace("\r\n\r\n", &format!("\r\n{more}\r\n"));
        let answer = ask(&mut stream, &asking).await;
        assert_eq!(code(&answer), "token_missing", "{more}: {answer}");
        let answer = answer.to_ascii_lowercase();
        assert_eq!(
            answer.contains("\r\nconnection: close"),
            closes,
            "{more}: {answer}"
        );
        let again = ask(&mut stream, ASKING).await;
        assert_eq!(again.is_empty(), closes, "{more}: {again}");
    }
}
