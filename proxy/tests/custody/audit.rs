//! The log on the real program and on a disk that is full.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use policy::record::{Record, RecordKind};
use proxy::audit::{Audit, AuditError};
use serde_json::{Value, json};

use super::fixture::{Fixture, PROXY, eventually};

fn record() -> Record {
    let mut record = Record::new(RecordKind::Event, "x", "");
    record.reason = Some("y".repeat(400));
    record
}

/// LIF-08. The mount is seen by the threads of this test alone.
/// Attack: LIF-08
#[test]
fn a_full_disk_stops_the_log_and_space_brings_it_back() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().to_owned();
    let body = move || {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let none: Option<&str> = None;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(none, "/", none, private, none).unwrap();
        mount(
            Some("tmpfs"),
            &root,
            Some("tmpfs"),
            MsFlags::empty(),
            Some("size=64k"),
        )
        .unwrap();
        full_disk(&root);
    };
    std::thread::spawn(body).join().unwrap();
}

fn full_disk(root: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let ballast = root.join("ballast");
    std::fs::write(&ballast, vec![0; 24 * 1024]).unwrap();
    let audit = Audit::open(&root.join("audit")).unwrap();
    let durable = || runtime.block_on(audit.append_durable(record()));
    assert!(durable().is_ok(), "control");
    let mut written = 1;
    while audit.append(record()).is_ok() {
        written += 1;
        assert!(written < 1000, "64 KiB never fill up");
    }
    assert!(matches!(durable(), Err(AuditError::Unavailable(_))));
    assert!(matches!(
        audit.append(record()),
        Err(AuditError::Unavailable(_))
    ));
    let view = audit.view();
    assert!(!view.ok && view.problem.is_some(), "{view:?}");

    // It comes back by itself.
    std::fs::remove_file(&ballast).unwrap();
    eventually("the log recovers", || audit.view().ok);
    assert!(durable().is_ok());
    drop(audit);

    // Every line is whole and none is missing.
    let text = std::fs::read_to_string(root.join("audit/audit.jsonl")).unwrap();
    assert!(text.ends_with('\n'));
    let lines: Vec<Record> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let seqs: Vec<u64> = lines.iter().map(|line| line.seq).collect();
    // And the event of the recovery, and the closing record.
    assert_eq!(seqs, (1..=written + 3).collect::<Vec<u64>>());
    let said = lines[lines.len() - 3].reason.clone().unwrap();
    assert!(said.contains("can be written again"), "{said}");
}

#[test]
fn tail_follows_and_filters_and_query_answers_about_a_run() {
    let mut fixture = Fixture::new();
    fixture.start();
    let mut tail = Command::new(PROXY)
        .args([
            "audit", "tail", "-f", "--json", "--run", "run-1", "--config",
        ])
        .arg(fixture.config())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    for run in ["run-0", "run-1"] {
        let open = json!({
            "grant": {"company": "acme", "agent": "coder", "run": run, "profile": "default"},
            "epoch": 1, "peer_uids": {"first": 200_000, "count": 10}, "lease_seconds": 60,
        });
        assert_eq!(fixture.ask("PUT", &format!("/v1/runs/{run}"), &open).0, 200);
    }
    let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(line["run"], "run-1");
    assert!(line["reason"].as_str().unwrap().starts_with("run opened"));
    tail.kill().unwrap();
    tail.wait().unwrap();

    let found = fixture.tool(&["audit", "query", "--run", "run-0"]);
    assert_eq!(found.status.code(), Some(0));
    assert_eq!(String::from_utf8(found.stdout).unwrap().lines().count(), 1);
    assert_eq!(
        fixture
            .tool(&["audit", "query", "--run", "none"])
            .status
            .code(),
        Some(1)
    );
    let (code, body) = fixture.ask("GET", "/v1/audit?run=run-1", &Value::Null);
    assert_eq!((code, &body["run"]), (200, &json!("run-1")));
    // What cannot be read is part of the answer.
    let ask = |fixture: &Fixture| fixture.ask("GET", "/v1/audit?run=run-1", &Value::Null).1;
    let spoilt = fixture.path("lib/audit/audit-00000000000000000000.jsonl.zst");
    std::fs::write(&spoilt, "nothing that decompresses").unwrap();
    let lacking = ask(&fixture);
    assert_eq!(lacking["kind"], "lacking", "{lacking}");
    let reason = lacking["reason"].as_str().unwrap();
    assert!(reason.contains("cannot be read any further"), "{reason}");
    std::fs::remove_file(&spoilt).unwrap();
    assert_eq!(ask(&fixture)["run"], "run-1", "control");
    fixture.stop();
}

#[test]
fn events_arrive_as_they_happen() {
    let mut fixture = Fixture::new();
    fixture.start();
    let mut curl = Command::new("curl")
        .args(["--silent", "--no-buffer", "--unix-socket"])
        .arg(fixture.path("run/control.sock"))
        .arg("http://gate/v1/events")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(curl.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "", "the stream is open");
    assert_eq!(fixture.ask("POST", "/v1/reload", &Value::Null).0, 200);
    let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(line["reason"], "reload");
    fixture.stop();
    assert!(
        lines
            .next()
            .is_none_or(|line| line.is_err() || line.is_ok_and(|l| l.contains("stopped")))
    );
    curl.kill().unwrap();
    curl.wait().unwrap();
}

#[test]
fn a_torn_line_of_a_killed_gate_is_set_aside_at_the_next_start() {
    let mut fixture = Fixture::new();
    fixture.start();
    fixture.stop();
    let log = fixture.path("lib/audit/audit.jsonl");
    let mut file = std::fs::OpenOptions::new().append(true).open(&log).unwrap();
    file.write_all(b"{\"v\":1,\"seq\":4,\"ti").unwrap();
    fixture.start();
    fixture.stop();
    let lines = fixture.log();
    let torn = lines
        .iter()
        .find(|line| line["log"]["what"] == "torn")
        .unwrap();
    assert!(torn["reason"].as_str().unwrap().contains(".torn"), "{torn}");
    assert_eq!(torn["seq"], 4, "started, stopped, closed");
    let verified = fixture.tool(&["audit", "verify"]);
    assert_eq!(verified.status.code(), Some(0), "{verified:?}");
    let aside = std::fs::read_dir(fixture.path("lib/audit")).unwrap();
    assert!(
        aside
            .map(|entry| entry.unwrap().path())
            .any(|path| path.extension().is_some_and(|e| e == "torn"))
    );
}
