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
        if record.kind != RecordKind::Checkpoint {
            found.push((record.seq, record.id.clone()));
        }
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
    let closed = 3;
    assert_eq!(audit.append(record("c")).unwrap(), closed + 1);
    let wanted: Vec<(u64, String)> = [(1, "a"), (2, "b"), (4, "c")]
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
    assert_eq!(lines.len(), 6);
    assert!(
        lines[2].contains("set aside as") && lines[2].contains(".torn"),
        "{}",
        lines[2]
    );
    assert_eq!(
        ids(&path).iter().map(|(seq, _)| *seq).collect::<Vec<_>>(),
        [1, 3, 4, 5]
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
        5,
        "the damaged line was one, and an event says that the log was not closed"
    );
    drop(audit);

    std::fs::write(&file, "damaged\n").unwrap();
    assert!(matches!(
        Audit::open(&path),
        Err(AuditError::Corrupt { .. })
    ));
    std::fs::write(&file, "only half a line").unwrap();
    let audit = Audit::open(&path).unwrap();
    assert_eq!(
        audit.view().seq,
        2,
        "events about the torn line and the end"
    );
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
fn what_could_not_be_written_leaves_its_number_and_the_chain_to_the_next() {
    let (_keep, path) = directory();
    std::fs::create_dir(&path).unwrap();
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let head = chain::LineHash::NONE;
    let at = writer::Position {
        len: 0,
        seq: 7,
        head,
        first: 1,
    };
    let lock = writer::lock_directory(&path).unwrap().unwrap();
    let mut log = Log::new(
        path.join(FILE),
        lock,
        Settings::default().sync_directory,
        full,
        at,
    );
    log.push(&mut record("refused")).unwrap();
    log.push(&mut record("refused")).unwrap();
    assert!(log.write().is_err());
    assert_eq!((log.seq(), log.head(), log.pending()), (7, head, 0));
}

