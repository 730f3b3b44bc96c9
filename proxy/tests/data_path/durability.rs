//! What a request waits for before it leaves: one sync of the log where it carries a credential, and
//! none where it does not.

use crate::stand::{ask, get, until};
use crate::{BARE, HOST, usual_stand};

#[tokio::test]
async fn a_lone_request_pays_one_sync_with_a_credential_and_none_without() {
    let (_upstream, stand) = usual_stand().await;
    let syncs = || stand.gate.audit.tally().1.syncs;
    let ended = |count: usize| {
        let lines = stand.audit();
        lines
            .iter()
            .filter(|line| line["kind"] == "response")
            .count()
            == count
    };
    let (mut credentialed, mut bare) = (stand.tunnel(HOST).await, stand.tunnel(BARE).await);
    for round in 0..5 {
        let before = syncs();
        let answer = ask(&mut credentialed, &get(HOST, "/v1/x")).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        // Its end is written later, and asks for no sync of its own.
        until("its record is closed", || ended(2 * round + 1)).await;
        assert_eq!(syncs() - before, 1, "with a credential");
        let answer = ask(&mut bare, &get(BARE, "/v1/x")).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        until("its record is closed", || ended(2 * round + 2)).await;
        assert_eq!(syncs() - before, 1, "without one");
    }
}
