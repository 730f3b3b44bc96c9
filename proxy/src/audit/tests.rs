//! The log as a whole; what its parts promise stands in the files below.

mod closed;
mod cost;
mod failing;
mod following;
mod moving;
mod places;
mod reading;
mod unreadable;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Instant;

use policy::record::{RecordKind, Verdict};
use tokio::sync::broadcast;

use super::query::{Filter, scan};
use super::snapshot::Snapshot;
use super::tail::{Follower, Heard};
use super::writer::Log;
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

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "it never happens: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
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

/// The lines that a follower hears in one look; it must hear nothing else.
fn heard(follower: &mut Follower) -> Vec<String> {
    let mut lines = Vec::new();
    follower
        .poll(|heard| match heard {
            Heard::Line(line) => lines.push(line),
            other @ (Heard::Missed(..) | Heard::Back(..)) => panic!("{other}"),
        })
        .unwrap();
    lines
}

/// The closed files of a log.
fn closed(path: &Path) -> Vec<segment::Segment> {
    let mut files = segment::list(path).unwrap();
    files.retain(|file| !file.is_open());
    files
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
    let now = Snapshot::at(&path).unwrap();
    let mut reader = query::Reader::new(&now, &filter);
    reader
        .each(|_, record| {
            read.push(record.clone());
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(u64::try_from(read.len()).unwrap(), report.last);
    assert!(reader.remarks().is_empty());
    let facts = read[0].facts.as_ref().unwrap();
    assert_eq!(
        facts.push.len() + usize::try_from(facts.left_out).unwrap(),
        17
    );
    let whole = read.iter().find(|record| record.id == "whole").unwrap();
    assert_eq!(whole.reason.as_ref().unwrap().len(), 500_000, "control");
}
