//! Destinations that are none, groups DST and SSR of the attack list, as clients would ask for them:
//! whatever does not name a listed host and port in its one form is refused before it is dialled.

use super::stand::{Stand, ask, connect, get, until, usual};
use super::tls::{Hello, answer_to};
use super::upstream::Upstream;
use super::{HOST, code, usual_stand};

/// Attack: DST-04, DST-07, DST-10, DST-11, DST-13, DST-14, DST-17, DST-19, DST-21, SSR-05, SSR-06, SSR-09
#[tokio::test]
async fn only_the_one_spelling_of_a_listed_destination_opens_a_tunnel() {
    let upstream = Upstream::start(HOST).await;
    let stand = Stand::with_limits(&upstream, &usual(&upstream), "refuse_inside_tls = false");
    let label = format!("{}.example.com:443", "a".repeat(64));
    let name = format!("{}example.com:443", "a.".repeat(122));
    let huge = format!("{}.example.com:443", "a".repeat(10_000));
    let literal = upstream.address.to_string();
    let (no, odd) = ("403", "400");
    let cases: &[(&str, &str, &str)] = &[
        ("DST-04 prefix", "evilapi.example.com:443", no),
        ("DST-04 suffix", "api.example.com.evil.example:443", no),
        ("DST-04 label less", "example.com:443", no),
        ("DST-04 label more", "x.api.example.com:443", no),
        ("DST-04 hyphen", "api-example.com:443", no),
        ("DST-07", "\u{ff41}pi.example.com:443", odd),
        ("DST-07 dotless", "ap\u{131}.example.com:443", odd),
        ("DST-07 ideographic dot", "api\u{3002}example.com:443", odd),
        ("DST-07 punycode", "xn--ap-mya.example.com:443", no),
        ("DST-10", "evil.example\0.example.com:443", odd),
        ("DST-10 encoded", "evil.example%00.example.com:443", odd),
        ("DST-11", "api.example.com@evil.example:443", odd),
        ("DST-11 reversed", "evil@api.example.com:443", odd),
        ("DST-13", "[api.example.com]:443", odd),
        ("DST-13 v4", "[127.0.0.1]:443", odd),
        ("DST-13 zone", "[fe80::1%25lo]:443", odd),
        ("DST-14 hexadecimal", "0x7f000001:443", odd),
        ("DST-14 octal", "0177.0.0.1:443", odd),
        ("DST-14 decimal", "2130706433:443", odd),
        ("DST-14 short", "127.1:443", odd),
        ("DST-14 nought", "0:443", odd),
        ("DST-14 leading nought", "010.0.0.1:443", odd),
        ("DST-17", &literal, no),
        ("DST-17 v6", "[2001:db8::1]:443", no),
        ("DST-19 ssh", "api.example.com:22", no),
        ("DST-19 smtp", "api.example.com:25", no),
        ("DST-19 other", "api.example.com:8443", no),
        ("DST-19 redis", "api.example.com:6379", no),
        ("DST-19 plain", "api.example.com:80", no),
        ("DST-21 label", &label, odd),
        ("DST-21 name", &name, odd),
        ("DST-21 huge", &huge, odd),
        ("SSR-05 v4", "169.254.169.254:80", no),
        ("SSR-05 v4, TLS", "169.254.169.254:443", no),
        ("SSR-05 v6", "[fd00:ec2::254]:80", no),
        ("SSR-05 another cloud", "100.100.100.200:80", no),
        ("SSR-05 by name", "metadata.google.internal:80", no),
        ("SSR-05 inside v6", "[::ffff:169.254.169.254]:80", odd),
        ("SSR-06 v4", "0.0.0.0:443", no),
        ("SSR-06 v6", "[::]:443", no),
        ("SSR-09 by address", "127.0.0.1:3128", no),
        ("SSR-09 v6", "[::1]:3128", no),
        ("SSR-09 by name", "localhost:3128", no),
    ];
    for (number, (id, target, status)) in cases.iter().enumerate() {
        let mut stream = stand.open(1500);
        let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
        let answer = ask(&mut stream, &request).await;
        let expected = format!("HTTP/1.1 {status}");
        assert!(answer.starts_with(&expected), "{id}: {answer}");
        assert!(answer.len() < 4000, "{id}: repeats little of a long value");
        until(id, || stand.refusals().len() > number).await;
    }
    let log = format!("{:?}", stand.audit());
    assert!(
        !log.contains(&"a".repeat(3000)),
        "DST-21: nor does the record"
    );
    assert_eq!(upstream.connections(), 0);
    connect(stand.open(1500), &format!("{HOST}:443")).await;
}

