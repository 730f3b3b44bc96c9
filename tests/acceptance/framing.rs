//! Heads that can be read in two ways are refused, never repaired; what leaves is written anew.

use tests::command::Finished;
use tests::gate;
use tests::wait;
use tests::world::{EVIL, WEB, World};

const RAW: &str = include_str!("framing/raw.py");

/// Sends `request` through a tunnel to the web server; `{web}` and `{evil}` become the hosts.
fn raw(world: &World, target: &str, request: &str) -> Finished {
    let request = request.replace("{web}", WEB).replace("{evil}", EVIL);
    let trust = world.trust().display().to_string();
    let arguments = ["-c", RAW, gate::ADDRESS, target, &trust];
    let program = world
        .agent("/usr/bin/python3")
        .args(arguments)
        .input(&request);
    if target.is_empty() {
        program.arg("plain").run()
    } else {
        program.run()
    }
}

/// Sends all of them at once.
fn all(world: &World, target: &str, requests: &[(&str, &str)]) -> Vec<(String, Finished)> {
    std::thread::scope(|scope| {
        let running: Vec<_> = requests
            .iter()
            .map(|&(name, request)| (name, scope.spawn(move || raw(world, target, request))))
            .collect();
        running
            .into_iter()
            .map(|(name, it)| (name.to_owned(), it.join().unwrap()))
            .collect()
    })
}

fn tunnel() -> String {
    format!("{WEB}:443")
}

