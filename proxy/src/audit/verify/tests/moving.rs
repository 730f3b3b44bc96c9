//! Logs whose files change while they are read.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::super::moving::until_it_stands;
use super::*;
use crate::audit::Seq;

fn closed(folder: &Path) -> Vec<Segment> {
    let mut files = segment::list(folder).unwrap();
    files.retain(|file| !file.is_open());
    files
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(
            std::time::Instant::now() < deadline,
            "it never happens: {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A log with so many closed files.
fn open(folder: &Path, files: usize, change: impl FnOnce(&mut Settings)) -> Audit {
    let mut settings = Settings {
        segment_bytes: 2048,
        checkpoint_records: 7,
        ..Settings::default()
    };
    change(&mut settings);
    let audit = Audit::open_with(folder, settings).unwrap();
    rotate(folder, &audit, files);
    audit
}

/// Writes until there are so many closed files more, if none is removed meanwhile.
fn rotate(folder: &Path, audit: &Audit, more: usize) {
    let last = |folder: &Path| closed(folder).last().and_then(|file| file.first);
    for _ in 0..more {
        let before = last(folder);
        while last(folder) == before {
            fill(audit, 0, 1);
        }
    }
}

#[test]
fn a_log_that_goes_on_while_it_is_read_is_intact() {
    let (_keep, folder) = log();
    let audit = open(&folder, 3, |settings| {
        settings.compress_after = Duration::ZERO;
        settings.keep_files = Some(4);
    });
    let (stop, read) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (mut firsts, mut lasts) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                fill(&audit, 0, 1);
            }
        });
        // Also when an assertion fails.
        let _stopped = OnDrop(|| stop.store(true, Ordering::Relaxed));
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        let moved = |all: &[Seq]| all.first() < all.last();
        while read.fetch_add(1, Ordering::Relaxed) < 40 || !moved(&firsts) {
            assert!(std::time::Instant::now() < deadline, "nothing is removed");
            let report = verify_at(&folder, &Check::default()).unwrap();
            assert!(report.intact && report.end == End::Open, "{report}");
            firsts.push(report.first);
            lasts.push(report.last);
        }
        assert!(moved(&lasts), "{lasts:?}");
    });
    drop(audit);
    let report = verify_at(&folder, &Check::default()).unwrap();
    assert!(report.intact && report.end == End::Closed, "{report}");
}

struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn files_that_are_closed_compressed_or_removed_between_listing_and_reading_are_not_missing() {
    for what in ["nothing", "closed", "compressed", "removed", "started"] {
        let (_keep, folder) = log();
        let mut audit = Some(open(&folder, 4, |_| {}));
        if what == "started" {
            audit = None;
        }
        let again = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            Audit::open_with(&folder, settings).unwrap()
        };
        let mut tries = 0;
        let report = until_it_stands(&folder, &Check::default(), |tried| {
            tries = tried;
            if tried > 1 {
                return;
            }
            match what {
                "closed" => rotate(&folder, audit.as_ref().unwrap(), 2),
                "compressed" => {
                    audit = None;
                    audit = Some(again(|settings| settings.compress_after = Duration::ZERO));
                    until(what, || closed(&folder).iter().all(Segment::is_compressed));
                }
                "removed" => {
                    audit = None;
                    audit = Some(again(|settings| settings.keep_files = Some(1)));
                    until(what, || closed(&folder).len() == 1);
                }
                "started" => {
                    let begun = again(|_| {});
                    fill(&begun, 0, 1);
                    audit = Some(begun);
                }
                _ => {}
            }
        })
        .unwrap();
        assert!(report.intact, "{what}, {tries} tries: {report}");
        assert_eq!(report.end, End::Open, "{what}");
        // Only what is not to be found under another name makes it read again.
        let anew = matches!(what, "removed" | "started");
        assert_eq!(tries, if anew { 2 } else { 1 }, "{what}: {report}");
    }
}

#[test]
fn a_file_that_is_removed_by_somebody_else_is_missed_also_while_the_log_goes_on() {
    for when in ["before", "meanwhile"] {
        let (_keep, folder) = log();
        let audit = open(&folder, 4, |_| {});
        let report = verify_at(&folder, &Check::default()).unwrap();
        assert!(report.intact, "control: {report}");
        let away = closed(&folder)[1].clone();
        let remove = || std::fs::remove_file(&away.path).unwrap();
        if when == "before" {
            remove();
        }
        let report = until_it_stands(&folder, &Check::default(), |tried| {
            if when == "meanwhile" && tried == 1 {
                remove();
            }
            // A log that never stands still hides nothing.
            rotate(&folder, &audit, 1);
        })
        .unwrap();
        assert!(!report.intact, "{when}: {report}");
        let problem = &report.findings[0].problem;
        assert!(problem.contains("are missing"), "{when}: {report}");
        assert!(
            report.notes.iter().any(|note| note.contains("each of the")),
            "{when}: {report}"
        );
    }
}

#[test]
fn half_a_line_that_is_being_written_ends_what_is_read() {
    let (_keep, folder) = log();
    let audit = open(&folder, 1, |_| {});
    audit.flush().unwrap();
    let file = folder.join(FILE);
    let text = std::fs::read(&file).unwrap();
    std::fs::write(&file, [&text[..], b"{\"v\":1,\"seq\":"].concat()).unwrap();
    let report = verify_at(&folder, &Check::default()).unwrap();
    assert!(report.intact && report.end == End::Open, "{report}");
    drop(audit);
}

#[test]
fn a_gate_between_two_files_is_waited_for_and_one_that_begins_none_is_not_taken_for_it() {
    for begins in [true, false] {
        let (_keep, folder) = log();
        let audit = open(&folder, 2, |_| {});
        fill(&audit, 0, 1);
        audit.flush().unwrap();
        let file = folder.join(FILE);
        let first = closed(&folder).last().unwrap().first.unwrap();
        let lines = |segment: &Segment| {
            let mut lines = segment.open().unwrap();
            std::iter::from_fn(|| lines.read().unwrap().map(|_| ())).count()
        };
        let next = first + lines(closed(&folder).last().unwrap()) as Seq;
        // As a rotation does, of which the second step is yet to come.
        std::fs::rename(&file, folder.join(segment::name(next))).unwrap();
        let report = std::thread::scope(|scope| {
            if begins {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(100));
                    std::fs::write(&file, "").unwrap();
                });
            }
            verify_at(&folder, &Check::default()).unwrap()
        });
        let end = if begins { End::Open } else { End::Cut };
        assert!(report.intact == begins && report.end == end, "{report}");
        drop(audit);
    }
}
