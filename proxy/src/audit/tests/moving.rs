//! Logs whose files change while they are read or followed, at every step of it.

use super::super::query::Reader;
use super::super::snapshot::Step;
use super::*;

/// What happens to the files of a log between two steps of somebody who reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// The file being written is closed and another begun.
    Closed,
    /// That happens three times.
    ClosedThrice,
    /// The same, and each closed file is compressed.
    Compressed,
    /// The same, and of all closed files the newest alone is kept.
    Removed,
    /// The log is closed and a gate begins to write again.
    Restarted,
}

const CHANGES: [Change; 5] = [
    Change::Closed,
    Change::ClosedThrice,
    Change::Compressed,
    Change::Removed,
    Change::Restarted,
];

/// A log that goes on when it is told to.
struct Moving {
    path: PathBuf,
    runtime: tokio::runtime::Runtime,
    audit: Option<Audit>,
}

impl Moving {
    fn new(path: &Path) -> Self {
        let mut log = Self {
            path: path.to_owned(),
            runtime: tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap(),
            audit: None,
        };
        log.open(|_| {});
        log.rotate(3);
        log.write();
        log
    }

    fn open(&mut self, change: impl FnOnce(&mut Settings)) {
        self.audit = None;
        let mut settings = Settings {
            segment_bytes: 1500,
            compress_after: Duration::from_secs(3600),
            ..Settings::default()
        };
        change(&mut settings);
        self.audit = Some(Audit::open_with(&self.path, settings).unwrap());
    }

    fn write(&self) {
        let audit = self.audit.as_ref().unwrap();
        let written = audit.append_durable(record("x"));
        self.runtime.block_on(written).unwrap();
    }

    fn seq(&self) -> u64 {
        self.audit.as_ref().unwrap().view().seq
    }

    fn newest(&self) -> Option<u64> {
        closed(&self.path).last().and_then(|file| file.first)
    }

    fn rotate(&self, times: usize) {
        for _ in 0..times {
            let before = self.newest();
            until("a file is closed", || {
                self.write();
                self.newest() != before
            });
        }
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Closed => self.rotate(1),
            Change::ClosedThrice => self.rotate(3),
            Change::Compressed => {
                self.rotate(3);
                self.open(|settings| settings.compress_after = Duration::ZERO);
                until("all are compressed", || {
                    closed(&self.path)
                        .iter()
                        .all(segment::Segment::is_compressed)
                });
                self.open(|_| {});
                self.rotate(1);
            }
            Change::Removed => {
                self.rotate(3);
                self.open(|settings| settings.keep_files = Some(1));
                until("all but one are removed", || closed(&self.path).len() == 1);
                self.open(|_| {});
            }
            Change::Restarted => {
                self.open(|_| {});
                self.write();
            }
        }
    }
}

/// What a reader was shown, by number, and what it says beside it.
fn read(path: &Path, between: &mut dyn FnMut(Step)) -> (Vec<u64>, bool, Vec<String>) {
    let everything = Filter::default();
    let files = Snapshot::taken(path, between).unwrap();
    let mut reader = Reader::new(&files, &everything);
    let mut seqs = Vec::new();
    let mut visit = |_: &str, record: &Record| {
        seqs.push(record.seq);
        std::ops::ControlFlow::Continue(())
    };
    reader.each_with(&mut visit, between).unwrap();
    let (lacks, remarks) = (reader.lacks(), reader.remarks());
    (seqs, lacks, remarks)
}

/// The lines that were there are shown, once and in order; what is not is told by number.
#[test]
fn a_log_whose_files_change_at_any_step_is_read_whole_or_says_what_it_lacks() {
    let steps = {
        let (_keep, path) = directory();
        let _log = Moving::new(&path);
        let mut steps = Vec::new();
        let (seqs, lacks, remarks) = read(&path, &mut |step| steps.push(step));
        assert!(!lacks && remarks.is_empty(), "control: {remarks:?}");
        assert!(seqs.len() > 4 && seqs.first() == Some(&1), "{seqs:?}");
        steps
    };
    assert_eq!(steps[..3], [Step::Opened, Step::Listed, Step::Known]);
    assert!(steps.len() >= 3 + 4, "each file is a step: {steps:?}");
    let mut lacked = 0;
    for change in CHANGES {
        for (point, step) in steps.iter().enumerate() {
            let (_keep, path) = directory();
            let mut log = Moving::new(&path);
            let before = log.seq();
            let mut at = 0;
            let (seqs, lacks, remarks) = read(&path, &mut |_| {
                if at == point {
                    log.change(change);
                }
                at += 1;
            });
            let case = format!("{change:?} at {step:?} {point}: {seqs:?} {remarks:?}");
            assert!(at > point, "{case}");
            assert!(seqs.windows(2).all(|two| two[0] < two[1]), "{case}");
            let missing: Vec<u64> = (1..=before).filter(|seq| !seqs.contains(seq)).collect();
            assert_eq!(lacks, !remarks.is_empty(), "{case}");
            // What was removed before the files were listed is no part of the answer, and its removal is.
            let told = |seq: &u64| {
                remarks.iter().any(|remark| {
                    let numbers: Vec<u64> = remark
                        .split(|c: char| !c.is_ascii_digit())
                        .filter_map(|text| text.parse().ok())
                        .collect();
                    numbers[0] <= *seq && *seq <= numbers[1]
                })
            };
            if change != Change::Removed {
                assert!(missing.is_empty() && !lacks, "{case}");
            } else if point > 0 {
                assert!(missing.iter().all(told), "{case}");
                lacked += usize::from(lacks);
            }
        }
    }
    assert!(lacked > 0, "control: a removal is met");
}

