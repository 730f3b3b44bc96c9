//! A lone line pays one sync; those that wait together share one.

use super::*;

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
