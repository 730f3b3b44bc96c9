//! The board for programs: what its OpenAPI document says is what a running orchestrator does.

use std::fs;

use serde_json::{Value, json};
use tests::bridge;
use tests::command::Program;
use tests::host;
use tests::instance::Instance;
use tests::matrix;

/// What is asked of each answer. Not that wrong requests are refused: many fields are free.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance";

/// One of everything that a path can name.
fn parameters(instance: &Instance) -> String {
    let made = |words: &[&str], key: &str| {
        let made = instance.json(words);
        made[key]
            .as_str()
            .unwrap_or_else(|| panic!("{made}"))
            .to_owned()
    };
    let company = made(&["company", "create", "Acme"], "id");
    let of = ["--company", company.as_str()];
    let agent = instance
        .portcullis()
        .args(["agent", "create", "ada", "--json"])
        .args(of)
        .args(["--", "/bin/true"])
        .run()
        .ok();
    let agent: Value = serde_json::from_str(&agent.stdout).unwrap();
    // What is made up must not start containers.
    instance.json(&["agent", "pause", "ada"]);
    let project = made(&["project", "create", "Web", of[0], of[1]], "id");
    let goal = made(&["goal", "create", "Speed", of[0], of[1]], "id");
    let label = made(&["label", "create", "bug", of[0], of[1]], "id");
    let issue = made(&["ticket", "create", "One", of[0], of[1]], "id");
    let agent = agent["id"].as_str().unwrap();
    let all = json!({ "path.company": company, "path.agent": agent, "path.project": project,
                      "path.goal": goal, "path.label": label, "path.issue": issue });
    let lines = all.as_object().unwrap().iter();
    let lines: Vec<String> = lines
        .map(|(key, id)| format!("\"{key}\" = {id}\n"))
        .collect();
    format!("[parameters]\n{}", lines.concat())
}

#[test]
fn a_running_board_does_what_its_document_says() {
    let instance = Instance::up();
    let printed = instance.portcullis().arg("openapi").run().ok().stdout;
    let address = bridge::to(&instance.path("run/portcullis/orchestrator/api.sock"));
    let scratch = host::scratch();
    let document = scratch.path().join("openapi.json");
    host::file(&document, &printed, 0, 0o644);
    let settings = parameters(&instance);
    host::file(
        &scratch.path().join("schemathesis.toml"),
        &settings,
        0,
        0o644,
    );
    let schemathesis = |document: &std::path::Path| {
        Program::new(matrix::directory().join("python/bin/schemathesis"))
            .arg("run")
            .arg(document)
            .args(["--url", &format!("http://{address}")])
            .args(["--checks", CHECKS, "--phases", "coverage,fuzzing"])
            .args([
                "--max-examples",
                "4",
                "--seed",
                "1",
                "--no-shrink",
                "--continue-on-failure",
            ])
            .args([
                "--generation-database",
                "none",
                "--warnings",
                "off",
                "--no-color",
            ])
            .env("HOME", scratch.path())
            .in_directory(scratch.path())
            .limit(300)
            .run()
    };
    schemathesis(&document).ok();
    // The control: a document that says something else of an answer is caught.
    let mut wrong: Value = serde_json::from_str(&printed).unwrap();
    let paths = wrong["paths"].as_object_mut().unwrap();
    paths.retain(|path, _| path == "/api/health");
    wrong["components"]["schemas"]["Health"]["required"] = json!(["status", "mood"]);
    fs::write(&document, wrong.to_string()).unwrap();
    let caught = schemathesis(&document);
    assert_eq!(caught.code(), 1, "{}", caught.shown());
    assert!(caught.output().contains("mood"), "{}", caught.shown());
}
