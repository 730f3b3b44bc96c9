//! Wakes and runs: one run, one follow-up, no loops, an end with a disposition.

use orchestrator::container::Exit;
use serde_json::json;

use crate::support::{World, eventually, text};

#[tokio::test(flavor = "multi_thread")]
async fn assigning_is_the_wake_and_the_run_gets_the_contracts_environment() {
    let world = World::new().await;
    let ada = world.agent("ada").await;
    let title = "x'; $(touch /tmp/x) `id` -rf --";
    let ticket = world
        .ticket(json!({ "title": title, "assigneeAgentId": ada }))
        .await;
    let run = world.next_run(&[]).await;
    let spec = world.engine.0.lock().unwrap().started[0].clone();
    assert_eq!(spec.argv, ["/bin/agent", "ada"]);
    let value = |name: &str| {
        let found: Vec<&String> = spec
            .env
            .iter()
            .filter(|(n, _)| n == name)
            .map(|(_, v)| v)
            .collect();
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        found[0].clone()
    };
    assert_eq!(value("PAPERCLIP_TASK_ID"), ticket);
    assert_eq!(value("PAPERCLIP_RUN_ID"), run.run);
    assert_eq!(value("PAPERCLIP_AGENT_ID"), ada);
    assert_eq!(value("PAPERCLIP_WAKE_REASON"), "issue_assigned");
    assert_eq!(
        value("PAPERCLIP_API_URL"),
        "http://board.portcullis.internal"
    );
    assert_eq!(value("PAPERCLIP_API_KEY"), "injected-by-portcullis");
    assert_eq!(value("OWN"), "1");
    assert!(value("HTTPS_PROXY").starts_with("http://127.0.0.1:"));
    let payload: serde_json::Value =
        serde_json::from_str(&value("PAPERCLIP_WAKE_PAYLOAD_JSON")).unwrap();
    assert_eq!(payload["issue"]["title"], title);
    assert_eq!(payload["checkedOutByHarness"], true);
    let everything = format!("{spec:?}{}", String::from_utf8_lossy(&spec.stdin));
    assert!(
        !everything.contains(&run.token),
        "the run's token is nowhere in its container"
    );

    let issue = world.issue(&ticket).await;
    assert_eq!(issue["status"], "in_progress");
    assert_eq!(issue["checkoutRunId"], json!(run.run));
    run.done(&ticket).await;
    world.at_rest().await;
    assert_eq!(world.engine.started().len(), 1);
    let issue = world.issue(&ticket).await;
    assert_eq!(
        (&issue["status"], &issue["checkoutRunId"]),
        (&json!("done"), &json!(null))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_incident_assign_two_bare_wakes_and_an_invoke_is_one_run() {
    let world = World::new().await;
    let ada = world.agent("ada").await;
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    for path in ["wakeup", "wakeup", "heartbeat/invoke"] {
        let answer = world
            .person("POST", &format!("/api/agents/{ada}/{path}"), json!({}))
            .await;
        assert_eq!(answer.status, 202);
        assert_eq!(answer.body["status"], "merged", "{answer:?}");
    }
    let run = world.next_run(&[]).await;
    let answer = world
        .person("POST", &format!("/api/agents/{ada}/wakeup"), json!({}))
        .await;
    assert_eq!(answer.body["status"], "merged", "{answer:?}");
    run.done(&ticket).await;
    world.at_rest().await;
    assert_eq!(world.engine.started().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_wakes_at_once_are_one_run() {
    let mut world = World::idle().await;
    let ada = world.agent("ada").await;
    let ticket = world.ticket(json!({ "title": "one" })).await;
    let assign = json!({ "assigneeAgentId": ada });
    let wake = json!({ "issueId": ticket });
    let (target, wakeup) = (
        format!("/api/issues/{ticket}"),
        format!("/api/agents/{ada}/wakeup"),
    );
    let (a, b) = tokio::join!(
        world.person("PATCH", &target, assign),
        world.person("POST", &wakeup, wake),
    );
    assert_eq!((a.status, b.status), (200, 202));
    world.start();
    let run = world.next_run(&[]).await;
    run.done(&ticket).await;
    world.at_rest().await;
    assert_eq!(world.engine.started().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn wakes_during_a_run_are_one_follow_up_that_knows_every_comment() {
    let world = World::new().await;
    let ada = world.agent("ada").await;
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let first = world.next_run(&[]).await;
    let comments = format!("/api/issues/{ticket}/comments");
    for i in 0..7 {
        let body = json!({ "body": format!("more {i}") });
        assert_eq!(world.person("POST", &comments, body).await.status, 201);
    }
    let why = world
        .person("GET", &format!("/api/issues/{ticket}/why"), json!({}))
        .await
        .body;
    assert_eq!(why["wakes"].as_array().unwrap().len(), 1, "{why}");
    assert!(text(&why["summary"]).contains("works on it"), "{why}");
    first.exits(Exit::Code(0));
    let second = world.next_run(&[&first.run]).await;
    let spec = world.engine.0.lock().unwrap().started[1].clone();
    let payload = spec
        .env
        .iter()
        .find(|(n, _)| n == "PAPERCLIP_WAKE_PAYLOAD_JSON")
        .unwrap();
    let payload: serde_json::Value = serde_json::from_str(&payload.1).unwrap();
    assert_eq!(payload["comments"].as_array().unwrap().len(), 7);
    assert_eq!(payload["reason"], "issue_commented");
    second.done(&ticket).await;
    world.at_rest().await;
    assert_eq!(world.engine.started().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn own_writes_never_wake_the_writer_and_anothers_do() {
    let world = World::new().await;
    let (ada, bob) = (world.agent("ada").await, world.agent("bob").await);
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let run = world.next_run(&[]).await;
    let mention = format!("done, I think [@ada](agent://{ada})");
    assert_eq!(run.comment(&ticket, &mention).await.status, 201);
    let mine = json!({ "title": "mine", "assigneeAgentId": ada, "parentId": ticket });
    let child = run
        .ask(
            "POST",
            &format!("/api/companies/{}/issues", world.company),
            mine,
        )
        .await;
    assert_eq!(child.status, 201, "{child:?}");
    assert_eq!(
        run.set(&text(&child.body["id"]), json!({ "priority": "low" }))
            .await
            .status,
        200
    );
    run.done(&ticket).await;
    world.at_rest().await;
    assert_eq!(
        world.engine.started().len(),
        1,
        "nothing of its own woke it"
    );

    // The control: bob is mentioned and wakes; his comment wakes ada.
    let two = world
        .ticket(json!({ "title": "two", "assigneeAgentId": ada }))
        .await;
    let run2 = world.next_run(&[&run.run]).await;
    let mention = format!("help, [@bob](agent://{bob})");
    assert_eq!(run2.comment(&two, &mention).await.status, 201);
    let end =
        json!({ "status": "blocked", "unblockDescriptor": { "owner": "ann", "action": "look" } });
    assert_eq!(run2.set(&two, end).await.status, 200);
    run2.exits(Exit::Code(0));
    let bobs = world.next_run(&[&run.run, &run2.run]).await;
    assert_eq!(world.run(&bobs.run).await["agentId"], json!(bob));
    assert_eq!(bobs.comment(&two, "like this").await.status, 201);
    bobs.exits(Exit::Code(0));
    let again = world.next_run(&[&run.run, &run2.run, &bobs.run]).await;
    assert_eq!(world.run(&again.run).await["agentId"], json!(ada));
    again.done(&two).await;
    world.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_agent_gets_one_corrective_run_and_then_the_ticket_is_parked() {
    let world = World::new().await;
    let ada = world.agent("ada").await;
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let first = world.next_run(&[]).await;
    first.exits(Exit::Code(0));
    let second = world.next_run(&[&first.run]).await;
    assert_eq!(world.run(&second.run).await["corrective"], true);
    second.exits(Exit::Code(0));
    world.ended(&second.run).await;
    world.at_rest().await;
    assert_eq!(world.engine.started().len(), 2);
    let issue = world.issue(&ticket).await;
    assert_eq!(issue["status"], "blocked");
    assert!(issue["unblockDescriptor"]["owner"]["id"].is_string());
    let last = world
        .person("GET", &format!("/api/issues/{ticket}/comments"), json!({}))
        .await
        .body;
    assert_eq!(last[0]["authorType"], "system");
    assert!(text(&last[0]["body"]).contains("must act"), "{last}");

    // Assigning it again, to the same agent, is asking it to go on.
    let assign = json!({ "assigneeAgentId": ada });
    let changed = world
        .person("PATCH", &format!("/api/issues/{ticket}"), assign)
        .await;
    assert_eq!(changed.body["status"], "todo", "{changed:?}");
    let third = world.next_run(&[&first.run, &second.run]).await;
    assert_eq!(world.run(&third.run).await["corrective"], false);
    third.done(&ticket).await;
    world.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_a_run_ends_frees_ticket_and_agent_and_says_why() {
    let world = World::new().await;
    let ada = world.agent("ada").await;
    let mut known: Vec<String> = Vec::new();
    for (i, end) in ["exit 3", "signal", "cancel", "refused"]
        .into_iter()
        .enumerate()
    {
        if end == "refused" {
            world.engine.0.lock().unwrap().refuse = Some("no limits here".into());
        }
        let ticket = world
            .ticket(json!({ "title": format!("t{i}"), "assigneeAgentId": ada }))
            .await;
        if end != "refused" {
            let seen: Vec<&str> = known.iter().map(String::as_str).collect();
            let run = world.next_run(&seen).await;
            match end {
                "exit 3" => run.exits(Exit::Code(3)),
                "signal" => run.exits(Exit::Signal(11)),
                _ => {
                    let target = format!("/api/heartbeat-runs/{}/cancel", run.run);
                    assert_eq!(world.person("POST", &target, json!({})).await.status, 200);
                }
            }
            world.ended(&run.run).await;
            assert_eq!(
                run.ask("GET", "/api/agents/me", json!({})).await.status,
                401,
                "{end}"
            );
            known.push(run.run.clone());
        }
        let issue = eventually("the ticket is parked", || async {
            let issue = world.issue(&ticket).await;
            (issue["status"] == "blocked").then_some(issue)
        })
        .await;
        assert_eq!(issue["checkoutRunId"], json!(null), "{end}");
        world.at_rest().await;
    }
    assert!(
        world.gate.lock().unwrap().open.is_empty(),
        "every run was closed at the gate"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn finished_tickets_wake_nobody_until_reopened() {
    let world = World::new().await;
    let ada = world.agent("ada").await;
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let run = world.next_run(&[]).await;
    run.done(&ticket).await;
    let comments = format!("/api/issues/{ticket}/comments");
    world
        .person("POST", &comments, json!({ "body": "thanks" }))
        .await;
    let woken = world
        .person(
            "POST",
            &format!("/api/agents/{ada}/wakeup"),
            json!({ "issueId": ticket }),
        )
        .await;
    assert_eq!(woken.body["status"], "skipped", "{woken:?}");
    world.at_rest().await;
    assert_eq!(world.engine.started().len(), 1);
    let released = world
        .person("POST", &format!("/api/issues/{ticket}/release"), json!({}))
        .await;
    assert_eq!(released.body["status"], "done", "release never revives");
    let assign = json!({ "assigneeAgentId": ada });
    world
        .person("PATCH", &format!("/api/issues/{ticket}"), assign)
        .await;
    world.at_rest().await;
    assert_eq!(world.engine.started().len(), 1);
    world
        .person(
            "POST",
            &comments,
            json!({ "body": "not yet right", "reopen": true }),
        )
        .await;
    let again = world.next_run(&[&run.run]).await;
    again.done(&ticket).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocker_that_is_done_wakes_what_waited_for_it() {
    let world = World::new().await;
    let (ada, bob) = (world.agent("ada").await, world.agent("bob").await);
    let one = world.ticket(json!({ "title": "one" })).await;
    let body = json!({ "title": "two", "assigneeAgentId": bob, "blockedByIssueIds": [one] });
    let two = world.ticket(body).await;
    let why = world
        .person("GET", &format!("/api/issues/{two}/why"), json!({}))
        .await
        .body;
    assert!(text(&why["summary"]).contains("waits for ACM-1"), "{why}");
    let assign = json!({ "assigneeAgentId": ada });
    world
        .person("PATCH", &format!("/api/issues/{one}"), assign)
        .await;
    let first = world.next_run(&[]).await;
    assert_eq!(world.run(&first.run).await["agentId"], json!(ada));
    first.done(&one).await;
    let second = world.next_run(&[&first.run]).await;
    assert_eq!(world.run(&second.run).await["agentId"], json!(bob));
    second.done(&two).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_proven_boundary_nothing_starts_and_why_says_so() {
    let world = World::new().await;
    world.gate.lock().unwrap().boundary_ok = false;
    let ada = world.agent("ada").await;
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let why = world
        .person("GET", &format!("/api/issues/{ticket}/why"), json!({}))
        .await
        .body;
    assert!(
        text(&why["summary"]).contains("boundary is not proven"),
        "{why}"
    );
    assert!(world.engine.started().is_empty());
    world.gate.lock().unwrap().boundary_ok = true;
    let run = world.next_run(&[]).await;
    // A gate that was restarted has forgotten the run and is told again.
    world.gate.lock().unwrap().open.clear();
    eventually("the run is open again", || async {
        world
            .gate
            .lock()
            .unwrap()
            .open
            .contains_key(&run.run)
            .then_some(())
    })
    .await;
    run.done(&ticket).await;
    assert!(world.gate.lock().unwrap().extended > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_timeline_joins_wake_run_requests_and_comments() {
    let world = World::new().await;
    let ada = world.agent("ada").await;
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let run = world.next_run(&[]).await;
    let time = orchestrator::model::time::iso(world.store.now());
    world.gate.lock().unwrap().audit = vec![
        json!({ "kind": "request", "id": "a", "run": run.run, "time": time, "verdict": "allow", "method": "GET",
                "authority": "github.com:443", "path": "/x", "rule": "git", "credential": "github" }),
        json!({ "kind": "response", "id": "a", "run": run.run, "time": time, "status": 200, "bytes_out": 7 }),
        json!({ "kind": "refusal", "id": "b", "run": run.run, "time": time, "verdict": "refuse",
                "code": "destination_not_listed", "authority": "evil.example:443", "method": "CONNECT" }),
    ];
    run.comment(&ticket, "two\nlines\u{1b}[31m").await;
    run.done(&ticket).await;
    let found = world
        .person("GET", &format!("/api/issues/{ticket}/timeline"), json!({}))
        .await
        .body;
    let text = orchestrator::timeline::render::text(&found);
    for part in [
        "woke the agent: issue_assigned",
        "run started",
        "allowed GET github.com:443/x rule=git credential=github status=200 received=7",
        "REFUSED CONNECT evil.example:443- code=destination_not_listed",
        "| two\n",
        "agent:ada",
        "run succeeded",
    ] {
        assert!(text.contains(part), "{part} not in\n{text}");
    }
    assert!(!text.contains('\u{1b}'));
}
