//! The tools for policies, on what a real gate has on record.

use std::fs;

use serde_json::Value;
use tests::binaries;
use tests::command::{Finished, Program};
use tests::world::{EVIL, WEB, World};

fn policy(words: &[&str]) -> Finished {
    let gate = Program::new(binaries::path("portcullis-proxy")).arg("policy");
    gate.args(words).run()
}

/// Traffic of every verdict: reading, a refusal by path, an unlisted host, a fetch, a push and one that is refused.
fn world_with_traffic() -> World {
    let world = World::new();
    for url in [
        format!("https://{WEB}/x?q=1"),
        format!("https://{WEB}/secret/x"),
        format!("https://{EVIL}/"),
    ] {
        world.curl(&[&url]).ok();
    }
    world.git(".", &["clone", &world.repository(), "work"]).ok();
    for (branch, allowed) in [("agent/one", true), ("main2", false)] {
        world.git("work", &["checkout", "-q", "-b", branch]).ok();
        world
            .git("work", &["commit", "-q", "--allow-empty", "-m", branch])
            .ok();
        let pushed = world.git("work", &["push", "origin", branch]);
        if allowed {
            pushed.ok();
        } else {
            pushed.refused();
        }
    }
    world
}

#[test]
fn yesterday_s_traffic_is_judged_by_tomorrow_s_policy_as_the_gate_would() {
    let world = world_with_traffic();
    let log = world.gate.audit_file();
    let log = log.parent().unwrap().display().to_string();
    let new = world.path().join("new.toml");
    let base = World::policy().replace("ca_file = \"{ca}\"\n", "");
    let replay = |text: &str| -> (i32, Value) {
        fs::write(&new, text).unwrap();
        let done = policy(&[
            "replay",
            &log,
            "--with",
            &new.display().to_string(),
            "--json",
        ]);
        let value =
            serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{}", done.shown()));
        (done.status.code().unwrap(), value)
    };
    let count = |value: &Value, list: &str| value[list].as_object().unwrap().len();

    let (exit, same) = replay(&base);
    assert_eq!(exit, 0, "{same}");
    assert!(same["judged"].as_u64() >= Some(7), "{same}");
    assert_eq!(same["same"], same["judged"], "{same}");

    // Each change in the policy is seen in the traffic that it is about, and in no other.
    for (from, to, list, what) in [
        (
            "refs/heads/agent/*",
            "refs/heads/other/*",
            "newly_refused",
            "git-receive-pack",
        ),
        (
            "refs/heads/agent/*",
            "refs/heads/*",
            "newly_allowed",
            "git-receive-pack",
        ),
        (
            "deny = [\"GET /secret/**\"]\n",
            "",
            "newly_allowed",
            "/secret/x",
        ),
        ("\"GET /**\", ", "", "newly_refused", "/x?q=..."),
        (
            "credential = \"web\"",
            "credential = \"other\"",
            "other_credential",
            "/x?q=...",
        ),
    ] {
        assert!(base.contains(from), "{from}");
        let (exit, changed) = replay(&base.replace(from, to));
        assert_eq!(exit, 1, "{from}: {changed}");
        assert_eq!(count(&changed, list), 1, "{from}: {changed}");
        assert!(
            changed[list]
                .as_object()
                .unwrap()
                .keys()
                .all(|key| key.contains(what)),
            "{from}: {changed}"
        );
        let lists = ["newly_refused", "newly_allowed", "other_credential"];
        let all: usize = lists.iter().map(|list| count(&changed, list)).sum();
        assert_eq!(all, 1, "{from}: {changed}");
    }
    let opened =
        format!("{base}\n[[service]]\nkind = \"http\"\nhost = \"{EVIL}\"\nallow = [\"GET /**\"]\n");
    let (_, opened) = replay(&opened);
    assert!(
        opened["newly_allowed"].to_string().contains(EVIL),
        "{opened}"
    );
    let missing = policy(&[
        "replay",
        "/nonexistent",
        "--with",
        &new.display().to_string(),
    ]);
    assert_eq!(missing.status.code(), Some(2), "{}", missing.shown());
}

