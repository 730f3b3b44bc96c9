//! A directory moved away, a file rotated by others, and what was left in their place.

use std::os::unix::fs::PermissionsExt;

use super::*;

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
        seen.extend(heard(&mut follower));
    }
    let seqs: Vec<u64> = seen
        .iter()
        .map(|line| serde_json::from_str::<Record>(line).unwrap().seq)
        .collect();
    assert_eq!(seqs, [2, 3, 4, 5]);
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

/// What a disk that was mounted anew holds is the log itself: it goes on there, and nothing is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_disk_mounted_anew_has_of_the_log_is_closed_and_any_other_file_set_aside() {
    for what in ["itself", "a line less", "a line left out", "another byte"] {
        let (keep, path) = directory();
        let audit = Audit::open(&path).unwrap();
        for id in ["a", "b", "c"] {
            audit.append_durable(record(id)).await.unwrap();
        }
        let mut text = std::fs::read(path.join(FILE)).unwrap();
        std::fs::rename(&path, keep.path().join("away")).unwrap();
        let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
        match what {
            "a line less" => text = lines[..2].concat(),
            "a line left out" => text = [lines[0], lines[2]].concat(),
            "another byte" => text[30] ^= 1,
            _ => {}
        }
        let other = keep.path().join("other");
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join(FILE), &text).unwrap();
        std::fs::rename(&other, &path).unwrap();
        until("the log recovers", || audit.view().ok);
        audit.append_durable(record("d")).await.unwrap();
        drop(audit);
        let aside = path.join(format!("{FILE}.3-0.aside"));
        let ours = matches!(what, "itself" | "a line less");
        assert_eq!(aside.exists(), !ours, "{what}");
        let files = segment::list(&path).unwrap();
        let report = verify::verify(&files, &verify::Check::default()).unwrap();
        assert_eq!(report.intact, what == "itself", "{what}: {report}");
        assert_eq!(report.first, if ours { 1 } else { 4 }, "{what}");
    }
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
