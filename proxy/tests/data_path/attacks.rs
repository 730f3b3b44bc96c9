//! Attempts to get round the gate by timing, spelling and numbers, each beside what may pass.

use std::io::Write;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::stand::{CANARY, Stand, ask, connect, get, read_until, response, until, usual};
use super::upstream::Upstream;
use super::{BARE, HOST, code, usual_stand};

const GIT: &str = "git.example.com";

fn git_policy(upstream: &Upstream, refs: &str) -> String {
    format!(
        "version = 1\n[[service]]\nkind = \"github\"\nhost = \"{GIT}\"\naddress = \"{}\"\nca_file = \"CA_FILE\"\n\
         repos = [\"acme/web\"]\ngit = \"push\"\nrefs = [\"{refs}\"]\n",
        upstream.address
    )
}

#[tokio::test]
async fn a_push_is_judged_by_the_policy_in_force_once_it_has_been_read() {
    let upstream = Upstream::start(GIT).await;
    let before = git_policy(&upstream, "refs/heads/*");
    let stand = Stand::new(&upstream, &before);
    let (zero, one) = ("0".repeat(40), "1".repeat(40));
    let line = format!("{zero} {one} refs/heads/main\0 report-status");
    let body = format!("{:04x}{line}0000PACK", line.len() + 4);
    let head = format!(
        "POST /acme/web.git/git-receive-pack HTTP/1.1\r\nHost: {GIT}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let (early, late) = body.split_at(20);
    // What the policy becomes while the push is on its way, and what comes of the push.
    let cases = [
        (
            git_policy(&upstream, "refs/heads/agent/*"),
            "ref_not_allowed",
        ),
        ("version = 1\n".to_owned(), "destination_not_listed"),
        (format!("{before}\n# another text\n"), "none"),
    ];
    for (after, expected) in cases {
        stand.reload(&before);
        let mut tls = stand.tunnel(GIT).await;
        tls.write_all(head.as_bytes()).await.unwrap();
        tls.write_all(early.as_bytes()).await.unwrap();
        tls.flush().await.unwrap();
        // The gate reads what has come; nothing shows that it has, so it is given its turns.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        stand.reload(&after);
        tls.write_all(late.as_bytes()).await.unwrap();
        tls.flush().await.unwrap();
        let answer = String::from_utf8_lossy(&response(&mut tls, false).await).into_owned();
        assert_eq!(code(&answer), expected, "{answer}");
        assert_eq!(upstream.connections() > 0, expected == "none", "{answer}");
    }
}

#[tokio::test]
async fn a_reload_cuts_a_stream_whose_way_or_credential_is_another_one_now() {
    let upstream = Upstream::start(HOST).await;
    let usual = usual(&upstream);
    let other = usual.replace(&upstream.address.to_string(), "127.0.0.1:9");
    let bare = usual.replacen("credential = \"api\"\n", "", 1);
    for (changed, cut) in [
        (other, true),
        (bare, true),
        (format!("{usual}\n# same\n"), false),
    ] {
        let stand = Stand::new(&upstream, &usual);
        let mut tls = stand.tunnel(HOST).await;
        tls.write_all(get(HOST, "/v1/hang").as_bytes())
            .await
            .unwrap();
        read_until(&mut tls, "first").await;
        stand.reload(&changed);
        let more = tokio::time::timeout(std::time::Duration::from_millis(300), tls.read_u8()).await;
        assert_eq!(more.is_ok(), cut, "{changed}");
    }
}

/// Attack: AUT-13, CRD-03
#[tokio::test]
async fn no_spelling_of_a_credential_or_an_override_crosses() {
    let (upstream, stand) = usual_stand().await;
    for host in [HOST, BARE] {
        let mut tls = stand.tunnel(host).await;
        let request = format!(
            "POST /v1/x HTTP/1.1\r\nHost: {host}\r\nX_Api_Key: own-a\r\nAuthorization : own-b\r\nContent-Length: 0\r\n\r\n"
        );
        let answer = ask(&mut tls, &request).await;
        assert!(
            answer.starts_with("HTTP/1.1 400"),
            "a blank before the colon: {answer}"
        );
        let mut tls = stand.tunnel(host).await;
        let request = format!(
            "POST /v1/x HTTP/1.1\r\nHost: {host}\r\nX_Api_Key: own-a\r\nHTTP_AUTHORIZATION: own-b\r\n\
             X_HTTP_Method_Override: own-c\r\nX-Method-Override: own-d\r\nX-Shopify-Access-Token: own-e\r\n\
             x.original.url: own-f\r\nX_Kept: kept\r\nContent-Length: 0\r\n\r\n"
        );
        let answer = ask(&mut tls, &request).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let seen = upstream.text();
    assert!(!seen.contains("own-"), "{seen}");
    assert_eq!(seen.matches("x_kept: kept").count(), 2, "control: {seen}");
}

#[tokio::test]
async fn a_refused_body_is_never_a_request() {
    let (upstream, stand) = usual_stand().await;
    let inner = format!("GET /v1/smuggled HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    let (length, hex) = (inner.len(), format!("{:x}", inner.len()));
    let bodies = [
        format!("Content-Length: {length}\r\n\r\n{inner}"),
        format!("Transfer-Encoding: chunked\r\n\r\n{hex};ext=\"a\"\r\n{inner}\r\n0\r\n\r\n"),
        format!("Expect: 100-continue\r\nContent-Length: {length}\r\n\r\n{inner}"),
        format!("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{inner}"),
        format!(
            "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n{hex}\r\n{inner}\r\n0\r\n\r\n"
        ),
        format!("Connection: content-length\r\nContent-Length: {length}\r\n\r\n{inner}"),
    ];
    for body in &bodies {
        for path in ["/refused", "/v1/x/../refused"] {
            let mut tls = stand.tunnel(HOST).await;
            let request = format!("POST {path} HTTP/1.1\r\nHost: {HOST}\r\n{body}");
            let answer = ask(&mut tls, &request).await;
            assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
            let _ = ask(&mut tls, &get(HOST, "/refused/after")).await;
        }
    }
    assert!(upstream.is_untouched(), "{}", upstream.text());
    let mut tls = stand.tunnel(HOST).await;
    let request = format!("POST /v1/x HTTP/1.1\r\nHost: {HOST}\r\n{}", bodies[0]);
    let answer = ask(&mut tls, &request).await;
    assert!(
        answer.ends_with(&format!("received {length}")),
        "control: {answer}"
    );
}

/// Attack: RES-12
#[tokio::test]
async fn a_flood_of_refusals_is_counted_and_never_let_through() {
    let (upstream, stand) = usual_stand().await;
    let mut tls = stand.tunnel(HOST).await;
    for _ in 0..1000 {
        let answer = ask(&mut tls, &get(HOST, "/v2/x")).await;
        assert_eq!(code(&answer), "path_not_allowed", "{answer}");
    }
    assert!(upstream.is_untouched());
    stand.gate.settle_all_refusals();
    let lines = stand.audit();
    let refused: Vec<_> = lines
        .iter()
        .filter(|line| line["kind"] == "refusal")
        .collect();
    assert!(refused.len() <= 210, "{}", refused.len());
    let told: u64 = refused
        .iter()
        .map(|line| {
            let reason = line["reason"].as_str().unwrap();
            let more = reason
                .split("and ")
                .nth(1)
                .and_then(|rest| rest.split(' ').next());
            more.and_then(|more| more.parse().ok()).unwrap_or(1)
        })
        .sum();
    assert_eq!(told, 1000, "written out or counted");
    let answer = ask(&mut tls, &get(HOST, "/v1/x")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "control: {answer}");
}

/// Attack: FRM-10, FRM-12, FRM-24, RES-04
#[tokio::test]
async fn what_cannot_be_read_is_refused_and_on_record() {
    let (upstream, stand) = usual_stand().await;
    let host = format!("Host: {HOST}");
    let long = "a".repeat(200_000);
    let outside = [
        format!("CONNECT {HOST}:443 HTTP/1.1\n{host}:443\n\n"),
        format!("GET http://{HOST}/v1/x HTTP/1.1\n{host}\n\n"),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        "GET /\r\n\r\n".to_owned(),
        format!("GET http://{HOST}/\0 HTTP/1.1\r\n{host}\r\n\r\n"),
    ];
    let inside = [
        format!("GET /v1/x HTTP/1.1\r\n{host}\r\nX: a\r\n b\r\n\r\n"),
        format!("GET /v1/x HTTP/1.1\r\n{host}\r\nX: {long}\r\n\r\n"),
        format!(
            "GET /v1/x HTTP/1.1\r\n{host}\r\n{}\r\n",
            "X: a\r\n".repeat(500)
        ),
        format!("POST /v1/x HTTP/1.0\r\n{host}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("GET /v1/x HTTP/1.1\r\n{host}\r\nX: a\rY: b\r\n\r\n"),
    ];
    let mut before = 0;
    for (request, in_tunnel) in outside
        .iter()
        .map(|request| (request, false))
        .chain(inside.iter().map(|request| (request, true)))
    {
        let answer = if in_tunnel {
            ask(&mut stand.tunnel(HOST).await, request).await
        } else {
            ask(&mut stand.open(1500), request).await
        };
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
        let short: String = request.chars().take(80).collect();
        until(&short, || stand.refusals().len() > before).await;
        before += 1;
        assert_eq!(stand.refusals().len(), before, "once: {short}");
        let large = request.len() > 2000;
        let expected = if large {
            "head_too_large"
        } else {
            "malformed_request"
        };
        assert_eq!(stand.refusals()[before - 1], expected, "{short}");
        assert_eq!(code(&answer), expected, "in the gate's own words: {answer}");
    }
    assert!(upstream.is_untouched(), "{}", upstream.text());
    let mut tls = stand.tunnel(HOST).await;
    let answer = ask(&mut tls, &get(HOST, "/v1/x")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "control: {answer}");
}

/// Attack: DST-11
#[tokio::test]
async fn what_an_agent_puts_before_an_at_sign_is_not_recorded() {
    let (_upstream, stand) = usual_stand().await;
    for request in [
        "CONNECT me:s3cret@api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n",
        "GET http://me:s3cret@api.example.com/v1/x?k=s3cret HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
        "GET ftp://me:s3cret@api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
    ] {
        let mut stream = stand.open(1500);
        let answer = ask(&mut stream, request).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
        assert!(!answer.contains("s3cret"), "{answer}");
    }
    let log = format!("{:?}", stand.audit());
    assert!(!log.contains("s3cret"), "{log}");
    assert_eq!(stand.refusals().len(), 3, "{log}");
}

#[tokio::test]
async fn only_the_bare_probe_is_a_push_without_commands() {
    let upstream = Upstream::start(GIT).await;
    let stand = Stand::new(&upstream, &git_policy(&upstream, "refs/heads/agent/*"));
    let (zero, one) = ("0".repeat(40), "1".repeat(40));
    let line = format!("{zero} {one} refs/heads/main\0 report-status");
    let command = format!("{:04x}{line}0000PACK", line.len() + 4);
    let shallow = format!("0034shallow {one}");
    let head = format!("POST /acme/web.git/git-receive-pack HTTP/1.1\r\nHost: {GIT}\r\n");
    let whole = |body: &str| format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    let chunked = |parts: &[&str]| {
        let chunks: String = parts
            .iter()
            .map(|part| format!("{:x}\r\n{part}\r\n", part.len()))
            .collect();
        format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
    };
    for request in [
        whole(&format!("0000{command}")),
        whole("0000PACK"),
        whole("00000000"),
        whole(&format!("{shallow}0000{command}")),
        chunked(&["0000", &command]),
        chunked(&["00", "00", "x"]),
    ] {
        let mut tls = stand.tunnel(GIT).await;
        let answer = ask(&mut tls, &request).await;
        assert_eq!(code(&answer), "could_not_inspect", "{request}: {answer}");
    }
    assert!(upstream.is_untouched(), "{}", upstream.text());
    for request in [whole("0000"), chunked(&["0000"]), chunked(&["00", "00"])] {
        let mut tls = stand.tunnel(GIT).await;
        let answer = ask(&mut tls, &request).await;
        assert!(answer.ends_with("received 4"), "control: {answer}");
    }
}

#[tokio::test]
async fn a_push_that_never_says_its_commands_is_given_up() {
    let upstream = Upstream::start(GIT).await;
    let policy = git_policy(&upstream, "refs/heads/agent/*");
    let stand = Stand::with_limits(&upstream, &policy, "head_timeout_seconds = 1");
    let mut tls = stand.tunnel(GIT).await;
    let head = format!(
        "POST /acme/web.git/git-receive-pack HTTP/1.1\r\nHost: {GIT}\r\nContent-Length: 500\r\n\r\n00"
    );
    let answer = ask(&mut tls, &head).await;
    assert_eq!(code(&answer), "client_timeout", "{answer}");
    assert!(upstream.is_untouched());
}

/// Attack: LIF-18
#[tokio::test]
async fn a_lost_boundary_cuts_what_streams_and_refuses_what_comes() {
    use std::os::unix::fs::MetadataExt;
    let upstream = Upstream::start(HOST).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("status.json");
    let write = |ok: bool| {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let netns = std::fs::metadata("/proc/self/ns/net").unwrap().ino();
        let clock = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).unwrap();
        let status = serde_json::json!({
            "version": 1, "ok": ok, "boot_id": boot.trim(), "netns": netns,
            "boottime_ms": u64::try_from(std::time::Duration::from(clock).as_millis()).unwrap(),
            "ruleset_hash": "x", "scope": "agents", "table": "t", "problem": null,
        });
        std::fs::write(&file, status.to_string()).unwrap();
    };
    write(true);
    let boundary = format!("status = \"{}\"", file.display());
    let stand = Stand::with(&upstream, &usual(&upstream), "", &boundary);
    let mut idle = stand.tunnel(HOST).await;
    let mut tls = stand.tunnel(HOST).await;
    tls.write_all(get(HOST, "/v1/hang").as_bytes())
        .await
        .unwrap();
    read_until(&mut tls, "first").await;
    write(false);
    until("the loss is noticed", || {
        stand.gate.boundary.check().is_err()
    })
    .await;
    let mut rest = Vec::new();
    // A cut is an end without goodbye.
    let _ = tls.read_to_end(&mut rest).await;
    let answer = ask(&mut idle, &get(HOST, "/v1/x")).await;
    assert_eq!(code(&answer), "boundary_not_proven", "{answer}");
    until("the boundary is back", || {
        write(true);
        stand.gate.boundary.check().is_ok()
    })
    .await;
    let answer = ask(&mut idle, &get(HOST, "/v1/x")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "control: {answer}");
}

/// A writer into memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Attack: CRD-17
#[tokio::test]
async fn nothing_secret_is_logged_even_at_the_finest_level() {
    let memory = Memory::default();
    let writer = memory.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .init();
    let (_upstream, mut stand) = usual_stand().await;
    let run = stand.run("traced", Some("board-token-canary-77")).await;
    drop(run);
    let mut tls = stand.tunnel(HOST).await;
    for path in [
        "/v1/x",
        "/v1/echo-head",
        "/v1/unauthorized",
        "/v1/upgrade",
        "/v2/x",
    ] {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer own-canary\r\n\r\n"
        );
        ask(&mut tls, &request).await;
    }
    let _ = connect(stand.open(1500), "unlisted.example.com:443").await;
    // The same with HTTP/2 on both sides, whose library has a trace of its own.
    let modern = super::modern::Modern::start(HOST, &["h2"]).await;
    let newer = modern.stand(&modern.policy(HOST, ""));
    let mut client = super::modern::Client::open(&newer, 1500, HOST, &["h2"]).await;
    for path in ["/v1/x", "/v2/x"] {
        let request = client
            .request("POST", HOST, path)
            .header("authorization", "Bearer own-canary")
            .body(super::modern::full(b"body".to_vec()))
            .unwrap();
        super::modern::whole(client.send(request).await.unwrap()).await;
    }
    assert_eq!(modern.seen().len(), 1, "control");
    stand.reload("version = 1\n");
    assert!(stand.gate.vault.reload().is_empty());
    until("something is logged", || {
        !memory.0.lock().unwrap().is_empty()
    })
    .await;
    let text = String::from_utf8_lossy(&memory.0.lock().unwrap()).into_owned();
    assert!(
        text.contains("refused the injected credential"),
        "control: {text}"
    );
    assert!(
        text.contains("h2::codec") && text.contains("Headers"),
        "control: the trace of HTTP/2 is there"
    );
    use base64::Engine as _;
    let basic = base64::engine::general_purpose::STANDARD.encode(CANARY);
    for secret in [
        CANARY,
        basic.as_str(),
        "own-canary",
        "board-token-canary-77",
    ] {
        let at = text.find(secret);
        assert!(
            at.is_none(),
            "{}",
            &text[at.unwrap_or(0).saturating_sub(300)..]
        );
    }
}
