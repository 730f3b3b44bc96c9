//! Companies see nothing of each other, on any route. The list is the router's own: a route that is
//! added without a company's border is found here, and so is a new kind of id.

use std::collections::HashMap;

use orchestrator::api::ROUTES;
use serde_json::{Value, json};

use crate::support::{Agent, World, filled, method_of, text};

/// In every text of the other company.
const MARK: &str = "zebra";

/// One of everything that has an id, by the parameter's name in the router.
pub(crate) type Things = HashMap<&'static str, String>;

async fn made(world: &World, target: &str, body: Value) -> String {
    let made = world.person("POST", target, body).await;
    assert_eq!(made.status, 201, "{target}: {made:?}");
    text(&made.body["id"])
}

/// A company with one of everything, `mark` in every text, and a live run.
pub(crate) async fn everything<'w>(
    world: &'w World,
    name: &str,
    mark: &str,
    known: &[&str],
) -> (Things, Agent<'w>) {
    let company = made(world, "/api/companies", json!({ "name": name })).await;
    let of = |rest: &str| format!("/api/companies/{company}{rest}");
    let agent = json!({ "name": format!("{mark}-agent"), "title": mark, "role": "coordinator",
                        "adapter": { "adapter": "process", "command": ["x"] } });
    let agent = made(world, &of("/agents"), agent).await;
    let said = json!({ "name": mark, "title": mark, "description": mark });
    let only = |fields: &[&str]| {
        let mut body = said.clone();
        body.as_object_mut()
            .unwrap()
            .retain(|key, _| fields.contains(&key.as_str()));
        body
    };
    let goal = made(world, &of("/goals"), only(&["title", "description"])).await;
    let project = made(world, &of("/projects"), only(&["name", "description"])).await;
    let label = made(world, &of("/labels"), only(&["name"])).await;
    let issue = json!({ "title": mark, "description": mark, "assigneeAgentId": agent,
                        "projectId": project, "goalId": goal, "labelIds": [label] });
    let issue = made(world, &of("/issues"), issue).await;
    let on = |rest: &str| format!("/api/issues/{issue}{rest}");
    let run = world.next_run(known).await;
    let comment = made(world, &on("/comments"), json!({ "body": mark })).await;
    let plan = json!({ "title": mark, "body": mark });
    let written = world.person("PUT", &on("/documents/plan"), plan).await;
    assert_eq!(written.status, 201, "{written:?}");
    let question = json!({ "kind": "request_confirmation", "title": mark,
                           "payload": { "prompt": mark } });
    let question = made(world, &on("/interactions"), question).await;
    let approval = json!({ "type": "request_board_approval", "payload": { "title": mark },
                           "issueIds": [issue] });
    let approval = made(world, &of("/approvals"), approval).await;
    let remark = format!("/api/approvals/{approval}/comments");
    made(world, &remark, json!({ "body": mark })).await;
    let routine = json!({ "name": mark, "description": mark, "assigneeAgentId": agent,
                          "cron": "0 0 1 1 *", "status": "paused" });
    let routine = made(world, &of("/routines"), routine).await;
    let product = json!({ "type": mark, "title": mark });
    let product = made(world, &on("/work-products"), product).await;
    let form = format!(
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{mark}\"\r\n\r\n{mark}\r\n--b--"
    );
    let headers = [("content-type", "multipart/form-data; boundary=b")];
    let target = of(&format!("/issues/{issue}/attachments"));
    let kept = world
        .call("api.sock", "POST", &target, &headers, form.as_bytes())
        .await;
    assert_eq!(kept.status, 201, "{kept:?}");
    let cost = json!({ "agentId": agent, "provider": mark, "model": mark, "costCents": 1,
                       "occurredAt": "2026-01-01T00:00:00Z", "issueId": issue });
    made(world, &of("/cost-events"), cost).await;
    let things = HashMap::from([
        ("product", product),
        ("routine", routine),
        ("attachment", text(&kept.body["id"])),
        ("approval", approval),
        ("interaction", question),
        ("company", company.clone()),
        ("agent", agent),
        ("goal", goal),
        ("project", project),
        ("label", label),
        ("issue", issue.clone()),
        ("run", run.run.clone()),
        ("comment", comment),
        ("key", "plan".to_owned()),
    ]);
    (things, run)
}

/// The names of a path's parameters.
fn names(path: &str) -> Vec<String> {
    let ends = path.split('{').skip(1);
    ends.filter_map(|part| Some(part.split_once('}')?.0.to_owned()))
        .collect()
}

/// What a request needs so that its id is looked at.
fn body_for(path: &str) -> Value {
    match path.rsplit('/').next().unwrap_or_default() {
        "comments" => json!({ "body": "x" }),
        "issues" => json!({ "title": "x" }),
        _ => json!({}),
    }
}

async fn history(world: &World, company: &str) -> Value {
    let target = format!("/api/companies/{company}/activity?limit=500");
    world.person("GET", &target, json!({})).await.body
}

