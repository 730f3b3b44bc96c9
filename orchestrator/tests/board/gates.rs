//! The gates between a wake and a run: each shut alone, named by `why` with its fact, and open again.

use orchestrator::container::Exit;
use orchestrator::model::{Actor, Profile, time};
use orchestrator::scheduler::admission::IDLE;
use orchestrator::store::profiles;
use serde_json::{Value, json};

use crate::support::{World, text};

async fn configure(world: &World, profile: Profile) {
    world
        .store
        .write(Actor::System, move |w| profiles::replace(w, &[profile]))
        .await
        .unwrap();
    world.store.kick();
}

/// The gates of the one wake of a ticket that are shut.
async fn shut(world: &World, ticket: &str) -> Vec<Value> {
    let target = format!("/api/issues/{ticket}/why");
    let why = world.person("GET", &target, json!({})).await.body;
    let gates = why["wakes"][0]["gates"].as_array().cloned();
    let gates = gates.unwrap_or_default();
    let names: Vec<&str> = gates.iter().filter_map(|g| g["gate"].as_str()).collect();
    for name in [
        "assigned",
        "agent_active",
        "blockers_done",
        "budget",
        "concurrency",
        "ticket_free",
        "agent_free",
        "boundary_proven",
        "gate_ready",
        "engine_ready",
        "quiet_hours",
    ] {
        assert!(names.contains(&name), "{name}: {why}");
    }
    assert!(gates.iter().all(|gate| gate["fact"] != ""), "{why}");
    gates
        .into_iter()
        .filter(|g| g["open"] == json!(false))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spent_budget_stops_the_run_asks_a_person_and_holds_the_next() {
    let world = World::new().await;
    let ada = world.worker("ada").await;
    let agent = format!("/api/agents/{ada}");
    let company = format!("/api/companies/{}", world.company);
    for (target, scope) in [(&agent, "agent"), (&company, "company")] {
        let spent = format!("{company}/costs/summary");
        let spent = world.person("GET", &spent, json!({})).await.body["spendCents"].as_i64();
        let limit = json!({ "budgetMonthlyCents": spent.unwrap() + 100 });
        assert_eq!(world.person("PATCH", target, limit).await.status, 200);
        let started = world.engine.started();
        let known: Vec<&str> = started.iter().map(String::as_str).collect();
        let ticket = json!({ "title": scope, "assigneeAgentId": ada });
        let ticket = world.ticket(ticket).await;
        let run = world.next_run(&known).await;
        let no = run
            .ask("PATCH", target, json!({ "budgetMonthlyCents": 999 }))
            .await;
        assert_eq!(
            (no.status, &no.body["code"]),
            (403, &json!("operators_only"))
        );
        let cost = json!({ "agentId": ada, "provider": "p", "model": "m", "costCents": 100,
                           "occurredAt": time::iso(world.store.now()) });
        for _twice in 0..2 {
            let cost = cost.clone();
            run.ask("POST", &format!("{company}/cost-events"), cost)
                .await;
        }
        let ended = world.ended(&run.run).await;
        assert_eq!(ended["status"], "cancelled", "cut while it runs");
        let again = json!({ "assigneeAgentId": ada, "status": "todo" });
        world
            .person("PATCH", &format!("/api/issues/{ticket}"), again)
            .await;
        let closed = shut(&world, &ticket).await;
        assert_eq!(closed.len(), 1, "{closed:?}");
        assert_eq!(closed[0]["gate"], "budget");
        assert!(text(&closed[0]["fact"]).contains(scope), "{closed:?}");
        let all = format!("{company}/approvals?status=pending");
        let all = world.person("GET", &all, json!({})).await.body;
        assert_eq!(all.as_array().map(Vec::len), Some(1), "asked once: {all}");
        assert_eq!(all[0]["type"], "budget_override_required");
        let target = format!("/api/approvals/{}/approve", text(&all[0]["id"]));
        assert_eq!(world.person("POST", &target, json!({})).await.status, 200);
        let known: Vec<&str> = known.into_iter().chain([run.run.as_str()]).collect();
        let resumed = world.next_run(&known).await;
        resumed.done(&ticket).await;
        world
            .person("PATCH", &agent, json!({ "budgetMonthlyCents": null }))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn quiet_hours_and_full_profiles_hold_a_run_until_they_are_over() {
    let world = World::new().await;
    let now = world.store.now();
    let hour = |at: i64| time::iso(at)[11..16].to_owned();
    let quiet = format!("{}-{}", hour(now - 3_600_000), hour(now + 3_600_000));
    let plain = || Profile::plain("night");
    let cases = [
        (
            "quiet_hours",
            Profile {
                quiet: Some(quiet),
                ..plain()
            },
        ),
        (
            "concurrency",
            Profile {
                concurrent: Some(0),
                ..plain()
            },
        ),
        (
            "concurrency",
            Profile {
                concurrent: Some(0),
                ..Profile::plain("*")
            },
        ),
    ];
    let bob = world.hired("bob", json!({ "profile": "night" })).await;
    for (number, (gate, profile)) in cases.into_iter().enumerate() {
        configure(&world, profile).await;
        let started = world.engine.started();
        let known: Vec<&str> = started.iter().map(String::as_str).collect();
        let ticket = json!({ "title": format!("{number}"), "assigneeAgentId": bob });
        let ticket = world.ticket(ticket).await;
        let closed = shut(&world, &ticket).await;
        assert_eq!(closed.len(), 1, "{closed:?}");
        assert_eq!(closed[0]["gate"], gate);
        configure(&world, plain()).await;
        world.next_run(&known).await.done(&ticket).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_that_change_nothing_stop_until_a_person_asks() {
    let world = World::new().await;
    let (ada, bob) = (world.agent("ada").await, world.agent("bob").await);
    let ticket = json!({ "title": "one", "assigneeUserId": "ann", "status": "in_review" });
    let ticket = world.ticket(ticket).await;
    let say = |body: String| {
        let target = format!("/api/issues/{ticket}/comments");
        let world = &world;
        async move { world.person("POST", &target, json!({ "body": body })).await }
    };
    let to = |agent: &str| format!("[@you](agent://{agent})");
    say(to(&ada)).await;
    let mut known: Vec<String> = Vec::new();
    // While the last one that counts is live, one fewer has ended: its mention still wakes.
    for turn in 0..=IDLE {
        let seen: Vec<&str> = known.iter().map(String::as_str).collect();
        let run = world.next_run(&seen).await;
        let other = if turn % 2 == 0 { &bob } else { &ada };
        assert_eq!(run.comment(&ticket, &to(other)).await.status, 201);
        run.exits(Exit::Code(0));
        world.ended(&run.run).await;
        known.push(run.run);
    }
    world.at_rest().await;
    assert_eq!(world.engine.started().len(), known.len());
    let why = format!("/api/issues/{ticket}/why");
    let why = world.person("GET", &why, json!({})).await.body;
    let last = &why["earlierAnswers"][0]["facts"]["gate"];
    assert_eq!(last, "no_progress", "{why}");
    let before = world.engine.started().len();
    say(to(&bob)).await;
    crate::support::eventually("a person's word starts one", || async {
        (world.engine.started().len() > before).then_some(())
    })
    .await;
}
