//! Projects, goals, labels and search.

use serde_json::{Value, json};

use crate::support::{World, text};

#[tokio::test(flavor = "multi_thread")]
async fn projects_goals_and_labels_are_peoples_and_tickets_are_found_by_them() {
    let world = World::new().await;
    let ada = world.agent("ada").await;
    let of = |rest: &str| format!("/api/companies/{}{rest}", world.company);
    let make = |what: &'static str, body: Value| {
        let (world, target) = (&world, of(what));
        async move { world.person("POST", &target, body).await }
    };
    let goal = make("/goals", json!({ "title": "Ship", "level": "company" })).await;
    let goal = text(&goal.body["id"]);
    let part = make("/goals", json!({ "title": "Test", "parentId": goal })).await;
    let project = make(
        "/projects",
        json!({ "name": "Web", "goalId": goal, "leadAgentId": "ada" }),
    );
    let project = text(&project.await.body["id"]);
    let label = make("/labels", json!({ "name": "bug", "color": "#ff0000" })).await;
    let label = text(&label.body["id"]);
    for (what, body, expected) in [
        ("/projects", json!({ "name": "Web" }), 409),
        ("/projects", json!({ "description": "nameless" }), 400),
        ("/projects", json!({ "name": "x", "status": "open" }), 400),
        (
            "/projects",
            json!({ "name": "x", "goalId": "nothing" }),
            404,
        ),
        (
            "/projects",
            json!({ "name": "x", "leadAgentId": "eve" }),
            404,
        ),
        ("/goals", json!({}), 400),
        ("/goals", json!({ "title": "x", "level": "galaxy" }), 400),
        ("/labels", json!({ "name": "bug" }), 409),
        ("/labels", json!({ "name": "x", "color": "red" }), 400),
        ("/labels", json!({ "name": "a\nb" }), 400),
    ] {
        let answer = make(what, body.clone()).await;
        assert_eq!(answer.status, expected, "{what} {body}: {answer:?}");
    }
    let circle = json!({ "parentId": part.body["id"] });
    let circle = world
        .person("PATCH", &format!("/api/goals/{goal}"), circle)
        .await;
    assert_eq!(circle.status, 422, "{circle:?}");
    let changed = json!({ "status": "completed", "goalId": null });
    let changed = world
        .person("PATCH", &format!("/api/projects/{project}"), changed)
        .await;
    assert_eq!(changed.body["status"], "completed");
    assert_eq!(changed.body["goalId"], Value::Null);

    let ticket = json!({ "title": "one", "assigneeAgentId": ada, "projectId": project,
                         "goalId": goal, "labelIds": ["bug"] });
    let ticket = world.ticket(ticket).await;
    world.ticket(json!({ "title": "another" })).await;
    let run = world.next_run(&[]).await;
    let seen = run
        .ask("GET", &format!("/api/issues/{ticket}"), json!({}))
        .await
        .body;
    assert_eq!(seen["project"]["name"], "Web");
    assert_eq!(seen["goal"]["title"], "Ship");
    assert_eq!(seen["labels"][0]["name"], "bug");
    let context = format!("/api/issues/{ticket}/heartbeat-context");
    let context = run.ask("GET", &context, json!({})).await.body;
    assert_eq!(context["project"]["id"], json!(project));
    for query in [
        format!("projectId={project}"),
        format!("goalId={goal}"),
        format!("labelId={label}"),
        "labelId=bug".to_owned(),
    ] {
        let found = run
            .ask("GET", &of(&format!("/issues?{query}")), json!({}))
            .await;
        assert_eq!(found.body.as_array().map(Vec::len), Some(1), "{query}");
        assert_eq!(found.body[0]["id"], json!(ticket));
    }
    // A run reads them; it makes, changes and removes none.
    for (method, target) in [
        ("POST", of("/projects")),
        ("POST", of("/goals")),
        ("POST", of("/labels")),
        ("PATCH", format!("/api/projects/{project}")),
        ("PATCH", format!("/api/goals/{goal}")),
        ("DELETE", format!("/api/labels/{label}")),
    ] {
        let answer = run
            .ask(method, &target, json!({ "name": "x", "title": "x" }))
            .await;
        assert_eq!(answer.status, 403, "{method} {target}: {answer:?}");
    }
    for (target, status) in [
        (of("/projects"), 200),
        (of("/goals"), 200),
        (of("/labels"), 200),
        (format!("/api/projects/{project}"), 200),
        (format!("/api/goals/{goal}"), 200),
        ("/api/goals/x".to_owned(), 404),
    ] {
        assert_eq!(
            run.ask("GET", &target, json!({})).await.status,
            status,
            "{target}"
        );
    }
    let cleared = run
        .set(&ticket, json!({ "labelIds": [], "projectId": null }))
        .await;
    assert_eq!(
        cleared.body["changes"]["labels"],
        json!({ "from": ["bug"], "to": [] })
    );
    assert_eq!(cleared.body["project"], Value::Null);
    run.set(&ticket, json!({ "labelIds": [label] })).await;
    let gone = world
        .person("DELETE", &format!("/api/labels/{label}"), json!({}))
        .await;
    assert_eq!(gone.body["name"], "bug");
    assert_eq!(world.issue(&ticket).await["labels"], json!([]));
    let activity = world
        .person("GET", &of("/activity"), json!({}))
        .await
        .body
        .to_string();
    for kind in [
        "project.created",
        "project.changed",
        "goal.created",
        "label.created",
        "label.removed",
    ] {
        assert!(activity.contains(kind), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn search_finds_words_everywhere_and_identifiers_exactly_whatever_is_typed() {
    let world = World::idle().await;
    let mut ids = Vec::new();
    for number in 1..=12 {
        ids.push(
            world
                .ticket(json!({ "title": format!("task {number}") }))
                .await,
        );
    }
    let title = world
        .ticket(json!({ "title": "Fix the Caf\u{e9} build" }))
        .await;
    let body = json!({ "title": "x", "description": "the compiler crashes on NEAR(a b)" });
    let body = world.ticket(body).await;
    let said = json!({ "body": "seen in production, see ACM-1" });
    world
        .person("POST", &format!("/api/issues/{}/comments", ids[4]), said)
        .await;
    let find = |query: String| {
        let world = &world;
        async move {
            let typed = orchestrator::operator_client::encode(&query);
            let target = format!("/api/companies/{}/issues?q={typed}", world.company);
            let found = world.person("GET", &target, json!({})).await;
            assert_eq!(found.status, 200, "{query}: {found:?}");
            let list = found.body.as_array().unwrap().clone();
            list.iter().map(|t| text(&t["id"])).collect::<Vec<_>>()
        }
    };
    for (query, expected) in [
        ("cafe", vec![&title]),
        ("CAFE\u{301}", vec![&title]),
        ("build fix", vec![&title]),
        ("buil", vec![&title]),
        ("build production", vec![]),
        ("compiler", vec![&body]),
        ("NEAR(a b)", vec![&body]),
        ("production", vec![&ids[4]]),
        // The ticket itself first, then who speaks of it; not ACM-10, ACM-11, ACM-12.
        ("acm-1", vec![&ids[0], &ids[4]]),
        ("ACM-12", vec![&ids[11]]),
        ("ACM-99", vec![]),
        ("(a b)", vec![&body]),
        ("()", vec![]),
    ] {
        let found = find(query.to_owned()).await;
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{query}");
    }
    for odd in [
        "\"",
        "\"\"",
        "'",
        "*",
        "a*",
        "\"a",
        "a\" OR \"b",
        "AND",
        "OR",
        "NOT",
        "NEAR",
        "NEAR(",
        "a AND",
        "title:fix",
        "{title}: x",
        "^fix",
        "-fix",
        "+",
        "a + b",
        "(",
        ")",
        "(((",
        "\\",
        ";",
        "--",
        "\0",
        "a\0b",
        "\u{24b6}",
        "\u{1f600}",
        "\u{301}",
        "fix\u{24b6}",
        "NULL",
        "?1",
        "$x",
        ":x",
    ] {
        find(odd.to_owned()).await;
    }
    // What is changed is found by its new words alone.
    let patch = json!({ "title": "Mend the roof" });
    world
        .person("PATCH", &format!("/api/issues/{title}"), patch)
        .await;
    assert_eq!(find("roof".into()).await, std::slice::from_ref(&title));
    assert!(find("cafe".into()).await.is_empty());
}