#[tokio::test(flavor = "multi_thread")]
async fn companies_see_nothing_of_each_other_on_any_route() {
    let world = World::new().await;
    let (theirs, their_run) = everything(&world, "Other", MARK, &[]).await;
    let (ours, run) = everything(&world, "Ours", "horse", &[&their_run.run]).await;
    let before = history(&world, &theirs["company"]).await;
    for (method, path) in ROUTES {
        let method = method_of(method);
        let names = names(path);
        let ask = |target: String| {
            let run = &run;
            async move { run.ask(method, &target, body_for(path)).await }
        };
        let id = |things: &Things, name: &str| {
            let known = things.get(name).cloned();
            known.unwrap_or_else(|| panic!("{path}: nothing here is a {name}; add one"))
        };
        // Each parameter in turn is the other company's; so is all of it.
        let foreign: Vec<&str> = names
            .iter()
            .map(String::as_str)
            .filter(|n| *n != "key")
            .collect();
        let mut cases: Vec<Vec<&str>> = foreign.iter().map(|name| vec![*name]).collect();
        cases.push(foreign.clone());
        for case in cases.iter().filter(|case| !case.is_empty()) {
            let aimed = |by: &dyn Fn(&str) -> String| {
                filled(path, |name| {
                    if case.contains(&name) {
                        by(name)
                    } else {
                        id(&ours, name)
                    }
                })
            };
            let theirs_answer = ask(aimed(&|name| id(&theirs, name))).await;
            let nobodys = uuid::Uuid::now_v7().to_string();
            let nobodys_answer = ask(aimed(&|_| nobodys.clone())).await;
            let closed = theirs_answer.status == 404
                || (theirs_answer.status == 403 && theirs_answer.body["code"] == "operators_only");
            assert!(closed, "{method} {path} {case:?}: {theirs_answer:?}");
            assert_eq!(
                theirs_answer.status, nobodys_answer.status,
                "{method} {path}"
            );
            assert_eq!(theirs_answer.body, nobodys_answer.body, "{method} {path}");
        }
        // The same request about the own company is answered, and says nothing of the other.
        let own = if method == "GET" {
            ask(filled(path, |name| id(&ours, name))).await
        } else {
            continue;
        };
        let people = own.status == 403;
        let code = &own.body["code"];
        assert!(
            own.status == 200 || (people && code == "operators_only"),
            "{path}: {own:?}"
        );
        let said = own.text.clone();
        let foreign_id = theirs
            .iter()
            .find(|(k, id)| **k != "key" && said.contains(id.as_str()));
        assert!(
            !said.contains(MARK) && foreign_id.is_none(),
            "{path}: {said}"
        );
    }
    assert_eq!(history(&world, &theirs["company"]).await, before);
}

/// Ids of the other company in a body or a query are as unknown as in a path.
#[tokio::test(flavor = "multi_thread")]
async fn ids_of_another_company_are_unknown_in_bodies_and_queries() {
    let world = World::new().await;
    let (theirs, their_run) = everything(&world, "Other", MARK, &[]).await;
    let (ours, run) = everything(&world, "Ours", "horse", &[&their_run.run]).await;
    let issues = format!("/api/companies/{}/issues", ours["company"]);
    let issue = format!("/api/issues/{}", ours["issue"]);
    for (field, thing, many) in [
        ("parentId", "issue", false),
        ("projectId", "project", false),
        ("goalId", "goal", false),
        ("assigneeAgentId", "agent", false),
        ("labelIds", "label", true),
        ("blockedByIssueIds", "issue", true),
    ] {
        let body = |things: &Things| {
            let id = json!(things[thing]);
            json!({ field: if many { json!([id]) } else { id } })
        };
        for caller in ["run", "person"] {
            let ask = |method: &'static str, target: String, body: Value| {
                let (world, run) = (&world, &run);
                async move {
                    if caller == "run" {
                        run.ask(method, &target, body).await
                    } else {
                        world.person(method, &target, body).await
                    }
                }
            };
            let mut new = body(&theirs);
            new["title"] = json!(format!("{field} {caller}"));
            let answer = ask("POST", issues.clone(), new).await;
            assert_eq!(answer.status, 404, "{caller} {field}: {answer:?}");
            let answer = ask("PATCH", issue.clone(), body(&theirs)).await;
            assert_eq!(answer.status, 404, "{caller} {field}: {answer:?}");
        }
        let mut new = body(&ours);
        new["title"] = json!(format!("{field} own"));
        let answer = world.person("POST", &issues, new).await;
        assert_eq!(answer.status, 201, "{field}: {answer:?}");
    }
    for query in [
        format!("labelId={}", theirs["label"]),
        format!("parentId={}", theirs["issue"]),
        format!("projectId={}", theirs["project"]),
        format!("goalId={}", theirs["goal"]),
        format!("assigneeAgentId={}", theirs["agent"]),
        format!("q={MARK}"),
        "q=OTH-1".to_owned(),
    ] {
        let answer = run
            .ask("GET", &format!("{issues}?{query}"), json!({}))
            .await;
        let nothing = answer.status == 404 || answer.body == json!([]);
        assert!(nothing, "{query}: {answer:?}");
    }
    let own = run
        .ask("GET", &format!("{issues}?q=horse"), json!({}))
        .await;
    assert_eq!(own.body[0]["id"], json!(ours["issue"]), "{own:?}");
}