#[test]
fn a_policy_s_own_tests_and_what_another_makes_possible_are_told_with_their_exit_codes() {
    let folder = tests::host::scratch();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let base = World::policy().replace("ca_file = \"{ca}\"\n", "");
    let case = |expect: &str| {
        format!(
            "{base}\n[[test]]\nname = \"reading\"\nrequest = \"GET https://{WEB}/secret/x\"\nexpect = \"{expect}\"\n"
        )
    };
    let (holds, fails) = (
        write("holds.toml", &case("refuse")),
        write("fails.toml", &case("allow")),
    );
    assert_eq!(policy(&["test", &holds]).status.code(), Some(0));
    let failed = policy(&["test", &fails]);
    assert_eq!(failed.status.code(), Some(1), "{}", failed.shown());
    for part in ["fails.toml:", "`reading`", "denied_by_rule"] {
        assert!(failed.stdout.contains(part), "{part}: {}", failed.shown());
    }
    let plain = write("plain.toml", &base);
    let none = policy(&["test", &plain]);
    assert_eq!(none.status.code(), Some(2), "{}", none.shown());

    let wide = write(
        "wide.toml",
        &base.replace("deny = [\"GET /secret/**\"]\n", ""),
    );
    assert_eq!(policy(&["diff", &plain, &holds]).status.code(), Some(0));
    let difference = policy(&["diff", &plain, &wide]);
    assert_eq!(difference.status.code(), Some(1), "{}", difference.shown());
    assert!(
        difference
            .stdout
            .starts_with("becomes possible\n  denied: GET https://web"),
        "{}",
        difference.shown()
    );
    let broken = write("broken.toml", "[[service]]\n");
    for words in [["diff", &plain, &broken], ["diff", &broken, &plain]] {
        let told = policy(&words);
        assert_eq!(told.status.code(), Some(2), "{}", told.shown());
        assert!(told.stderr.contains("broken.toml:1"), "{}", told.shown());
    }
}

#[test]
fn a_request_is_explained_by_its_facts_and_by_the_smallest_change_that_would_allow_it() {
    let folder = tests::host::scratch();
    let dir = folder.path().display().to_string();
    let write = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).unwrap();
        format!("{dir}/{name}")
    };
    let text = r#"
[[service]]
id = "jobs"
kind = "http"
host = "jobs.example.com"
credential = "jobs"
allow = ["GET /v1/**"]

[[service.when]]
allow = ["POST /v1/jobs"]
json = { "/state" = "draft" }

