//! What vouches for the log, and what counts: the signing key, `verify`, anchors, metrics; on the
//! real program.

use std::os::unix::fs::chown;
use std::process::{Command, Output};

use serde_json::Value;

use super::fixture::{Fixture, USER, eventually, uid_of};

/// A gate with a key of its own for the log, and a port for a scraper.
fn signed(port: u16) -> Fixture {
    let fixture = Fixture::with(|text| {
        let audit = text
            .split("directory = \"")
            .find_map(|part| {
                part.split_once("/lib/audit\"")
                    .map(|(root, _)| root.to_owned())
            })
            .unwrap();
        let line = format!("[audit]\nsigning_key = \"{audit}/lib/audit.key\"");
        let metrics =
            format!("[metrics]\nlisten = \"127.0.0.1:{port}\"\nusers = [\"daemon\", \"root\"]\n");
        format!("{}{metrics}", text.replace("[audit]", &line))
    });
    let made = fixture.tool(&["audit", "keygen", "--user", USER]);
    assert!(made.status.success(), "{made:?}");
    fixture
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn a_signed_log_verifies_offline_and_gpg_agrees() {
    let mut fixture = signed(free_port());
    let again = fixture.tool(&["audit", "keygen"]);
    assert_eq!(
        code(&again),
        Some(1),
        "a key is never overwritten: {again:?}"
    );
    fixture.start();
    let status = fixture.status();
    assert_eq!(
        status["audit"]["signing_key"].as_str().unwrap().len(),
        40,
        "{status}"
    );
    assert!(
        !status["warnings"].to_string().contains("not signed"),
        "{status}"
    );
    let live = fixture.tool(&["audit", "verify"]);
    assert_eq!(code(&live), Some(0), "its beginning is signed: {live:?}");
    assert!(said(&live).contains("being written"), "{live:?}");
    fixture.stop();
    let verified = fixture.tool(&["audit", "verify", "--json"]);
    assert_eq!(code(&verified), Some(0), "{verified:?}");
    let report: Value = serde_json::from_slice(&verified.stdout).unwrap();
    assert_eq!(
        (&report["end"], &report["signed"]),
        (&"closed".into(), &2.into()),
        "{report}"
    );

    let to = fixture.path("out");
    std::fs::create_dir(&to).unwrap();
    let exported = fixture.tool(&["audit", "checkpoint-export", "--to", to.to_str().unwrap()]);
    assert!(exported.status.success(), "{exported:?}");
    let files = String::from_utf8(exported.stdout).unwrap();
    let (text, signature) = files.trim().split_once('\n').unwrap();
    let home = fixture.path("gnupg");
    std::fs::create_dir(&home).unwrap();
    super::fixture::set_mode(&home, 0o700);
    let gpg = |arguments: &[&str]| {
        let mut gpg = Command::new("gpg");
        gpg.args(["--batch", "--no-autostart", "--homedir"])
            .arg(&home);
        gpg.args(arguments).output().unwrap()
    };
    let public = fixture.path("lib/audit.key.pub");
    assert!(
        gpg(&["--import", public.to_str().unwrap()])
            .status
            .success()
    );
    let good = gpg(&["--verify", signature, text]);
    assert!(good.status.success(), "{good:?}");
    let statement = std::fs::read_to_string(text).unwrap();
    assert!(statement.contains("\npolicy default ") && statement.contains("\nboundary external: "));
    std::fs::write(text, statement.replace("seq ", "seq 1")).unwrap();
    assert!(!gpg(&["--verify", signature, text]).status.success());

    // A changed byte, with the public key alone, on a copy.
    let copy = fixture.path("copy.jsonl");
    let log = std::fs::read_to_string(fixture.path("lib/audit/audit.jsonl")).unwrap();
    let check = |text: &str| {
        std::fs::write(&copy, text).unwrap();
        Command::new(super::fixture::PROXY)
            .args(["audit", "verify", "--file"])
            .arg(&copy)
            .arg("--key")
            .arg(&public)
            .output()
            .unwrap()
    };
    assert_eq!(code(&check(&log)), Some(0), "control");
    assert_eq!(
        code(&check(&log.replacen("gate started", "gate startet", 1))),
        Some(1)
    );
    std::fs::remove_file(&copy).unwrap();
    let missing = Command::new(super::fixture::PROXY)
        .args(["audit", "verify", "--file"])
        .arg(&copy)
        .output()
        .unwrap();
    assert_eq!(code(&missing), Some(2), "{missing:?}");
}

#[test]
fn a_gate_without_a_key_says_so_and_one_with_a_broken_key_does_not_start() {
    let mut fixture = Fixture::new();
    fixture.start();
    assert!(
        fixture.status()["warnings"]
            .to_string()
            .contains("not signed")
    );
    let log = fixture.stop();
    assert!(log.contains("checkpoints are not signed"), "{log}");
    let verified = fixture.tool(&["audit", "verify"]);
    assert_eq!(code(&verified), Some(0));
    assert!(
        said(&verified).contains("signatures are not checked"),
        "{verified:?}"
    );

    let broken = signed(free_port());
    super::fixture::set_mode(&broken.path("lib/audit.key"), 0o644);
    let started = broken.tool(&["run", "--user", USER]);
    assert_eq!(code(&started), Some(2), "{started:?}");
    assert!(said(&started).contains("audit.key"), "{started:?}");
}

#[test]
fn an_anchor_finds_a_log_cut_back_to_an_earlier_clean_close() {
    let mut fixture = signed(free_port());
    let file = fixture.path("lib/audit/audit.jsonl");
    fixture.start();
    fixture.stop();
    let early = std::fs::read(&file).unwrap();
    fixture.start();
    let (status, anchor) = fixture.ask("GET", "/v1/checkpoint", &Value::Null);
    assert_eq!(
        (status, &anchor["kind"]),
        (200, &"checkpoint".into()),
        "of the former process"
    );
    fixture.stop();
    let anchors = fixture.path("anchors.jsonl");
    let last = fixture.log().pop().unwrap();
    std::fs::write(&anchors, format!("{anchor}\n{last}\n")).unwrap();
    let verify = || fixture.tool(&["audit", "verify", "--anchors", anchors.to_str().unwrap()]);
    let whole = verify();
    assert_eq!(code(&whole), Some(0), "control: {whole:?}");
    assert!(said(&whole).contains("2 found"), "{whole:?}");
    std::fs::write(&file, early).unwrap();
    chown(&file, Some(uid_of(USER)), None).unwrap();
    assert_eq!(
        code(&fixture.tool(&["audit", "verify"])),
        Some(0),
        "by itself nothing is seen"
    );
    let cut = verify();
    assert_eq!(code(&cut), Some(1), "{cut:?}");
    assert!(said(&cut).contains("cut back"), "{cut:?}");
    std::fs::write(&anchors, "").unwrap();
    assert_eq!(code(&verify()), Some(2), "no anchor at all is no proof");
}

#[test]
fn metrics_are_for_those_who_are_listed() {
    let port = free_port();
    let mut fixture = signed(port);
    fixture.start();
    let scrape = |user: &str| {
        let uid = uid_of(user);
        Command::new("setpriv")
            .arg(format!("--reuid={uid}"))
            .arg(format!("--regid={uid}"))
            .args([
                "--clear-groups",
                "curl",
                "--silent",
                "--show-error",
                "--max-time",
                "20",
            ])
            .args(["--write-out", "\n%{http_code}"])
            .arg(format!("http://127.0.0.1:{port}/metrics"))
            .output()
            .unwrap()
    };
    let stranger = scrape("bin");
    assert!(said(&stranger).ends_with("\n403"), "{stranger:?}");
    assert!(!said(&stranger).contains("portcullis_"), "{stranger:?}");
    let shown = said(&scrape("daemon"));
    assert!(shown.ends_with("\n200"), "control: {shown}");
    for name in [
        "portcullis_ready 1",
        "portcullis_audit_ok 1",
        "portcullis_audit_lag_lines ",
        "portcullis_credential_ok{credential=\"example\"} 1",
        "portcullis_leaf_cache 0",
        "portcullis_request_duration_seconds_count 0",
        "portcullis_cost_microusd_total 0",
        "portcullis_holds_total 0",
    ] {
        assert!(shown.contains(name), "{name} is not in {shown}");
    }
    assert!(!shown.contains("canary-3f1c"));
    let (status, same) = fixture.ask("GET", "/v1/metrics", &Value::Null);
    assert!(status == 200 && same.as_str().unwrap().contains("portcullis_ready 1"));
    let (status, _) = fixture.ask_as(Some(uid_of("bin")), "GET", "/v1/metrics", &Value::Null);
    assert_eq!(status, 403);
    fixture.stop();
}

#[test]
fn stats_and_export_read_the_log() {
    let mut fixture = Fixture::new();
    fixture.start();
    eventually("the log has its first line", || !fixture.log().is_empty());
    fixture.stop();
    let stats = fixture.tool(&["audit", "stats", "--json"]);
    assert_eq!(code(&stats), Some(0), "{stats:?}");
    let value: Value = serde_json::from_slice(&stats.stdout).unwrap();
    assert_eq!(value["total"]["requests"], 0);
    let table = fixture.tool(&["audit", "export", "--since", "1h"]);
    let text = String::from_utf8(table.stdout).unwrap();
    assert!(text.starts_with("seq,time,kind,id,"), "{text}");
    assert!(
        text.contains("\"event\"") && text.lines().count() >= 3,
        "{text}"
    );
    let none = fixture.tool(&["audit", "query", "--until", "2020-01-01"]);
    assert_eq!(code(&none), Some(1), "{none:?}");
    let wrong = fixture.tool(&["audit", "query", "--since", "yesterday"]);
    assert_eq!(code(&wrong), Some(2), "{wrong:?}");
}
