//! Costs, the dashboard, the tree of agents, and what this board does not have.

use serde_json::{Value, json};

use crate::support::{World, text};

#[tokio::test(flavor = "multi_thread")]
async fn costs_are_reported_for_oneself_and_add_up() {
    let world = World::new().await;
    let (ada, bob) = (world.agent("ada").await, world.agent("bob").await);
    let of = |rest: &str| format!("/api/companies/{}{rest}", world.company);
    let project = world
        .person("POST", &of("/projects"), json!({ "name": "Web" }))
        .await;
    let project = text(&project.body["id"]);
    let ticket = json!({ "title": "one", "assigneeAgentId": ada, "projectId": project });
    let ticket = world.ticket(ticket).await;
    let run = world.next_run(&[]).await;
    let cost = |agent: &str, cents: i64| {
        json!({ "agentId": agent, "provider": "anthropic", "model": "m", "costCents": cents,
                "occurredAt": orchestrator::model::time::iso(world.store.now()),
                "inputTokens": 10, "outputTokens": 5 })
    };
    let mut first = cost(&ada, 7);
    first["issueId"] = json!(ticket);
    let first = run.ask("POST", &of("/cost-events"), first).await;
    assert_eq!(first.status, 201, "{first:?}");
    assert_eq!(first.body["projectId"], json!(project));
    assert_eq!(first.body["heartbeatRunId"], json!(run.run));
    let others = run.ask("POST", &of("/cost-events"), cost(&bob, 7)).await;
    assert_eq!(
        (others.status, &others.body["code"]),
        (403, &json!("cost_of_other_agent"))
    );
    let by_person = world
        .person("POST", &of("/cost-events"), cost(&bob, 20))
        .await;
    assert_eq!(by_person.status, 201, "{by_person:?}");
    for (field, bad, status) in [
        ("costCents", json!(-1), 400),
        ("costCents", json!(0.5), 400),
        ("costCents", json!(i64::MAX), 400),
        ("inputTokens", json!(-1), 400),
        ("occurredAt", json!("yesterday"), 400),
        ("provider", json!(""), 400),
        ("model", Value::Null, 400),
        ("issueId", json!("nothing"), 404),
        ("heartbeatRunId", json!("nothing"), 404),
    ] {
        let mut body = cost(&ada, 1);
        body[field] = bad;
        let answer = run.ask("POST", &of("/cost-events"), body).await;
        assert_eq!(answer.status, status, "{field}: {answer:?}");
    }
    let sums = run.ask("GET", &of("/costs/summary"), json!({})).await.body;
    assert_eq!(
        (&sums["spendCents"], &sums["events"]),
        (&json!(27), &json!(2))
    );
    assert_eq!(sums["inputTokens"], json!(20));
    let agents = run.ask("GET", &of("/costs/by-agent"), json!({})).await.body;
    assert_eq!(
        (&agents[0]["agentName"], &agents[0]["costCents"]),
        (&json!("bob"), &json!(20))
    );
    assert_eq!(
        (&agents[1]["agentId"], &agents[1]["costCents"]),
        (&json!(ada), &json!(7))
    );
    let projects = run
        .ask("GET", &of("/costs/by-project"), json!({}))
        .await
        .body;
    assert_eq!(projects[0]["projectId"], Value::Null);
    assert_eq!(
        (&projects[1]["projectName"], &projects[1]["costCents"]),
        (&json!("Web"), &json!(7))
    );
    let before = run
        .ask(
            "GET",
            &of("/costs/summary?to=2000-01-01T00:00:00Z"),
            json!({}),
        )
        .await;
    assert_eq!(before.body["spendCents"], json!(0));
    let odd = run
        .ask("GET", &of("/costs/summary?from=odd"), json!({}))
        .await;
    assert_eq!(odd.status, 400);
    let me = run.ask("GET", "/api/agents/me", json!({})).await.body;
    assert_eq!(me["spentMonthlyCents"], json!(7));
    let board = run.ask("GET", &of("/dashboard"), json!({})).await.body;
    assert_eq!(board["costs"]["monthSpendCents"], json!(27));
    assert_eq!(board["tasks"]["in_progress"], json!(1));
    assert_eq!(board["tasks"]["open"], json!(1));
    assert_eq!(board["agents"]["running"], json!(1));
    assert_eq!(board["agents"]["active"], json!(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tree_of_agents_and_what_is_not_here() {
    let world = World::new().await;
    let ada = world.agent("ada").await;
    let of = |rest: &str| format!("/api/companies/{}{rest}", world.company);
    let bob = json!({ "name": "bob", "reportsTo": ada,
                      "adapter": { "adapter": "process", "command": ["x"] } });
    world.person("POST", &of("/agents"), bob).await;
    world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let run = world.next_run(&[]).await;
    let tree = run.ask("GET", &of("/org"), json!({})).await.body;
    assert_eq!(tree.as_array().map(Vec::len), Some(1));
    assert_eq!(tree[0]["name"], "ada");
    assert_eq!(tree[0]["reports"][0]["name"], "bob");
    for rest in [
        "/secrets",
        "/secret-proposals",
        "/decisions",
        "/cases",
        "/skills",
    ] {
        let list = run.ask("GET", &of(rest), json!({})).await;
        assert_eq!((list.status, &list.body), (200, &json!([])), "{rest}");
        let no = run.ask("POST", &of(rest), json!({})).await;
        assert_eq!(
            (no.status, &no.body["code"]),
            (403, &json!("not_part_of_this_board")),
            "{rest}"
        );
    }
    let own = run.ask("GET", "/api/agents/me/secrets", json!({})).await;
    assert_eq!((own.status, &own.body), (200, &json!([])));
    let keys = run
        .ask("POST", &format!("/api/agents/{ada}/keys"), json!({}))
        .await;
    assert_eq!(keys.status, 403);
}
