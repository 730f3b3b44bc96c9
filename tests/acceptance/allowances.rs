//! Allowances as people meet them: an agent that spends its own, and the command that shows it.

use std::fs;

use serde_json::Value;
use tests::command::{Finished, Program};
use tests::gate::Boundary;
use tests::world::{WEB, World};
use tests::{binaries, host};

/// `portcullis allowance`, as the operator types it.
fn allowance(world: &World, words: &[&str]) -> Finished {
    Program::new(binaries::path("portcullis"))
        .arg("allowance")
        .args(words)
        .arg("--socket")
        .arg(world.gate.control_socket())
        .run()
}

#[test]
fn what_is_spent_is_told_to_the_agent_for_good_and_shown_to_the_operator() {
    let mut world = World::prepared(None, Boundary::External);
    let config = fs::read_to_string(world.gate.config()).unwrap()
        + "[allowance]\n[[allowance.limit]]\nper = \"agent\"\nrequests = 2\n";
    host::file(&world.gate.config(), &config, 0, 0o644);
    // Root asks here.
    let uid = format!("[[control.peer]]\nuser = \"{}\"", world.gate.operator);
    let config = config.replace(&uid, "[[control.peer]]\nuser = \"root\"");
    host::file(&world.gate.config(), &config, 0, 0o644);
    host::directory(&world.gate.dir.join("allowance"), world.gate.uid, 0o700);
    world.start();
    let url = format!("https://{WEB}/x");
    for _ in 0..2 {
        world.curl(&["--fail", &url]).ok();
    }
    let spent = world.curl(&["-i", &url]);
    for part in [
        " 403 ",
        "allowance_spent",
        "is spent: 2 requests of 2 requests",
        "say what is left to do",
    ] {
        assert!(spent.stdout.contains(part), "{part}: {}", spent.shown());
    }

    let listed = allowance(&world, &["list"]).ok();
    let name = format!("agent/acme/agent-{}", world.agent);
    let line = format!("{name}: 0.00 US dollars, 0 tokens, 2 requests");
    assert!(listed.stdout.contains(&line), "{}", listed.shown());
    let shown = allowance(&world, &["show", &name]).ok();
    for part in ["requests: 2 taken, 0 reserved", "limit: requests = 2"] {
        assert!(shown.stdout.contains(part), "{part}: {}", shown.shown());
    }
    let json: Value = serde_json::from_str(&allowance(&world, &["list", "--json"]).stdout).unwrap();
    assert_eq!(json[0]["spent"]["requests"], 2, "{json}");
    let unknown = allowance(&world, &["show", "agent/acme/nobody"]);
    assert_eq!(unknown.code(), 1, "{}", unknown.shown());
    assert!(
        unknown.stderr.contains("hint: allowance list"),
        "{}",
        unknown.shown()
    );
}
