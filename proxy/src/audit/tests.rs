use std::os::unix::fs::PermissionsExt;

use policy::record::{Record, RecordKind, Verdict};

use super::query::{Filter, scan};
use super::tail::{Follower, Paint, last, render};
use super::*;

fn record(id: &str) -> Record {
    Record::new(RecordKind::Event, id, "2026-11-30T08:00:00.123456Z")
}

fn directory() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit");
    (directory, path)
}

fn ids(path: &Path) -> Vec<(u64, String)> {
    let mut found = Vec::new();
    scan(&path.join(FILE), &Filter::default(), |_, record| {
        found.push((record.seq, record.id.clone()));
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    found
}

#[test]
fn records_are_numbered_and_the_numbers_go_on_after_a_restart() {
    let (_keep, path) = directory();
    let audit = Audit::open(&path).unwrap();
    assert_eq!(audit.append(record("a")).unwrap(), 1);
    assert_eq!(audit.append(record("b")).unwrap(), 2);
    drop(audit);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&path), 0o700);
    assert_eq!(mode(&path.join(FILE)), 0o600);
    let audit = Audit::open(&path).unwrap();
    assert_eq!(audit.append(record("c")).unwrap(), 3);
    let wanted: Vec<(u64, String)> = [(1, "a"), (2, "b"), (3, "c")]
        .map(|(seq, id)| (seq, id.to_owned()))
        .into();
    assert_eq!(ids(&path), wanted);
}

#[test]
fn only_one_process_writes() {
    let (_keep, path) = directory();
    let first = Audit::open(&path).unwrap();
    assert!(matches!(Audit::open(&path), Err(AuditError::Busy { .. })));
    drop(first);
    assert!(Audit::open(&path).is_ok());
}

#[test]
fn a_torn_last_line_is_set_aside_and_said() {
    let (_keep, path) = directory();
    let audit = Audit::open(&path).unwrap();
    audit.append(record("a")).unwrap();
    drop(audit);
    let file = path.join(FILE);
    let mut text = std::fs::read_to_string(&file).unwrap();
    let whole = text.len();
    // Longer than one piece of the backward reader.
    text.push_str("{\"v\":1,\"seq\":2,\"id\":\"");
    text.push_str(&"x".repeat(100_000));
    std::fs::write(&file, &text).unwrap();

    let audit = Audit::open(&path).unwrap();
    audit.append(record("b")).unwrap();
    drop(audit);
    let torn = path.join(format!("{FILE}.{whole}.torn"));
    assert_eq!(std::fs::read_to_string(&torn).unwrap(), text[whole..]);
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(
        lines[1].contains("set aside as") && lines[1].contains(".torn"),
        "{}",
        lines[1]
    );
    assert_eq!(
        ids(&path).iter().map(|(seq, _)| *seq).collect::<Vec<_>>(),
        [1, 2, 3]
    );
}

#[test]
fn damaged_lines_are_kept_and_counted_and_a_log_of_nothing_else_is_refused() {
    let (_keep, path) = directory();
    let audit = Audit::open(&path).unwrap();
    audit.append(record("a")).unwrap();
    drop(audit);
    let file = path.join(FILE);
    let mut text = std::fs::read_to_string(&file).unwrap();
    text.push_str("damaged\n");
    std::fs::write(&file, &text).unwrap();
    let audit = Audit::open(&path).unwrap();
    assert_eq!(
        audit.append(record("b")).unwrap(),
        3,
        "the damaged line was one"
    );
    drop(audit);

    std::fs::write(&file, "damaged\n").unwrap();
    assert!(matches!(
        Audit::open(&path),
        Err(AuditError::Corrupt { .. })
    ));
    std::fs::write(&file, "only half a line").unwrap();
    let audit = Audit::open(&path).unwrap();
    assert_eq!(audit.view().seq, 1, "the event about the torn line");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn durable_records_share_syncs_and_keep_their_order() {
    let (_keep, path) = directory();
    let audit = Arc::new(Audit::open(&path).unwrap());
    let mut tasks = Vec::new();
    for at in 0..200 {
        let audit = Arc::clone(&audit);
        tasks.push(tokio::spawn(async move {
            audit.append_durable(record(&at.to_string())).await
        }));
    }
    let mut seqs = Vec::new();
    for task in tasks {
        seqs.push(task.await.unwrap().unwrap());
    }
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=200).collect::<Vec<u64>>());
    let found = ids(&path);
    assert_eq!(found.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), seqs);
    assert!(audit.view().ok);
}