/// Settings under which a sync fails while the flag is set.
fn failing() -> (Settings, Arc<std::sync::atomic::AtomicBool>) {
    let flag = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let fails = Arc::clone(&flag);
    let settings = Settings {
        sync: Arc::new(move |file| {
            if fails.load(std::sync::atomic::Ordering::SeqCst) {
                return Err(std::io::Error::other("the disk is on fire"));
            }
            file.sync_data()
        }),
        ..Settings::default()
    };
    (settings, flag)
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "it never happens: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failed_sync_the_file_is_left_and_the_chain_goes_on_in_a_new_one() {
    let (_keep, path) = directory();
    let (settings, fails) = failing();
    let audit = Audit::open_with(&path, settings).unwrap();
    let request = |id: &str| Record::new(RecordKind::Request, id, "");
    audit.append_durable(record("control")).await.unwrap();
    fails.store(true, std::sync::atomic::Ordering::SeqCst);
    let lost = audit.append_durable(request("lost")).await;
    assert!(matches!(lost, Err(AuditError::Unavailable(_))), "{lost:?}");
    assert!(!audit.view().ok);
    assert!(audit.append(record("refused")).is_err());
    fails.store(false, std::sync::atomic::Ordering::SeqCst);
    until("the log recovers", || audit.view().ok);
    audit.append_durable(record("after")).await.unwrap();
    drop(audit);

    let files = segment::list(&path).unwrap();
    assert!(files.len() >= 2, "{files:?}");
    let left = std::fs::read_to_string(&files[0].path).unwrap();
    assert!(left.contains("lost") && !left.contains("after"), "{left}");
    let report = verify::verify(&files, &verify::Check::default()).unwrap();
    assert!(report.intact, "{report}");
    assert!(report.open.is_empty(), "its end says that it did not leave");

    // A crash that loses what the disk did not take is found, and the log says why.
    let durable = left.split_inclusive('\n').next().unwrap();
    std::fs::write(&files[0].path, durable).unwrap();
    let report = verify::verify(&files, &verify::Check::default()).unwrap();
    assert!(!report.intact, "{report}");
    let problem = &report.findings[0].problem;
    assert!(problem.contains("lost when a sync failed"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_was_moved_away_stops_the_log_until_there_is_one_again() {
    let (keep, path) = directory();
    let away = keep.path().join("away");
    let audit = Audit::open(&path).unwrap();
    audit.append_durable(record("a")).await.unwrap();
    std::fs::rename(&path, &away).unwrap();
    assert!(audit.append_durable(record("b")).await.is_err());
    assert!(!audit.view().ok);
    assert!(!path.exists(), "the gate makes none by itself");
    // Not even one that cannot be written takes the lock from the former.
    std::fs::create_dir(&path).unwrap();
    std::fs::create_dir(path.join(FILE)).unwrap();
    until("it was tried", || {
        audit
            .view()
            .problem
            .is_some_and(|problem| problem.contains("exists"))
    });
    std::fs::remove_dir_all(&path).unwrap();
    std::fs::rename(&away, &path).unwrap();
    until("the log recovers", || audit.view().ok);
    assert!(matches!(Audit::open(&path), Err(AuditError::Busy { .. })));
    audit.append_durable(record("c")).await.unwrap();

    // Idle, it is noticed by whoever asks; another directory will do.
    std::fs::rename(&path, &away).unwrap();
    assert!(!audit.view().ok);
    std::fs::create_dir(&path).unwrap();
    until("the log recovers", || audit.view().ok);
    audit.append_durable(record("d")).await.unwrap();
    drop(audit);
    assert!(ids(&path).iter().any(|(_, id)| id == "d"));
    let mut all = segment::list(&away).unwrap();
    all.extend(segment::list(&path).unwrap());
    let report = verify::verify(&all, &verify::Check::default()).unwrap();
    assert!(
        report.intact && report.end == verify::End::Closed,
        "{report}"
    );
}

/// Attack: RES-19
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
    let found = ids(&path);
    assert_eq!(found.last(), Some(&(5, "d".to_owned())), "{found:?}");

    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.extend(follower.poll().unwrap());
    }
    let seqs: Vec<u64> = seen
        .iter()
        .map(|line| serde_json::from_str::<Record>(line).unwrap().seq)
        .collect();
    assert_eq!(seqs, [2, 3, 4, 5]);
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
        last(&[segment::Segment::alone(&file)], filter, count)
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
        "facts": {"push": [{"ref": "r", "op": "create"}], "graphql": ["f"], "model": "m", "left_out": 1}, "address": "a", "status": 200,
        "bytes_in": 1, "bytes_out": 1, "ms": 1, "ms_head": 1, "tokens_in": 1, "tokens_out": 1,
        "cost_microusd": 1, "hold": "h", "decider": "d", "reason": "r",
        "log": {"what": "opened", "clean": false},
        "checkpoint": {"statement": "s", "closing": true, "key": "k", "signature": "s"},
        "prev": "p", "hash": "h",
    });
    let record: Record = serde_json::from_value(full).unwrap();
    let written = serde_json::to_value(&record).unwrap();
    let keys = |value: &serde_json::Value| -> BTreeSet<String> {
        value.as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(keys(&schema["properties"]), keys(&written));
    for part in ["facts", "checkpoint"] {
        let described = &schema["properties"][part]["properties"];
        assert_eq!(keys(described), keys(&written[part]), "{part}");
    }
    assert_eq!(schema["properties"]["v"]["const"], policy::record::VERSION);
    let codes: Vec<&str> = policy::Code::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(schema["$defs"]["code"]["enum"], serde_json::json!(codes));
}

/// A log whose files are small, closed, and compressed at once.
fn shelved(path: &Path, change: impl FnOnce(&mut Settings)) -> Audit {
    let mut settings = Settings {
        segment_bytes: 3000,
        compress_after: Duration::ZERO,
        ..Settings::default()
    };
    change(&mut settings);
    Audit::open_with(path, settings).unwrap()
}

