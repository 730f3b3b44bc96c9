//! Closed files: compressed, only opened if they can match, removed as retention asks for.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_files_are_compressed_verify_and_are_only_opened_if_they_can_match() {
    let (_keep, path) = directory();
    let audit = shelved(&path, |_| {});
    for day in 1..=6 {
        for number in 0..10 {
            let time = format!("2026-11-0{day}T08:00:0{number}.000000Z");
            let mut record = Record::new(RecordKind::Refusal, &format!("{day}-{number}"), &time);
            record.authority = Some(format!("h{day}.example:443"));
            record.reason = Some("x".repeat(100));
            audit.append_durable(record).await.unwrap();
        }
    }
    audit.append_durable(record("now")).await.unwrap();
    // Each compression is a line itself, which may be the one that closes a file.
    until(
        "closed files are compressed, and no other is closed",
        || {
            let (files, seq) = (segment::list(&path).unwrap(), audit.view().seq);
            std::thread::sleep(Duration::from_millis(150));
            files.len() > 5 && compressed(&path) == files.len() - 1 && seq == audit.view().seq
        },
    );
    let files = segment::list(&path).unwrap();
    let report = verify::verify(
        &files,
        &verify::Check {
            live: true,
            ..verify::Check::default()
        },
    )
    .unwrap();
    assert!(report.intact, "{report}");
    let ask = |filter: &Filter| {
        let mut ids = Vec::new();
        let now = Snapshot::at(&path).unwrap();
        let mut reader = query::Reader::new(&now, filter);
        let each = |_: &str, record: &Record| {
            ids.push(record.id.clone());
            std::ops::ControlFlow::Continue(())
        };
        reader.each(each).unwrap();
        (ids, reader.opened())
    };
    let (all, opened) = ask(&Filter::default());
    assert_eq!(
        opened,
        files.len(),
        "control: whoever asks for all reads all"
    );
    assert!(all.len() > 60);
    let one = Filter {
        host: Some("h3.example".to_owned()),
        since: Some("2026-11-03T08:00:04.000000Z".to_owned()),
        until: Some("2026-11-03T08:00:06.000000Z".to_owned()),
        ..Filter::default()
    };
    let (found, opened) = ask(&one);
    assert_eq!(found, ["3-4", "3-5"]);
    assert!(opened <= 3, "{opened} of {} were opened", files.len());
    let nobody = Filter {
        agent: Some("nobody".to_owned()),
        ..Filter::default()
    };
    assert_eq!(ask(&nobody), (Vec::new(), 1), "the open file alone");
    // Not by its own word alone: where the other files cannot be read, the answer is the same.
    let spoiled = path.with_extension("spoiled");
    std::fs::create_dir(&spoiled).unwrap();
    let index = |file: &segment::Segment| super::super::index::Index::read(file);
    for entry in std::fs::read_dir(&path).unwrap() {
        let from = entry.unwrap().path();
        std::fs::copy(&from, spoiled.join(from.file_name().unwrap())).unwrap();
    }
    for file in closed(&spoiled) {
        if index(&file).is_some_and(|index| !index.may_match(&one)) {
            std::fs::write(&file.path, "nothing that decompresses").unwrap();
        }
    }
    let asked = |filter: &Filter| {
        let now = Snapshot::at(&spoiled).unwrap();
        let last = query::Reader::new(&now, filter).last(9);
        last.map(|found| found.into_iter().map(|(_, record)| record.id).collect())
    };
    let found: Vec<String> = asked(&one).unwrap();
    assert_eq!(found, ["3-4", "3-5"]);
    let before = Filter {
        until: Some("2026-11-02T00:00:00.000000Z".to_owned()),
        ..Filter::default()
    };
    assert!(
        asked(&before).is_err(),
        "control: a file that can match is read"
    );

    // A changed byte in a compressed file is found.
    drop(audit);
    let whole = verify::verify(&segment::list(&path).unwrap(), &verify::Check::default()).unwrap();
    assert!(whole.intact, "{whole}");
    let mut bytes = std::fs::read(&files[1].path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&files[1].path, bytes).unwrap();
    assert!(
        !verify::verify(&files, &verify::Check::default())
            .unwrap()
            .intact
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_retention_removes_is_said_first_and_the_rest_verifies() {
    let (_keep, path) = directory();
    let audit = shelved(&path, |settings| settings.keep_files = Some(3));
    for number in 0..60 {
        audit
            .append_durable(record(&number.to_string()))
            .await
            .unwrap();
    }
    until("old files are removed", || {
        let files = segment::list(&path).unwrap();
        files.len() <= 4 && compressed(&path) + 1 == files.len()
    });
    drop(audit);
    let files = segment::list(&path).unwrap();
    let report = verify::verify(&files, &verify::Check::default()).unwrap();
    assert!(report.intact && report.first > 1, "{report}");
    assert!(
        report.notes.iter().any(|note| note.contains("retention")),
        "{report}"
    );

    // One file more than the log says is missing.
    let report = verify::verify(&files[1..], &verify::Check::default()).unwrap();
    assert!(!report.intact, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_old_enough_is_closed_and_one_that_is_not_goes_on() {
    for (age, closes) in [(Duration::from_millis(30), true), (Duration::MAX, false)] {
        let (_keep, path) = directory();
        let settings = Settings {
            segment_age: age,
            ..Settings::default()
        };
        let audit = Audit::open_with(&path, settings).unwrap();
        if closes {
            // Also when nothing is written any more.
            audit.append_durable(record("a")).await.unwrap();
            until("it is closed", || closed(&path).len() == 1);
        }
        std::thread::sleep(Duration::from_millis(60));
        audit.append_durable(record("b")).await.unwrap();
        drop(audit);
        assert_eq!(!closed(&path).is_empty(), closes);
        let all = segment::list(&path).unwrap();
        let report = verify::verify(&all, &verify::Check::default()).unwrap();
        assert!(report.intact, "{report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_goes_by_bytes_and_by_age_too() {
    const HOUR: Duration = Duration::from_secs(3600);
    type Limit = fn(&mut Settings);
    let cases: [(&str, Limit); 3] = [
        ("bytes", |settings| settings.keep_bytes = Some(4000)),
        ("age", |settings| settings.keep_for = Some(2 * HOUR)),
        ("control", |_| {}),
    ];
    for (by, limit) in cases {
        let (_keep, path) = directory();
        let audit = shelved(&path, limit);
        for number in 0..120 {
            let line = record(&number.to_string());
            audit.append_durable(line).await.unwrap();
            if number == 30 && by != "bytes" {
                // Three hours ago, as far as the files can tell; a file that is being compressed
                // would keep the time it had.
                until("all are compressed", || {
                    compressed(&path) == closed(&path).len()
                });
                let old = std::time::SystemTime::now() - 3 * HOUR;
                for file in closed(&path) {
                    // The next may be gone already, being older than what is kept.
                    if let Ok(file) = std::fs::File::options().append(true).open(&file.path) {
                        file.set_modified(old).unwrap();
                    }
                }
            }
        }
        let sizes = || -> u64 {
            let sizes = closed(&path).into_iter();
            let sizes = sizes.map(|file| std::fs::metadata(file.path).map_or(0, |it| it.len()));
            sizes.sum()
        };
        match by {
            "bytes" => until("few bytes are left", || sizes() <= 4000),
            "age" => until("the old ones are gone", || {
                closed(&path)
                    .first()
                    .is_some_and(|file| file.first > Some(20))
            }),
            _ => {
                std::thread::sleep(Duration::from_millis(500));
                assert!(sizes() > 4000);
                assert_eq!(closed(&path)[0].first, Some(1));
            }
        }
        assert!(!closed(&path).is_empty(), "{by}: some are kept");
        drop(audit);
        let all = segment::list(&path).unwrap();
        let report = verify::verify(&all, &verify::Check::default()).unwrap();
        assert!(report.intact, "{by}: {report}");
        assert_eq!(report.first > 1, by != "control", "{by}: {report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overlong_line_is_kept_by_compression_and_named_by_readers() {
    let (_keep, path) = directory();
    let audit = Audit::open(&path).unwrap();
    audit.append(record("a")).unwrap();
    drop(audit);
    // As an earlier version may have written it.
    let mut text = std::fs::read(path.join(FILE)).unwrap();
    text.extend_from_slice(&b"x".repeat(3 * segment::LINE_BYTES_MAX));
    text.extend_from_slice(b"\n\xff not text, and no end");
    let closed = path.join(segment::name(1));
    std::fs::remove_file(path.join(FILE)).unwrap();
    std::fs::write(&closed, &text).unwrap();
    let audit = shelved(&path, |_| {});
    until("it is compressed", || {
        compressed(&path) == 1 && !closed.exists()
    });
    drop(audit);
    let packed = segment::Segment::alone(&path.join(format!("{}.zst", segment::name(1))));
    let kept = zstd::decode_all(std::fs::File::open(&packed.path).unwrap()).unwrap();
    assert!(kept == text, "{} bytes of {}", kept.len(), text.len());
    let files = [packed];
    // No index may hide it.
    let filter = Filter {
        host: Some("nobody.example".to_owned()),
        ..Filter::default()
    };
    let now = Snapshot::at(&files[0].path).unwrap();
    let mut reader = query::Reader::new(&now, &filter);
    reader
        .each(|_, _| std::ops::ControlFlow::Continue(()))
        .unwrap();
    assert!(reader.remarks()[0].starts_with("1 lines") && !reader.lacks());
    let report = verify::verify(&files, &verify::Check::default()).unwrap();
    let found = report.findings.iter();
    assert!(
        found
            .clone()
            .any(|it| it.problem.contains("longer than any record")),
        "{report}"
    );
}
