//! Agents ask, people decide, and each verdict is heard.

use orchestrator::container::Exit;
use serde_json::{Value, json};

use crate::support::{World, text};

fn request() -> Value {
    json!({ "type": "request_board_approval", "payload": { "title": "Deploy on Friday" } })
}

#[tokio::test(flavor = "multi_thread")]
async fn only_people_decide_and_each_verdict_wakes_who_asked() {
    let world = World::new().await;
    let (ada, bob) = (world.agent("ada").await, world.agent("bob").await);
    let mut known = Vec::new();
    let approvals = format!("/api/companies/{}/approvals", world.company);
    for (verb, status, reason) in [
        ("approve", "approved", "approval_approved"),
        ("reject", "rejected", "approval_rejected"),
        (
            "request-revision",
            "revision_requested",
            "approval_revision_requested",
        ),
    ] {
        let ticket = json!({ "title": verb, "assigneeAgentId": ada });
        let ticket = world.ticket(ticket).await;
        let seen: Vec<&str> = known.iter().map(String::as_str).collect();
        let run = world.next_run(&seen).await;
        known.push(run.run.clone());
        let mut body = request();
        // Another agent's ticket is no way to swallow the answer.
        let others = json!({ "title": format!("other {verb}"), "assigneeAgentId": bob,
                             "status": "backlog" });
        let others = world.ticket(others).await;
        body["issueIds"] = json!([others, ticket]);
        let blocked = json!({ "status": "blocked" });
        assert_eq!(run.set(&ticket, blocked.clone()).await.status, 422);
        let asked = run.ask("POST", &approvals, body).await;
        assert_eq!(
            (asked.status, &asked.body["status"]),
            (201, &json!("pending")),
            "{asked:?}"
        );
        let id = text(&asked.body["id"]);
        let on = |rest: &str| format!("/api/approvals/{id}{rest}");
        for verb in ["approve", "reject", "request-revision"] {
            let own = run.ask("POST", &on(&format!("/{verb}")), json!({})).await;
            assert_eq!(
                (own.status, &own.body["code"]),
                (403, &json!("operators_only"))
            );
        }
        let early = run.ask("POST", &on("/resubmit"), json!({})).await;
        assert_eq!(early.status, 409, "{early:?}");
        assert_eq!(
            run.set(&ticket, blocked).await.status,
            200,
            "an approval is awaited"
        );
        run.exits(Exit::Code(0));
        world.ended(&run.run).await;
        world.at_rest().await;

        let target = on(&format!("/{verb}"));
        let decided = world
            .person("POST", &target, json!({ "decisionNote": "so" }))
            .await;
        assert_eq!(
            (decided.status, &decided.body["status"]),
            (200, &json!(status)),
            "{decided:?}"
        );
        let again = world
            .person("POST", &on(&format!("/{verb}")), json!({}))
            .await;
        assert_eq!(again.status, 409, "{again:?}");
        let seen: Vec<&str> = known.iter().map(String::as_str).collect();
        let next = world.next_run(&seen).await;
        known.push(next.run.clone());
        {
            let machine = world.engine.0.lock().unwrap();
            let spec = machine
                .started
                .iter()
                .find(|s| s.run.to_string() == next.run)
                .unwrap();
            let value = |name: &str| {
                let found = spec.env.iter().find(|(n, _)| n == name);
                found.map(|(_, v)| v.clone()).unwrap_or_default()
            };
            assert_eq!(value("PAPERCLIP_WAKE_REASON"), reason);
            assert_eq!(value("PAPERCLIP_APPROVAL_ID"), id);
            assert_eq!(value("PAPERCLIP_APPROVAL_STATUS"), status);
            assert!(value("PAPERCLIP_LINKED_ISSUE_IDS").contains(&ticket));
        }
        let linked = next.ask("GET", &on("/issues"), json!({})).await;
        assert_eq!(linked.body.as_array().map(Vec::len), Some(2));
        if verb == "request-revision" {
            let seen = &asked.body["fingerprint"];
            let better = json!({ "payload": { "title": "Deploy on Monday" } });
            let better = next.ask("POST", &on("/resubmit"), better).await;
            assert_eq!(better.body["status"], "pending", "{better:?}");
            // What a person looked at is what they approve.
            let stale = json!({ "fingerprint": seen });
            let stale = world.person("POST", &on("/approve"), stale).await;
            assert_eq!(
                (stale.status, &stale.body["code"]),
                (409, &json!("approval_changed"))
            );
            let fresh = json!({ "fingerprint": better.body["fingerprint"] });
            let fresh = world.person("POST", &on("/approve"), fresh).await;
            assert_eq!(fresh.body["status"], "approved", "{fresh:?}");
        }
        let said = next
            .ask("POST", &on("/comments"), json!({ "body": "thanks" }))
            .await;
        assert_eq!(said.status, 201);
        let said = world.person("GET", &on("/comments"), json!({})).await;
        assert_eq!(said.body[0]["authorAgentId"], json!(ada));
        next.done(&ticket).await;
        world.at_rest().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_hired_by_a_person_or_not_at_all() {
    let world = World::new().await;
    let ada = world.agent("ada").await;
    world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let run = world.next_run(&[]).await;
    let of = |rest: &str| format!("/api/companies/{}{rest}", world.company);
    let wanted = json!({ "name": "eve", "role": "engineer",
                         "adapter": { "adapter": "process", "command": ["/bin/agent"] } });
    assert_eq!(
        run.ask("POST", &of("/agents"), wanted.clone()).await.status,
        403
    );
    let hire = run.ask("POST", &of("/agent-hires"), wanted.clone()).await;
    assert_eq!(hire.status, 201, "{hire:?}");
    let id = text(&hire.body["approval"]["id"]);
    let agents = || async {
        let all = world.person("GET", &of("/agents"), json!({})).await.body;
        all.as_array().map(Vec::len)
    };
    assert_eq!(agents().await, Some(1), "nobody is hired by asking");
    for bad in [
        json!({ "name": "x" }),
        json!({ "name": "x", "adapter": { "adapter": "process", "command": [] } }),
        json!({ "name": "x", "adapter": { "adapter": "process", "command": ["x"] }, "root": true }),
    ] {
        let no = run.ask("POST", &of("/agent-hires"), bad.clone()).await;
        assert_eq!(no.status, 400, "{bad}: {no:?}");
    }
    let yes = world
        .person("POST", &format!("/api/approvals/{id}/approve"), json!({}))
        .await;
    assert_eq!(yes.status, 200, "{yes:?}");
    assert_eq!(agents().await, Some(2));
    let eve = format!("/api/agents/{}", text(&yes.body["agentId"]));
    let eve = world.person("GET", &eve, json!({})).await;
    assert_eq!(eve.body["name"], "eve");
    // A name that was taken meanwhile: the approval stays as it was, and can be rejected.
    let twice = run.ask("POST", &of("/agent-hires"), wanted).await;
    let id = text(&twice.body["approval"]["id"]);
    let taken = world
        .person("POST", &format!("/api/approvals/{id}/approve"), json!({}))
        .await;
    assert_eq!(taken.status, 409, "{taken:?}");
    let pending = world
        .person("GET", &of("/approvals?status=pending"), json!({}))
        .await;
    assert_eq!(pending.body[0]["id"], json!(id));
    let no = world
        .person("POST", &format!("/api/approvals/{id}/reject"), json!({}))
        .await;
    assert_eq!(no.body["status"], "rejected");
    let odd = world
        .person("GET", &of("/approvals?status=odd"), json!({}))
        .await;
    assert_eq!(odd.status, 400);
    let activity = world
        .person("GET", &of("/activity"), json!({}))
        .await
        .body
        .to_string();
    for kind in ["requested", "approved", "rejected"] {
        assert!(activity.contains(&format!("approval.{kind}")), "{kind}");
    }
}