fn compressed(path: &Path) -> usize {
    let files = segment::list(path).unwrap();
    files.iter().filter(|file| file.is_compressed()).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_files_are_compressed_verify_and_are_only_opened_if_they_can_match() {
    let (_keep, path) = directory();
    let audit = shelved(&path, |_| {});
    for day in 1..=6 {
        for number in 0..10 {
            let time = format!("2026-11-0{day}T08:00:0{number}.000000Z");
            let mut record = Record::new(RecordKind::Refusal, &format!("{day}-{number}"), &time);
            record.authority = Some(format!("h{day}.example:443"));
            record.reason = Some("x".repeat(100));
            audit.append_durable(record).await.unwrap();
        }
    }
    until("closed files are compressed", || {
        let files = segment::list(&path).unwrap();
        files.len() > 5 && compressed(&path) == files.len() - 1
    });
    // Now, in the right file.
    audit.append_durable(record("now")).await.unwrap();
    let files = segment::list(&path).unwrap();
    let report = verify::verify(
        &files,
        &verify::Check {
            live: true,
            ..verify::Check::default()
        },
    )
    .unwrap();
    assert!(report.intact, "{report}");
    let ask = |filter: &Filter| {
        let mut ids = Vec::new();
        let mut reader = query::Reader::new(&files, filter);
        let each = |_: &str, record: &Record| {
            ids.push(record.id.clone());
            std::ops::ControlFlow::Continue(())
        };
        reader.each(each).unwrap();
        (ids, reader.opened())
    };
    let (all, opened) = ask(&Filter::default());
    assert_eq!(
        opened,
        files.len(),
        "control: whoever asks for all reads all"
    );
    assert!(all.len() > 60);
    let one = Filter {
        host: Some("h3.example".to_owned()),
        since: Some("2026-11-03T08:00:04.000000Z".to_owned()),
        until: Some("2026-11-03T08:00:06.000000Z".to_owned()),
        ..Filter::default()
    };
    let (found, opened) = ask(&one);
    assert_eq!(found, ["3-4", "3-5"]);
    assert!(opened <= 3, "{opened} of {} were opened", files.len());
    let nobody = Filter {
        agent: Some("nobody".to_owned()),
        ..Filter::default()
    };
    assert_eq!(ask(&nobody), (Vec::new(), 1), "the open file alone");

    // A changed byte in a compressed file is found.
    drop(audit);
    let whole = verify::verify(&segment::list(&path).unwrap(), &verify::Check::default()).unwrap();
    assert!(whole.intact, "{whole}");
    let mut bytes = std::fs::read(&files[1].path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&files[1].path, bytes).unwrap();
    assert!(
        !verify::verify(&files, &verify::Check::default())
            .unwrap()
            .intact
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_retention_removes_is_said_first_and_the_rest_verifies() {
    let (_keep, path) = directory();
    let audit = shelved(&path, |settings| settings.keep_files = Some(3));
    for number in 0..60 {
        audit
            .append_durable(record(&number.to_string()))
            .await
            .unwrap();
    }
    until("old files are removed", || {
        let files = segment::list(&path).unwrap();
        files.len() <= 4 && compressed(&path) + 1 == files.len()
    });
    drop(audit);
    let files = segment::list(&path).unwrap();
    let report = verify::verify(&files, &verify::Check::default()).unwrap();
    assert!(report.intact && report.first > 1, "{report}");
    assert!(
        report.notes.iter().any(|note| note.contains("retention")),
        "{report}"
    );

    // One file more than the log says is missing.
    let report = verify::verify(&files[1..], &verify::Check::default()).unwrap();
    assert!(!report.intact, "{report}");
}

/// The closed files of a log.
fn closed(path: &Path) -> Vec<segment::Segment> {
    let mut files = segment::list(path).unwrap();
    files.retain(|file| !file.is_open());
    files
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_old_enough_is_closed_and_one_that_is_not_goes_on() {
    for (age, closes) in [(Duration::from_millis(30), true), (Duration::MAX, false)] {
        let (_keep, path) = directory();
        let settings = Settings {
            segment_age: age,
            ..Settings::default()
        };
        let audit = Audit::open_with(&path, settings).unwrap();
        if closes {
            // Also when nothing is written any more.
            audit.append_durable(record("a")).await.unwrap();
            until("it is closed", || closed(&path).len() == 1);
        }
        std::thread::sleep(Duration::from_millis(60));
        audit.append_durable(record("b")).await.unwrap();
        drop(audit);
        assert_eq!(!closed(&path).is_empty(), closes);
        let all = segment::list(&path).unwrap();
        let report = verify::verify(&all, &verify::Check::default()).unwrap();
        assert!(report.intact, "{report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_goes_by_bytes_and_by_age_too() {
    const HOUR: Duration = Duration::from_secs(3600);
    type Limit = fn(&mut Settings);
    let cases: [(&str, Limit); 3] = [
        ("bytes", |settings| settings.keep_bytes = Some(4000)),
        ("age", |settings| settings.keep_for = Some(2 * HOUR)),
        ("control", |_| {}),
    ];
    for (by, limit) in cases {
        let (_keep, path) = directory();
        let audit = shelved(&path, limit);
        for number in 0..120 {
            let line = record(&number.to_string());
            audit.append_durable(line).await.unwrap();
            if number == 30 && by != "bytes" {
                // Three hours ago, as far as the files can tell; a file that is being compressed
                // would keep the time it had.
                until("all are compressed", || {
                    compressed(&path) == closed(&path).len()
                });
                let old = std::time::SystemTime::now() - 3 * HOUR;
                for file in closed(&path) {
                    // The next may be gone already, being older than what is kept.
                    if let Ok(file) = std::fs::File::options().append(true).open(&file.path) {
                        file.set_modified(old).unwrap();
                    }
                }
            }
        }
        let sizes = || -> u64 {
            let sizes = closed(&path).into_iter();
            let sizes = sizes.map(|file| std::fs::metadata(file.path).map_or(0, |it| it.len()));
            sizes.sum()
        };
        match by {
            "bytes" => until("few bytes are left", || sizes() <= 4000),
            "age" => until("the old ones are gone", || {
                closed(&path)
                    .first()
                    .is_some_and(|file| file.first > Some(20))
            }),
            _ => {
                std::thread::sleep(Duration::from_millis(500));
                assert!(sizes() > 4000);
                assert_eq!(closed(&path)[0].first, Some(1));
            }
        }
        assert!(!closed(&path).is_empty(), "{by}: some are kept");
        drop(audit);
        let all = segment::list(&path).unwrap();
        let report = verify::verify(&all, &verify::Check::default()).unwrap();
        assert!(report.intact, "{by}: {report}");
        assert_eq!(report.first > 1, by != "control", "{by}: {report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_sees_every_line_over_many_files() {
    let (_keep, path) = directory();
    let audit = shelved(&path, |settings| {
        settings.compress_after = Duration::from_secs(60)
    });
    audit.append_durable(record("before")).await.unwrap();
    let mut follower = Follower::at_end(&path.join(FILE)).unwrap();
    for number in 0..90 {
        audit
            .append_durable(record(&number.to_string()))
            .await
            .unwrap();
    }
    assert!(segment::list(&path).unwrap().len() > 4);
    let mut seqs = Vec::new();
    until("the last line is seen", || {
        let lines = follower.poll().unwrap();
        seqs.extend(
            lines
                .iter()
                .map(|line| serde_json::from_str::<Record>(line).unwrap().seq),
        );
        seqs.last() == Some(&audit.view().seq)
    });
    assert_eq!(seqs, (2..=audit.view().seq).collect::<Vec<_>>());
}

/// How many syncs `lines` durable lines cost that wait `together` at a time.
async fn syncs(lines: usize, together: bool) -> usize {
    let (_keep, path) = directory();
    let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let settings = Settings {
        sync: Arc::new(move |file| {
            counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            file.sync_data()
        }),
        ..Settings::default()
    };
    let audit = Arc::new(Audit::open_with(&path, settings).unwrap());
    let mut tasks = Vec::new();
    for at in 0..lines {
        let audit = Arc::clone(&audit);
        let line = async move { audit.append_durable(record(&at.to_string())).await };
        if together {
            tasks.push(tokio::spawn(line));
        } else {
            line.await.unwrap();
        }
    }
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    count.load(std::sync::atomic::Ordering::SeqCst)
}

#[tokio::test]
async fn a_lone_line_costs_one_sync_and_those_that_wait_together_share_few() {
    assert_eq!(syncs(1, false).await, 1);
    assert_eq!(syncs(10, false).await, 10, "one after the other");
    let shared = syncs(64, true).await;
    assert!(shared <= 4, "64 at once cost {shared}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_of_any_size_makes_a_line_that_every_reader_takes() {
    use policy::record::{PushFact, RecordFacts, RefOp};
    let (_keep, path) = directory();
    let audit = Audit::open(&path).unwrap();
    let mut large = Record::new(RecordKind::Request, "large", "");
    large.path = Some("\"".repeat(3_000_000));
    let push = PushFact {
        name: format!("refs/heads/{}", "\"".repeat(60_000)),
        op: RefOp::Create,
    };
    large.facts = Some(RecordFacts {
        push: vec![push; 17],
        ..RecordFacts::default()
    });
    audit.append_durable(&mut large).await.unwrap();
    large.kind = RecordKind::Response;
    audit.append_end(large).unwrap();
    // Just around the limit.
    for less in (0..1200).step_by(60) {
        let mut near = record("near");
        near.reason = Some("x".repeat(segment::LINE_BYTES_MAX - less));
        audit.append(near).unwrap();
    }
    let mut whole = record("whole");
    whole.reason = Some("x".repeat(500_000));
    audit.append(whole).unwrap();
    drop(audit);
    let files = segment::list(&path).unwrap();
    let report = verify::verify(&files, &verify::Check::default()).unwrap();
    assert!(report.intact && report.open.is_empty(), "{report}");
    let (mut read, filter) = (Vec::new(), Filter::default());
    let mut reader = query::Reader::new(&files, &filter);
    reader
        .each(|_, record| {
            read.push(record.clone());
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(u64::try_from(read.len()).unwrap(), report.last);
    assert_eq!(reader.remark(), None);
    let facts = read[0].facts.as_ref().unwrap();
    assert_eq!(
        facts.push.len() + usize::try_from(facts.left_out).unwrap(),
        17
    );
    let whole = read.iter().find(|record| record.id == "whole").unwrap();
    assert_eq!(whole.reason.as_ref().unwrap().len(), 500_000, "control");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overlong_line_is_kept_by_compression_and_named_by_readers() {
    let (_keep, path) = directory();
    let audit = Audit::open(&path).unwrap();
    audit.append(record("a")).unwrap();
    drop(audit);
    // As an earlier version may have written it.
    let mut text = std::fs::read(path.join(FILE)).unwrap();
    text.extend_from_slice(&b"x".repeat(3 * segment::LINE_BYTES_MAX));
    text.extend_from_slice(b"\n\xff not text, and no end");
    let closed = path.join(segment::name(1));
    std::fs::remove_file(path.join(FILE)).unwrap();
    std::fs::write(&closed, &text).unwrap();
    let audit = shelved(&path, |_| {});
    until("it is compressed", || {
        compressed(&path) == 1 && !closed.exists()
    });
    drop(audit);
    let packed = segment::Segment::alone(&path.join(format!("{}.zst", segment::name(1))));
    let kept = zstd::decode_all(std::fs::File::open(&packed.path).unwrap()).unwrap();
    assert!(kept == text, "{} bytes of {}", kept.len(), text.len());
    let files = [packed];
    // No index may hide it.
    let filter = Filter {
        host: Some("nobody.example".to_owned()),
        ..Filter::default()
    };
    let mut reader = query::Reader::new(&files, &filter);
    reader
        .each(|_, _| std::ops::ControlFlow::Continue(()))
        .unwrap();
    assert!(reader.remark().unwrap().starts_with("1 lines"));
    let report = verify::verify(&files, &verify::Check::default()).unwrap();
    let found = report.findings.iter();
    assert!(
        found
            .clone()
            .any(|it| it.problem.contains("longer than any record")),
        "{report}"
    );
}

/// A disk that tells of a lost write once, as Linux does: to the sync that meets it.
#[derive(Default)]
struct Forgetful {
    /// The next sync waits until this is taken away, and then fails.
    held: std::sync::atomic::AtomicBool,
    /// Syncs that have begun.
    begun: std::sync::atomic::AtomicUsize,
    /// Syncs under way, and the most that were at one time.
    busy: std::sync::atomic::AtomicUsize,
    most: std::sync::atomic::AtomicUsize,
}

impl Forgetful {
    fn sync(&self, first: usize) -> std::io::Result<()> {
        use std::sync::atomic::Ordering::SeqCst;
        let number = self.begun.fetch_add(1, SeqCst);
        let busy = self.busy.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(busy, SeqCst);
        let fails = self.held.load(SeqCst) && number == first;
        while fails && self.held.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.busy.fetch_sub(1, SeqCst);
        if fails {
            return Err(std::io::Error::other("lost what was written"));
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_told_durable_by_a_sync_beside_one_that_failed() {
    use std::sync::atomic::Ordering::SeqCst;
    for other in ["shelf", "reopen", "control"] {
        let (_keep, path) = directory();
        let disk = Arc::new(Forgetful::default());
        let told = Arc::clone(&disk);
        let audit = Arc::new(
            Audit::open_with(
                &path,
                Settings {
                    sync: Arc::new(move |_| told.sync(0)),
                    ..Settings::default()
                },
            )
            .unwrap(),
        );
        disk.held.store(other != "control", SeqCst);
        let first = {
            let audit = Arc::clone(&audit);
            tokio::spawn(async move { audit.append_durable(record("first")).await })
        };
        if other == "control" {
            first.await.unwrap().unwrap();
            audit.shared.record_durably(record("second")).unwrap();
            continue;
        }
        until("the first sync is under way", || {
            disk.begun.load(SeqCst) == 1
        });
        let second = {
            let (audit, path) = (Arc::clone(&audit), path.clone());
            std::thread::spawn(move || {
                if other == "shelf" {
                    audit.shared.record_durably(record("second"))
                } else {
                    std::fs::rename(path.join(FILE), path.join("moved")).unwrap();
                    audit.reopen()
                }
            })
        };
        // The second one has come as far as it comes: a line of its own, or the rename.
        until("the second has begun", || match other {
            "shelf" => audit.view().seq == 2,
            _ => !path.join(FILE).exists(),
        });
        // Without turns it would sync now; with turns it cannot, however long this is.
        std::thread::sleep(Duration::from_millis(50));
        disk.held.store(false, SeqCst);
        assert!(first.await.unwrap().is_err(), "{other}");
        // Whoever follows a rotation may come after the recovery; a record is lost either way.
        let second = second.join().unwrap();
        assert!(other == "reopen" || second.is_err(), "{other}");
        assert_eq!(disk.most.load(SeqCst), 1, "{other}");
        until("the log recovers", || audit.view().ok);
        audit.append_durable(record("after")).await.unwrap();
    }
}

#[test]
fn a_log_whose_name_cannot_be_made_durable_does_not_open_and_recovers_once_it_can() {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    let (_keep, path) = directory();
    let fails = Arc::new(AtomicBool::new(true));
    let settings = || {
        let fails = Arc::clone(&fails);
        Settings {
            sync_directory: Arc::new(move |directory| match fails.load(SeqCst) {
                true => Err(std::io::Error::other("no names today")),
                false => directory.sync_all(),
            }),
            ..Settings::default()
        }
    };
    let refused = Audit::open_with(&path, settings());
    assert!(matches!(refused, Err(AuditError::Open { .. })));
    fails.store(false, SeqCst);
    let audit = Audit::open_with(&path, settings()).unwrap();
    audit.append(record("a")).unwrap();
    // The new file is there when its directory fails.
    fails.store(true, SeqCst);
    std::fs::rename(path.join(FILE), path.join("moved")).unwrap();
    assert!(audit.reopen().is_err());
    assert!(path.join(FILE).exists() && !audit.view().ok);
    assert!(audit.append(record("refused")).is_err());
    fails.store(false, SeqCst);
    until("the log recovers", || audit.view().ok);
    audit.append(record("b")).unwrap();
    drop(audit);
    let text = std::fs::read_to_string(path.join(FILE)).unwrap();
    assert!(
        text.contains("no names today") && text.contains("\"id\":\"b\""),
        "{text}"
    );
}

#[test]
fn what_a_rotation_put_in_the_place_of_the_log_is_taken_or_set_aside() {
    for (what, there) in [
        ("nothing", None),
        ("empty", Some("")),
        ("full", Some("theirs\n")),
    ] {
        let (_keep, path) = directory();
        let audit = Audit::open(&path).unwrap();
        audit.append(record("a")).unwrap();
        std::fs::rename(path.join(FILE), path.join("moved")).unwrap();
        if let Some(text) = there {
            std::fs::write(path.join(FILE), text).unwrap();
        }
        audit.reopen().unwrap();
        audit.append(record("b")).unwrap();
        drop(audit);
        assert_eq!(ids(&path).last().unwrap().1, "b", "{what}");
        let mode = std::fs::metadata(path.join(FILE)).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600, "{what}");
        let aside = path.join(format!("{FILE}.1-0.aside"));
        assert_eq!(aside.exists(), what == "full", "{what}");
        if what == "full" {
            assert_eq!(std::fs::read_to_string(aside).unwrap(), "theirs\n");
        }
    }
    // What a link leads to is never written.
    let (_keep, path) = directory();
    let audit = Audit::open(&path).unwrap();
    std::fs::write(path.join("other"), "").unwrap();
    std::fs::remove_file(path.join(FILE)).unwrap();
    std::os::unix::fs::symlink("other", path.join(FILE)).unwrap();
    audit.reopen().unwrap();
    audit.append(record("b")).unwrap();
    assert_eq!(std::fs::metadata(path.join("other")).unwrap().len(), 0);
}

#[test]
fn an_end_that_was_set_aside_before_stays() {
    let (_keep, path) = directory();
    for end in ["first", "second"] {
        drop(Audit::open(&path).unwrap());
        std::fs::write(path.join(FILE), end).unwrap();
        drop(Audit::open(&path).unwrap());
    }
    let kept = |name: &str| std::fs::read_to_string(path.join(format!("{FILE}.{name}"))).unwrap();
    assert_eq!(kept("0.torn"), "first");
    assert_eq!(kept("0-1.torn"), "second");
}

/// Files that were closed and compressed between two looks have other inodes; the numbers remain.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_goes_on_by_number_over_files_that_were_compressed_meanwhile() {
    let (_keep, path) = directory();
    let audit = shelved(&path, |_| {});
    audit.append_durable(record("before")).await.unwrap();
    let mut follower = Follower::at_end(&path.join(FILE)).unwrap();
    for number in 0..90 {
        let record = record(&number.to_string());
        audit.append_durable(record).await.unwrap();
    }
    until("closed files are compressed", || {
        let files = segment::list(&path).unwrap();
        files.len() > 4 && compressed(&path) == files.len() - 1
    });
    let last = audit.view().seq;
    let mut seqs: Vec<u64> = Vec::new();
    until("the last line is seen", || {
        let lines = follower.poll().unwrap();
        let records = lines
            .iter()
            .map(|line| serde_json::from_str::<Record>(line).unwrap());
        seqs.extend(records.map(|record| record.seq));
        seqs.last() >= Some(&last)
    });
    assert_eq!(seqs, (2..=*seqs.last().unwrap()).collect::<Vec<_>>());
}
