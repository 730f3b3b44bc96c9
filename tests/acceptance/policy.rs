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
