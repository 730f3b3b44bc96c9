//! Logs that are right in themselves, but not the ones that were anchored.

use super::*;
use crate::audit::chain::LineHash;

/// The last line of the log, as somebody keeps it who counts it to this log.
fn anchor(folder: &Path, log: u64) -> Anchor {
    let whole = check(folder);
    assert!(whole.intact, "{whole}");
    Anchor {
        seq: whole.last,
        head: LineHash::parse(whole.head.as_bytes()).unwrap(),
        log,
        at: Some("2026-11-30T08:00:00.000Z".to_owned()),
    }
}

fn against(folder: &Path, anchors: &[Anchor]) -> Report {
    let anchored = Check {
        anchors: Anchors(anchors.to_vec()),
        ..Check::default()
    };
    verify(&segment::list(folder).unwrap(), &anchored).unwrap()
}

#[test]
fn a_log_cut_back_to_an_earlier_clean_close_is_found() {
    let (_keep, folder) = log();
    write(&folder, 1, 5, u64::MAX);
    let (early, first) = (
        std::fs::read(folder.join(FILE)).unwrap(),
        anchor(&folder, 1),
    );
    write(&folder, 1, 5, u64::MAX);
    let both = [first, anchor(&folder, 1)];
    let report = against(&folder, &both);
    assert!(report.intact && report.anchors == 2, "control: {report}");
    std::fs::write(folder.join(FILE), early).unwrap();
    assert!(check(&folder).intact, "by itself nothing can be seen");
    for (anchors, problem) in [
        (&both[..], "it was cut back"),
        (&both[1..], "none of the 1"),
    ] {
        let report = against(&folder, anchors);
        assert!(!report.intact, "{report}");
        assert!(report.findings[0].problem.contains(problem), "{report}");
    }
    // It goes on, past the line that was anchored: it is another line now.
    write(&folder, 1, 50, u64::MAX);
    let report = against(&folder, &both);
    assert!(!report.intact && report.anchors == 1, "{report}");
    assert!(
        report.findings[0].problem.contains("is not the one"),
        "{report}"
    );
}

#[test]
fn a_log_deleted_and_begun_anew_is_found_however_long_it_has_become() {
    let (_keep, folder) = log();
    write(&folder, 1, 20, u64::MAX);
    let old = anchor(&folder, 1);
    let saved = folder.with_extension("saved");
    std::fs::rename(&folder, &saved).unwrap();
    let mut kept = vec![old.clone()];
    for lines in [2, 60] {
        write(&folder, 1, lines, u64::MAX);
        assert!(check(&folder).intact, "by itself nothing can be seen");
        // Whether whoever keeps anchors has seen the new log or not.
        let unseen = against(&folder, &kept[..1]);
        assert!(!unseen.intact, "{unseen}");
        kept.push(anchor(&folder, 2));
        let report = against(&folder, &kept);
        assert!(!report.intact, "{report}");
        let problem = &report.findings[0].problem;
        assert!(
            problem.contains("of log 1") && problem.contains("begun anew"),
            "{report}"
        );
        // Control: what is known of this log alone is in it.
        let report = against(&folder, &kept[1..]);
        assert!(
            report.intact && report.anchors == u64::try_from(kept.len()).unwrap() - 1,
            "{report}"
        );
    }
    // The one that was moved away is all there, and not the present one.
    assert!(against(&saved, &[old]).intact);
    assert!(!against(&saved, &kept).intact);
}

#[test]
fn lines_that_retention_removed_are_not_missed_but_a_log_that_was_replaced_is() {
    let (_keep, folder) = log();
    write(&folder, 1, 5, u64::MAX);
    let early = anchor(&folder, 1);
    write(&folder, 1, 40, 2048);
    let settings = Settings {
        segment_bytes: 2048,
        keep_files: Some(1),
        ..Settings::default()
    };
    let audit = Audit::open_with(&folder, settings).unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while segment::list(&folder).unwrap()[0].first <= Some(early.seq) {
        assert!(std::time::Instant::now() < deadline, "nothing is removed");
        std::thread::yield_now();
    }
    drop(audit);
    // Whoever has the key can write such a log behind the newest anchor: one that is in it must vouch.
    let report = against(&folder, std::slice::from_ref(&early));
    assert!(!report.intact && report.first > early.seq, "{report}");
    assert_eq!(report.problems, 1, "{report}");
    let problem = &report.findings[0].problem;
    assert!(problem.contains("before the first one here"), "{report}");
    let later = anchor(&folder, 1);
    let report = against(&folder, &[early.clone(), later]);
    assert!(report.intact && report.anchors == 1, "control: {report}");
    // The same line, if another log came after it.
    let present = anchor(&folder, 2);
    let report = against(&folder, &[early, present]);
    assert!(!report.intact, "{report}");
}
