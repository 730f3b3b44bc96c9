//! What agents may set others to: create, assign, wake; and who changes agents.

use orchestrator::container::Exit;
use orchestrator::model::profile::AgentWakes;
use orchestrator::model::{Actor, Profile};
use orchestrator::store::profiles;
use serde_json::{Value, json};

use crate::support::{World, text};

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_neither_creates_nor_assigns_nor_wakes_until_a_person_says_so() {
    let world = World::new().await;
    let (ada, bob) = (world.worker("ada").await, world.worker("bob").await);
    let others = world
        .ticket(json!({ "title": "bob's", "assigneeAgentId": bob, "status": "backlog" }))
        .await;
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let run = world.next_run(&[]).await;
    let me = run.ask("GET", "/api/agents/me", json!({})).await.body;
    for may in ["mayCreate", "mayAssign", "mayWake"] {
        assert_eq!(me["permissions"][may], json!(false), "{may}");
    }
    let issues = format!("/api/companies/{}/issues", world.company);
    let create = json!({ "title": "more", "assigneeAgentId": ada });
    let give = json!({ "assigneeAgentId": bob });
    let mention = format!("[@bob](agent://{bob}) look");
    let no = run.ask("POST", &issues, create.clone()).await;
    assert_eq!((no.status, &no.body["code"]), (403, &json!("may_create")));
    let no = run.set(&ticket, give).await;
    assert_eq!((no.status, &no.body["code"]), (403, &json!("may_assign")));
    // What it writes stands, and wakes nobody.
    assert_eq!(run.comment(&ticket, &mention).await.status, 201);
    assert_eq!(run.comment(&others, "about yours").await.status, 201);
    let why = world
        .person("GET", &format!("/api/issues/{ticket}/why"), json!({}))
        .await;
    assert!(why.text.contains("may_wake"), "{why:?}");
    // To a person it may hand its own ticket.
    let person = json!({ "status": "in_review", "assigneeUserId": "ann" });
    assert_eq!(run.set(&ticket, person).await.status, 200);
    run.exits(Exit::Code(0));
    world.ended(&run.run).await;
    world.at_rest().await;
    assert_eq!(world.engine.started().len(), 1, "nobody else was woken");

    // Each by itself, from the moment a person says so.
    let say = json!({ "permissions": { "mayCreate": true, "mayAssign": true, "mayWake": true } });
    let said = world
        .person("PATCH", &format!("/api/agents/{ada}"), say)
        .await;
    assert_eq!(said.body["permissions"]["mayWake"], json!(true), "{said:?}");
    world
        .person(
            "PATCH",
            &format!("/api/issues/{ticket}"),
            json!({ "assigneeAgentId": ada, "status": "todo" }),
        )
        .await;
    let again = world.next_run(&[&run.run]).await;
    let made = again.ask("POST", &issues, create).await;
    assert_eq!(made.status, 201, "{made:?}");
    let give = json!({ "assigneeAgentId": bob, "status": "backlog" });
    let given = again.set(&text(&made.body["id"]), give).await;
    assert_eq!(given.status, 200, "{given:?}");
    assert_eq!(again.comment(&ticket, &mention).await.status, 201);
    again.done(&ticket).await;
    let bobs = world.next_run(&[&run.run, &again.run]).await;
    let prompt = world.prompt(&bobs.run);
    assert!(
        prompt.contains("woken by what another agent wrote (ada), not by a person"),
        "{prompt}"
    );
    let origin = &world.payload(&bobs.run)["origin"][0];
    assert_eq!(origin["actor"], json!(format!("agent:{ada}")));
    assert_eq!(origin["runId"], json!(again.run));
    assert!(!world.prompt(&again.run).contains("another agent wrote"));
    assert_eq!(world.payload(&again.run)["origin"][0]["type"], "user");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_can_want_a_person_to_approve_a_wake_or_take_none() {
    for (wakes, verb) in [
        (AgentWakes::Approve, "approve"),
        (AgentWakes::Approve, "reject"),
        (AgentWakes::Refuse, ""),
    ] {
        let world = World::new().await;
        let profile = Profile {
            agent_wakes: wakes,
            ..Profile::plain("deploy")
        };
        world
            .store
            .write(Actor::System, move |w| profiles::replace(w, &[profile]))
            .await
            .unwrap();
        let ada = world.agent("ada").await;
        let bob = world.hired("bob", json!({ "profile": "deploy" })).await;
        let ticket = world
            .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
            .await;
        let run = world.next_run(&[]).await;
        let words = format!("[@bob](agent://{bob}) deploy it");
        for _twice in 0..2 {
            assert_eq!(run.comment(&ticket, &words).await.status, 201);
        }
        run.done(&ticket).await;
        world.at_rest().await;
        assert_eq!(world.engine.started().len(), 1);
        let approvals = format!("/api/companies/{}/approvals", world.company);
        let all = world.person("GET", &approvals, json!({})).await.body;
        if wakes == AgentWakes::Refuse {
            assert_eq!(all, json!([]));
            // A person's word counts.
            let asked = json!({ "issueId": ticket });
            let wakeup = format!("/api/agents/{bob}/wakeup");
            let asked = world.person("POST", &wakeup, asked).await;
            assert_eq!(asked.body["gate"], "ticket_open", "{asked:?}");
            continue;
        }
        assert_eq!(all.as_array().map(Vec::len), Some(1), "asked once: {all}");
        assert_eq!(all[0]["type"], "wake_agent");
        assert_eq!(all[0]["payload"]["words"], json!(words));
        let id = text(&all[0]["id"]);
        let decided = world
            .person("POST", &format!("/api/approvals/{id}/{verb}"), json!({}))
            .await;
        assert_eq!(decided.status, 200, "{decided:?}");
        if verb == "approve" {
            let bobs = world.next_run(&[&run.run]).await;
            let payload = world.payload(&bobs.run);
            assert_eq!(payload["origin"][0]["type"], "user", "{payload}");
            assert_eq!(payload["payload"]["writtenByAgentId"], json!(ada));
            assert_eq!(payload["comments"][0]["body"], json!(words));
            bobs.exits(Exit::Code(0));
            world.ended(&bobs.run).await;
        } else {
            let told = world.next_run(&[&run.run]).await;
            assert_eq!(world.run(&told.run).await["agentId"], json!(ada));
            told.exits(Exit::Code(0));
            world.ended(&told.run).await;
        }
        world.at_rest().await;
        assert_eq!(world.engine.started().len(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_change_no_agent_but_may_ask_for_it() {
    let world = World::new().await;
    let (ada, bob) = (world.agent("ada").await, world.worker("bob").await);
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let run = world.next_run(&[]).await;
    let changes = [
        json!({ "role": "coordinator" }),
        json!({ "profile": "deploy" }),
        json!({ "adapter": { "adapter": "process", "command": ["/bin/other"] } }),
        json!({ "permissions": { "mayWake": true } }),
        json!({ "status": "terminated" }),
        json!({ "title": "chief" }),
        json!({ "reportsTo": ada }),
    ];
    let approvals = format!("/api/companies/{}/approvals", world.company);
    let shown = format!("/api/agents/{bob}");
    for change in &changes {
        for agent in [&ada, &bob] {
            let no = run
                .ask("PATCH", &format!("/api/agents/{agent}"), change.clone())
                .await;
            assert_eq!(
                (no.status, &no.body["code"]),
                (403, &json!("operators_only"))
            );
        }
        let ask = json!({ "type": "change_agent", "issueIds": [ticket],
                          "payload": { "agentId": bob, "changes": change } });
        let asked = run.ask("POST", &approvals, ask).await;
        assert_eq!(asked.status, 201, "{asked:?}");
        let before = world.person("GET", &shown, json!({})).await.body;
        let target = format!("/api/approvals/{}/approve", text(&asked.body["id"]));
        let decided = world.person("POST", &target, json!({})).await;
        assert_eq!(decided.status, 200, "{change}: {decided:?}");
        let after = world.person("GET", &shown, json!({})).await.body;
        assert_ne!(before, after, "{change}");
    }
    let unknown = json!({ "type": "change_agent",
                          "payload": { "agentId": bob, "changes": { "budget": 1 } } });
    assert_eq!(run.ask("POST", &approvals, unknown).await.status, 400);
    let circle = json!({ "reportsTo": bob });
    let circle = world
        .person("PATCH", &format!("/api/agents/{ada}"), circle)
        .await;
    assert_eq!(
        (circle.status, &circle.body["code"]),
        (422, &json!("reports_to_cycle"))
    );
    let clear = json!({ "reportsTo": Value::Null });
    let clear = world
        .person("PATCH", &format!("/api/agents/{bob}"), clear)
        .await;
    assert_eq!(
        (clear.status, &clear.body["reportsTo"]),
        (200, &Value::Null)
    );
}
