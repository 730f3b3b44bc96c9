//! Requests that wait for a person: nothing of them leaves before somebody who may has said yes to that very
//! request, and a yes is good once.

use std::time::Duration;

use proxy::holds::{Decide, HoldError, View};
use tokio::io::AsyncWriteExt;

use super::stand::{Stand, ask, connect, get, response, until};
use super::upstream::Upstream;
use super::{HOST, code};

/// The usual API, of which `/v1/echo/64` waits for `ann`, for so many seconds.
fn policy(upstream: &Upstream, seconds: u64) -> String {
    format!(
        "version = 1\n[[service]]\nid = \"api\"\nkind = \"http\"\nhost = \"{HOST}\"\naddress = \"{}\"\n\
         ca_file = \"CA_FILE\"\ncredential = \"api\"\nallow = [\"* /v1/**\"]\n\
         hold = [\"POST /v1/echo/64\"]\nhold_by = [\"ann\"]\nhold_seconds = {seconds}\nwhy = \"people say when\"\n",
        upstream.address
    )
}

async fn stand(seconds: u64) -> (Upstream, Stand) {
    let upstream = Upstream::start(HOST).await;
    let stand = Stand::new(&upstream, &policy(&upstream, seconds));
    (upstream, stand)
}

fn post(body: &str) -> String {
    format!(
        "POST /v1/echo/64 HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// The holds once there are so many.
async fn holds(stand: &Stand, count: usize) -> Vec<View> {
    until("the holds are there", || {
        stand.gate.holds.list().len() == count
    })
    .await;
    stand.gate.holds.list()
}

fn approve(stand: &Stand, id: &str) -> Result<View, HoldError> {
    stand
        .gate
        .holds
        .decide(id, Decide::Approve, "ann", false, None)
}

#[tokio::test]
async fn nothing_leaves_before_somebody_who_may_says_yes_and_then_it_does_once() {
    let (upstream, stand) = stand(60).await;
    let mut stream = stand.tunnel(HOST).await;
    stream
        .write_all(post("{\"a\":1}").as_bytes())
        .await
        .unwrap();
    let hold = holds(&stand, 1).await.remove(0);
    assert_eq!((hold.state, hold.requests), ("waiting", 1));
    assert_eq!(hold.body.as_deref(), Some("{\"a\":1}"));
    assert_eq!(hold.agent.as_deref(), Some("coder"));
    // The control: what is beside it goes through meanwhile, on another connection.
    let beside = ask(&mut stand.tunnel(HOST).await, &get(HOST, "/v1/hello")).await;
    assert!(beside.starts_with("HTTP/1.1 200"), "{beside}");
    assert!(!upstream.text().contains("POST"), "{}", upstream.text());

    let decide = |user, admin, digest| {
        stand
            .gate
            .holds
            .decide(&hold.id, Decide::Approve, user, admin, digest)
    };
    assert!(
        matches!(decide("ben", true, None), Err(HoldError::NotYours { .. })),
        "an admin that is not named"
    );
    assert_eq!(
        decide("ann", false, Some("0000")).unwrap_err(),
        HoldError::OtherDigest
    );
    assert!(!upstream.text().contains("POST"));
    assert_eq!(
        decide("ann", false, Some(&hold.digest)).unwrap().state,
        "approved"
    );
    let answer = String::from_utf8(response(&mut stream, false).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(upstream.text().matches("POST /v1/echo/64").count(), 1);

    // Its connection goes on, and the same again waits again.
    let next = ask(&mut stream, &get(HOST, "/v1/hello")).await;
    assert!(next.starts_with("HTTP/1.1 200"), "{next}");
    stream
        .write_all(post("{\"a\":1}").as_bytes())
        .await
        .unwrap();
    let again = holds(&stand, 1).await.remove(0);
    assert_ne!(again.id, hold.id);
    assert_eq!(again.digest, hold.digest);
    let lines = stand.audit();
    let of = |kind: &str| {
        let mut of = lines
            .iter()
            .filter(|line| line["kind"] == kind && line["method"] == "POST");
        of.next().cloned().unwrap_or_default()
    };
    for kind in ["request", "response"] {
        let line = of(kind);
        assert_eq!(
            (&line["hold"], &line["decider"]),
            (&hold.id.clone().into(), &"ann".into()),
            "{line}"
        );
    }
    let told = lines.iter().any(|line| {
        let reason = line["reason"].as_str().unwrap_or_default();
        line["kind"] == "event" && reason.contains(&hold.id) && reason.contains("rule api")
    });
    assert!(told, "{lines:?}");
}

#[tokio::test]
async fn a_no_and_a_silence_are_told_with_their_codes_and_leave_nothing() {
    let (upstream, stand) = stand(1).await;
    let mut stream = stand.tunnel(HOST).await;
    let expired = ask(&mut stream, &post("1")).await;
    assert_eq!(code(&expired), "hold_expired", "{expired}");
    assert!(
        expired.contains("people say when") && expired.contains("hold list"),
        "{expired}"
    );
    assert!(stand.gate.holds.list().is_empty());
    let refused = async {
        let hold = holds(&stand, 1).await.remove(0);
        let reason = Some("not today".to_owned());
        stand
            .gate
            .holds
            .decide(&hold.id, Decide::Deny { reason }, "ann", false, None)
            .unwrap();
    };
    let request = post("2");
    let (denied, ()) = tokio::join!(ask(&mut stream, &request), refused);
    assert_eq!(code(&denied), "hold_denied", "{denied}");
    assert!(
        denied.contains("ann was asked") && denied.contains("not today"),
        "{denied}"
    );
    assert!(!upstream.text().contains("POST"), "{}", upstream.text());
    let lines = stand.audit();
    let line = lines
        .iter()
        .find(|line| line["code"] == "hold_denied")
        .unwrap();
    assert_eq!(line["decider"], "ann", "{line}");
    assert_eq!(stand.refusals(), ["hold_expired", "hold_denied"]);
}

#[tokio::test]
async fn the_same_again_meets_the_same_hold_and_another_body_another_one() {
    let (upstream, stand) = stand(60).await;
    let mut gone = stand.tunnel(HOST).await;
    gone.write_all(post("one").as_bytes()).await.unwrap();
    let first = holds(&stand, 1).await.remove(0);
    drop(gone);
    // Approved while nobody waits: it is there for whoever asks the same again, once.
    let mut other = stand.tunnel(HOST).await;
    other.write_all(post("two").as_bytes()).await.unwrap();
    assert_eq!(holds(&stand, 2).await.len(), 2);
    approve(&stand, &first.id).unwrap();
    let mut again = stand.tunnel(HOST).await;
    let answer = ask(&mut again, &post("one")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(upstream.text().matches("POST /v1/echo/64").count(), 1);
    assert!(!upstream.text().contains("two"), "{}", upstream.text());
    // Another agent's equal request is another one.
    let mut stranger = stand.tunnel_of(1501, HOST).await;
    stranger.write_all(post("two").as_bytes()).await.unwrap();
    let all = holds(&stand, 2).await;
    assert_eq!(all[0].digest, all[1].digest);
    assert_ne!(all[0].id, all[1].id);
}

#[tokio::test]
async fn a_changed_policy_counts_when_the_yes_comes() {
    let (upstream, stand) = stand(60).await;
    let mut stream = stand.tunnel(HOST).await;
    for (change, expected) in [
        ("deny = [\"POST /v1/echo/64\"]\n", "denied_by_rule"),
        ("max_request_bytes = 1\n", "request_too_large"),
    ] {
        stand.reload(&policy(&upstream, 60));
        stream.write_all(post("body").as_bytes()).await.unwrap();
        let hold = holds(&stand, 1).await.remove(0);
        stand.reload(&(policy(&upstream, 60) + change));
        approve(&stand, &hold.id).unwrap();
        let answer = String::from_utf8(response(&mut stream, false).await).unwrap();
        assert_eq!(code(&answer), expected, "{answer}");
        stream = stand.tunnel(HOST).await;
    }
    assert!(!upstream.text().contains("POST"), "{}", upstream.text());
}

#[tokio::test]
async fn the_end_of_a_run_ends_what_it_waits_for() {
    let (upstream, mut stand) = stand(60).await;
    let run = stand.run("r-1", None).await;
    let client = proxy::entrance::client::Client::of_run(std::sync::Arc::clone(&run), 200_001);
    let stream = connect(stand.open_as(client), &format!("{HOST}:443")).await;
    let mut stream = stand.tls(stream, HOST).await.unwrap();
    stream.write_all(post("x").as_bytes()).await.unwrap();
    let hold = holds(&stand, 1).await.remove(0);
    assert_eq!(hold.run.as_deref(), Some("r-1"));
    let id = policy::grant::RunId::parse("r-1").unwrap();
    assert!(
        stand
            .gate
            .runs
            .close(&id, 1, &super::stand::peer())
            .unwrap()
    );
    until("nobody waits", || {
        stand
            .gate
            .holds
            .show(&hold.id)
            .is_none_or(|hold| hold.requests == 0)
    })
    .await;
    // A yes that comes later lets nothing out.
    let _late = approve(&stand, &hold.id);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!upstream.text().contains("POST"), "{}", upstream.text());
}

#[tokio::test]
async fn too_many_holds_are_refused_with_a_code_and_others_have_their_own() {
    let (_upstream, stand) = stand(60).await;
    let mut kept = Vec::new();
    for at in 0..16 {
        let mut stream = stand.tunnel(HOST).await;
        stream
            .write_all(post(&format!("{at}")).as_bytes())
            .await
            .unwrap();
        kept.push(stream);
    }
    holds(&stand, 16).await;
    let answer = ask(&mut stand.tunnel(HOST).await, &post("more")).await;
    assert_eq!(code(&answer), "limit_reached", "{answer}");
    let mut other = stand.tunnel_of(1501, HOST).await;
    other.write_all(post("other").as_bytes()).await.unwrap();
    holds(&stand, 17).await;
}
