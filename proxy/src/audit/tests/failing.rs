//! What cannot be written or synced is not told to be; the log goes on by itself once it can.

use super::*;

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
    let lock = place::lock_directory(&path).unwrap().unwrap();
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

/// Each try begins a file; what it says may be lost with it, and is said again in the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_did_not_leave_is_said_in_each_new_file_and_the_log_is_intact_or_names_what_is_lost() {
    let (_keep, path) = directory();
    let (settings, fails) = failing();
    let audit = Audit::open_with(&path, settings).unwrap();
    audit.append_durable(record("control")).await.unwrap();
    fails.store(true, std::sync::atomic::Ordering::SeqCst);
    let request = Record::new(RecordKind::Request, "lost", "");
    assert!(audit.append_durable(request).await.is_err());
    until("two tries have failed", || {
        segment::list(&path).unwrap().len() >= 3
    });
    fails.store(false, std::sync::atomic::Ordering::SeqCst);
    until("the log recovers", || audit.view().ok);
    audit.append_durable(record("after")).await.unwrap();
    drop(audit);
    let files = segment::list(&path).unwrap();
    let check = || verify::verify(&files, &verify::Check::default()).unwrap();
    let report = check();
    assert!(report.intact && report.open.is_empty(), "{report}");

    // A crash that loses what the disk did not take, of each of the files.
    for (at, file) in files[..files.len() - 1].iter().enumerate() {
        let text = std::fs::read_to_string(&file.path).unwrap();
        let durable = text.split_inclusive('\n').next().unwrap();
        std::fs::write(&file.path, if at == 0 { durable } else { "" }).unwrap();
    }
    let report = check();
    assert!(!report.intact && report.open.is_empty(), "{report}");
    let lost = |it: &verify::Finding| it.problem.contains("lost when a sync failed");
    assert!(report.findings.iter().all(lost), "{report}");

    // An end that nothing began is found where no such event explains it.
    let other = directory();
    let audit = Audit::open(&other.1).unwrap();
    let mut end = Record::new(RecordKind::Response, "lost", "");
    end.code = Some(policy::Code::AuditUnavailable);
    audit.append(end).unwrap();
    drop(audit);
    let report = verify::verify(&segment::list(&other.1).unwrap(), &verify::Check::default());
    assert!(!report.unwrap().intact);
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
