//! What no rule allows is refused in words, and leaves nothing behind.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::stand::{Stand, ask, get, until, usual};
use super::upstream::Upstream;
use super::{HOST, code, usual_stand};

#[tokio::test]
async fn an_unlisted_host_is_refused_inside_tls_without_a_dial() {
    let (upstream, stand) = usual_stand().await;
    let mut tls = stand.tunnel("unlisted.example.org").await;
    let request = "GET /secret?token=abc HTTP/1.1\r\nHost: unlisted.example.org\r\nUser-Agent: git/2.47.3\r\n\r\n";
    let answer = ask(&mut tls, request).await;
    assert!(answer.starts_with("HTTP/1.1 403 Portcullis: "), "{answer}");
    assert_eq!(code(&answer), "destination_not_listed");
    assert!(
        answer.contains("content-type: text/plain"),
        "git reads text: {answer}"
    );
    assert_eq!(upstream.connections(), 0);
    let log = stand.audit();
    let refused = log.iter().find(|line| line["kind"] == "refusal").unwrap();
    assert_eq!(refused["path"], "/secret?token=...");
    assert!(answer.contains(refused["id"].as_str().unwrap()));
    drop(tls);
    // A tunnel in which nothing was asked is on record as well.
    let tls = stand.tunnel("unlisted.example.org").await;
    drop(tls);
    until("the second is recorded", || stand.refusals().len() == 2).await;
}

#[tokio::test]
async fn an_unlisted_host_is_refused_on_connect_where_the_configuration_wants_it() {
    let upstream = Upstream::start(HOST).await;
    let stand = Stand::with_limits(&upstream, &usual(&upstream), "refuse_inside_tls = false");
    let mut stream = stand.open(1500);
    let answer = ask(
        &mut stream,
        "CONNECT unlisted.example.org:443 HTTP/1.1\r\n\r\n",
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 403 Portcullis: "), "{answer}");
    assert_eq!(stand.refusals(), ["destination_not_listed"]);
    let mut tls = stand.tunnel(HOST).await;
    assert!(
        ask(&mut tls, &get(HOST, "/v1/x"))
            .await
            .starts_with("HTTP/1.1 200"),
        "control"
    );
}

/// Attack: RES-05
#[tokio::test]
async fn a_client_that_stops_moving_is_cut_and_one_too_many_is_told() {
    let upstream = Upstream::start(HOST).await;
    let limits = "idle_timeout_seconds = 1\nhead_timeout_seconds = 60\nconnections_per_run = 2";
    let stand = Stand::with_limits(&upstream, &usual(&upstream), limits);
    let mut tls = stand.tunnel(HOST).await;
    tls.write_all(get(HOST, "/v1/hang").as_bytes())
        .await
        .unwrap();
    let mut seen = Vec::new();
    // A cut is an end without goodbye.
    let _ = tls.read_to_end(&mut seen).await;
    assert!(String::from_utf8_lossy(&seen).contains("first"));
    let owner: std::sync::Arc<str> = "uid:1".into();
    let (one, _two) = (
        stand.gate.admit(&owner).unwrap(),
        stand.gate.admit(&owner).unwrap(),
    );
    assert!(stand.gate.admit(&owner).is_none(), "the third is refused");
    assert!(
        stand.gate.admit(&"uid:2".into()).is_some(),
        "others are not affected"
    );
    drop(one);
    assert!(stand.gate.admit(&owner).is_some(), "there is room again");
}

/// Attack: PTH-01
#[tokio::test]
async fn a_refused_path_and_an_ambiguous_one_leave_nothing_and_the_connection_goes_on() {
    let (upstream, stand) = usual_stand().await;
    let mut tls = stand.tunnel(HOST).await;
    assert_eq!(
        code(&ask(&mut tls, &get(HOST, "/v2/x")).await),
        "path_not_allowed"
    );
    assert_eq!(
        code(&ask(&mut tls, &get(HOST, "/v1/../v2/x")).await),
        "ambiguous_path"
    );
    assert!(upstream.is_untouched());
    let answer = ask(&mut tls, &get(HOST, "/v1/x")).await;
    assert!(
        answer.starts_with("HTTP/1.1 200"),
        "kept alive after refusals: {answer}"
    );
}

/// Attack: PTH-11
#[tokio::test]
async fn pushes_are_judged_on_their_commands_before_anything_leaves() {
    let upstream = Upstream::start("git.example.com").await;
    let stand = Stand::new(
        &upstream,
        &format!(
            "version = 1\n[[service]]\nkind = \"github\"\nhost = \"git.example.com\"\naddress = \"{}\"\nca_file = \"CA_FILE\"\n\
             repos = [\"acme/web\"]\ngit = \"push\"\nrefs = [\"refs/heads/agent/*\"]\n",
            upstream.address
        ),
    );
    let (zero, one) = ("0".repeat(40), "1".repeat(40));
    let push = |old: &str, new: &str, name: &str, extra: &str| {
        let line = format!("{old} {new} {name}\0 report-status");
        let body = format!("{:04x}{line}0000PACKdata", line.len() + 4);
        format!(
            "POST /acme/web.git/git-receive-pack HTTP/1.1\r\nHost: git.example.com\r\nUser-Agent: git/2.47\r\n{extra}\
             Content-Type: application/x-git-receive-pack-request\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let mut tls = stand.tunnel("git.example.com").await;
    let answer = ask(&mut tls, &push(&zero, &one, "refs/heads/main", "")).await;
    assert_eq!(code(&answer), "ref_not_allowed", "{answer}");
    assert!(
        answer.contains("ng refs/heads/main Portcullis: ref_not_allowed"),
        "{answer}"
    );
    let answer = ask(&mut tls, &push(&one, &zero, "refs/heads/agent/x", "")).await;
    assert_eq!(code(&answer), "delete_not_allowed", "{answer}");
    let answer = ask(
        &mut tls,
        &push(
            &zero,
            &one,
            "refs/heads/agent/x",
            "Content-Encoding: gzip\r\n",
        ),
    )
    .await;
    assert_eq!(code(&answer), "could_not_inspect", "{answer}");
    assert_eq!(upstream.connections(), 0, "no refused push was dialled");
    let allowed = push(&zero, &one, "refs/heads/agent/x", "");
    let answer = ask(&mut tls, &allowed).await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("received"),
        "{answer}"
    );
    let body = allowed.split("\r\n\r\n").nth(1).unwrap();
    assert!(
        upstream.text().ends_with(body),
        "the commands that were read are sent on, and the pack behind them"
    );
    let sent = stand
        .audit()
        .into_iter()
        .find(|line| line["kind"] == "request")
        .unwrap();
    assert_eq!(sent["facts"]["push"][0]["ref"], "refs/heads/agent/x");
}
