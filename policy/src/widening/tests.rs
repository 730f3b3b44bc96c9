use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::request::{Body, Content, Facts, Reading};
use crate::trial::ref_update;

const POLICY: &str = r#"
[[service]]
id = "jobs"
kind = "http"
host = "jobs.example.com"
credential = "jobs"
allow = ["GET /v1/**"]
deny = ["* /v1/admin/**"]

[[service.when]]
allow = ["POST /v1/jobs"]
json = { "/state" = ["draft", "idea"] }

[[service]]
id = "forge"
kind = "github"
repos = ["acme/web"]
git = "push"
refs = ["refs/heads/agent/*"]
api = "read"
credential = "forge"

[[service]]
id = "models"
kind = "llm"
provider = "anthropic"
models = ["claude-haiku-*"]
max_tokens = 1000
tools = false
"#;

fn policy() -> Policy {
    Policy::parse(POLICY, "p.toml").unwrap()
}

fn widening(request: &str, facts: Facts) -> Option<Widening> {
    let trial = Trial {
        facts,
        ..Trial::parse(request).unwrap()
    };
    policy().widening(&trial)
}

fn body(json: serde_json::Value) -> Facts {
    let body = Body {
        bytes: Some(10),
        json: Reading::Read(json),
        ..Body::beyond()
    };
    Facts::Content(Arc::new(Content {
        body: Some(body),
        ..Content::default()
    }))
}

fn push(commands: &[&str]) -> Facts {
    Facts::Push(
        commands
            .iter()
            .map(|text| ref_update(text).unwrap())
            .collect(),
    )
}

#[track_caller]
fn found(request: &str, facts: Facts, lines: &[&str], opens: &[&str]) {
    let found = widening(request, facts).expect("something helps");
    assert_eq!(found.lines, lines, "{found:?}");
    assert_eq!(found.opens, opens, "{found:?}");
}

#[test]
fn a_path_is_opened_by_one_entry_with_its_very_query() {
    found(
        "PUT https://jobs.example.com/v2/jobs?force=1",
        Facts::None,
        &["\"PUT /v2/jobs?force=1\""],
        &["PUT https://jobs.example.com:443/v2/jobs?force=1, with credential `jobs`"],
    );
}

#[test]
fn another_host_is_a_service_without_a_credential() {
    found(
        "GET https://other.example.com:8443/x",
        Facts::None,
        &[
            "[[service]]",
            "kind = \"http\"",
            "host = \"other.example.com\"",
            "port = 8443",
            "allow = [\"GET /x\"]",
        ],
        &["GET https://other.example.com:8443/x"],
    );
}

#[test]
fn without_a_deny_all_that_it_shut_is_open() {
    found(
        "GET https://jobs.example.com/v1/admin/keys",
        Facts::None,
        &["without \"* /v1/admin/**\""],
        &["whatever else allows of * https://jobs.example.com:443/v1/admin/**"],
    );
    // Where nothing else allows it, no removal helps.
    assert_eq!(
        widening("POST https://jobs.example.com/v1/admin/keys", Facts::None),
        None
    );
}

#[test]
fn a_condition_takes_the_value_that_was_sent() {
    let over = "POST /v1/jobs where `/state` of the body is \"done\", beside all else that the table lists";
    found(
        "POST https://jobs.example.com/v1/jobs",
        body(json!({"state": "done"})),
        &[
            "[[service.when]]",
            "allow = [\"POST /v1/jobs\"]",
            "json = { \"/state\" = [\"draft\", \"idea\", \"done\"] }",
        ],
        &[over],
    );
    // What is not there is no value that could be listed; what is allowed needs nothing.
    for state in [json!({}), json!({"state": "draft"})] {
        assert_eq!(
            widening("POST https://jobs.example.com/v1/jobs", body(state)),
            None
        );
    }
}

#[test]
fn a_model_with_its_bound_and_tools() {
    let asked = json!({"model": "claude-opus-4-5", "max_tokens": 2000, "tools": [{}]});
    let found = widening("POST https://api.anthropic.com/v1/messages", body(asked)).unwrap();
    assert_eq!(found.opens.len(), 3, "{found:?}");
    assert!(
        found.opens[0].contains("the model is claude-opus-4-5"),
        "{found:?}"
    );
    assert!(found.opens[1].contains("up to 2000 tokens"), "{found:?}");
    assert!(found.opens[2].contains("tools of any kind"), "{found:?}");
    assert!(
        found.lines.contains(&String::from("max_tokens = 2000")),
        "{found:?}"
    );
}

#[test]
fn a_push_is_opened_for_its_refs_in_both_spellings_of_the_repository() {
    let found = widening(
        "POST https://github.com/acme/web.git/git-receive-pack",
        push(&["create refs/heads/agent/x", "update refs/heads/main"]),
    )
    .unwrap();
    assert_eq!(found.place, "in service `forge`");
    assert_eq!(found.lines, ["update_refs = [\"refs/heads/main\"]"]);
    assert_eq!(found.opens.len(), 2, "{found:?}");
    assert!(
        found
            .opens
            .iter()
            .all(|line| line.contains("moving refs/heads/main")),
        "{found:?}"
    );

    let other = widening(
        "POST https://github.com/acme/other.git/git-receive-pack",
        push(&["create refs/heads/agent/x"]),
    )
    .unwrap();
    assert!(
        other
            .lines
            .contains(&String::from("repos = [\"acme/other\"]")),
        "{other:?}"
    );
    let fetching = |line: &String| line.contains("acme/other") && line.contains("upload-pack");
    assert!(
        other.opens.iter().any(fetching),
        "fetching comes with it: {other:?}"
    );
}

#[test]
fn the_api_of_github_says_how_much_more_a_word_opens() {
    let found = widening(
        "GET https://api.github.com/repos/acme/web/hooks",
        Facts::None,
    )
    .unwrap();
    assert_eq!(found.opens.len(), 1, "{found:?}");
    assert!(found.place.starts_with("a service beside"), "{found:?}");
}

#[test]
fn what_no_line_opens_is_not_said_to_be_opened() {
    for request in [
        "TRACE https://jobs.example.com/v1/x",
        "GET https://jobs.example.com/v1/../x",
        "GET https://127.0.0.1/x",
        "GET https://jobs.example.com/v1/x",
    ] {
        assert_eq!(widening(request, Facts::None), None, "{request}");
    }
}
