mod anchors;

use std::path::{Path, PathBuf};
use std::time::Duration;

use policy::record::{Record, RecordKind, Verdict};
use proptest::prelude::*;

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

/// What somebody may do to a file.
#[derive(Debug, Clone)]
enum Mutation {
    Change(usize, u8),
    Remove(usize),
    Insert(usize, u8),
    RemoveLine(usize),
    RepeatLine(usize),
    SwapLines(usize, usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = any::<u32>().prop_map(|at| usize::try_from(at).unwrap());
    prop_oneof![
        4 => (at.clone(), 1..=255_u8).prop_map(|(at, by)| Mutation::Change(at, by)),
        4 => at.clone().prop_map(Mutation::Remove),
        4 => (at.clone(), any::<u8>()).prop_map(|(at, byte)| Mutation::Insert(at, byte)),
        1 => at.clone().prop_map(Mutation::RemoveLine),
        1 => at.clone().prop_map(Mutation::RepeatLine),
        2 => (at.clone(), at).prop_map(|(a, b)| Mutation::SwapLines(a, b)),
    ]
}

impl Mutation {
    fn apply(&self, text: &[u8]) -> Vec<u8> {
        let mut bytes = text.to_vec();
        let mut lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
        let count = lines.len();
        match *self {
            Self::Change(at, by) => bytes[at % text.len()] ^= by,
            Self::Remove(at) => drop(bytes.remove(at % text.len())),
            Self::Insert(at, byte) => bytes.insert(at % (text.len() + 1), byte),
            Self::RemoveLine(at) => {
                lines.remove(at % count);
                bytes = lines.concat();
            }
            Self::RepeatLine(at) => {
                lines.insert(at % count, lines[at % count]);
                bytes = lines.concat();
            }
            Self::SwapLines(a, b) => {
                lines.swap(a % count, b % count);
                bytes = lines.concat();
            }
        }
        bytes
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn any_single_change_to_any_log_is_found(
        starts in 1..3_usize,
        lines in 1..12_usize,
        bytes in prop_oneof![Just(2048_u64), Just(u64::MAX)],
        mutations in proptest::collection::vec((any::<u32>(), mutation()), 60),
    ) {
        let (_keep, folder) = log();
        write(&folder, starts, lines, bytes);
        prop_assert!(check(&folder).intact);
        let segments: Vec<Segment> = segment::list(&folder).unwrap();
        for (which, mutation) in mutations {
            let file = &segments[usize::try_from(which).unwrap() % segments.len()].path;
            let text = std::fs::read(file).unwrap();
            if text.is_empty() {
                continue;
            }
            let changed = mutation.apply(&text);
            if changed == text {
                continue;
            }
            std::fs::write(file, &changed).unwrap();
            let report = check(&folder);
            prop_assert!(!report.intact, "{mutation:?} in {}: {report}", file.display());
            std::fs::write(file, &text).unwrap();
        }
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

#[test]
fn a_signed_log_is_vouched_for_by_its_own_key_and_by_no_other() {
    let (keep, folder) = log();
    let (key, public) = signer(keep.path());
    let settings = Settings {
        signer: Some(key),
        checkpoint_records: 3,
        ..Settings::default()
    };
    let audit = Audit::open_with(&folder, settings).unwrap();
    audit.commit_to(|| crate::audit::checkpoint::Commitments {
        boundary: "external: a test".to_owned(),
        ..Default::default()
    });
    for _ in 0..8 {
        audit
            .append(Record::new(RecordKind::Event, "x", ""))
            .unwrap();
    }
    drop(audit);
    let public = crate::openpgp::PublicKey::load(&public).unwrap();
    let check_with = |key: &crate::openpgp::PublicKey| {
        let judge = |text: &str, signature: &str| signing::judge(key, text, signature);
        let arguments = Check {
            key: Some(&judge),
            ..Check::default()
        };
        verify(&segment::list(&folder).unwrap(), &arguments).unwrap()
    };
    let report = check_with(&public);
    assert!(report.intact && report.signed > 0, "{report}");
    assert_eq!(report.signed, report.checkpoints);
    assert_eq!(
        report.signed_up_to + 1,
        report.last,
        "to the closing record"
    );
    let (_, other, _) = signing::generate("somebody else").unwrap();
    let other = crate::openpgp::PublicKey::parse(&other).unwrap();
    assert!(!check_with(&other).intact);

    // Written anew by somebody without the key: right in itself, but not signed.
    let lines: Vec<String> = std::fs::read_to_string(folder.join(FILE))
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    std::fs::remove_dir_all(&folder).unwrap();
    let forged = Audit::open(&folder).unwrap();
    for line in &lines[..lines.len() - 1] {
        let mut record: Record = serde_json::from_str(line).unwrap();
        if record.kind == RecordKind::Event {
            record.reason = Some("forged".to_owned());
            forged.append(record).unwrap();
        }
    }
    drop(forged);
    assert!(check(&folder).intact, "by itself nothing can be seen");
    assert!(!check_with(&public).intact);
}

#[test]
fn with_a_key_a_log_that_nothing_signs_is_not_intact_nor_is_one_with_a_long_unsigned_end() {
    let (keep, folder) = log();
    let (key, public) = signer(keep.path());
    let public = crate::openpgp::PublicKey::load(&public).unwrap();
    let judge = |text: &str, signature: &str| signing::judge(&public, text, signature);
    let with_key = |live: bool| {
        let arguments = Check {
            key: Some(&judge),
            live,
            ..Check::default()
        };
        verify(&segment::list(&folder).unwrap(), &arguments).unwrap()
    };
    let event = |time: &str| Record::new(RecordKind::Event, "x", time);
    // No checkpoint at all, since it is being written: nothing is signed, and nothing unsigned.
    let audit = Audit::open(&folder).unwrap();
    audit.append(event("")).unwrap();
    let report = with_key(true);
    assert!(!report.intact && report.checkpoints == 0, "{report}");
    assert!(
        report.to_string().contains("vouches for any line"),
        "{report}"
    );
    drop(audit);
    std::fs::remove_dir_all(&folder).unwrap();

    let settings = |signer| Settings {
        signer,
        checkpoint_records: 4,
        ..Settings::default()
    };
    for (lines, last, intact) in [
        (2, "2026-11-30T08:01:00Z", true),
        (12, "2026-11-30T08:00:00Z", false),
        (2, "2026-11-30T08:30:00Z", false),
    ] {
        let audit = Audit::open_with(&folder, settings(Some(key.clone()))).unwrap();
        audit.append(event("2026-11-30T08:00:00Z")).unwrap();
        drop(audit);
        assert!(with_key(false).intact, "control");
        // Goes on without the key, and without a checkpoint.
        let unsigned = Settings {
            checkpoint_records: u64::MAX,
            checkpoint_every: Duration::from_secs(3600),
            ..Settings::default()
        };
        let audit = Audit::open_with(&folder, unsigned).unwrap();
        for line in 0..lines {
            let time = if line + 1 == lines {
                last
            } else {
                "2026-11-30T08:00:00Z"
            };
            audit.append(event(time)).unwrap();
        }
        let report = with_key(true);
        assert_eq!(report.intact, intact, "{lines} to {last}: {report}");
        let shown = format!("unsigned     {lines} lines");
        assert!(report.to_string().contains(&shown), "{report}");
        drop(audit);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

/// The signature verifies with the real gpg, which knows nothing of this program.
#[test]
fn gpg_verifies_a_checkpoint_and_refuses_a_changed_one() {
    let (keep, folder) = log();
    let (key, public) = signer(keep.path());
    let settings = Settings {
        signer: Some(key),
        ..Settings::default()
    };
    let audit = Audit::open_with(&folder, settings).unwrap();
    audit
        .append(Record::new(RecordKind::Event, "x", ""))
        .unwrap();
    drop(audit);
    let text = std::fs::read_to_string(folder.join(FILE)).unwrap();
    let last: Record = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let checkpoint = last.checkpoint.unwrap();
    let (statement, signature) = (keep.path().join("c.txt"), keep.path().join("c.txt.asc"));
    std::fs::write(&statement, &checkpoint.statement).unwrap();
    std::fs::write(&signature, checkpoint.signature.unwrap()).unwrap();
    let home = keep.path().join("gnupg");
    std::fs::create_dir(&home).unwrap();
    std::fs::set_permissions(&home, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let gpg = |arguments: &[&std::ffi::OsStr]| {
        std::process::Command::new("gpg")
            .args(["--batch", "--no-autostart", "--homedir"])
            .arg(&home)
            .args(arguments)
            .output()
            .unwrap()
    };
    let imported = gpg(&["--import".as_ref(), public.as_os_str()]);
    assert!(imported.status.success(), "{imported:?}");
    let verify = || {
        gpg(&[
            "--verify".as_ref(),
            signature.as_os_str(),
            statement.as_os_str(),
        ])
    };
    let good = verify();
    assert!(good.status.success(), "{good:?}");
    std::fs::write(
        &statement,
        checkpoint.statement.replace("closing yes", "closing no"),
    )
    .unwrap();
    assert!(!verify().status.success());
}
