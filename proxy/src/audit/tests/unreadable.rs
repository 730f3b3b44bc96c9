//! One closed file that cannot be read.

use super::*;

/// Which closed file is made unreadable.
#[derive(Clone, Copy)]
enum Which {
    Old,
    Newest,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_cannot_be_read_keeps_no_other_from_being_compressed_or_removed() {
    const KEPT: usize = 3;
    // Which, and whether its index stays.
    let cases = [
        ("control", None),
        ("an old one", Some((Which::Old, true))),
        ("an old one without its index", Some((Which::Old, false))),
        ("the newest", Some((Which::Newest, true))),
        ("the newest without its index", Some((Which::Newest, false))),
    ];
    for (what, bad) in cases {
        let (keep, path) = directory();
        let settings = Settings {
            segment_bytes: 3000,
            ..Settings::default()
        };
        let audit = Audit::open_with(&path, settings).unwrap();
        while closed(&path).len() < 2 * KEPT {
            let mut line = record("a");
            line.reason = Some("x".repeat(500));
            audit.append_durable(line).await.unwrap();
        }
        let is_indexed = |file: &segment::Segment| index::index_path(file).unwrap().exists();
        drop(audit);
        // Closed files are looked at soon after a start.
        let audit = Audit::open(&path).unwrap();
        until("each has its index", || {
            closed(&path).iter().all(is_indexed)
        });
        drop(audit);
        let files = closed(&path);
        let bad = bad.map(|(which, indexed)| {
            let file = match which {
                Which::Old => files[1].clone(),
                Which::Newest => files[files.len() - 1].clone(),
            };
            std::fs::remove_file(&file.path).unwrap();
            // It opens, and every read of it fails.
            std::os::unix::fs::symlink(keep.path(), &file.path).unwrap();
            if !indexed {
                std::fs::remove_file(index::index_path(&file).unwrap()).unwrap();
            }
            file
        });
        let settings = Settings {
            compress_after: Duration::ZERO,
            keep_files: Some(KEPT),
            ..Settings::default()
        };
        let audit = Audit::open_with(&path, settings).unwrap();
        until(what, || {
            let left = closed(&path);
            let as_asked = |file: &segment::Segment| {
                let is_bad = bad.as_ref().is_some_and(|bad| bad.first == file.first);
                file.is_compressed() != is_bad
            };
            left.len() == KEPT && left.iter().all(as_asked)
        });
        drop(audit);
        let parts = std::fs::read_dir(&path).unwrap();
        let mut parts = parts.map(|entry| entry.unwrap().path());
        assert!(
            parts.all(|path| path.extension().is_none_or(|end| end != "part")),
            "{what}: half a copy is left"
        );
        if bad.is_none_or(|bad| bad.first < closed(&path)[0].first) {
            let files = segment::list(&path).unwrap();
            let report = verify::verify(&files, &verify::Check::default()).unwrap();
            assert!(report.intact && report.first > 1, "{what}: {report}");
        }
    }
}
