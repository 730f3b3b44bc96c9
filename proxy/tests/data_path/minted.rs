//! Credentials that are fetched before they are used, canaries, and what a 401 does.

use std::os::unix::fs::DirBuilderExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proxy::credential::{CredentialView, Verdict, try_canaries, try_now};
use rcgen::PublicKeyData as _;

use super::HOST;
use crate::stand::{Stand, ask, get, until};
use crate::upstream::Upstream;

pub(crate) const APP: &str = "[credential.api]\nkind = \"github-app\"\napp = \"Iv1.app\"\ninstallation = 34\n\
     repositories = [\"acme/web\"]\napi = \"api.example.com\"\nfile = \"DIR/secret\"\n\
     hosts = [\"api.example.com\"]\n";

pub(crate) const LOGIN: &str = "[store]\ndirectory = \"DIR/store\"\nkey = \"DIR/store.key\"\n\
     no_operator_entries = \"a test\"\nstate = \"DIR/state\"\n\
     [credential.api]\nkind = \"oauth-refresh\"\ntoken_url = \"https://api.example.com/oauth/token\"\n\
     client_id = \"cli\"\nfile = \"DIR/secret\"\nhosts = [\"api.example.com\"]\n";

pub(crate) fn view(stand: &Stand) -> CredentialView {
    stand.gate.vault.view().remove(0)
}

pub(crate) fn count(upstream: &Upstream, what: &str) -> usize {
    upstream.text().matches(what).count()
}

