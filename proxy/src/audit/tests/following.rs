//! Whoever listens or follows hears each line, over all files.

use super::*;

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
fn a_follower_survives_truncation_and_waits_for_whole_lines() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    std::fs::write(&path, "old\n").unwrap();
    let mut follower = Follower::at_end(&path).unwrap();
    assert!(heard(&mut follower).is_empty());
    std::fs::write(&path, "old\nhal").unwrap();
    assert!(heard(&mut follower).is_empty());
    std::fs::write(&path, "old\nhalf\n").unwrap();
    assert_eq!(heard(&mut follower), ["half"]);
    std::fs::write(&path, "new\n").unwrap();
    assert_eq!(heard(&mut follower), ["new"]);
    std::fs::remove_file(&path).unwrap();
    assert!(heard(&mut follower).is_empty());
    std::fs::write(&path, "again\n").unwrap();
    assert_eq!(heard(&mut follower), ["again"]);
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
        let lines = heard(&mut follower);
        seqs.extend(
            lines
                .iter()
                .map(|line| serde_json::from_str::<Record>(line).unwrap().seq),
        );
        seqs.last() == Some(&audit.view().seq)
    });
    assert_eq!(seqs, (2..=audit.view().seq).collect::<Vec<_>>());
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
        let lines = heard(&mut follower);
        let records = lines
            .iter()
            .map(|line| serde_json::from_str::<Record>(line).unwrap());
        seqs.extend(records.map(|record| record.seq));
        seqs.last() >= Some(&last)
    });
    assert_eq!(seqs, (2..=*seqs.last().unwrap()).collect::<Vec<_>>());
}
