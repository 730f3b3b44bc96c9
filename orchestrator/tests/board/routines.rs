//! Routines: every due slot is a row, and says what became of it.

use orchestrator::model::{Actor, time};
use orchestrator::store::routines;
use serde_json::{Value, json};

use crate::support::{World, text};

/// As if the routine's next slot had been due then.
async fn due_since(world: &World, routine: &str, at: i64) {
    let id = routine.to_owned();
    world
        .store
        .write(Actor::System, move |w| {
            w.execute("UPDATE routines SET next_due = ? WHERE id = ?", (at, &id))?;
            routines::tick(w)
        })
        .await
        .unwrap();
}

async fn slots(world: &World, routine: &str) -> Vec<Value> {
    let target = format!("/api/routines/{routine}/runs");
    let all = world.person("GET", &target, json!({})).await;
    all.body.as_array().unwrap().clone()
}

fn count(slots: &[Value], state: &str) -> usize {
    slots.iter().filter(|slot| slot["status"] == state).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_due_slot_is_a_row_and_catching_up_follows_its_policy() {
    let world = World::idle().await;
    let ada = world.worker("ada").await;
    let all = format!("/api/companies/{}/routines", world.company);
    let minute = 60_000;
    for (catch_up, overlap, started, skipped, missed) in [
        ("skip_missed", "always", 1, 0, 10),
        ("run_once", "always", 2, 0, 9),
        ("run_all", "always", 11, 0, 0),
        ("run_all", "skip_if_active", 1, 10, 0),
    ] {
        let name = format!("{catch_up} {overlap}");
        let new = json!({ "name": name, "assigneeAgentId": ada, "cron": "* * * * *",
                          "catchUp": catch_up, "overlap": overlap });
        let made = world.person("POST", &all, new).await;
        assert_eq!(made.status, 201, "{made:?}");
        let id = text(&made.body["id"]);
        // Ten that are late, and the one of this minute.
        let this = world.store.now() / minute * minute;
        due_since(&world, &id, this - 10 * minute).await;
        let found = slots(&world, &id).await;
        // The one before this minute is late or not by the second of the minute.
        let total = count(&found, "started") + count(&found, "skipped") + count(&found, "missed");
        assert!(total >= 11, "{name}: {found:?}");
        let near = |got: usize, want: usize| got == want || got == want + 1 || got + 1 == want;
        assert!(near(count(&found, "started"), started), "{name}: {found:?}");
        assert!(near(count(&found, "skipped"), skipped), "{name}: {found:?}");
        assert!(near(count(&found, "missed"), missed), "{name}: {found:?}");
        let silent = |slot: &&Value| slot["status"] != "started" && slot["reason"].is_null();
        assert!(!found.iter().any(|slot| silent(&slot)), "{found:?}");
        // The same slots again, as after a clock that went back: nothing new.
        let before = found.len();
        let shown = world
            .person("GET", &format!("/api/routines/{id}"), json!({}))
            .await;
        assert!(shown.body["nextDueAt"].as_str() > Some(time::iso(this).as_str()));
        let archive = json!({ "status": "archived" });
        let gone = world
            .person("PATCH", &format!("/api/routines/{id}"), archive)
            .await;
        assert_eq!(gone.body["nextDueAt"], Value::Null);
        assert_eq!(slots(&world, &id).await.len(), before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_routine_makes_an_assigned_ticket_and_people_alone_make_routines() {
    let world = World::new().await;
    let ada = world.agent("ada").await;
    let all = format!("/api/companies/{}/routines", world.company);
    let good = json!({ "name": "Tidy up", "description": "the cellar", "assigneeAgentId": ada,
                       "cron": "0 3 * * *", "timezone": "Europe/Berlin" });
    let made = world.person("POST", &all, good.clone()).await;
    assert_eq!(made.status, 201, "{made:?}");
    let id = text(&made.body["id"]);
    for (field, bad) in [
        ("cron", json!("0 25 * * *")),
        ("cron", json!("* * * * * *")),
        ("timezone", json!("Nowhere/Here")),
        ("name", json!("")),
        ("assigneeAgentId", Value::Null),
        ("catchUp", json!("sometimes")),
        ("unknown", json!(1)),
    ] {
        let mut body = good.clone();
        body["name"] = json!(format!("bad {field}"));
        body[field] = bad;
        assert_eq!(
            world.person("POST", &all, body).await.status,
            400,
            "{field}"
        );
    }
    assert_eq!(world.person("POST", &all, good.clone()).await.status, 409);
    let target = format!("/api/routines/{id}");
    let started = world
        .person("POST", &format!("{target}/run"), json!({}))
        .await;
    assert_eq!(
        (started.status, &started.body["status"]),
        (202, &json!("started"))
    );
    let ticket = text(&started.body["issueId"]);
    let run = world.next_run(&[]).await;
    let row = world.issue(&ticket).await;
    assert_eq!(
        (&row["title"], &row["assigneeAgentId"]),
        (&json!("Tidy up"), &json!(ada))
    );
    for (method, path) in [
        ("POST", &all),
        ("PATCH", &target),
        ("POST", &format!("{target}/run")),
    ] {
        let no = run.ask(method, path, good.clone()).await;
        assert_eq!(
            (no.status, &no.body["code"]),
            (403, &json!("operators_only")),
            "{path}"
        );
    }
    assert_eq!(run.ask("GET", &target, json!({})).await.status, 200);
    let busy = world
        .person("POST", &format!("{target}/run"), json!({}))
        .await;
    assert_eq!(busy.body["status"], "skipped");
    assert!(
        text(&busy.body["reason"]).contains("not finished"),
        "{busy:?}"
    );
    run.done(&ticket).await;
    world
        .person("PATCH", &target, json!({ "status": "paused" }))
        .await;
    let paused = world
        .person("POST", &format!("{target}/run"), json!({}))
        .await;
    assert_eq!(paused.body["reason"], "the routine is paused");
    world
        .person("PATCH", &target, json!({ "status": "active" }))
        .await;
    world
        .person(
            "PATCH",
            &format!("/api/agents/{ada}"),
            json!({ "status": "terminated" }),
        )
        .await;
    let nobody = world
        .person("POST", &format!("{target}/run"), json!({}))
        .await;
    assert_eq!(nobody.body["status"], "skipped", "{nobody:?}");
    assert!(
        text(&nobody.body["reason"]).contains("terminated"),
        "{nobody:?}"
    );
    world.at_rest().await;
    assert_eq!(slots(&world, &id).await.len(), 4);
}
