//! The API of agents: exact codes, and identity from the token alone.

use orchestrator::container::Exit;
use serde_json::{Value, json};

use crate::support::{World, text};

#[tokio::test(flavor = "multi_thread")]
async fn a_minimal_heartbeat_works_as_published() {
    let world = World::new().await;
    let ada = world.agent("ada").await;
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let run = world.next_run(&[]).await;
    let me = run.ask("GET", "/api/agents/me", json!({})).await;
    assert_eq!((me.status, &me.body["id"]), (200, &json!(ada)));
    assert!(me.body["chainOfCommand"].is_array());
    assert!(
        me.body.get("adapterConfig").is_none(),
        "how it is started is for people"
    );
    let inbox = run
        .ask("GET", "/api/agents/me/inbox-lite", json!({}))
        .await
        .body;
    assert_eq!(inbox[0]["id"], json!(ticket));
    assert_eq!(inbox[0]["activeRun"]["id"], json!(run.run));
    assert_eq!(inbox[0]["dependencyReady"], true);
    let list = format!(
        "/api/companies/{}/issues?status=todo,in_progress&assigneeAgentId={ada}",
        world.company
    );
    assert_eq!(
        run.ask("GET", &list, json!({}))
            .await
            .body
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let checkout = json!({ "agentId": ada, "expectedStatuses": ["todo"] });
    let out = run
        .ask("POST", &format!("/api/issues/{ticket}/checkout"), checkout)
        .await;
    assert_eq!(out.status, 200, "the same run again is idempotent: {out:?}");
    let context = run
        .ask("GET", "/api/issues/acm-1/heartbeat-context", json!({}))
        .await;
    assert_eq!(
        context.body["issue"]["id"],
        json!(ticket),
        "identifiers are ids"
    );
    assert_eq!(context.body["commentCursor"]["totalComments"], 0);
    assert!(text(&context.body["issue"]["updatedAt"]).ends_with('Z'));

    let first = run.comment(&ticket, "one").await.body;
    run.comment(&ticket, "two").await;
    let after = format!(
        "/api/issues/{ticket}/comments?after={}&order=asc",
        text(&first["id"])
    );
    let page = run.ask("GET", &after, json!({})).await.body;
    assert_eq!(
        page.as_array().unwrap().len(),
        1,
        "after is exclusive: {page}"
    );
    assert_eq!(page[0]["body"], "two");

    let plan = format!("/api/issues/{ticket}/documents/plan");
    let made = run
        .ask(
            "PUT",
            &plan,
            json!({ "title": "Plan", "format": "markdown", "body": "1" }),
        )
        .await;
    assert_eq!(made.status, 201, "{made:?}");
    let stale = run.ask("PUT", &plan, json!({ "body": "2" })).await;
    assert_eq!(stale.status, 409);
    let base = &stale.body["details"]["currentRevisionId"];
    assert_eq!(base, &made.body["latestRevisionId"]);
    let next = run
        .ask("PUT", &plan, json!({ "body": "2", "baseRevisionId": base }))
        .await;
    assert_eq!(
        (next.status, &next.body["latestRevisionNumber"]),
        (200, &json!(2))
    );
    let all = run
        .ask("GET", &format!("{plan}/revisions"), json!({}))
        .await
        .body;
    assert_eq!(all.as_array().unwrap().len(), 2);

    let body = json!({ "status": "done", "comment": "finished" }).to_string();
    let prefer = [
        ("prefer", "return=minimal"),
        ("x-paperclip-run-id", run.run.as_str()),
    ];
    let done = run
        .raw(
            "PATCH",
            &format!("/api/issues/{ticket}"),
            &prefer,
            body.as_bytes(),
        )
        .await;
    assert_eq!(done.status, 200);
    assert_eq!(done.body["changes"]["status"]["to"], "done");
    assert_eq!(done.body["comment"]["body"], "finished");
    assert!(done.body.get("title").is_none());
    run.exits(Exit::Code(0));
    world.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn identity_comes_from_the_token_and_dies_with_the_run() {
    let world = World::new().await;
    let (ada, bob) = (world.agent("ada").await, world.agent("bob").await);
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let bobs = world
        .ticket(json!({ "title": "bob's", "assigneeUserId": "carol" }))
        .await;
    let run = world.next_run(&[]).await;

    assert_eq!(
        run.ask("GET", "/api/agents/me", json!({})).await.status,
        200
    );
    let health = world
        .call("board.sock", "GET", "/api/health", &[], b"")
        .await;
    assert_eq!(health.status, 200);
    for headers in [
        vec![],
        vec![("authorization", "Bearer x")],
        vec![("authorization", "Basic eDp5")],
    ] {
        let answer = world
            .call("board.sock", "GET", "/api/agents/me", &headers, b"")
            .await;
        assert_eq!(answer.status, 401, "{headers:?}");
    }
    let bearer = format!("Bearer {}", run.token);
    let headers = [("authorization", bearer.as_str())];
    let elsewhere = world
        .call("other.sock", "GET", "/api/agents/me", &headers, b"")
        .await;
    assert_eq!(elsewhere.status, 403, "only the gate's uid brings tokens");

    let other = [("x-paperclip-run-id", "0190a000-0000-7000-8000-000000000000")];
    let mixed = run.raw("GET", "/api/agents/me", &other, b"").await;
    assert_eq!(mixed.status, 422);
    assert_eq!(mixed.body["code"], "agent_jwt_run_id_mismatch");

    let as_bob = json!({ "agentId": bob, "expectedStatuses": ["todo"] });
    let answer = run
        .ask("POST", &format!("/api/issues/{bobs}/checkout"), as_bob)
        .await;
    assert_eq!(answer.status, 403, "{answer:?}");
    assert_eq!(run.set(&bobs, json!({ "title": "mine" })).await.status, 403);
    let wake = run
        .ask("POST", &format!("/api/agents/{bob}/wakeup"), json!({}))
        .await;
    assert_eq!(wake.status, 403);
    for (method, target) in [
        ("POST", "/api/companies".to_owned()),
        ("POST", format!("/api/companies/{}/agents", world.company)),
        ("PATCH", format!("/api/agents/{ada}")),
        ("POST", format!("/api/heartbeat-runs/{}/cancel", run.run)),
        ("GET", format!("/api/issues/{ticket}/timeline")),
        ("GET", "/api/heartbeat-runs".to_owned()),
    ] {
        let body = json!({ "name": "x", "status": "paused", "adapter": { "adapter": "process", "command": ["x"] } });
        let body = if target == "/api/companies" {
            json!({ "name": "x" })
        } else {
            body
        };
        let answer = run.ask(method, &target, body).await;
        assert_eq!(answer.status, 403, "{method} {target}: {answer:?}");
    }
    assert_eq!(run.comment(&bobs, "a remark is allowed").await.status, 201);

    run.done(&ticket).await;
    assert_eq!(
        run.ask("GET", "/api/agents/me", json!({})).await.status,
        401
    );
    assert_eq!(run.comment(&bobs, "too late").await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_company_does_not_exist() {
    let mut world = World::new().await;
    let ada = world.agent("ada").await;
    world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let other = world
        .person("POST", "/api/companies", json!({ "name": "Zeta" }))
        .await;
    let home = std::mem::replace(&mut world.company, text(&other.body["id"]));
    let eve = world.agent("eve").await;
    let theirs = world.ticket(json!({ "title": "theirs" })).await;
    let zeta = std::mem::replace(&mut world.company, home);
    let run = world.next_run(&[]).await;
    let targets = [
        ("GET", format!("/api/issues/{theirs}")),
        ("GET", "/api/issues/ZET-1".to_owned()),
        ("PATCH", format!("/api/issues/{theirs}")),
        ("POST", format!("/api/issues/{theirs}/comments")),
        ("GET", format!("/api/issues/{theirs}/comments")),
        ("POST", format!("/api/issues/{theirs}/checkout")),
        ("POST", format!("/api/issues/{theirs}/release")),
        ("GET", format!("/api/issues/{theirs}/documents")),
        ("PUT", format!("/api/issues/{theirs}/documents/plan")),
        ("GET", format!("/api/issues/{theirs}/heartbeat-context")),
        ("GET", format!("/api/companies/{zeta}/issues")),
        ("POST", format!("/api/companies/{zeta}/issues")),
        ("GET", format!("/api/companies/{zeta}/agents")),
        ("GET", format!("/api/companies/{zeta}/activity")),
        ("GET", format!("/api/companies/{zeta}")),
        ("GET", format!("/api/agents/{eve}")),
    ];
    for (method, target) in targets {
        let body = json!({ "title": "x", "body": "x", "expectedStatuses": ["todo"] });
        let answer = run.ask(method, &target, body).await;
        assert_eq!(answer.status, 404, "{method} {target}: {answer:?}");
    }
    let body = json!({ "title": "x", "parentId": theirs });
    let child = run
        .ask(
            "POST",
            &format!("/api/companies/{}/issues", world.company),
            body,
        )
        .await;
    assert_eq!(child.status, 404);
    assert_eq!(
        run.ask("GET", "/api/companies", json!({}))
            .await
            .body
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn dispositions_are_guarded_and_name_the_legal_next_states() {
    let world = World::new().await;
    let (ada, bob) = (world.agent("ada").await, world.agent("bob").await);
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let run = world.next_run(&[]).await;
    for status in ["in_review", "blocked"] {
        let answer = run.set(&ticket, json!({ "status": status })).await;
        assert_eq!(answer.status, 422, "{answer:?}");
        assert_eq!(answer.body["code"], "invalid_issue_disposition");
        let next = answer.body["details"]["legalNextStates"]
            .as_array()
            .unwrap();
        assert!(
            next.iter().any(|state| state["status"] == "done"),
            "{answer:?}"
        );
    }
    let orders = json!({ "status": "blocked",
                         "unblockDescriptor": { "owner": { "type": "agent", "id": bob }, "action": "do it" } });
    assert_eq!(run.set(&ticket, orders).await.status, 403);
    let own = json!({ "title": "waits", "parentId": ticket });
    let child = run
        .ask(
            "POST",
            &format!("/api/companies/{}/issues", world.company),
            own,
        )
        .await
        .body;
    let circle = json!({ "status": "blocked", "blockedByIssueIds": [ticket] });
    assert_eq!(run.set(&ticket, circle).await.status, 422);
    let waits = json!({ "status": "blocked", "blockedByIssueIds": [child["identifier"]] });
    assert_eq!(run.set(&ticket, waits).await.status, 200);
    let blocked = run
        .ask(
            "POST",
            &format!("/api/issues/{ticket}/checkout"),
            json!({ "expectedStatuses": ["blocked"] }),
        )
        .await;
    assert_eq!(blocked.status, 422, "{blocked:?}");
    assert_eq!(
        blocked.body["details"]["unresolvedBlockers"][0]["id"],
        child["id"]
    );
    let review = json!({ "status": "in_review", "assigneeUserId": "ann" });
    let answer = run.set(&ticket, review).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    run.exits(Exit::Code(0));
    world.at_rest().await;
    assert_eq!(world.issue(&ticket).await["status"], "in_review");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_are_400_and_change_nothing() {
    let world = World::new().await;
    let ada = world.agent("ada").await;
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let run = world.next_run(&[]).await;
    let issue = format!("/api/issues/{ticket}");
    let issues = format!("/api/companies/{}/issues", world.company);
    let long = json!({ "title": "x".repeat(501) }).to_string();
    let bad: [(&str, &str, &[u8]); 8] = [
        ("POST", &issues, b"{not json"),
        ("POST", &issues, b"[1]"),
        ("POST", &issues, br#"{"title":"a\u0000b"}"#),
        ("POST", &issues, br#"{"title":"   "}"#),
        ("POST", &issues, long.as_bytes()),
        ("PATCH", &issue, br#"{"status":"finished"}"#),
        ("PATCH", &issue, br#"{"title":{}}"#),
        ("POST", &issues, b"\xff\xfe"),
    ];
    for (method, target, body) in bad {
        let answer = run.raw(method, target, &[], body).await;
        assert_eq!(
            answer.status,
            400,
            "{}: {answer:?}",
            String::from_utf8_lossy(body)
        );
        assert!(answer.body["error"].is_string());
    }
    let big = json!({ "title": "x", "description": "y".repeat(1024 * 1024) }).to_string();
    assert_eq!(
        run.raw("POST", &issues, &[], big.as_bytes()).await.status,
        413
    );
    for field in [
        "id",
        "companyId",
        "identifier",
        "checkoutRunId",
        "createdByAgentId",
    ] {
        let answer = run.set(&ticket, json!({ field: "x" })).await;
        assert_eq!(
            (answer.status, &answer.body["code"]),
            (422, &json!("immutable_field")),
            "{field}"
        );
    }
    // What was read may be sent back.
    let mut same: Value = run.ask("GET", &issue, json!({})).await.body;
    same["title"] = json!("renamed");
    let answer = run.set(&ticket, same).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(run.ask("GET", "/api/nothing", json!({})).await.status, 404);
    assert_eq!(run.ask("DELETE", &issue, json!({})).await.status, 405);
    // One very long word costs no more than its length.
    let word = json!({ "title": "long", "description": "a".repeat(500_000) });
    assert_eq!(run.ask("POST", &issues, word).await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn creating_is_idempotent_deduplicated_and_limited() {
    let world = World::new().await;
    let ada = world.agent("ada").await;
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let run = world.next_run(&[]).await;
    let issues = format!("/api/companies/{}/issues", world.company);
    let keyed = json!({ "title": "child", "parentId": ticket, "idempotencyKey": "k" });
    let first = run.ask("POST", &issues, keyed.clone()).await;
    assert_eq!(first.status, 201);
    let again = run.ask("POST", &issues, keyed).await;
    assert_eq!(
        (again.status, &again.body["deduplicated"]),
        (200, &json!(true))
    );
    assert_eq!(again.body["id"], first.body["id"]);
    let same = run
        .ask(
            "POST",
            &issues,
            json!({ "title": "Child!", "parentId": ticket }),
        )
        .await;
    assert_eq!((same.status, &same.body["id"]), (200, &first.body["id"]));
    let meant = json!({ "title": "Child!", "parentId": ticket, "allowDuplicate": true });
    assert_eq!(run.ask("POST", &issues, meant).await.status, 201);
    let mut last = 201;
    for i in 0..25 {
        last = run
            .ask("POST", &issues, json!({ "title": format!("loop {i}") }))
            .await
            .status;
    }
    assert_eq!(last, 403, "a run that creates without end is stopped");
    let mut parent = ticket.clone();
    let mut deepest = 201;
    for i in 0..10 {
        let body = json!({ "title": format!("deep {i}"), "parentId": parent });
        let made = world.person("POST", &issues, body).await;
        deepest = made.status;
        if deepest == 201 {
            parent = text(&made.body["id"]);
        }
    }
    assert_eq!(deepest, 422);
}

#[tokio::test(flavor = "multi_thread")]
async fn release_gives_back_and_only_the_holder_may() {
    let world = World::new().await;
    let (ada, bob) = (world.agent("ada").await, world.agent("bob").await);
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let adas = world.next_run(&[]).await;
    world
        .ticket(json!({ "title": "two", "assigneeAgentId": bob }))
        .await;
    let bobs = world.next_run(&[&adas.run]).await;
    let target = format!("/api/issues/{ticket}/release");
    assert_eq!(bobs.ask("POST", &target, json!({})).await.status, 409);
    let locked = bobs.set(&ticket, json!({ "status": "done" })).await;
    assert!([403, 409].contains(&locked.status), "{locked:?}");
    let released = adas.ask("POST", &target, json!({})).await;
    assert_eq!(
        (released.status, &released.body["status"]),
        (200, &json!("todo"))
    );
    assert_eq!(released.body["assigneeAgentId"], json!(null));
    adas.exits(Exit::Code(0));
    world.ended(&adas.run).await;
    assert_eq!(
        world.issue(&ticket).await["status"],
        "todo",
        "what it gave back is not judged"
    );
}
