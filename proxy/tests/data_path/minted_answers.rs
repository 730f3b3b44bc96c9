//! What a token endpoint may answer, and what the gate's own requests leave in the log.

use std::sync::Arc;

use policy::credential::CredentialName;
use proxy::credential::{Verdict, try_canaries};

use super::HOST;
use crate::minted::{APP, LOGIN, bearer, carry, count, join, store_key, view};
use crate::stand::{Stand, ask, get, until};
use crate::upstream::Upstream;

fn login(upstream: &Upstream, path: &str, key: &[u8]) -> Stand {
    let credential = LOGIN.replace("/oauth/token", path);
    Stand::with_credential(upstream, &credential, b"canary-seed", key)
}

async fn asked(stand: &Stand) -> String {
    let mut tls = stand.tunnel(HOST).await;
    ask(&mut tls, &get(HOST, "/v1/x")).await
}

fn interrupted(stand: &Stand) -> bool {
    format!("{:?}", stand.audit()).contains("refresh was interrupted")
}

/// The refresh tokens that were sent, in order.
fn sent(upstream: &Upstream) -> Vec<String> {
    let text = upstream.text();
    let tokens = text.split("refresh_token=").skip(1);
    tokens
        .map(|rest| rest.split('&').next().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_token_that_no_field_may_hold_is_an_answer_that_is_not_understood() {
    let upstream = Upstream::start(HOST).await;
    let key = store_key();
    let app = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
    let app = Stand::with_credential(
        &upstream,
        &APP.replace("installation = 34", "installation = 35"),
        app.serialize_pem().as_bytes(),
        &[],
    );
    for path in ["/oauth/newline", "/oauth/control"] {
        let credential = LOGIN.replace("/oauth/token", path) + "canary = \"GET /v1/whoami\"\n";
        let stand = Stand::with_credential(&upstream, &credential, b"canary-seed", &key);
        for _ in 0..2 {
            let answer = asked(&stand).await;
            assert!(answer.starts_with("HTTP/1.1 5"), "{path}: {answer}");
        }
        try_canaries(&stand.gate, true).await;
        assert_eq!(view(&stand).canary.unwrap().verdict, Verdict::Unknown);
    }
    let answer = asked(&app).await;
    assert!(answer.starts_with("HTTP/1.1 5"), "{answer}");
    assert!(!upstream.text().contains("X-Evil"), "it went nowhere");
    let control = login(&upstream, "/oauth/token", &key);
    assert!(asked(&control).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_rotated_token_is_kept_however_the_rest_of_the_answer_is_written() {
    let key = store_key();
    for path in [
        "/oauth/token",
        "/oauth/text",
        "/oauth/fraction",
        "/oauth/nonsense",
        "/oauth/newline",
    ] {
        let upstream = Upstream::start(HOST).await;
        let first = login(&upstream, path, &key);
        let answer = asked(&first).await;
        assert_eq!(
            answer.starts_with("HTTP/1.1 200"),
            path != "/oauth/newline",
            "{path}: {answer}"
        );
        let second = login(&upstream, "/oauth/token", &key);
        carry(&first, &second);
        assert!(asked(&second).await.starts_with("HTTP/1.1 200"));
        let sent = sent(&upstream);
        assert_eq!(sent.len(), 2, "{path}: {sent:?}");
        assert!(sent[1].starts_with("refresh-"), "{path}: {sent:?}");
        assert!(!interrupted(&second), "{path}");
    }
}

#[tokio::test]
async fn a_clear_no_ends_a_refresh_and_an_unclear_one_is_told_of() {
    let upstream = Upstream::start(HOST).await;
    let key = store_key();
    for (path, told) in [
        ("/oauth/no", false),
        ("/oauth/control", false),
        ("/oauth/down", true),
    ] {
        let first = login(&upstream, path, &key);
        assert!(asked(&first).await.starts_with("HTTP/1.1 5"));
        let second = login(&upstream, "/oauth/token", &key);
        carry(&first, &second);
        assert!(asked(&second).await.starts_with("HTTP/1.1 200"));
        assert_eq!(interrupted(&second), told, "{path}");
    }
}

#[tokio::test]
async fn a_failure_is_shared_and_not_repeated_by_every_request() {
    let upstream = Upstream::start(HOST).await;
    let stand = login(&upstream, "/oauth/down", &store_key());
    for _ in 0..2 {
        let asking = (0..6).map(|_| asked(&stand)).collect();
        for answer in join(asking).await {
            assert!(answer.starts_with("HTTP/1.1 5"), "{answer}");
        }
    }
    assert_eq!(count(&upstream, "POST /oauth/down "), 1);
}

#[tokio::test]
async fn an_upstream_that_refuses_every_token_does_not_have_one_fetched_per_request() {
    let upstream = Upstream::start(HOST).await;
    let stand = login(&upstream, "/oauth/token", &store_key());
    for _ in 0..5 {
        let mut tls = stand.tunnel(HOST).await;
        let refused = ask(&mut tls, &get(HOST, "/v1/unauthorized")).await;
        assert!(refused.starts_with("HTTP/1.1 502"), "{refused}");
    }
    assert!(asked(&stand).await.starts_with("HTTP/1.1 200"));
    assert_eq!(
        count(&upstream, "POST /oauth/token "),
        2,
        "the first, and one anew"
    );
}

#[tokio::test]
async fn so_many_and_no_more_wait_for_a_token() {
    const MORE: usize = 300;
    const MOST: usize = 256;
    let upstream = Upstream::start(HOST).await;
    let stand = login(&upstream, "/v1/hang", &store_key());
    let name = CredentialName::parse("api").unwrap();
    let credential = stand.gate.vault.get(&name).unwrap();
    let asking: Vec<_> = (0..MORE)
        .map(|_| {
            let (credential, gate) = (Arc::clone(&credential), Arc::clone(&stand.gate));
            tokio::spawn(async move { credential.token(&gate).await.is_ok() })
        })
        .collect();
    let ended = || asking.iter().filter(|task| task.is_finished()).count();
    until("those beyond are told", || ended() == MORE - MOST).await;
    until("the others wait", || {
        count(&upstream, "POST /v1/hang ") == 1
    })
    .await;
    assert_eq!(ended(), MORE - MOST);
}

#[tokio::test]
async fn a_vault_that_is_filled_again_waits_for_the_refresh_under_way() {
    let upstream = Upstream::start(HOST).await;
    let stand = Arc::new(login(&upstream, "/oauth/slow", &store_key()));
    let asking = Arc::clone(&stand);
    let first = tokio::spawn(async move { asked(&asking).await });
    until("the token is used", || sent(&upstream).len() == 1).await;
    stand.gate.vault.seal();
    assert!(stand.gate.vault.reload().is_empty());
    assert!(asked(&stand).await.starts_with("HTTP/1.1 200"));
    assert!(first.await.unwrap().starts_with("HTTP/1.1 200"));
    assert_eq!(sent(&upstream), ["canary-seed"], "used once");
}

#[tokio::test]
async fn the_gate_s_own_requests_are_recorded_before_they_leave_or_stay() {
    let upstream = Upstream::start(HOST).await;
    let stand = login(&upstream, "/oauth/token", &store_key());
    assert!(asked(&stand).await.starts_with("HTTP/1.1 200"));
    let lines = || -> Vec<serde_json::Value> { stand.audit() };
    let own = |kind: &str| {
        let of = |line: &serde_json::Value| line["kind"] == kind && line["path"] == "/oauth/token";
        lines().into_iter().find(of)
    };
    until("its end is recorded", || own("response").is_some()).await;
    let (request, response) = (own("request").unwrap(), own("response").unwrap());
    assert_eq!(request["id"], response["id"]);
    assert_eq!(request["credential"], "api");
    assert_eq!(request["method"], "POST");
    assert_eq!(request["authority"], "api.example.com:443");
    assert_eq!(request["verdict"], "allow");
    assert_eq!(response["status"], 200);
    assert!(!format!("{:?}", lines()).contains("canary-seed"));

    let credential = bearer("canary = \"GET /v1/whoami\"");
    let other = Upstream::start(HOST).await;
    let stand = Stand::with_credential(&other, &credential, b"canary-value", &[]);
    let (place, away) = (stand.path("audit"), stand.path("away"));
    std::fs::rename(&place, &away).unwrap();
    try_canaries(&stand.gate, true).await;
    assert_eq!(view(&stand).canary.unwrap().verdict, Verdict::Unknown);
    assert!(other.is_untouched(), "{}", other.text());
    std::fs::rename(&away, &place).unwrap();
    until("the log recovers", || stand.gate.audit.view().ok).await;
    try_canaries(&stand.gate, true).await;
    assert_eq!(view(&stand).canary.unwrap().verdict, Verdict::Works);
    let tries = stand.audit();
    let tries = tries.iter().filter(|line| {
        line["kind"] == "request" && line["path"] == "/v1/whoami" && line["credential"] == "api"
    });
    assert!(tries.count() >= 2, "with it and without");
}
