//! The audit log is complete, ordered, written before anything leaves, and can be followed.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;
use tests::binaries;
use tests::command::Program;
use tests::wait;
use tests::world::{EVIL, WEB, WEB_ADDRESS, World};

#[test]
fn the_record_is_on_disk_before_the_upstream_sees_the_request() {
    let world = World::new();
    for number in 0..20 {
        let path = format!("/drip/{}", 400 + number);
        let mut stream = world
            .agent("curl")
            .args(["-sS", &format!("https://{WEB}{path}")])
            .spawn();
        wait::until_true("the upstream sees the request", || {
            world.web.received().contains(&path)
        });
        let log = fs::read_to_string(world.gate.audit_file()).unwrap();
        stream.kill().unwrap();
        stream.wait().unwrap();
        assert!(
            log.contains(&path),
            "{path} left before its record was written"
        );
    }
}

#[test]
fn each_request_has_its_two_lines_and_each_refusal_its_one_in_order() {
    let world = World::new();
    let allowed: Vec<_> = (0..20)
        .map(|number| format!("https://{WEB}/a-{number}"))
        .collect();
    let refused: Vec<_> = (0..5)
        .map(|number| format!("https://{WEB}/secret/{number}"))
        .collect();
    let clients: Vec<_> = allowed
        .iter()
        .chain(&refused)
        .map(|url| {
            world
                .agent("curl")
                .args(["-sS", "-o", "/dev/null", url])
                .spawn()
        })
        .collect();
    for mut client in clients {
        let status = wait::until("a client ends", || client.try_wait().unwrap());
        assert!(status.success());
    }
    let count =
        |records: &[Value], kind: &str| records.iter().filter(|it| it["kind"] == kind).count();
    let records = wait::until("every response is recorded", || {
        let records = world.gate.audit();
        (count(&records, "response") >= 20).then_some(records)
    });
    assert_eq!(count(&records, "request"), 20);
    assert_eq!(count(&records, "response"), 20);
    assert_eq!(count(&records, "refusal"), 5);

    let mut kinds: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (before, after) in records.iter().zip(&records[1..]) {
        let step = after["seq"].as_u64().unwrap() - before["seq"].as_u64().unwrap();
        assert_eq!(step, 1, "{before} {after}");
    }
    for record in records.iter().filter(|record| record["kind"] != "event") {
        let kind = record["kind"].as_str().unwrap().to_owned();
        kinds
            .entry(record["id"].as_str().unwrap().to_owned())
            .or_default()
            .push(kind);
        assert_eq!(record["v"], 1);
        assert_eq!(record["peer_uid"], world.agent);
        assert_eq!(
            record["policy_hash"].as_str().unwrap().len(),
            64,
            "{record}"
        );
    }
    assert!(
        kinds
            .values()
            .all(|kinds| kinds == &["request", "response"] || kinds == &["refusal"])
    );
    for record in records.iter().filter(|record| record["kind"] == "response") {
        assert_eq!(record["status"], 200, "{record}");
        assert_eq!(record["address"], format!("{WEB_ADDRESS}:443"), "{record}");
        for number in ["bytes_in", "bytes_out", "ms", "ms_head"] {
            assert!(record[number].is_u64(), "{number}: {record}");
        }
    }
    for record in &records {
        for hash in ["prev", "hash"] {
            assert_eq!(record[hash].as_str().unwrap().len(), 64, "{record}");
        }
    }
    for record in records.iter().filter(|record| record["kind"] == "request") {
        assert_eq!(record["entrance"], "uid");
        assert_eq!(record["company"], "acme");
        assert_eq!(record["method"], "GET");
        assert_eq!(record["credential"], "web");
        assert_eq!(record["verdict"], "allow");
        assert!(record["rule"].as_str().unwrap().contains("web"), "{record}");
    }
}

#[test]
fn a_push_is_recorded_by_its_references() {
    let world = World::new();
    world
        .git(".", &["clone", "--quiet", &world.repository(), "work"])
        .ok();
    world
        .git(
            "work",
            &["push", "--quiet", "origin", "HEAD:refs/heads/agent/x"],
        )
        .ok();
    let records = wait::until("the push is recorded", || {
        let records = world.gate.audit();
        records
            .iter()
            .any(|it| !it["facts"].is_null())
            .then_some(records)
    });
    let push = records.iter().find(|it| !it["facts"].is_null()).unwrap();
    assert_eq!(push["facts"]["push"][0]["ref"], "refs/heads/agent/x");
    assert_eq!(push["facts"]["push"][0]["op"], "create");
    assert_eq!(push["credential"], "git");
}

#[test]
fn secrets_in_a_query_are_not_recorded_and_the_rest_of_it_is_served() {
    let world = World::new();
    let url = format!("https://{WEB}/x?token=query-secret-value&page=2");
    assert!(world.curl(&[&url]).ok().stdout.ends_with("\n200"));
    assert!(world.web.received().contains("token=query-secret-value"));
    let log = fs::read_to_string(world.gate.audit_file()).unwrap();
    assert!(log.contains("/x?"), "{log}");
    assert!(!log.contains("query-secret-value"), "{log}");
}

#[test]
fn tail_follows_the_log_as_it_grows() {
    let world = World::new();
    assert!(
        world
            .curl(&[&format!("https://{WEB}/before")])
            .ok()
            .stdout
            .ends_with("\n200")
    );
    let followed = world.path().join("followed");
    let mut tail = Program::new(binaries::path("portcullis-proxy"))
        .args(["audit", "tail", "-f", "--json", "--config"])
        .arg(world.gate.config())
        .in_netns(&world.netns)
        .spawn_logging(&followed);
    let shows = |text: &str| {
        fs::read_to_string(&followed)
            .unwrap_or_default()
            .contains(text)
    };
    wait::until_true("the past is shown", || shows("/before"));
    for number in 0..3 {
        let path = format!("/after-{number}");
        assert!(
            world
                .curl(&[&format!("https://{WEB}{path}")])
                .ok()
                .stdout
                .ends_with("\n200")
        );
        wait::until_true("the present is shown", || shows(&path));
    }
    let unlisted = world.curl(&[&format!("https://{EVIL}/x")]).ok();
    assert!(unlisted.stdout.ends_with("\n403"));
    wait::until_true("a refusal is shown", || shows("destination_not_listed"));
    tail.kill().unwrap();
    tail.wait().unwrap();
    let text = fs::read_to_string(&followed).unwrap();
    for line in text.lines() {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
}

#[test]
fn the_log_goes_on_after_a_kill_without_a_gap_or_a_torn_line() {
    let mut world = World::new();
    let url = format!("https://{WEB}/x");
    for _ in 0..3 {
        assert!(world.curl(&[&url]).ok().stdout.ends_with("\n200"));
        world.gate.kill();
        // A torn last line, as a power failure leaves it.
        let mut log = fs::OpenOptions::new()
            .append(true)
            .open(world.gate.audit_file())
            .unwrap();
        std::io::Write::write_all(&mut log, b"{\"v\":1,\"seq\":").unwrap();
        world.start();
    }
    assert!(world.curl(&[&url]).ok().stdout.ends_with("\n200"));
    let text = fs::read_to_string(world.gate.audit_file()).unwrap();
    let numbers: Vec<u64> = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok()?["seq"].as_u64())
        .collect();
    assert!(numbers.len() >= 8, "{text}");
    assert!(
        numbers.windows(2).all(|pair| pair[0] < pair[1]),
        "{numbers:?}"
    );
}
