mod anchors;
mod changes;
mod moving;
mod signatures;

use std::path::{Path, PathBuf};
use std::time::Duration;

use policy::record::{Record, RecordKind, Verdict};

use super::*;
use crate::audit::segment::{self, Segment};
use crate::audit::{Audit, FILE, Settings, signing};

/// A log of `lines` lines over `starts` starts of the gate, cut into files of `bytes` bytes.
fn write(folder: &Path, starts: usize, lines: usize, bytes: u64) {
    for start in 0..starts {
        let settings = Settings {
            segment_bytes: bytes,
            checkpoint_records: 7,
            ..Settings::default()
        };
        let audit = Audit::open_with(folder, settings).unwrap();
        fill(&audit, start, lines);
    }
}

/// So many requests, with their ends.
fn fill(audit: &Audit, start: usize, lines: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    for line in 0..lines {
        let mut record = Record::new(RecordKind::Request, &format!("{start}-{line}"), "");
        record.verdict = Some(Verdict::Allow);
        record.path = Some("/a".repeat(line % 5));
        runtime.block_on(audit.append_durable(&mut record)).unwrap();
        record.kind = RecordKind::Response;
        audit.append_end(record).unwrap();
    }
}

fn check(folder: &Path) -> Report {
    verify(&segment::list(folder).unwrap(), &Check::default()).unwrap()
}

fn log() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    (folder, path)
}

#[test]
fn a_log_over_restarts_and_files_is_intact_and_closed() {
    let (_keep, folder) = log();
    write(&folder, 3, 40, 4096);
    let files = segment::list(&folder).unwrap();
    assert!(files.len() > 3, "{files:?}");
    let report = check(&folder);
    assert!(report.intact, "{report}");
    assert_eq!(report.end, End::Closed);
    assert_eq!((report.first, report.last), (1, report.lines));
    assert!(report.lines >= 240 && report.checkpoints > 30, "{report}");
    assert!(report.open.is_empty(), "{report}");

    // Without one of its files it is not.
    for file in &files {
        let away = folder.join("away");
        std::fs::rename(&file.path, &away).unwrap();
        assert!(!check(&folder).intact, "without {file:?}");
        std::fs::rename(&away, &file.path).unwrap();
    }
    assert!(check(&folder).intact, "control");
}

#[test]
fn a_killed_gate_leaves_open_records_that_are_named_and_the_next_one_says_so() {
    let (_keep, folder) = log();
    let audit = Audit::open(&folder).unwrap();
    for id in ["a", "b", "c"] {
        let mut record = Record::new(RecordKind::Request, id, "");
        audit.append(&mut record).unwrap();
        if id == "b" {
            record.kind = RecordKind::Response;
            audit.append_end(record).unwrap();
        }
    }
    audit.flush().unwrap();
    let live = Check {
        live: true,
        ..Check::default()
    };
    let segments = segment::list(&folder).unwrap();
    let report = verify(&segments, &live).unwrap();
    assert!(report.intact, "{report}");
    assert_eq!(
        (report.end, report.open),
        (End::Open, vec!["a".to_owned(), "c".to_owned()])
    );

    // As it is on the disk at this moment is what a kill would leave.
    let killed = folder.join("killed");
    std::fs::create_dir(&killed).unwrap();
    std::fs::copy(folder.join(FILE), killed.join(FILE)).unwrap();
    drop(audit);
    let report = check(&killed);
    assert_eq!((report.intact, report.end), (false, End::Cut), "{report}");
    assert_eq!(report.problems, 1, "{report}");
    drop(Audit::open(&killed).unwrap());
    let report = check(&killed);
    assert_eq!((report.intact, report.end), (true, End::Closed), "{report}");
    assert_eq!(report.open, ["a", "c"]);
    assert!(report.notes[0].contains("killed"), "{report}");
}

#[test]
fn a_torn_tail_a_cut_one_and_a_clean_end_are_told_apart() {
    let (_keep, folder) = log();
    write(&folder, 1, 5, u64::MAX);
    let file = folder.join(FILE);
    let text = std::fs::read(&file).unwrap();
    assert_eq!(check(&folder).end, End::Closed);
    let line_end = text[..text.len() - 1]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .unwrap();
    for (len, end) in [
        (text.len(), End::Closed),
        (text.len() - 1, End::Torn),
        (line_end + 20, End::Torn),
        (line_end + 1, End::Cut),
        (0, End::Empty),
    ] {
        std::fs::write(&file, &text[..len]).unwrap();
        let report = check(&folder);
        assert_eq!(
            (report.end, report.intact),
            (end, end == End::Closed),
            "{report}"
        );
    }
}

#[test]
fn a_checkpoint_is_written_after_so_long_and_not_without_a_line_since() {
    let (_keep, folder) = log();
    let settings = Settings {
        checkpoint_every: Duration::from_millis(20),
        ..Settings::default()
    };
    let audit = Audit::open_with(&folder, settings).unwrap();
    audit.event("something");
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while audit.view().seq < 2 {
        assert!(
            std::time::Instant::now() < deadline,
            "there is no checkpoint"
        );
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(audit.view().seq, 2, "none for a checkpoint alone");
}

fn signer(folder: &Path) -> (std::sync::Arc<signing::Signer>, PathBuf) {
    use std::os::unix::fs::PermissionsExt;
    let (secret, public, _) = signing::generate("Portcullis audit").unwrap();
    let path = folder.join("audit.key");
    std::fs::write(&path, secret).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    let shown = folder.join("audit.key.pub");
    std::fs::write(&shown, public).unwrap();
    (
        std::sync::Arc::new(signing::Signer::load(&path).unwrap()),
        shown,
    )
}
