//! Callers and inputs that mean harm: every route, every kind of wrong caller, every odd input.

use orchestrator::api::ROUTES;
use orchestrator::container::Exit;
use serde_json::{Value, json};

use crate::support::{World, filled, method_of, text};

/// Every route, for a ticket, a run, an agent and a company; what else there is has the id `x`.
fn routes(ticket: &str, run: &str, agent: &str, company: &str) -> Vec<(&'static str, String)> {
    let all = ROUTES.iter().filter(|(_, path)| *path != "/api/health");
    let ids = |name: &str| match name {
        "issue" => ticket.to_owned(),
        "run" => run.to_owned(),
        "agent" => agent.to_owned(),
        "company" => company.to_owned(),
        "key" => "plan".to_owned(),
        _other => "x".to_owned(),
    };
    all.map(|(method, path)| (method_of(method), filled(path, ids)))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_route_serves_a_wrong_caller() {
    let world = World::new().await;
    let ada = world.agent("ada").await;
    let first = world
        .ticket(json!({ "title": "first", "assigneeAgentId": ada }))
        .await;
    let old = world.next_run(&[]).await;
    let (ended, ended_token) = (old.run.clone(), old.token.clone());
    old.done(&first).await;
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let run = world.next_run(&[&ended]).await;
    let live = format!("Bearer {}", run.token);
    let wrong = [
        ("board.sock", None, 401),
        ("board.sock", Some("Bearer".to_owned()), 401),
        ("board.sock", Some("Bearer ".to_owned()), 401),
        (
            "board.sock",
            Some(format!("Bearer {}", "f".repeat(64))),
            401,
        ),
        (
            "board.sock",
            Some(format!("Bearer {}", "f".repeat(60_000))),
            401,
        ),
        (
            "board.sock",
            Some(format!("Bearer {}%", &run.token[..63])),
            401,
        ),
        ("board.sock", Some(format!("Bearer {}", run.run)), 401),
        ("board.sock", Some(format!("Bearer {ended_token}")), 401),
        ("other.sock", Some(live.clone()), 403),
        ("other.sock", None, 403),
    ];
    for (method, target) in routes(&ticket, &run.run, &ada, &world.company) {
        for (socket, authorization, expected) in &wrong {
            // What a request says about its author counts for nothing.
            let mut headers = vec![
                ("x-paperclip-agent-id", ada.as_str()),
                ("x-forwarded-user", "root"),
                ("x-real-ip", "127.0.0.1"),
                ("cookie", "session=1"),
            ];
            headers.extend(
                authorization
                    .as_ref()
                    .map(|a| ("authorization", a.as_str())),
            );
            let answer = world.call(socket, method, &target, &headers, b"{}").await;
            assert_eq!(
                answer.status, *expected,
                "{method} {target} {authorization:?}"
            );
            assert!(answer.body["code"].is_string(), "{method} {target}");
        }
    }
    let headers = [("authorization", live.as_str())];
    let right = world
        .call("board.sock", "GET", "/api/agents/me", &headers, b"")
        .await;
    assert_eq!(right.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_odd_input_is_an_error_of_the_board() {
    let world = World::new().await;
    let ada = world.agent("ada").await;
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let run = world.next_run(&[]).await;
    let long = "w".repeat(48_000);
    let deep = format!("{}{}", "{\"a\":".repeat(60_000), "1");
    let ids = [
        "%25",
        "_",
        "'",
        "%00",
        "%ff",
        "%ed%a0%80",
        "..%2f..",
        "-1",
        "9999999999999999999999",
        "%F0%9F%98%80",
        "me",
        "%20",
        &long,
    ];
    let bodies: Vec<Vec<u8>> = vec![
        b"{".to_vec(),
        b"[]".to_vec(),
        b"null".to_vec(),
        b"\xff\xfe".to_vec(),
        br#"{"title":"\ud800","body":"\udfff","name":"\ud800"}"#.to_vec(),
        br#"{"title":"a\u0000b","body":"\u0000","status":"\u0000"}"#.to_vec(),
        br#"{"title":1e999,"body":1e400}"#.to_vec(),
        br#"{"title":[],"body":{},"status":7,"expectedStatuses":{"a":1},"payload":"x"}"#.to_vec(),
        br#"{"title":"a","title":"b","body":"a","body":"b"}"#.to_vec(),
        br#"{"blockedByIssueIds":["%","_"],"parentId":"%","status":"blocked","title":"x"}"#
            .to_vec(),
        format!(r#"{{"title":"{long}"}}"#).into_bytes(),
        format!(r#"{{"body":"{long}","description":"{long}"}}"#).into_bytes(),
        deep.into_bytes(),
        vec![b'['; 200_000],
        vec![b' '; 2 << 20],
    ];
    for caller in ["run", "person"] {
        let ask = |method: &'static str, target: String, body: Vec<u8>| {
            let (world, run) = (&world, &run);
            async move {
                let answer = if caller == "run" {
                    run.raw(method, &target, &[], &body).await
                } else {
                    world.call("api.sock", method, &target, &[], &body).await
                };
                let shown = &target[..target.len().min(80)];
                assert!(
                    (200..500).contains(&answer.status),
                    "{caller} {method} {shown}: {answer:?}"
                );
                answer
            }
        };
        for id in ids {
            for (method, target) in routes(id, id, id, id) {
                ask(
                    method,
                    target,
                    b"{\"status\":\"todo\",\"body\":\"x\"}".to_vec(),
                )
                .await;
            }
        }
        for body in &bodies {
            for (method, target) in routes(&ticket, "x", &ada, &world.company) {
                if method != "GET" && !target.ends_with("/release") {
                    ask(method, target, body.clone()).await;
                }
            }
        }
        let issues = format!("/api/companies/{}/issues", world.company);
        let comments = format!("/api/issues/{ticket}/comments");
        let pattern = "%25".repeat(20_000);
        let many = "todo,".repeat(10_000);
        for (query, expected) in [
            (format!("{issues}?limit=-1"), 400),
            (format!("{issues}?limit=0"), 400),
            (format!("{issues}?limit=99999999"), 400),
            (format!("{issues}?offset=-1"), 400),
            (format!("{issues}?status=open"), 400),
            (format!("{issues}?status={many}"), 200),
            (format!("{issues}?status="), 200),
            (format!("{issues}?q=%25_%25"), 200),
            (format!("{issues}?q={long}"), 400),
            (format!("{issues}?q={pattern}"), 400),
            (format!("{issues}?parentId=%25"), 404),
            (format!("{issues}?assigneeAgentId=%25"), 200),
            (format!("{comments}?after=unknown"), 404),
            (format!("{comments}?limit=99999999"), 400),
            (format!("{comments}?order=random"), 400),
        ] {
            let shown = query[..query.len().min(80)].to_owned();
            let answer = ask("GET", query, Vec::new()).await;
            assert_eq!(answer.status, expected, "{caller} {shown}");
        }
        let all = ask("GET", format!("{issues}?q=%25"), Vec::new()).await;
        assert_eq!(all.body.as_array().map(Vec::len), Some(0), "% is a letter");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_that_are_not_a_callers_to_set_are_not_set() {
    let world = World::new().await;
    let (ada, bob) = (world.agent("ada").await, world.agent("bob").await);
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let run = world.next_run(&[]).await;
    let forged = json!({
        "authorAgentId": bob, "authorUserId": "ann", "authorType": "user", "createdByRunId": "x",
        "createdByAgentId": bob, "createdByUserId": "ann", "companyId": "x", "id": "x",
        "identifier": "ACM-99", "checkoutRunId": "x", "executionRunId": "x",
        "budgetMonthlyCents": 1, "adapterConfig": { "command": ["sh"] }, "profile": "root",
        "role": "ceo", "permissions": { "canCreateAgents": true }, "createdAt": "2000-01-01T00:00:00Z",
        "title": "made", "body": "said",
    });
    let comment = run
        .ask(
            "POST",
            &format!("/api/issues/{ticket}/comments"),
            forged.clone(),
        )
        .await;
    assert_eq!(comment.status, 201);
    assert_eq!(comment.body["authorType"], "agent");
    assert_eq!(comment.body["authorAgentId"], json!(ada));
    assert_eq!(comment.body["authorUserId"], Value::Null);
    assert_eq!(comment.body["createdByRunId"], json!(run.run));
    let issues = format!("/api/companies/{}/issues", world.company);
    let made = run.ask("POST", &issues, forged.clone()).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(made.body["createdByAgentId"], json!(ada));
    assert_eq!(made.body["createdByUserId"], Value::Null);
    assert_eq!(made.body["companyId"], json!(world.company));
    assert_eq!(made.body["checkoutRunId"], Value::Null);
    for field in [
        "id",
        "companyId",
        "createdByUserId",
        "checkoutRunId",
        "createdAt",
        "identifier",
    ] {
        let one = json!({ field: forged[field] });
        assert_eq!(run.set(&ticket, one).await.status, 422, "{field}");
    }
    let before = world
        .person("GET", &format!("/api/agents/{ada}"), json!({}))
        .await;
    for field in [
        "status",
        "role",
        "profile",
        "adapterConfig",
        "budgetMonthlyCents",
        "companyId",
    ] {
        for agent in [&ada, &bob] {
            let one = json!({ field: "terminated" });
            let answer = run.ask("PATCH", &format!("/api/agents/{agent}"), one).await;
            assert_eq!(answer.status, 403, "{field}");
        }
    }
    let after = world
        .person("GET", &format!("/api/agents/{ada}"), json!({}))
        .await;
    assert_eq!(before.body, after.body);
}

/// Keys against repeats are their author's: nobody can answer for another by guessing one.
#[tokio::test(flavor = "multi_thread")]
async fn keys_against_repeats_are_their_authors_alone() {
    let world = World::new().await;
    let ada = world.agent("ada").await;
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let run = world.next_run(&[]).await;
    let issues = format!("/api/companies/{}/issues", world.company);
    let comments = format!("/api/issues/{ticket}/comments");
    let squat =
        json!({ "title": "squat", "idempotencyKey": "k", "clientRequestId": "k", "body": "squat" });
    let real =
        json!({ "title": "real", "idempotencyKey": "k", "clientRequestId": "k", "body": "real" });
    for (target, field) in [(&issues, "title"), (&comments, "body")] {
        let first = run.ask("POST", target, squat.clone()).await;
        let again = run.ask("POST", target, squat.clone()).await;
        assert_eq!(first.body["id"], again.body["id"], "{target}");
        let person = world.person("POST", target, real.clone()).await;
        assert_eq!(person.body[field], "real", "{target}");
        let again = world.person("POST", target, real.clone()).await;
        assert_eq!(person.body["id"], again.body["id"], "{target}");
    }
    run.exits(Exit::Code(0));
}

/// What a status needs is needed on every way into it, and on every way to take it away again.
#[tokio::test(flavor = "multi_thread")]
async fn no_way_round_what_a_status_needs() {
    let world = World::new().await;
    let (ada, bob) = (world.agent("ada").await, world.agent("bob").await);
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let run = world.next_run(&[]).await;
    let issues = format!("/api/companies/{}/issues", world.company);
    let owner = json!({ "owner": "board", "action": "decide" });
    let orders = json!({ "owner": { "agentId": bob }, "action": "obey" });
    let huge = json!({ "owner": "board", "action": "x".repeat(3000) });
    for (body, expected) in [
        (
            json!({ "status": "in_progress", "assigneeAgentId": ada }),
            409,
        ),
        (
            json!({ "status": "in_progress", "assigneeAgentId": bob }),
            409,
        ),
        (json!({ "status": "in_progress" }), 422),
        (json!({ "status": "in_review" }), 422),
        (
            json!({ "status": "in_review", "assigneeAgentId": ada }),
            422,
        ),
        (
            json!({ "status": "in_review", "assigneeAgentId": bob }),
            201,
        ),
        (
            json!({ "status": "in_review", "assigneeUserId": "ann" }),
            201,
        ),
        (json!({ "status": "blocked" }), 422),
        (
            json!({ "status": "blocked", "unblockDescriptor": orders }),
            403,
        ),
        (
            json!({ "status": "blocked", "unblockDescriptor": huge }),
            422,
        ),
        (json!({ "status": "todo", "unblockDescriptor": huge }), 422),
        (
            json!({ "status": "blocked", "unblockDescriptor": owner }),
            201,
        ),
    ] {
        let mut body = body;
        body["title"] = json!("made");
        body["allowDuplicate"] = json!(true);
        let made = run.ask("POST", &issues, body.clone()).await;
        assert_eq!(made.status, expected, "{body}: {made:?}");
    }
    let blocker = text(
        &run.ask("POST", &issues, json!({ "title": "first" }))
            .await
            .body["id"],
    );
    for (body, expected) in [
        (
            json!({ "status": "blocked", "blockedByIssueIds": [blocker] }),
            200,
        ),
        (json!({ "blockedByIssueIds": [] }), 422),
        (json!({ "unblockDescriptor": orders }), 403),
        (json!({ "unblockDescriptor": huge }), 422),
        (
            json!({ "unblockDescriptor": owner, "blockedByIssueIds": [] }),
            200,
        ),
    ] {
        let answer = run.set(&ticket, body.clone()).await;
        assert_eq!(answer.status, expected, "{body}: {answer:?}");
    }
    let mine = text(
        &run.ask("POST", &issues, json!({ "title": "mine" }))
            .await
            .body["id"],
    );
    for (body, expected) in [
        (
            json!({ "status": "in_review", "assigneeUserId": "ann" }),
            200,
        ),
        (json!({ "assigneeUserId": null }), 422),
        (json!({ "assigneeAgentId": ada }), 422),
        (json!({ "assigneeAgentId": bob }), 200),
    ] {
        let answer = run.set(&mine, body.clone()).await;
        assert_eq!(answer.status, expected, "{body}: {answer:?}");
    }
}