/// Attack: DST-01, DST-02
#[tokio::test]
async fn letters_case_and_a_last_dot_make_no_other_host() {
    let (upstream, stand) = usual_stand().await;
    for (id, target, host) in [
        ("DST-01", "API.Example.COM:443", "aPi.eXample.com"),
        ("DST-02 tunnel", "api.example.com.:443", HOST),
        ("DST-02 Host", "api.example.com:443", "api.example.com."),
        (
            "DST-02 both",
            "api.example.com.:443",
            "api.example.com.:443",
        ),
    ] {
        let stream = connect(stand.open(1500), target).await;
        let mut tls = stand.tls(stream, HOST).await.unwrap();
        let answer = ask(&mut tls, &get(host, "/v1/x")).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{id}: {answer}");
    }
    let sent: Vec<_> = stand
        .audit()
        .into_iter()
        .filter(|line| line["kind"] == "request")
        .collect();
    assert_eq!(sent.len(), 4);
    for line in &sent {
        assert_eq!(line["authority"], "api.example.com:443");
        assert_eq!(line["credential"], "api");
    }
    let seen = upstream.text();
    assert_eq!(
        seen.matches("host: api.example.com\r\n").count(),
        4,
        "{seen}"
    );
    assert_eq!(upstream.connections(), 1, "one host, one pool: {seen}");
    let shouted = Hello {
        names: Some(vec![b"API.EXAMPLE.COM"]),
        ..Hello::default()
    };
    let first = answer_to(&stand, &shouted).await;
    assert_eq!(first.first(), Some(&22), "DST-01 in the hello: {first:?}");
    // The same letters for another name are another name.
    let mut tls = stand.tunnel(HOST).await;
    let answer = ask(&mut tls, &get("API.Example.COM.evil.example.", "/v1/x")).await;
    assert_eq!(code(&answer), "authority_mismatch", "control: {answer}");
}

/// Attack: SSR-05, SSR-06
#[tokio::test]
async fn no_rule_opens_a_metadata_service() {
    for (id, host, address) in [
        ("SSR-05", "meta.example.com", "169.254.169.254:80"),
        ("SSR-05 v6", "meta.example.com", "[fd00:ec2::254]:80"),
        (
            "SSR-05 mapped",
            "meta.example.com",
            "[::ffff:169.254.169.254]:80",
        ),
        (
            "SSR-05 another cloud",
            "meta.example.com",
            "100.100.100.200:80",
        ),
        ("SSR-05 literal", "169.254.169.254", "169.254.169.254:80"),
        ("SSR-06", "meta.example.com", "0.0.0.0:80"),
        ("SSR-06 v6", "meta.example.com", "[::]:80"),
    ] {
        let text = |address: &str| {
            format!(
                "version = 1\n[[service]]\nkind = \"http\"\nscheme = \"http\"\nport = 80\nhost = \"{host}\"\n\
                 address = \"{address}\"\nallow = [\"GET /**\"]\n"
            )
        };
        let refused = policy::Policy::parse(&text(address), "p.toml");
        let problem = refused.expect_err(id).to_string();
        assert!(problem.contains("p.toml:"), "{id}: {problem}");
        if host.starts_with("meta") {
            let private = policy::Policy::parse(&text("10.0.0.5:80"), "p.toml");
            assert!(private.is_ok(), "control: {:?}", private.err());
        }
    }
}

/// The gate is nobody to itself, so that the second turn is the last one.
#[tokio::test]
async fn a_rule_that_leads_to_the_gate_itself_makes_no_loop() {
    let upstream = Upstream::start(HOST).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let itself = format!(
        "[[service]]\nkind = \"http\"\nscheme = \"http\"\nport = 8080\nhost = \"loop.example.com\"\n\
         address = \"{}\"\nallow = [\"GET /v1/**\"]\n",
        listener.local_addr().unwrap()
    );
    let stand = Stand::new(&upstream, &(usual(&upstream) + &itself));
    tokio::spawn(proxy::entrance::tcp(
        std::sync::Arc::clone(&stand.gate),
        listener,
    ));
    let mut tunnel = connect(stand.open(1500), "loop.example.com:8080").await;
    let answer = ask(&mut tunnel, &get("loop.example.com:8080", "/v1/x")).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert_eq!(
        stand.refusals(),
        ["identity_unknown"],
        "one turn more, and no further"
    );
    let asked = |stand: &Stand| {
        let log = stand.audit();
        log.iter().filter(|line| line["kind"] == "request").count()
    };
    assert_eq!(asked(&stand), 1);
    let mut tls = stand.tunnel(HOST).await;
    let answer = ask(&mut tls, &get(HOST, "/v1/x")).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "control: {answer}");
    assert_eq!(asked(&stand), 2);
}

#[tokio::test]
async fn a_tunnel_for_plain_http_is_no_tunnel_to_nowhere() {
    let upstream = Upstream::start(HOST).await;
    let plain = format!(
        "version = 1\n[[service]]\nkind = \"http\"\nscheme = \"http\"\nport = 8080\nhost = \"{HOST}\"\n\
         address = \"{}\"\nallow = [\"GET /v1/**\"]\n",
        upstream.address
    );
    for limits in ["refuse_inside_tls = false", "refuse_inside_tls = true"] {
        let stand = Stand::with_limits(&upstream, &plain, limits);
        let mut tunnel = connect(stand.open(1500), &format!("{HOST}:8080")).await;
        let answer = ask(&mut tunnel, &get(&format!("{HOST}:8080"), "/other")).await;
        assert_eq!(code(&answer), "path_not_allowed", "{answer}");
        let before = stand.refusals().len();
        let tunnel = connect(stand.open(1500), &format!("{HOST}:8080")).await;
        drop(tunnel);
        // Where nothing is listed, the same is worth a record: it comes behind the other's.
        let mut stream = stand.open(1500);
        let request = format!("CONNECT {HOST}:8081 HTTP/1.1\r\nHost: {HOST}:8081\r\n\r\n");
        let answer = ask(&mut stream, &request).await;
        assert_eq!(answer.starts_with("HTTP/1.1 200"), limits.ends_with("true"));
        drop(stream);
        until("the other is refused", || stand.refusals().len() > before).await;
        let log = stand.audit();
        let refused = log
            .iter()
            .filter(|line| line["kind"] == "refusal")
            .skip(before);
        for line in refused {
            assert_eq!(line["authority"], format!("{HOST}:8081"), "{line}");
        }
    }
}