#[test]
fn ends_go_with_the_next_line_or_soon_by_themselves() {
    let (_keep, path) = directory();
    let audit = Audit::open(&path).unwrap();
    assert_eq!(audit.append(record("a")).unwrap(), 1);
    assert_eq!(audit.append_end(record("b")).unwrap(), 2);
    assert_eq!(audit.append(record("c")).unwrap(), 3);
    let all = |wanted: &[&str]| {
        ids(&path)
            .iter()
            .map(|(_, id)| id.as_str())
            .eq(wanted.to_vec())
    };
    assert!(all(&["a", "b", "c"]));
    assert_eq!(audit.append_end(record("d")).unwrap(), 4);
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !all(&["a", "b", "c", "d"]) {
        assert!(std::time::Instant::now() < deadline, "it is never written");
        std::thread::yield_now();
    }
    audit.append_end(record("e")).unwrap();
    audit.flush().unwrap();
    assert!(all(&["a", "b", "c", "d", "e"]));
    audit.append_end(record("f")).unwrap();
    drop(audit);
    assert!(all(&["a", "b", "c", "d", "e", "f"]), "closing writes all");
}

#[test]
fn a_lost_end_leaves_a_gap_and_what_was_refused_for_want_of_a_record_does_not() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut log = Log::new(full, 0, 7);
    log.push(&mut record("refused")).unwrap();
    assert!(log.write().is_err());
    assert_eq!(log.seq(), 7);
    log.push(&mut record("ended")).unwrap();
    log.owe();
    log.push(&mut record("refused")).unwrap();
    assert!(log.write().is_err());
    assert_eq!(log.seq(), 8);
    assert_eq!(log.pending(), 0);
}

#[tokio::test]
async fn subscribers_hear_each_line_and_a_slow_one_only_hurts_itself() {
    let (_keep, path) = directory();
    let audit = Audit::open(&path).unwrap();
    let mut live = audit.subscribe();
    let mut slow = audit.subscribe();
    audit.append(record("a")).unwrap();
    let line = live.recv().await.unwrap();
    assert_eq!(serde_json::from_str::<Record>(&line).unwrap().id, "a");
    drop(live);
    for _ in 0..BROADCAST_LINES + 10 {
        audit.append(record("b")).unwrap();
    }
    assert!(matches!(
        slow.recv().await,
        Err(broadcast::error::RecvError::Lagged(_))
    ));
}

#[test]
fn a_rotated_log_is_begun_anew_and_the_numbers_go_on() {
    let (_keep, path) = directory();
    let audit = Audit::open(&path).unwrap();
    audit.append(record("a")).unwrap();
    audit.reopen().unwrap();
    let mut follower = Follower::at_end(&path.join(FILE)).unwrap();
    audit.append(record("b")).unwrap();
    std::fs::rename(path.join(FILE), path.join("audit.1")).unwrap();
    audit.append(record("c")).unwrap();
    audit.reopen().unwrap();
    audit.append(record("d")).unwrap();
    assert_eq!(ids(&path), [(4, "d".to_owned())]);

    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.extend(follower.poll().unwrap());
    }
    let seen: Vec<String> = seen
        .iter()
        .map(|line| serde_json::from_str::<Record>(line).unwrap().id)
        .collect();
    assert_eq!(seen, ["b", "c", "d"]);
}

#[test]
fn a_follower_survives_truncation_and_waits_for_whole_lines() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    std::fs::write(&path, "old\n").unwrap();
    let mut follower = Follower::at_end(&path).unwrap();
    assert!(follower.poll().unwrap().is_empty());
    std::fs::write(&path, "old\nhal").unwrap();
    assert!(follower.poll().unwrap().is_empty());
    std::fs::write(&path, "old\nhalf\n").unwrap();
    assert_eq!(follower.poll().unwrap(), ["half"]);
    std::fs::write(&path, "new\n").unwrap();
    assert_eq!(follower.poll().unwrap(), ["new"]);
    std::fs::remove_file(&path).unwrap();
    assert!(follower.poll().unwrap().is_empty());
    std::fs::write(&path, "again\n").unwrap();
    assert_eq!(follower.poll().unwrap(), ["again"]);
}

