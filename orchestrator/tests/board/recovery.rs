//! Crashes and restarts: one outcome, no second run before the first is proven gone.

use orchestrator::container::Exit;
use serde_json::json;

use crate::support::{World, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_no_second_run_starts_before_the_first_is_proven_gone() {
    let world = World::new().await;
    let ada = world.agent("ada").await;
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let (run, token) = {
        let run = world.next_run(&[]).await;
        (run.run.clone(), run.token.clone())
    };
    world.engine.0.lock().unwrap().stubborn.push(run.clone());
    // A person asks for more meanwhile: this wake waits through the crash.
    let comments = format!("/api/issues/{ticket}/comments");
    world
        .person("POST", &comments, json!({ "body": "and this" }))
        .await;

    let mut world = world.killed_and_reborn().await;
    world.start();
    eventually("the old token is dead", || async {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str())];
        let answer = world
            .call("board.sock", "GET", "/api/agents/me", &headers, b"")
            .await;
        (answer.status == 401).then_some(())
    })
    .await;
    eventually("the run is closed at the gate", || async {
        world.gate.lock().unwrap().open.is_empty().then_some(())
    })
    .await;
    assert_eq!(world.run(&run).await["status"], "ending");
    let why = world
        .person("GET", &format!("/api/issues/{ticket}/why"), json!({}))
        .await
        .body;
    assert_eq!(why["liveRun"], json!(run), "{why}");
    assert_eq!(world.engine.started().len(), 1);

    world.engine.let_go(&run);
    let row = world.ended(&run).await;
    assert_eq!(row["status"], "lost");
    let second = world.next_run(&[&run]).await;
    let seen = world
        .person("GET", &format!("{comments}?order=asc"), json!({}))
        .await
        .body;
    assert!(
        seen.as_array()
            .unwrap()
            .iter()
            .any(|c| c["authorType"] == "system"),
        "{seen}"
    );
    second.done(&ticket).await;
    world.at_rest().await;
    assert_eq!(world.engine.started().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_the_ticket_is_parked_with_its_reason_and_nothing_starts_by_itself() {
    let world = World::new().await;
    let ada = world.agent("ada").await;
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let run = world.next_run(&[]).await.run;
    let mut world = world.killed_and_reborn().await;
    world.start();
    world.ended(&run).await;
    world.at_rest().await;
    assert_eq!(world.issue(&ticket).await["status"], "blocked");
    assert_eq!(world.engine.started().len(), 1);
    // Another start finds nothing to do at all.
    let mut world = world.killed_and_reborn().await;
    world.start();
    world.at_rest().await;
    assert_eq!(world.engine.started().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_stop_ends_its_runs() {
    let world = World::new().await;
    let ada = world.agent("ada").await;
    world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    world.next_run(&[]).await;
    let world = world.stopped().await;
    let left = world
        .store
        .read(orchestrator::store::runs::holding)
        .await
        .unwrap();
    assert!(left.is_empty(), "{left:?}");
    assert!(world.engine.0.lock().unwrap().alive.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_stopped_by_reassigning_is_gone_before_the_next_agent_starts() {
    let world = World::new().await;
    let (ada, bob) = (world.agent("ada").await, world.agent("bob").await);
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let first = world.next_run(&[]).await;
    world
        .engine
        .0
        .lock()
        .unwrap()
        .stubborn
        .push(first.run.clone());
    let assign = json!({ "assigneeAgentId": bob });
    let changed = world
        .person("PATCH", &format!("/api/issues/{ticket}"), assign)
        .await;
    assert_eq!(changed.status, 200);
    eventually("the old token is dead", || async {
        let answer = first.ask("GET", "/api/agents/me", json!({})).await;
        (answer.status == 401).then_some(())
    })
    .await;
    assert_eq!(world.engine.started().len(), 1);
    world.engine.let_go(&first.run);
    let second = world.next_run(&[&first.run]).await;
    assert_eq!(world.run(&second.run).await["agentId"], json!(bob));
    assert_eq!(world.run(&first.run).await["status"], "cancelled");
    second.exits(Exit::Code(1));
    world.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_during_a_slow_start_leaves_no_process_and_attempts_do_not_stack() {
    let world = World::new().await;
    world.engine.0.lock().unwrap().slow = true;
    let ada = world.agent("ada").await;
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let run = eventually("the run is claimed", || async {
        let issue = world.issue(&ticket).await;
        issue["executionRunId"].as_str().map(str::to_owned)
    })
    .await;
    for i in 0..5 {
        let body = json!({ "body": format!("now {i}") });
        world
            .person("POST", &format!("/api/issues/{ticket}/comments"), body)
            .await;
        world
            .person("POST", &format!("/api/agents/{ada}/wakeup"), json!({}))
            .await;
    }
    let queued = world
        .store
        .read(orchestrator::store::wakes::all_queued)
        .await
        .unwrap();
    assert_eq!(queued.len(), 1, "{queued:?}");
    let target = format!("/api/heartbeat-runs/{run}/cancel");
    assert_eq!(world.person("POST", &target, json!({})).await.status, 200);
    // Without the ticket the follow-up is moot.
    let away = json!({ "assigneeUserId": "ann" });
    world
        .person("PATCH", &format!("/api/issues/{ticket}"), away)
        .await;
    world.engine.0.lock().unwrap().slow = false;
    assert_eq!(world.ended(&run).await["status"], "cancelled");
    world.at_rest().await;
    assert!(world.engine.0.lock().unwrap().alive.is_empty());
    assert!(world.gate.lock().unwrap().open.is_empty());
    assert_eq!(world.engine.started().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_between_claim_and_start_parks_the_ticket_and_starts_nothing() {
    let mut world = World::idle().await;
    let ada = world.agent("ada").await;
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let claimed = world
        .store
        .write(orchestrator::model::Actor::System, |w| {
            let wake = orchestrator::store::wakes::all_queued(w)?.remove(0);
            orchestrator::store::runs::claim(w, &wake.id, &[0, 1])
        })
        .await
        .unwrap();
    world.start();
    assert_eq!(world.ended(&claimed.run.id).await["status"], "lost");
    world.at_rest().await;
    assert_eq!(world.issue(&ticket).await["status"], "blocked");
    assert!(world.engine.started().is_empty());
}

/// SIGKILL at every station of a start. Whatever exists then is gone before the ticket is parked;
/// nothing starts a second time; the gate and the token are shut.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_station_of_a_start_leaves_no_process_no_token_and_no_second_run() {
    for station in ["opened at the gate", "container made", "recorded"] {
        let world = World::new().await;
        let ada = world.agent("ada").await;
        {
            let mut machine = world.engine.0.lock().unwrap();
            machine.slow = station == "opened at the gate";
            machine.deaf = station == "container made";
        }
        let ticket = world
            .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
            .await;
        let (run, token) = eventually("the run is open at the gate", || async {
            let gate = world.gate.lock().unwrap();
            let (run, token) = gate.tokens.iter().next()?;
            Some((run.clone(), token.clone()))
        })
        .await;
        if station != "opened at the gate" {
            eventually(station, || async {
                let exists = !world.engine.started().is_empty();
                let recorded = world.run(&run).await["status"] == "running";
                (exists && (recorded || station == "container made")).then_some(())
            })
            .await;
        }
        let mut world = world.killed_and_reborn().await;
        {
            let mut machine = world.engine.0.lock().unwrap();
            machine.slow = false;
            machine.deaf = false;
        }
        world.start();
        assert_eq!(world.ended(&run).await["status"], "lost", "{station}");
        world.at_rest().await;
        assert_eq!(world.issue(&ticket).await["status"], "blocked", "{station}");
        assert!(world.engine.0.lock().unwrap().alive.is_empty(), "{station}");
        assert!(world.engine.started().len() <= 1, "{station}");
        assert!(world.gate.lock().unwrap().open.is_empty(), "{station}");
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str())];
        let late = world
            .call("board.sock", "GET", "/api/agents/me", &headers, b"")
            .await;
        assert_eq!(late.status, 401, "{station}");
    }
}
