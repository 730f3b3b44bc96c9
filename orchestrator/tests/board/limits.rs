//! Loops and floods: each ends by itself, says so, and leaves a person free to go on.

use orchestrator::container::Exit;
use orchestrator::model::run::Outcome;
use orchestrator::model::{Actor, RunStatus};
use orchestrator::scheduler::admission::{CHAIN, HOURLY};
use orchestrator::store::{runs, wakes};
use serde_json::json;

use crate::support::{World, eventually, text};

#[tokio::test(flavor = "multi_thread")]
async fn two_agents_that_wake_each_other_stop_and_a_person_can_go_on() {
    let world = World::new().await;
    let (ada, bob) = (world.agent("ada").await, world.agent("bob").await);
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let issues = format!("/api/companies/{}/issues", world.company);
    let mut known: Vec<String> = Vec::new();
    let mut about = ticket.clone();
    for turn in 0..=CHAIN {
        let seen: Vec<&str> = known.iter().map(String::as_str).collect();
        let run = world.next_run(&seen).await;
        if turn == 0 {
            let done = run.set(&ticket, json!({ "status": "done" })).await;
            assert_eq!(done.status, 200);
        }
        let other = if turn % 2 == 0 { &bob } else { &ada };
        // On a ticket of its own each time: nothing else than the chain ends it.
        let new = json!({ "title": format!("turn {turn}") });
        about = text(&run.ask("POST", &issues, new).await.body["id"]);
        let ping = run
            .comment(&about, &format!("[@you](agent://{other})"))
            .await;
        assert_eq!(ping.status, 201);
        run.exits(Exit::Code(0));
        world.ended(&run.run).await;
        known.push(run.run.clone());
    }
    world.at_rest().await;
    assert_eq!(world.engine.started().len() as i64, CHAIN + 1);
    let why = world
        .person("GET", &format!("/api/issues/{about}/why"), json!({}))
        .await;
    assert_eq!(why.body["earlierAnswers"][0]["facts"]["gate"], "chain");
    let body = json!({ "body": format!("[@Ada](agent://{ada}) go on") });
    world
        .person("POST", &format!("/api/issues/{ticket}/comments"), body)
        .await;
    let seen: Vec<&str> = known.iter().map(String::as_str).collect();
    world.next_run(&seen).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_hands_out_work_without_end_wakes_another_only_so_often() {
    let mut world = World::idle().await;
    let (ada, bob) = (world.agent("ada").await, world.agent("bob").await);
    let asked = |run: String, count: i64| {
        let (ada, bob) = (ada.clone(), bob.clone());
        let company = world.company.clone();
        let store = world.store.clone();
        async move {
            let actor = Actor::Agent {
                agent: ada,
                company,
                run,
                ticket: None,
            };
            store
                .write(actor, move |w| {
                    for number in 0..count {
                        let id: String = w.query_row(
                            "SELECT id FROM tickets WHERE title = ?",
                            [format!("t{number}")],
                            |row| row.get(0),
                        )?;
                        wakes::admit(
                            w,
                            wakes::Ask::about(&bob, &id, orchestrator::model::Reason::Commented),
                        )?;
                    }
                    Ok(wakes::all_queued(w)?
                        .iter()
                        .filter(|wake| wake.agent == bob)
                        .count())
                })
                .await
                .unwrap()
        }
    };
    for number in 0..HOURLY + 10 {
        world.ticket(json!({ "title": format!("t{number}") })).await;
    }
    let own = world
        .ticket(json!({ "title": "own", "assigneeAgentId": ada }))
        .await;
    let claimed = world
        .store
        .write(Actor::System, |w| {
            let wake = wakes::all_queued(w)?.remove(0);
            runs::claim(w, &wake.id, &[0])
        })
        .await
        .unwrap();
    assert_eq!(claimed.run.ticket.as_deref(), Some(own.as_str()));
    assert_eq!(
        asked(claimed.run.id.clone(), HOURLY + 10).await as i64,
        HOURLY
    );
    let person = json!({ "assigneeAgentId": bob });
    let last = world.ticket(json!({ "title": "by a person" })).await;
    world
        .person("PATCH", &format!("/api/issues/{last}"), person)
        .await;
    let queued = world.store.read(wakes::all_queued).await.unwrap();
    assert_eq!(queued.len() as i64, HOURLY + 1);
    world.start();
}

#[tokio::test(flavor = "multi_thread")]
async fn tickets_nest_so_deep_and_no_deeper_by_any_way() {
    let world = World::new().await;
    let mut chain = vec![world.ticket(json!({ "title": "0" })).await];
    for level in 1..8 {
        let body = json!({ "title": level.to_string(), "parentId": chain.last() });
        chain.push(world.ticket(body).await);
    }
    let issues = format!("/api/companies/{}/issues", world.company);
    let body = json!({ "title": "8", "parentId": chain.last() });
    assert_eq!(world.person("POST", &issues, body).await.status, 422);
    let top = world.ticket(json!({ "title": "top" })).await;
    let middle = world
        .ticket(json!({ "title": "middle", "parentId": top }))
        .await;
    let set = |id: &str, parent: &str| {
        let (target, body) = (format!("/api/issues/{id}"), json!({ "parentId": parent }));
        let world = &world;
        async move { world.person("PATCH", &target, body).await.status }
    };
    assert_eq!(set(&top, &chain[7]).await, 422, "beneath the deepest");
    assert_eq!(
        set(&top, &chain[6]).await,
        422,
        "its own child would be too deep"
    );
    assert_eq!(
        set(&chain[0], &top).await,
        422,
        "what is beneath would be too deep"
    );
    assert_eq!(set(&top, &middle).await, 422, "a circle");
    assert_eq!(set(&top, &chain[5]).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_run_writes_is_bounded_in_bytes_and_so_is_what_a_list_carries() {
    let world = World::new().await;
    let ada = world.agent("ada").await;
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let run = world.next_run(&[]).await;
    let half = "x".repeat(512 * 1024);
    let mut written = 0;
    let refused = loop {
        let answer = run.comment(&ticket, &half).await;
        if answer.status != 201 {
            break answer;
        }
        written += 1;
    };
    assert_eq!(refused.body["code"], "run_write_limit", "{refused:?}");
    assert_eq!(written, 127);
    let target = format!("/api/issues/{ticket}/comments?order=asc");
    let page = run.ask("GET", &target, json!({})).await;
    let page = page.body.as_array().unwrap().clone();
    assert_eq!(page.len(), 16);
    let rest = format!("{target}&after={}", text(&page[15]["id"]));
    let next = run.ask("GET", &rest, json!({})).await;
    assert_eq!(next.body.as_array().unwrap().len(), 16);
}

/// The corrective run cannot be had: the ticket is parked, not left in progress for nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_corrective_run_parks_the_ticket() {
    let world = World::idle().await;
    let ada = world.agent("ada").await;
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let end = |run: String| {
        let store = world.store.clone();
        async move {
            let outcome = Outcome {
                status: RunStatus::Succeeded,
                exit: Some(Exit::Code(0)),
                reason: "exit code 0".to_owned(),
                retry: false,
            };
            store
                .write(Actor::System, move |w| {
                    runs::begin_end(w, &run, &outcome)?;
                    runs::finish(w, &run)
                })
                .await
                .unwrap();
        }
    };
    let claim = || async {
        let change = |w: &mut orchestrator::store::Writer<'_>| {
            let wake = wakes::all_queued(w)?.remove(0);
            runs::claim(w, &wake.id, &[0])
        };
        world
            .store
            .write(Actor::System, change)
            .await
            .unwrap()
            .run
            .id
    };
    let run = claim().await;
    for number in 0..wakes::QUEUE {
        let body = json!({ "title": format!("t{number}"), "assigneeAgentId": ada });
        world.ticket(body).await;
    }
    end(run).await;
    let parked = world.issue(&ticket).await;
    assert_eq!(parked["status"], "blocked", "{parked}");
    // With room in the queue there is a corrective run, and the ticket waits for it.
    let run = claim().await;
    let second = text(&world.run(&run).await["issueId"]);
    end(run).await;
    assert_eq!(world.issue(&second).await["status"], "in_progress");
}

/// A run that could not begin leaves its wake as it was, its comments included.
#[tokio::test(flavor = "multi_thread")]
async fn a_retried_wake_forgets_no_comment_and_waits_longer_each_time() {
    let world = World::idle().await;
    let ada = world.agent("ada").await;
    let ticket = world.ticket(json!({ "title": "one" })).await;
    world
        .person(
            "PATCH",
            &format!("/api/issues/{ticket}"),
            json!({ "assigneeAgentId": ada }),
        )
        .await;
    let say = |body: &str| {
        let (target, body) = (
            format!("/api/issues/{ticket}/comments"),
            json!({ "body": body }),
        );
        let world = &world;
        async move { text(&world.person("POST", &target, body).await.body["id"]) }
    };
    let mut said = vec![say("first").await];
    let mut waits = Vec::new();
    for round in 0..3 {
        let (claimed, now) = (
            world
                .store
                .write(Actor::System, |w| {
                    w.execute("UPDATE wakes SET not_before = 0 WHERE state = 'queued'", [])?;
                    let wake = wakes::all_queued(w)?.remove(0);
                    runs::claim(w, &wake.id, &[0])
                })
                .await
                .unwrap(),
            world.store.now(),
        );
        if round == 1 {
            said.push(say("meanwhile").await);
        }
        let outcome = Outcome {
            status: RunStatus::Failed,
            exit: None,
            reason: "the gate is away".to_owned(),
            retry: true,
        };
        let id = claimed.run.id.clone();
        world
            .store
            .write(Actor::System, move |w| {
                runs::begin_end(w, &id, &outcome)?;
                runs::finish(w, &id)
            })
            .await
            .unwrap();
        let queued = world.store.read(wakes::all_queued).await.unwrap();
        assert_eq!(queued.len(), 1);
        assert_eq!(queued[0].comments, said, "round {round}");
        waits.push(queued[0].not_before - now);
        assert_eq!(world.issue(&ticket).await["status"], "todo");
    }
    assert!(waits[1] > waits[0], "{waits:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn terminating_an_agent_or_releasing_its_ticket_stops_its_run() {
    for how in ["terminate", "release"] {
        let world = World::new().await;
        let ada = world.agent("ada").await;
        let ticket = world
            .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
            .await;
        let run = world.next_run(&[]).await;
        let answer = if how == "terminate" {
            world
                .person(
                    "PATCH",
                    &format!("/api/agents/{ada}"),
                    json!({ "status": "terminated" }),
                )
                .await
        } else {
            world
                .person("POST", &format!("/api/issues/{ticket}/release"), json!({}))
                .await
        };
        assert_eq!(answer.status, 200, "{how}: {answer:?}");
        let ended = world.ended(&run.run).await;
        assert_eq!(ended["status"], "cancelled", "{how}");
        eventually("no process is left", || async {
            world
                .engine
                .0
                .lock()
                .unwrap()
                .alive
                .is_empty()
                .then_some(())
        })
        .await;
    }
}
