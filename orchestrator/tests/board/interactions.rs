//! Questions on tickets: who may answer, in what form, what ends them, who is woken.

use orchestrator::container::Exit;
use serde_json::{Value, json};

use crate::support::{Agent, Answer, World, text};

fn confirm(key: &str) -> Value {
    json!({ "kind": "request_confirmation", "idempotencyKey": key, "title": "ok?",
            "payload": { "version": 1, "prompt": "Accept?" } })
}

async fn ask(run: &Agent<'_>, ticket: &str, body: Value) -> String {
    let asked = run
        .ask("POST", &format!("/api/issues/{ticket}/interactions"), body)
        .await;
    assert_eq!(asked.status, 201, "{asked:?}");
    assert_eq!(asked.body["status"], "pending");
    text(&asked.body["id"])
}

fn path(ticket: &str, id: &str, verb: &str) -> String {
    format!("/api/issues/{ticket}/interactions/{id}/{verb}")
}

async fn person(world: &World, ticket: &str, id: &str, verb: &str, body: Value) -> Answer {
    world.person("POST", &path(ticket, id, verb), body).await
}

async fn state(world: &World, ticket: &str, id: &str) -> (String, String) {
    let target = format!("/api/issues/{ticket}/interactions/{id}");
    let it = world.person("GET", &target, json!({})).await.body;
    let outcome = it["result"]["outcome"].as_str().unwrap_or_default();
    (text(&it["status"]), outcome.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_asks_does_not_answer_and_the_answer_wakes() {
    let world = World::new().await;
    let ada = world.agent("ada").await;
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let run = world.next_run(&[]).await;
    let review = json!({ "status": "in_review" });
    assert_eq!(run.set(&ticket, review.clone()).await.status, 422);
    // What its creator may answer itself, and what wakes nobody, is no way out.
    let own = json!({ "resolverPolicy": "anyone", "kind": "request_confirmation",
                      "payload": { "prompt": "x" } });
    let own = ask(&run, &ticket, own).await;
    let deaf = json!({ "continuationPolicy": "none", "kind": "request_confirmation",
                       "payload": { "prompt": "x" } });
    ask(&run, &ticket, deaf).await;
    assert_eq!(run.set(&ticket, review.clone()).await.status, 422);
    assert_eq!(
        run.ask("POST", &path(&ticket, &own, "accept"), json!({}))
            .await
            .status,
        200
    );

    let id = ask(&run, &ticket, confirm("k")).await;
    let target = format!("/api/issues/{ticket}/interactions");
    let again = run.ask("POST", &target, confirm("k")).await;
    assert_eq!((again.status, &again.body["id"]), (200, &json!(id)));
    let mut other = confirm("k");
    other["payload"]["prompt"] = json!("Accept something else?");
    assert_eq!(run.ask("POST", &target, other).await.status, 409);
    for verb in ["accept", "reject"] {
        let own = run.ask("POST", &path(&ticket, &id, verb), json!({})).await;
        assert_eq!(own.status, 403, "{own:?}");
        assert_eq!(own.body["code"], "interaction_self_resolution");
    }
    assert_eq!(run.set(&ticket, review).await.status, 200);
    // It is what the ticket rests on now.
    let back = run
        .ask("POST", &path(&ticket, &id, "withdraw"), json!({}))
        .await;
    assert_eq!(back.status, 422, "{back:?}");
    run.exits(Exit::Code(0));
    world.ended(&run.run).await;
    world.at_rest().await;
    assert_eq!(world.issue(&ticket).await["status"], "in_review");

    let yes = person(&world, &ticket, &id, "accept", json!({})).await;
    assert_eq!((yes.status, &yes.body["status"]), (200, &json!("accepted")));
    assert!(yes.body["resolvedByUserId"].is_string());
    let twice = person(&world, &ticket, &id, "reject", json!({})).await;
    assert_eq!(
        (twice.status, &twice.body["code"]),
        (409, &json!("interaction_already_resolved"))
    );
    let next = world.next_run(&[&run.run]).await;
    let told = {
        let machine = world.engine.0.lock().unwrap();
        let spec = machine
            .started
            .iter()
            .find(|s| s.run.to_string() == next.run)
            .unwrap();
        let told = spec
            .env
            .iter()
            .find(|(n, _)| n == "PAPERCLIP_WAKE_PAYLOAD_JSON")
            .unwrap();
        serde_json::from_str::<Value>(&told.1).unwrap()
    };
    assert_eq!(told["reason"], "issue_commented");
    assert_eq!(told["interactionId"], json!(id));
    assert_eq!(told["interactionStatus"], "accepted");
    next.done(&ticket).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_has_its_answer_and_no_other() {
    let world = World::new().await;
    let ada = world.agent("ada").await;
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let run = world.next_run(&[]).await;
    let two = json!([{ "id": "a", "label": "A" }, { "id": "b", "label": "B" }]);
    let tasks = json!([{ "clientKey": "t", "title": "Build" },
                       { "clientKey": "u", "title": "Test", "parentClientKey": "t" },
                       { "clientKey": "v", "title": "Celebrate" }]);
    let verdicts = json!({ "verdicts": [{ "id": "a", "verdict": "approve" },
                                        { "id": "b", "verdict": "reject", "reason": "late" }] });
    let kinds = [
        (
            "request_confirmation",
            json!({ "prompt": "x" }),
            "accept",
            json!({}),
            "accepted",
        ),
        (
            "request_confirmation",
            json!({ "prompt": "x" }),
            "reject",
            json!({}),
            "rejected",
        ),
        (
            "request_checkbox_confirmation",
            json!({ "prompt": "x", "options": two }),
            "accept",
            json!({ "selectedOptionIds": ["b"] }),
            "accepted",
        ),
        (
            "request_item_verdicts",
            json!({ "prompt": "x", "items": two }),
            "verdicts",
            verdicts,
            "answered",
        ),
        (
            "ask_user_questions",
            json!({ "questions": [{ "id": "q", "prompt": "x", "options": two }] }),
            "respond",
            json!({ "answers": [{ "questionId": "q", "optionIds": ["a"] }] }),
            "answered",
        ),
        (
            "suggest_tasks",
            json!({ "tasks": tasks }),
            "accept",
            json!({ "selectedClientKeys": ["t", "u"] }),
            "accepted",
        ),
    ];
    for (kind, payload, verb, answer, status) in kinds {
        let id = ask(&run, &ticket, json!({ "kind": kind, "payload": payload })).await;
        let allowed = match kind {
            "request_item_verdicts" => &["verdicts"][..],
            "ask_user_questions" => &["respond"],
            _ => &["accept", "reject"],
        };
        for wrong in ["accept", "reject", "respond", "verdicts"] {
            if !allowed.contains(&wrong) {
                let no = person(&world, &ticket, &id, wrong, answer.clone()).await;
                assert_eq!(no.status, 422, "{kind} {wrong}: {no:?}");
            }
        }
        let yes = person(&world, &ticket, &id, verb, answer).await;
        assert_eq!(
            (yes.status, &yes.body["status"]),
            (200, &json!(status)),
            "{kind}: {yes:?}"
        );
        if kind == "suggest_tasks" {
            let made = yes.body["result"]["createdTasks"].as_array().unwrap();
            assert_eq!(made.len(), 2);
            let build = world.issue(&text(&made[0]["issueId"])).await;
            let test = world.issue(&text(&made[1]["issueId"])).await;
            assert_eq!(build["parentId"], json!(ticket));
            assert_eq!(test["parentId"], build["id"]);
            assert!(
                build["createdByUserId"].is_string(),
                "the act of who accepted"
            );
        }
    }
    for bad in [
        json!({ "kind": "guess", "payload": { "prompt": "x" } }),
        json!({ "kind": "request_confirmation" }),
        json!({ "kind": "request_confirmation", "payload": { "prompt": "x" },
                "resolverPolicy": "nobody" }),
        json!({ "kind": "request_confirmation", "payload": { "prompt": "x" },
                "addresseeAgentId": "eve" }),
    ] {
        let target = format!("/api/issues/{ticket}/interactions");
        let no = run.ask("POST", &target, bad.clone()).await;
        assert!([400, 404].contains(&no.status), "{bad}: {no:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_asked_is_woken_and_what_a_question_rests_on_ends_it() {
    let world = World::new().await;
    let (ada, bob) = (world.agent("ada").await, world.agent("bob").await);
    let cid = world.agent("cid").await;
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let run = world.next_run(&[]).await;
    let held = world
        .ticket(json!({ "title": "two", "assigneeAgentId": cid }))
        .await;
    let cids = world.next_run(&[&run.run]).await;
    let mut to_bob = confirm("bob");
    to_bob["addresseeAgentId"] = json!(bob);
    let to_bob = ask(&run, &ticket, to_bob).await;
    // Bob waits for the ticket that Ada's run holds; what Bob is asked is in his queue.
    let why = world
        .person("GET", &format!("/api/issues/{ticket}/why"), json!({}))
        .await;
    assert_eq!(
        why.body["wakes"][0]["reason"], "interaction_pending",
        "{why:?}"
    );
    let mut people = confirm("people");
    people["resolverPolicy"] = json!("human_only");
    let people = ask(&run, &ticket, people).await;
    for (id, code) in [
        (&to_bob, "interaction_not_addressee"),
        (&people, "interaction_human_only"),
    ] {
        let no = cids
            .ask("POST", &path(&ticket, id, "accept"), json!({}))
            .await;
        assert_eq!((no.status, &no.body["code"]), (403, &json!(code)), "{no:?}");
    }
    let no = cids
        .ask("POST", &path(&ticket, &people, "withdraw"), json!({}))
        .await;
    assert_eq!(no.status, 403, "{no:?}");
    let free = ask(&run, &ticket, confirm("free")).await;
    let yes = cids
        .ask("POST", &path(&ticket, &free, "accept"), json!({}))
        .await;
    assert_eq!(yes.body["resolvedByAgentId"], json!(cid), "{yes:?}");

    // Bound to a revision.
    let plan = format!("/api/issues/{ticket}/documents/plan");
    let first = run.ask("PUT", &plan, json!({ "body": "one" })).await.body;
    let mut bound = confirm("plan");
    bound["payload"]["target"] = json!({ "type": "issue_document", "key": "plan",
                                         "revisionId": first["latestRevisionId"] });
    let planned = ask(&run, &ticket, bound.clone()).await;
    let newer = json!({ "body": "two", "baseRevisionId": first["latestRevisionId"] });
    assert_eq!(run.ask("PUT", &plan, newer).await.status, 200);
    assert_eq!(
        state(&world, &ticket, &planned).await,
        ("expired".into(), "stale_target".into())
    );
    let late = person(&world, &ticket, &planned, "accept", json!({})).await;
    assert_eq!(late.status, 409, "{late:?}");
    bound["idempotencyKey"] = json!("plan again");
    let stale = run
        .ask("POST", &format!("/api/issues/{ticket}/interactions"), bound)
        .await;
    assert_eq!(
        (stale.status, &stale.body["code"]),
        (409, &json!("stale_target"))
    );

    // A person's comment supersedes what says so, and nothing else.
    let mut soft = confirm("soft");
    soft["payload"]["supersedeOnUserComment"] = json!(true);
    let soft = ask(&run, &ticket, soft).await;
    run.comment(&ticket, "mine").await;
    assert_eq!(state(&world, &ticket, &soft).await.0, "pending");
    let said = json!({ "body": "wait" });
    world
        .person("POST", &format!("/api/issues/{ticket}/comments"), said)
        .await;
    let superseded = ("expired".to_owned(), "superseded_by_comment".to_owned());
    assert_eq!(state(&world, &ticket, &soft).await, superseded);
    assert_eq!(state(&world, &ticket, &people).await.0, "pending");

    // Its creator takes one back; closing ends the rest.
    let back = run
        .ask(
            "POST",
            &path(&ticket, &to_bob, "withdraw"),
            json!({ "reason": "x" }),
        )
        .await;
    assert_eq!(back.body["status"], "cancelled", "{back:?}");
    run.done(&ticket).await;
    assert_eq!(
        state(&world, &ticket, &people).await,
        ("expired".into(), "issue_closed".into())
    );
    let target = format!("/api/issues/{ticket}/interactions");
    let shut = world.person("POST", &target, confirm("late")).await;
    assert_eq!(shut.status, 409, "{shut:?}");
    cids.done(&held).await;
    let activity = format!("/api/companies/{}/activity", world.company);
    let activity = world
        .person("GET", &activity, json!({}))
        .await
        .body
        .to_string();
    for kind in ["created", "resolved", "expired", "withdrawn"] {
        assert!(activity.contains(&format!("interaction.{kind}")), "{kind}");
    }
}