/// Attack: AUT-01, AUT-05, AUT-08, AUT-10, FRM-01, FRM-03, FRM-04, FRM-05, FRM-07, FRM-12, FRM-13, FRM-24
#[test]
fn an_ambiguous_head_leaves_nothing_at_the_upstream() {
    let world = World::new();
    let cases = [
        (
            "CL then TE",
            "POST /echo HTTP/1.1\r\nHost: {web}\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: {web}\r\n\r\n",
        ),
        (
            "TE then CL",
            "POST /echo HTTP/1.1\r\nHost: {web}\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
        ),
        (
            "two lengths",
            "POST /echo HTTP/1.1\r\nHost: {web}\r\nContent-Length: 5\r\nContent-Length: 0\r\n\r\nhello",
        ),
        (
            "plus length",
            "POST /echo HTTP/1.1\r\nHost: {web}\r\nContent-Length: +5\r\n\r\nhello",
        ),
        (
            "list length",
            "POST /echo HTTP/1.1\r\nHost: {web}\r\nContent-Length: 5,5\r\n\r\nhello",
        ),
        (
            "odd coding",
            "POST /echo HTTP/1.1\r\nHost: {web}\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "coding list",
            "POST /echo HTTP/1.1\r\nHost: {web}\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        ),
        (
            "chunked 1.0",
            "POST /echo HTTP/1.0\r\nHost: {web}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "folded",
            "GET /folded HTTP/1.1\r\nHost: {web}\r\nX-A: b\r\n Authorization: y\r\n\r\n",
        ),
        (
            "space before colon",
            "GET /space HTTP/1.1\r\nHost: {web}\r\nAuthorization : x\r\n\r\n",
        ),
        (
            "two hosts",
            "GET /two HTTP/1.1\r\nHost: {web}\r\nHost: {evil}\r\n\r\n",
        ),
        (
            "two hosts, reversed",
            "GET /two HTTP/1.1\r\nHost: {evil}\r\nHost: {web}\r\n\r\n",
        ),
        (
            "one host twice",
            "GET /twice HTTP/1.1\r\nHost: {web}\r\nHost: {web}\r\n\r\n",
        ),
        ("no host", "GET /none HTTP/1.1\r\n\r\n"),
        ("other host", "GET /other HTTP/1.1\r\nHost: {evil}\r\n\r\n"),
        (
            "other port",
            "GET /port HTTP/1.1\r\nHost: {web}:8443\r\n\r\n",
        ),
        (
            "absolute form elsewhere",
            "GET https://{evil}/abs HTTP/1.1\r\nHost: {web}\r\n\r\n",
        ),
        (
            "user information",
            "GET https://{web}@{evil}/abs HTTP/1.1\r\nHost: {web}\r\n\r\n",
        ),
        (
            "connect inside",
            "CONNECT {evil}:443 HTTP/1.1\r\nHost: {evil}:443\r\n\r\n",
        ),
        (
            "upgrade",
            "GET /up HTTP/1.1\r\nHost: {web}\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        ),
        ("trace", "TRACE /trace HTTP/1.1\r\nHost: {web}\r\n\r\n"),
        ("version", "GET /version HTTP/1.2\r\nHost: {web}\r\n\r\n"),
        ("nothing known", "hello\r\n\r\n"),
    ];
    for (name, finished) in all(&world, &tunnel(), &cases) {
        let first = finished.stdout.lines().next().unwrap_or_default();
        assert!(!first.contains(" 200 "), "{name}: {}", finished.shown());
        assert!(
            first.is_empty() || first.starts_with("HTTP/1."),
            "{name}: {}",
            finished.shown()
        );
    }
    assert_eq!(world.web.received(), "", "nothing of these may leave");
    assert!(world.evil.connections().is_empty());
    assert!(
        !world
            .gate
            .audit()
            .iter()
            .any(|record| record["kind"] == "request")
    );

    let clean = [
        (
            "length",
            "POST /echo HTTP/1.1\r\nHost: {web}\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
        ),
        (
            "chunked",
            "POST /echo HTTP/1.1\r\nHost: {web}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        ),
        (
            "default port",
            "GET /port HTTP/1.1\r\nHost: {web}:443\r\nConnection: close\r\n\r\n",
        ),
        (
            "upper case",
            "GET /case HTTP/1.1\r\nHOST: WEB.Portcullis.Test\r\nConnection: close\r\n\r\n",
        ),
    ];
    for (name, finished) in all(&world, &tunnel(), &clean) {
        assert!(
            finished.stdout.starts_with("HTTP/1.1 200 "),
            "{name}: {}",
            finished.shown()
        );
    }
    assert!(world.web.received().contains("hello"));
}

/// Attack: FRM-15
#[test]
fn the_second_request_of_a_connection_is_judged_for_itself() {
    let world = World::new();
    let pipelined =
        "GET /first HTTP/1.1\r\nHost: {web}\r\n\r\nGET /second HTTP/1.1\r\nHost: {evil}\r\n\r\n";
    let seen = raw(&world, &tunnel(), pipelined);
    assert!(seen.stdout.starts_with("HTTP/1.1 200 "), "{}", seen.shown());
    assert!(
        seen.stdout.contains("authority_mismatch"),
        "{}",
        seen.shown()
    );
    let both = "GET /third HTTP/1.1\r\nHost: {web}\r\n\r\nGET /fourth HTTP/1.1\r\nHost: {web}\r\nConnection: close\r\n\r\n";
    let seen = raw(&world, &tunnel(), both);
    assert_eq!(
        seen.stdout.matches("HTTP/1.1 200 ").count(),
        2,
        "{}",
        seen.shown()
    );
    let received = world.web.received();
    assert!(
        received.contains("/first") && received.contains("/fourth"),
        "{received}"
    );
    assert!(!received.contains("/second"), "{received}");
}

/// Attack: AUT-07, AUT-14, DST-13, FRM-25
#[test]
fn connect_targets_and_plain_requests_are_strict() {
    let world = World::new();
    let cases = [
        ("no port", "CONNECT {web} HTTP/1.1\r\nHost: {web}\r\n\r\n"),
        (
            "user information",
            "CONNECT u@{web}:443 HTTP/1.1\r\nHost: {web}:443\r\n\r\n",
        ),
        (
            "a path",
            "CONNECT {web}:443/ HTTP/1.1\r\nHost: {web}:443\r\n\r\n",
        ),
        (
            "a scheme",
            "CONNECT https://{web}:443 HTTP/1.1\r\nHost: {web}:443\r\n\r\n",
        ),
        (
            "bracketed name",
            "CONNECT [{web}]:443 HTTP/1.1\r\nHost: [{web}]:443\r\n\r\n",
        ),
        (
            "another host",
            "CONNECT {web}:443 HTTP/1.1\r\nHost: {evil}:443\r\n\r\n",
        ),
        (
            "a body",
            "CONNECT {web}:443 HTTP/1.1\r\nHost: {web}:443\r\nContent-Length: 5\r\n\r\nhello",
        ),
        (
            "another port",
            "CONNECT {web}:22 HTTP/1.1\r\nHost: {web}:22\r\n\r\n",
        ),
        ("star", "CONNECT * HTTP/1.1\r\nHost: *\r\n\r\n"),
        ("origin form", "GET / HTTP/1.1\r\nHost: {web}\r\n\r\n"),
        (
            "plain http",
            "GET http://{web}/ HTTP/1.1\r\nHost: {web}\r\n\r\n",
        ),
        (
            "plain, other host",
            "GET http://{web}/ HTTP/1.1\r\nHost: {evil}\r\n\r\n",
        ),
    ];
    for (name, finished) in all(&world, "", &cases) {
        let first = finished.stdout.lines().next().unwrap_or_default();
        let refused = first.starts_with("HTTP/1.1 4") || name == "another port";
        assert!(refused, "{name}: {}", finished.shown());
        let malformed = first.starts_with("HTTP/1.1 400 ");
        assert!(
            malformed || name != "plain, other host",
            "{}",
            finished.shown()
        );
    }
    assert!(world.web.connections().is_empty() && world.evil.connections().is_empty());
    let clean = [(
        "a tunnel",
        "CONNECT {web}:443 HTTP/1.1\r\nHost: {web}:443\r\n\r\n",
    )];
    for (name, finished) in all(&world, "", &clean) {
        assert!(
            finished.stdout.starts_with("HTTP/1.1 200 "),
            "{name}: {}",
            finished.shown()
        );
    }
}

/// Attack: AUT-13, CRD-05
#[test]
fn fields_that_would_reroute_or_impersonate_are_taken_off() {
    let world = World::new();
    let request = "GET /names HTTP/1.1\r\nHost: {web}\r\nX-Forwarded-Host: {evil}\r\nForwarded: host={evil}\r\n\
        X-Original-URL: /secret/x\r\nX-Rewrite-URL: /secret/x\r\nX-Portcullis-Code: forged\r\n\
        X-Remote-User: admin\r\nX-Originating-IP: 127.0.0.1\r\nBase-Url: {evil}\r\nX-WebAuth-User: admin\r\n\
        Ocp-Apim-Subscription-Key: own\r\nX-Functions-Key: own\r\nX-Session-Id: own\r\nDPoP: own\r\n\
        Idempotency-Key: kept\r\nMcp-Session-Id: kept\r\nProxy-Connection: keep-alive\r\nConnection: close, X-Nominated\r\nX-Nominated: 1\r\nTE: trailers\r\n\
        X-Kept: 1\r\n\r\n";
    let seen = raw(&world, &tunnel(), request);
    assert!(seen.stdout.starts_with("HTTP/1.1 200 "), "{}", seen.shown());
    let received = wait::until("the request is recorded", || {
        let received = world.web.received().to_ascii_lowercase();
        received.contains("x-kept").then_some(received)
    });
    for field in [
        "x-forwarded-host",
        "forwarded:",
        "x-original-url",
        "x-rewrite-url",
        "x-portcullis",
        "proxy-connection",
        "x-nominated",
        "x-remote-user",
        "x-originating-ip",
        "base-url",
        "x-webauth-user",
        "subscription-key",
        "x-functions-key",
        "x-session-id",
        "dpop",
    ] {
        assert!(!received.contains(field), "{field}: {received}");
    }
    for field in ["idempotency-key", "mcp-session-id"] {
        assert!(received.contains(field), "control: {field}: {received}");
    }
}
