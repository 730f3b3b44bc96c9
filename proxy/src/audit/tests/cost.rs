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

/// A runtime with so many threads, and a log.
fn with_workers(
    path: &Path,
    workers: usize,
    change: impl FnOnce(&mut Settings),
) -> (tokio::runtime::Runtime, Arc<Audit>) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let mut settings = Settings {
        checkpoint_every: Duration::from_secs(24 * 3600),
        workers: Some(Workers::of(&mut builder)),
        ..Settings::default()
    };
    change(&mut settings);
    let runtime = builder
        .worker_threads(workers)
        .enable_all()
        .build()
        .unwrap();
    (runtime, Arc::new(Audit::open_with(path, settings).unwrap()))
}

#[test]
fn a_lone_record_costs_one_sync_however_often_it_comes() {
    let (_keep, path) = directory();
    let (runtime, audit) = with_workers(&path, 4, |_| {});
    let before = audit.tally().1.syncs;
    for number in 0..20_u64 {
        let task = Arc::clone(&audit);
        let one = runtime.spawn(async move {
            task.append_durable(record("a")).await.unwrap();
            task.append_end(record("b")).unwrap();
        });
        runtime.block_on(one).unwrap();
        assert_eq!(audit.tally().1.syncs - before, number + 1);
    }
}

/// Whether the disk is faster or slower than what gathers, and few or many threads are at work.
#[test]
fn those_that_wait_together_share_a_sync_with_any_number_of_workers() {
    let known = [(1, 2), (1, 10), (4, 0), (4, 2), (4, 10)].map(|(many, slow)| (many, slow, true));
    for (workers, slow, seen) in known.into_iter().chain([(4, 2, false)]) {
        let (_keep, path) = directory();
        let (runtime, audit) = with_workers(&path, workers, |settings| {
            if !seen {
                settings.workers = None;
            }
            settings.sync = Arc::new(move |file| {
                std::thread::sleep(Duration::from_millis(slow));
                file.sync_data()
            });
        });
        let before = audit.tally().1.syncs;
        let all: Vec<_> = (0..64)
            .map(|_| {
                let audit = Arc::clone(&audit);
                runtime.spawn(async move {
                    for _ in 0..4 {
                        audit.append_durable(record("a")).await.unwrap();
                    }
                })
            })
            .collect();
        for one in all {
            runtime.block_on(one).unwrap();
        }
        let syncs = audit.tally().1.syncs - before;
        // Each of the four of a task needs one of its own.
        assert!(
            (4..128).contains(&syncs),
            "{syncs} with {workers} at {slow} ms"
        );
        assert_eq!(ids(&path).len(), 256);
    }
}

/// Where no thread ever rests, a record that others could join waits for them, but not for ever.
#[test]
fn a_sync_waits_for_company_only_while_all_are_at_work() {
    let (_keep, path) = directory();
    let never_resting = Arc::new(Workers::default());
    let (runtime, audit) = with_workers(&path, 2, |settings| {
        settings.workers = Some(Arc::clone(&never_resting));
    });
    let before = audit.tally().1.syncs;
    let all: Vec<_> = (0..8)
        .map(|_| {
            let audit = Arc::clone(&audit);
            runtime.spawn(async move {
                for _ in 0..8 {
                    audit.append_durable(record("a")).await.unwrap();
                }
            })
        })
        .collect();
    for one in all {
        runtime.block_on(one).unwrap();
    }
    let syncs = audit.tally().1.syncs - before;
    assert!((8..64).contains(&syncs), "{syncs} for 64 records of eight");
    assert_eq!(ids(&path).len(), 64);
}

#[test]
fn threads_that_rest_are_told_from_those_at_work() {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let workers = Workers::of(&mut builder);
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    let until = |idle: bool| {
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        while workers.is_any_idle() != idle {
            assert!(std::time::Instant::now() < deadline, "never idle: {idle}");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    for _ in 0..3 {
        until(true);
        let work = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let busy: Vec<_> = (0..2)
            .map(|_| {
                let work = Arc::clone(&work);
                runtime.spawn(async move {
                    while work.load(std::sync::atomic::Ordering::SeqCst) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                })
            })
            .collect();
        until(false);
        work.store(false, std::sync::atomic::Ordering::SeqCst);
        for one in busy {
            runtime.block_on(one).unwrap();
        }
    }
    until(true);
}

/// Every file below a directory, with its text.
fn sources(below: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(below).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
}

#[test]
fn only_a_measurement_leaves_anything_out() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    sources(&own.join("src"), &mut found);
    let names: Vec<_> = found
        .iter()
        .filter(|(_, text)| text.contains("measured_without"))
        .map(|(path, _)| path.strip_prefix(own).unwrap().display().to_string())
        .collect();
    assert!(
        names.contains(&"src/audit/settings.rs".to_owned()),
        "control"
    );
    for name in names {
        let fine = ["src/audit/settings.rs", "src/audit/tests/cost.rs"];
        assert!(fine.contains(&&*name), "{name}");
    }
    // Nor is it compiled in, unless somebody asks for it by name.
    let text = std::fs::read_to_string(own.join("Cargo.toml")).unwrap();
    let manifest: toml::Table = text.parse().unwrap();
    assert_eq!(
        manifest["features"].to_string(),
        "{ measure = [] }",
        "no feature turns it on, and none is on by itself"
    );
    let benches = manifest["bench"].as_array().unwrap();
    let needing: Vec<_> = benches
        .iter()
        .filter(|bench| bench.get("required-features").is_some())
        .map(|bench| bench["name"].as_str().unwrap())
        .collect();
    assert_eq!(needing, ["durability", "protocols"]);
}