#[tokio::test]
async fn an_app_signs_for_a_token_once_and_again_when_it_is_refused() {
    let upstream = Upstream::start(HOST).await;
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
    let stand = Stand::with_credential(&upstream, APP, key.serialize_pem().as_bytes(), &[]);
    let asking = (0..6).map(|uid| {
        let stand = &stand;
        async move {
            let mut tls = stand.tunnel_of(1500 + uid, HOST).await;
            ask(&mut tls, &get(HOST, "/v1/x")).await
        }
    });
    for answer in join(asking.collect()).await {
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let tokens = "POST /app/installations/34/access_tokens ";
    assert_eq!(count(&upstream, tokens), 1, "one fetch for all of them");
    let text = upstream.text();
    assert_eq!(text.matches("authorization: Bearer ghs_minted-").count(), 6);
    assert!(text.contains(r#"{"repositories":["web"]}"#), "{text}");

    // The app names itself by a signature that its public key verifies.
    let jwt = text.split("Bearer eyJ").nth(1).unwrap();
    let jwt = format!("eyJ{}", jwt.split("\r\n").next().unwrap());
    let (signed, signature) = jwt.rsplit_once('.').unwrap();
    let decoded = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
    webpki::aws_lc_rs::RSA_PKCS1_2048_8192_SHA256
        .verify_signature(key.der_bytes(), signed.as_bytes(), &decoded(signature))
        .unwrap();
    let claims: serde_json::Value =
        serde_json::from_slice(&decoded(signed.split_once('.').unwrap().1)).unwrap();
    assert_eq!(claims["iss"], "Iv1.app");
    let lasts = claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap();
    assert!((1..=600).contains(&lasts));
    assert_eq!(
        text.matches("Bearer eyJ").count(),
        1,
        "never to anybody else"
    );

    let mut tls = stand.tunnel(HOST).await;
    let refused = ask(&mut tls, &get(HOST, "/v1/unauthorized")).await;
    assert!(refused.starts_with("HTTP/1.1 502"), "{refused}");
    assert_eq!(view(&stand).sick.unwrap().refusals, 1);
    let again = ask(&mut tls, &get(HOST, "/v1/x")).await;
    assert!(again.starts_with("HTTP/1.1 200"), "{again}");
    assert_eq!(count(&upstream, tokens), 2);
    assert_eq!(view(&stand).sick, None, "it was taken again");
    assert!(!format!("{:?}", stand.audit()).contains("ghs_minted"));
}

pub(crate) async fn join<F: Future<Output = String>>(futures: Vec<F>) -> Vec<String> {
    let mut pinned: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<String>> = pinned.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, done) in pinned.iter_mut().zip(&mut done) {
            if done.is_none()
                && let std::task::Poll::Ready(answer) = future.as_mut().poll(context)
            {
                *done = Some(answer);
            }
        }
        if done.iter().all(Option::is_some) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    done.into_iter().flatten().collect()
}

/// The one file of the gate's own state.
fn state(stand: &Stand) -> std::path::PathBuf {
    let mut files = std::fs::read_dir(stand.path("state")).unwrap();
    let path = files.next().unwrap().unwrap().path();
    assert!(files.next().is_none(), "one login, one file");
    path
}

/// Gives another gate this one's state.
pub(crate) fn carry(from: &Stand, to: &Stand) {
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(to.path("state"))
        .unwrap();
    let file = state(from);
    let to = to.path("state").join(file.file_name().unwrap());
    std::fs::copy(file, to).unwrap();
}

pub(crate) fn store_key() -> Vec<u8> {
    use sequoia_openpgp::cert::CertBuilder;
    use sequoia_openpgp::serialize::Serialize as _;
    let (cert, _) = CertBuilder::new()
        .add_userid("agents")
        .add_storage_encryption_subkey()
        .generate()
        .unwrap();
    let mut bytes = Vec::new();
    cert.as_tsk().serialize(&mut bytes).unwrap();
    bytes
}

#[tokio::test]
async fn a_login_s_refresh_token_is_used_once_and_its_successor_survives_a_restart() {
    let upstream = Upstream::start(HOST).await;
    let stand = Stand::with_credential(&upstream, LOGIN, b"canary-seed", &store_key());
    let ok = async || {
        let mut tls = stand.tunnel(HOST).await;
        let answer = ask(&mut tls, &get(HOST, "/v1/x")).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    };
    let asking = (0..4).map(|uid| {
        let stand = &stand;
        async move {
            let mut tls = stand.tunnel_of(1500 + uid, HOST).await;
            ask(&mut tls, &get(HOST, "/v1/x")).await
        }
    });
    for answer in join(asking.collect()).await {
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    ok().await;
    let text = upstream.text();
    assert_eq!(
        text.matches("POST /oauth/token ").count(),
        1,
        "one for all: {text}"
    );
    assert!(
        text.contains("grant_type=refresh_token&refresh_token=canary-seed&client_id=cli"),
        "{text}"
    );
    let access = text.split("authorization: Bearer access-").nth(1).unwrap();
    let number = access.split("\r\n").next().unwrap().to_owned();
    let sealed = std::fs::read(state(&stand)).unwrap();
    let sealed = String::from_utf8_lossy(&sealed);
    assert!(!sealed.contains("refresh-") && !sealed.contains("canary-seed"));

    // As after a restart: everything in memory is gone.
    stand.gate.vault.seal();
    assert!(stand.gate.vault.reload().is_empty());
    ok().await;
    let text = upstream.text();
    let successor = format!("refresh_token=refresh-{number}&");
    assert!(text.contains(&successor), "{text}");
    assert_eq!(
        text.matches("refresh_token=canary-seed").count(),
        1,
        "{text}"
    );

    // A new login begins anew.
    std::fs::write(stand.path("secret"), "canary-again").unwrap();
    assert!(stand.gate.vault.reload().is_empty());
    ok().await;
    assert!(upstream.text().contains("refresh_token=canary-again&"));
    assert!(!format!("{:?}", stand.audit()).contains("canary-"));
}

pub(crate) fn bearer(canary: &str) -> String {
    format!(
        "[credential.api]\nkind = \"bearer\"\nfile = \"DIR/secret\"\nhosts = [\"api.example.com\"]\n{canary}\n"
    )
}

#[tokio::test]
async fn a_canary_tells_whether_a_credential_works_and_holds_back_one_that_must() {
    let upstream = Upstream::start(HOST).await;
    for (path, verdict) in [
        ("/v1/whoami", Verdict::Works),
        ("/v1/x", Verdict::ProvesNothing),
        ("/v1/unauthorized", Verdict::Format),
    ] {
        let credential = bearer(&format!("canary = \"GET {path}\""));
        let stand = Stand::with_credential(&upstream, &credential, b"canary-value", &[]);
        try_canaries(&stand.gate, false).await;
        let found = view(&stand).canary.unwrap();
        assert_eq!(found.verdict, verdict, "{path}: {}", found.text);
        assert!(view(&stand).ok, "it blocks nothing");
        assert!(stand.gate.vault.to_try(false).is_empty(), "once is enough");
        assert!(!format!("{:?}", stand.audit()).contains("canary-value"));
    }
    for (path, ok) in [("/v1/whoami", true), ("/v1/unauthorized", false)] {
        let credential = bearer(&format!("canary = \"GET {path}\"\ncanary_required = true"));
        let stand = Stand::with_credential(&upstream, &credential, b"canary-value", &[]);
        assert!(!view(&stand).ok, "not before it was tried");
        try_canaries(&stand.gate, false).await;
        assert_eq!(view(&stand).ok, ok, "{path}");
        assert_eq!(view(&stand).problem.is_none(), ok, "{path}");
    }
}

/// What is asked for is answered by calls that are made now, and each is in the log; asking again and
/// again at once sends no more than asking twice.
#[tokio::test]
async fn a_canary_on_demand_is_sent_now_recorded_and_not_multiplied_by_its_askers() {
    let upstream = Upstream::start(HOST).await;
    let credential = bearer("canary = \"GET /v1/whoami\"");
    let stand = Stand::with_credential(&upstream, &credential, b"canary-value", &[]);
    let calls = || count(&upstream, "GET /v1/whoami ");
    assert_eq!((calls(), view(&stand).canary), (0, None));
    try_now(&stand.gate, "root").await;
    let found = view(&stand).canary.unwrap();
    assert_eq!(
        (found.verdict, calls()),
        (Verdict::Works, 2),
        "{}",
        found.text
    );
    let recorded = |kind: &str| {
        let of = |line: &serde_json::Value| {
            line["kind"] == kind && line["reason"] == "the gate's own request"
        };
        stand.audit().iter().filter(|line| of(line)).count()
    };
    assert_eq!(recorded("request"), 2, "with it and without");
    let log = format!("{:?}", stand.audit());
    assert!(log.contains("canaries: root asks whether"), "{log}");

    let askers: Vec<_> = (0..24)
        .map(|_| {
            let gate = std::sync::Arc::clone(&stand.gate);
            tokio::spawn(async move { try_now(&gate, "root").await })
        })
        .collect();
    for asker in askers {
        asker.await.unwrap();
    }
    assert!(calls() <= 2 + 2 * 2, "{}", calls());
    assert!(calls() > 2, "control: it was asked again");
}

/// A far end that does not answer is told as such, and holds up nobody for longer than a round.
#[tokio::test]
async fn a_canary_on_demand_without_an_answer_is_unknown() {
    let upstream = Upstream::start(HOST).await;
    let credential = bearer("canary = \"GET /v1/hang\"");
    let more = |name: &str| credential.replace("[credential.api]", &format!("[credential.{name}]"));
    let all = ["api", "b", "c", "d", "e"].map(more).concat();
    let stand = Stand::with_credential(&upstream, &all, b"canary-value", &[]);
    try_now(&stand.gate, "root").await;
    let (mut silent, mut untried) = (0, 0);
    for credential in stand.gate.vault.view() {
        let found = credential.canary.unwrap();
        assert_eq!(found.verdict, Verdict::Unknown, "{}", found.text);
        silent += usize::from(found.text.contains("no answer within"));
        untried += usize::from(found.text.contains("not tried"));
        assert!(credential.ok, "it blocks nothing");
    }
    assert_eq!((silent, untried), (4, 1), "nothing was sent of the fifth");
    assert_eq!(count(&upstream, "GET /v1/hang "), 4);
}

/// Whoever asked may go away: the round it began is not lost, and is found by the next one who asks.
#[tokio::test]
async fn a_round_goes_on_without_its_asker() {
    let upstream = Upstream::start(HOST).await;
    let credential = bearer("canary = \"GET /v1/whoami\"");
    let stand = Stand::with_credential(&upstream, &credential, b"canary-value", &[]);
    let at_once = tokio::time::timeout(std::time::Duration::ZERO, try_now(&stand.gate, "root"));
    assert!(at_once.await.is_err(), "it is gone before the round ends");
    until("the round ends", || view(&stand).canary.is_some()).await;
    assert_eq!(view(&stand).canary.unwrap().verdict, Verdict::Works);
    assert_eq!(count(&upstream, "GET /v1/whoami "), 2);
    try_now(&stand.gate, "root").await;
    assert_eq!(count(&upstream, "GET /v1/whoami "), 4, "control");
}

#[tokio::test]
async fn a_query_credential_is_in_the_target_and_nowhere_in_the_record() {
    let upstream = Upstream::start(HOST).await;
    let credential = "[credential.api]\nkind = \"query\"\nparameter = \"key\"\nfile = \"DIR/secret\"\n\
         hosts = [\"api.example.com\"]\n";
    let stand = Stand::with_credential(&upstream, credential, b"canary+value", &[]);
    let mut tls = stand.tunnel(HOST).await;
    let answer = ask(&mut tls, &get(HOST, "/v1/x?a=1&KEY=mine")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let text = upstream.text();
    assert!(
        text.starts_with("GET /v1/x?a=1&key=canary%2Bvalue HTTP/1.1\r\n"),
        "{text}"
    );
    assert!(!format!("{:?}", stand.audit()).contains("canary"));
}

/// A gate that is killed after a refresh token was used and before its successor is on the disk: the
/// next one tells of it and goes on with the newest token that there is, not with the first.
#[tokio::test]
async fn a_gate_killed_in_the_middle_of_a_refresh_is_told_of_and_loses_no_token() {
    let upstream = Upstream::start(HOST).await;
    let key = store_key();
    let stand = |login: &str| Stand::with_credential(&upstream, login, b"canary-seed", &key);
    let told = |stand: &Stand| format!("{:?}", stand.audit()).contains("refresh was interrupted");
    let first = stand(LOGIN);
    let mut tls = first.tunnel(HOST).await;
    assert!(
        ask(&mut tls, &get(HOST, "/v1/x"))
            .await
            .starts_with("HTTP/1.1 200")
    );
    assert!(!told(&first));

    // The provider has the token and does not answer; then the gate is gone.
    let second = stand(&LOGIN.replace("/oauth/token", "/v1/hang"));
    carry(&first, &second);
    let mut tls = second.tunnel(HOST).await;
    let asking = tokio::spawn(async move { ask(&mut tls, &get(HOST, "/v1/x")).await });
    until("the token is used", || {
        count(&upstream, "POST /v1/hang ") == 1
    })
    .await;
    until("all of it", || {
        count(&upstream, "refresh_token=refresh-") == 1
    })
    .await;
    asking.abort();
    assert!(!told(&second), "control: the refresh before it ended");

    let third = stand(LOGIN);
    carry(&second, &third);
    let mut tls = third.tunnel(HOST).await;
    assert!(
        ask(&mut tls, &get(HOST, "/v1/x"))
            .await
            .starts_with("HTTP/1.1 200")
    );
    until("it is told", || told(&third)).await;
    let text = upstream.text();
    let sent: Vec<&str> = text
        .split("refresh_token=")
        .skip(1)
        .map(|rest| rest.split('&').next().unwrap())
        .collect();
    assert_eq!(sent.len(), 3, "{sent:?}");
    assert_eq!(sent[0], "canary-seed");
    assert_eq!(sent[1], sent[2], "the newest, tried again: {sent:?}");

    // It ended well, so that the next one has nothing to tell.
    let fourth = stand(LOGIN);
    carry(&third, &fourth);
    let mut tls = fourth.tunnel(HOST).await;
    assert!(
        ask(&mut tls, &get(HOST, "/v1/x"))
            .await
            .starts_with("HTTP/1.1 200")
    );
    assert!(!told(&fourth));
}