[[service]]
id = "forge"
kind = "github"
repos = ["acme/web"]
git = "push"
refs = ["refs/heads/agent/*"]
api = "contribute"
"#;
    let file = write("policy.toml", text);
    let explain = |words: &[&str]| -> (Option<i32>, Value) {
        let done = policy(&[&["explain"], words, &["--json"]].concat());
        let value =
            serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{}", done.shown()));
        (done.status.code(), value)
    };
    let jobs = "https://jobs.example.com/v1/jobs";
    let draft = write("draft.json", r#"{"state": "draft"}"#);
    let done = write("done.json", r#"{"state": "done"}"#);

    // What is asked for is read as the gate reads it, and what was found is told.
    let (exit, asked) = explain(&["POST", jobs, "--policy", &file]);
    assert_eq!(
        (exit, asked["verdict"].as_str()),
        (Some(2), Some("inspect")),
        "{asked}"
    );
    let (exit, allowed) = explain(&["POST", jobs, "--policy", &file, "--body", &draft]);
    assert_eq!(exit, Some(0), "{allowed}");
    assert_eq!(allowed["rule"], "jobs");
    assert_eq!(allowed["credential"], "jobs");
    assert_eq!(allowed["facts"]["body"]["bytes"], 18, "{allowed}");
    let (exit, refused) = explain(&["POST", jobs, "--policy", &file, "--body", &done]);
    assert_eq!(
        (exit, refused["code"].as_str()),
        (Some(1), Some("condition_not_met")),
        "{refused}"
    );

    // The change that is named does what is said: with it the same request passes.
    let lines: Vec<&str> = refused["change"]["lines"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let old = "[[service.when]]\nallow = [\"POST /v1/jobs\"]\njson = { \"/state\" = \"draft\" }";
    let wider = write("wider.toml", &text.replace(old, &lines.join("\n")));
    let (exit, _) = explain(&["POST", jobs, "--policy", &wider, "--body", &done]);
    assert_eq!(exit, Some(0), "{refused}");
    let opens = refused["change"]["opens"][0].as_str().unwrap();
    assert!(
        opens.contains("`/state` of the body is \"done\""),
        "{opens}"
    );

    // GraphQL and forms are read too; a field of the head says what a body is.
    let graphql = write(
        "merge.json",
        r#"{"query": "mutation { mergePullRequest(input: {}) { clientMutationId } }"}"#,
    );
    let api = "https://api.github.com/graphql";
    let (exit, merge) = explain(&["POST", api, "--policy", &file, "--body", &graphql]);
    assert_eq!(
        (exit, merge["code"].as_str()),
        (Some(1), Some("operation_not_allowed")),
        "{merge}"
    );
    assert_eq!(merge["facts"]["graphql"][0], "mutation mergePullRequest");
    assert!(
        merge["change"]["opens"][0]
            .as_str()
            .unwrap()
            .contains("mutation:mergePullRequest")
    );
    let form = [
        "--header",
        "content-type: application/x-www-form-urlencoded",
    ];
    let (_, odd) = explain(
        &[
            &["POST", api, "--policy", &file, "--body", &graphql][..],
            &form,
        ]
        .concat(),
    );
    assert_eq!(odd["code"], "could_not_inspect", "{odd}");
    assert!(
        odd["change"].is_null(),
        "no line of a policy opens that: {odd}"
    );

    // For people: everything that comes with it is said.
    let shown = policy(&[
        "explain",
        "PUT",
        "https://jobs.example.com/v2/x",
        "--policy",
        &file,
    ]);
    assert_eq!(shown.status.code(), Some(1));
    for part in [
        "in allow of service `jobs`",
        "\"PUT /v2/x\"",
        "all that it opens",
    ] {
        assert!(shown.stdout.contains(part), "{part}: {}", shown.shown());
    }

    // As an agent: by the policy of the profile that the gate would take.
    let closed = write("closed.toml", "");
    let config = write(
        "proxy.toml",
        &format!(
            "[listen]\ntcp = \"127.0.0.1:3128\"\n\
             [[listen.identity]]\nuid = 1500\nagent = \"ci\"\ncompany = \"acme\"\nprofile = \"default\"\n\
             [[listen.identity]]\nuid = 1501\nagent = \"guest\"\ncompany = \"acme\"\nprofile = \"closed\"\n\
             [control]\nsocket = \"{dir}/control.sock\"\n\
             [[control.peer]]\nuser = \"root\"\nprofiles = [\"default\"]\nadmin = true\n\
             [runs]\ndirectory = \"{dir}/runs\"\n[ca]\ndirectory = \"{dir}/ca\"\n\
             [audit]\ndirectory = \"{dir}/audit\"\n[boundary]\nexternal = \"none here\"\n\
             [profile.default]\npolicy = \"{file}\"\n[profile.closed]\npolicy = \"{closed}\"\n"
        ),
    );
    for (agent, verdict, by) in [("ci", "allow", &file), ("guest", "refuse", &closed)] {
        let (_, found) = explain(&["GET", jobs, "--as", agent, "--config", &config]);
        assert_eq!(found["verdict"], verdict, "{agent}: {found}");
        assert_eq!(found["policy"], by.as_str(), "{agent}: {found}");
    }
    let nobody = policy(&[
        "explain", "GET", jobs, "--as", "nobody", "--config", &config,
    ]);
    assert_eq!(nobody.status.code(), Some(2), "{}", nobody.shown());
    assert!(
        nobody.stderr.contains("it knows ci, guest"),
        "{}",
        nobody.shown()
    );
}