/// The order that a reader must not take: list, then open by name.
#[test]
fn a_reader_that_opens_the_last_file_by_its_name_would_lose_lines() {
    let naive = |change: Option<Change>| {
        let (_keep, path) = directory();
        let mut log = Moving::new(&path);
        let before = log.seq();
        let files = segment::list(&path).unwrap();
        if let Some(change) = change {
            log.change(change);
        }
        let mut seqs = Vec::new();
        for file in files {
            let (file, open) = file.found().unwrap();
            let mut lines = file.lines(open).unwrap();
            while let Some(line) = lines.read().unwrap() {
                seqs.extend(super::super::snapshot::number_of(line.text));
            }
        }
        (1..=before).filter(|seq| !seqs.contains(seq)).count()
    };
    assert_eq!(naive(None), 0, "control");
    assert!(naive(Some(Change::Closed)) > 0);
    assert!(naive(Some(Change::ClosedThrice)) > 0);
}

/// Hears of everything behind `from`, each number once and in order: how many lines were shown and how
/// many were said to be missed.
fn followed(
    follower: &mut Follower,
    between: &mut dyn FnMut(Step),
    from: u64,
    end: &dyn Fn() -> u64,
) -> (u64, u64) {
    let (mut next, mut shown, mut missed) = (from + 1, 0, 0);
    until("all is heard", || {
        let mut hear = |heard: Heard| {
            let (first, last) = match &heard {
                Heard::Line(line) => {
                    let seq = serde_json::from_str::<Record>(line).unwrap().seq;
                    shown += 1;
                    (seq, seq)
                }
                Heard::Missed(first, last) => {
                    missed += last - first + 1;
                    (*first, *last)
                }
                Heard::Back(..) => panic!("{heard}"),
            };
            assert_eq!(first, next, "{heard}");
            next = last + 1;
        };
        follower.poll_with(&mut hear, between).unwrap();
        next > end()
    });
    assert_eq!(next, end() + 1);
    (shown, missed)
}

#[test]
fn the_end_of_a_log_is_that_of_one_moment_and_a_follower_goes_on_there() {
    for change in CHANGES {
        let (_keep, path) = directory();
        let mut log = Moving::new(&path);
        let files = Snapshot::at(&path).unwrap();
        let before = log.seq();
        log.change(change);
        let everything = Filter::default();
        let last = Reader::new(&files, &everything).last(2).unwrap();
        assert_eq!(last.last().unwrap().1.seq, before, "{change:?}");
        let mut follower = Follower::behind(&files, &path.join(FILE)).unwrap();
        let (shown, missed) = followed(&mut follower, &mut |_| {}, before, &|| log.seq());
        assert!(shown > 0, "{change:?}");
        assert_eq!(missed > 0, change == Change::Removed, "{change:?}");
    }
}

#[test]
fn a_follower_shows_each_line_or_says_which_it_missed_at_any_step_of_a_look() {
    let steps = [Step::Opened, Step::Listed, Step::Known, Step::Reading];
    let mut all_missed = 0;
    for change in CHANGES {
        for step in steps {
            let (_keep, path) = directory();
            let log = Moving::new(&path);
            let from = log.seq();
            let mut follower = Follower::at_end(&path.join(FILE)).unwrap();
            // Several files between two looks, and more changes in the midst of the second.
            log.rotate(3);
            let log = std::cell::RefCell::new(log);
            let mut done = false;
            let mut between = |now| {
                if now == step && !std::mem::replace(&mut done, true) {
                    log.borrow_mut().change(change);
                }
            };
            let end = || log.borrow().seq();
            let (shown, missed) = followed(&mut follower, &mut between, from, &end);
            assert!(done && shown > 0, "{change:?} {step:?}");
            assert!(
                change == Change::Removed || missed == 0,
                "{change:?} {step:?}: {missed}"
            );
            all_missed += missed;
        }
    }
    assert!(
        all_missed > 0,
        "control: retention came before the follower"
    );
}

#[test]
fn a_log_that_is_begun_anew_or_cut_back_is_followed_and_said() {
    for what in ["anew", "emptied", "cut"] {
        let (keep, path) = directory();
        let audit = Audit::open(&path).unwrap();
        for number in 0..5 {
            audit.append(record(&number.to_string())).unwrap();
        }
        let file = path.join(FILE);
        let mut follower = Follower::at_end(&file).unwrap();
        drop(audit);
        // The closing record.
        assert_eq!(heard(&mut follower).len(), 1, "{what}");
        let text = std::fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        match what {
            "anew" => std::fs::rename(&path, keep.path().join("away")).unwrap(),
            "emptied" => std::fs::File::create(&file).map(drop).unwrap(),
            _ => std::fs::write(&file, lines[..3].concat()).unwrap(),
        }
        let (mut backs, mut seqs) = (Vec::new(), Vec::new());
        let mut look = |follower: &mut Follower| {
            follower
                .poll(|heard| match heard {
                    Heard::Line(line) => {
                        seqs.push(serde_json::from_str::<Record>(&line).unwrap().seq)
                    }
                    Heard::Back(next, shown) => backs.push((next, shown)),
                    other @ Heard::Missed(..) => panic!("{what}: {other}"),
                })
                .unwrap();
        };
        look(&mut follower);
        let audit = Audit::open(&path).unwrap();
        for _ in 0..2 {
            audit.append(record("new")).unwrap();
        }
        for _ in 0..4 {
            look(&mut follower);
        }
        let (next, end) = (if what == "cut" { 4 } else { 1 }, audit.view().seq);
        assert_eq!(backs, [(next, 6)], "{what}");
        assert_eq!(seqs, (next..=end).collect::<Vec<_>>(), "{what}");
    }
}
