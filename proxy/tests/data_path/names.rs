//! Names that may be looked up, and plain HTTP that is carried to where a rule says so.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::stand::{Stand, ask, connect, get, response, usual};
use super::upstream::Upstream;
use super::{HOST, code, usual_stand};

fn look_up(name: &str) -> String {
    format!(
        "GET http://gate.portcullis.internal/v1/name?host={name} HTTP/1.1\r\n\
         Host: gate.portcullis.internal\r\n\r\n"
    )
}

#[tokio::test]
async fn a_listed_name_is_answered_with_its_ports_and_every_look_up_is_recorded() {
    let (upstream, stand) = usual_stand().await;
    let mut stream = stand.open(1500);
    for name in [HOST, "API.Example.COM."] {
        let answer = ask(&mut stream, &look_up(name)).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.ends_with("\r\n\r\n443\n"), "{answer}");
    }
    let cases = [
        ("evil.example.org", "destination_not_listed"),
        ("com", "destination_not_listed"),
        ("127.0.0.1", "destination_not_listed"),
        ("a%2eexample.com", "malformed_authority"),
        ("", "malformed_authority"),
    ];
    for (name, expected) in cases {
        let answer = ask(&mut stand.open(1500), &look_up(name)).await;
        assert_eq!(code(&answer), expected, "{name}: {answer}");
    }
    let told: Vec<_> = stand
        .audit()
        .into_iter()
        .filter(|line| line["method"] == "NAME")
        .collect();
    assert_eq!(
        told.len(),
        6,
        "one for the name that was asked twice: {told:?}"
    );
    assert_eq!(told[0]["verdict"], "allow");
    assert_eq!(told[0]["authority"], HOST);
    assert_eq!(told[1]["authority"], "evil.example.org");
    assert_eq!(upstream.connections(), 0, "nothing is dialled for a name");

    let own = |method: &str, path: &str| {
        format!(
            "{method} http://gate.portcullis.internal{path} HTTP/1.1\r\n\
             Host: gate.portcullis.internal\r\nContent-Length: 0\r\n\r\n"
        )
    };
    let query = format!("/v1/name?host={HOST}");
    for (method, path) in [("POST", query.as_str()), ("GET", "/"), ("GET", "/v1/name")] {
        let answer = ask(&mut stand.open(1500), &own(method, path)).await;
        assert_eq!(code(&answer), "path_not_allowed", "{method} {path}");
    }
    let answer = ask(&mut stand.open(1500), &own("GET", &query)).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "control: {answer}");
}

#[tokio::test]
async fn names_that_carry_data_come_to_an_end() {
    let upstream = Upstream::start(HOST).await;
    let wide = format!(
        "{}[[service]]\nid = \"wide\"\nkind = \"http\"\nhost = \"*.wide.example.com\"\nallow = [\"GET /**\"]\n",
        usual(&upstream)
    );
    let stand = Stand::with_limits(&upstream, &wide, "new_names = 5");
    let mut stream = stand.open(1500);
    let mut codes = Vec::new();
    for at in 0..12 {
        let name = format!("{at}-6c6f6f742121.wide.example.com");
        codes.push(code(&ask(&mut stream, &look_up(&name)).await).to_owned());
    }
    assert_eq!(codes[..5], ["none"; 5]);
    assert_eq!(codes[5..], ["limit_reached"; 7]);
    let again = ask(&mut stream, &look_up("0-6c6f6f742121.wide.example.com")).await;
    assert_eq!(code(&again), "none", "control: known names are answered");
    let other = ask(&mut stand.open(1501), &look_up(HOST)).await;
    assert_eq!(code(&other), "none", "control: so is everybody else");
}

/// An upstream without TLS that answers once and gives what it was sent.
pub(super) async fn plain_upstream() -> (std::net::SocketAddr, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nplain";
        stream.write_all(answer).await.unwrap();
        String::from_utf8(head).unwrap()
    });
    (address, seen)
}

#[tokio::test]
async fn a_tunnel_carries_plain_http_to_where_a_rule_says_so_and_each_request_is_judged() {
    let upstream = Upstream::start(HOST).await;
    let (address, seen) = plain_upstream().await;
    let policy = format!(
        "{}[[service]]\nid = \"plain\"\nkind = \"http\"\nscheme = \"http\"\nhost = \"plain.example.com\"\n\
         port = 8080\naddress = \"{address}\"\nallow = [\"GET /v1/**\"]\n",
        usual(&upstream)
    );
    let stand = Stand::new(&upstream, &policy);
    let host = "plain.example.com:8080";
    let mut stream = connect(stand.open(1500), host).await;
    let answer = ask(&mut stream, &get(host, "/v1/x")).await;
    assert!(answer.ends_with("plain"), "{answer}");
    let head = seen.await.unwrap();
    assert!(head.starts_with("GET /v1/x HTTP/1.1\r\n"), "{head}");
    let cases = [
        (get(host, "/v2/x"), "path_not_allowed"),
        (get("other.example.com:8080", "/v1/x"), "authority_mismatch"),
        (get("plain.example.com", "/v1/x"), "authority_mismatch"),
    ];
    for (request, expected) in cases {
        let mut stream = connect(stand.open(1500), host).await;
        let answer = ask(&mut stream, &request).await;
        assert_eq!(code(&answer), expected, "{request}: {answer}");
    }
    // Port 80 of what is not listed for plain HTTP is refused in words.
    for (host, expected) in [
        (HOST, "port_not_listed"),
        ("evil.example.org", "destination_not_listed"),
    ] {
        let mut stream = connect(stand.open(1500), &format!("{host}:80")).await;
        let answer = ask(&mut stream, &get(host, "/v1/x")).await;
        assert_eq!(code(&answer), expected, "{answer}");
    }
    // What is neither HTTP nor TLS is closed, listed for plain HTTP or not.
    let mut stream = connect(stand.open(1500), host).await;
    stream.write_all(b"\x00\x01binary\r\n\r\n").await.unwrap();
    let answer = response(&mut stream, false).await;
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "{answer:?}");
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn a_connection_that_asked_for_a_name_ends_like_any_other() {
    let (_upstream, stand) = usual_stand().await;
    let patience = std::time::Duration::from_secs(20);
    let all = async |mut stream: tokio::io::DuplexStream| {
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(patience, stream.read_to_end(&mut rest)).await;
        ended.expect("it is closed").unwrap();
        String::from_utf8_lossy(&rest).into_owned()
    };
    let mut stream = stand.open(1500);
    stream.write_all(look_up(HOST).as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let answer = all(stream).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    // What follows an offer of another protocol is not read as HTTP.
    let offer = "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let offering = look_up(HOST).replacen("\r\n\r\n", &format!("\r\n{offer}"), 1);
    let mut stream = stand.open(1500);
    let both = format!("{offering}{}", look_up(HOST));
    stream.write_all(both.as_bytes()).await.unwrap();
    let answer = all(stream).await;
    assert!(answer.contains("connection: close"), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");

    let mut stream = stand.open(1500);
    for _ in 0..2 {
        let answer = ask(&mut stream, &look_up(HOST)).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "control: {answer}");
    }
}