#[test]
fn filters_and_the_last_lines() {
    let (_keep, path) = directory();
    let audit = Audit::open(&path).unwrap();
    for (at, verdict) in [Verdict::Allow, Verdict::Refuse, Verdict::Allow]
        .into_iter()
        .enumerate()
    {
        let mut record = record(&at.to_string());
        record.authority = Some(format!("h{at}.example:443"));
        record.agent = Some("coder".to_owned());
        record.verdict = Some(verdict);
        audit.append(record).unwrap();
    }
    let file = path.join(FILE);
    let found = |filter: &Filter, count| -> Vec<String> {
        last(&file, filter, count)
            .unwrap()
            .into_iter()
            .map(|(_, record)| record.id)
            .collect()
    };
    assert_eq!(found(&Filter::default(), 2), ["1", "2"]);
    let refused = Filter {
        verdict: Some(Verdict::Refuse),
        ..Filter::default()
    };
    assert_eq!(found(&refused, 9), ["1"]);
    let host = Filter {
        host: Some("h2.example".to_owned()),
        ..Filter::default()
    };
    assert_eq!(found(&host, 9), ["2"]);
    let nobody = Filter {
        agent: Some("other".to_owned()),
        ..Filter::default()
    };
    assert!(found(&nobody, 9).is_empty());
}

#[test]
fn a_line_for_people_shows_what_matters_and_no_control_characters() {
    let mut refusal = Record::new(RecordKind::Refusal, "x", "2026-11-30T08:00:01.004567Z");
    refusal.method = Some("GET".to_owned());
    refusal.authority = Some("evil.example:443".to_owned());
    refusal.path = Some("/\x1b]0;title\x07\u{202e}".to_owned());
    refusal.agent = Some("coder".to_owned());
    refusal.reason = Some("not listed".to_owned());
    let line = render(&refusal, Paint::Plain);
    assert!(
        line.starts_with("08:00:01.004 REFUSE GET evil.example:443/"),
        "{line}"
    );
    assert!(line.ends_with("coder not listed"), "{line}");
    assert!(!line.contains('\x1b') && !line.contains('\x07') && !line.contains('\u{202e}'));
    let mut response = Record::new(RecordKind::Response, "x", "2026-11-30T08:00:01Z");
    response.status = Some(200);
    response.bytes_out = Some(3 * 1024 * 1024 + 200 * 1024);
    response.ms = Some(12);
    assert_eq!(
        render(&response, Paint::Plain),
        "08:00:01Z end     200 out=3.1M 12ms"
    );
    assert!(render(&response, Paint::Colour).contains("\x1b["));
}

#[test]
fn the_published_schema_names_exactly_what_is_written() {
    use std::collections::BTreeSet;
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../docs/audit-record.schema.json")).unwrap();
    let code = policy::Code::ALL[0];
    let full = serde_json::json!({
        "v": 1, "seq": 1, "time": "t", "kind": "request", "id": "i", "run": "r", "ticket": "t",
        "agent": "a", "company": "c", "profile": "p", "entrance": "uid", "peer_uid": 1,
        "scheme": "https", "authority": "a:1", "method": "GET", "path": "/", "verdict": "allow",
        "code": code.as_str(), "rule": "r", "policy_hash": "h", "credential": "c",
        "facts": {"push": [{"ref": "r", "op": "create"}]}, "address": "a", "status": 200,
        "bytes_in": 1, "bytes_out": 1, "ms": 1, "reason": "r",
    });
    let record: Record = serde_json::from_value(full).unwrap();
    let written = serde_json::to_value(&record).unwrap();
    let keys = |value: &serde_json::Value| -> BTreeSet<String> {
        value.as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(keys(&schema["properties"]), keys(&written));
    assert_eq!(schema["properties"]["v"]["const"], policy::record::VERSION);
    let codes: Vec<&str> = policy::Code::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(schema["$defs"]["code"]["enum"], serde_json::json!(codes));
}
