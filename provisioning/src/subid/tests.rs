use super::*;

fn range(owner: &str, first: u32, count: u32) -> Range {
    Range {
        owner: owner.to_owned(),
        first,
        count,
    }
}

fn etc(subuid: &str, subgid: &str, passwd: &str) -> (tempfile::TempDir, SubidFiles) {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("subuid"), subuid).unwrap();
    fs::write(directory.path().join("subgid"), subgid).unwrap();
    fs::write(directory.path().join("passwd"), passwd).unwrap();
    let files = SubidFiles {
        etc: directory.path().into(),
    };
    (directory, files)
}

#[test]
fn the_first_range_is_the_distribution_s_first() {
    assert_eq!(allocate(&[], &[]).unwrap(), 100_000);
}

#[test]
fn a_range_is_put_behind_whatever_it_would_meet() {
    let taken = [range("a", 100_000, 65_536), range("b", 165_530, 10)];
    assert_eq!(allocate(&taken, &[]).unwrap(), 165_540);
    assert_eq!(allocate(&taken, &[170_000]).unwrap(), 170_001);
    assert_eq!(
        allocate(&[range("a", 300_000, 65_536)], &[]).unwrap(),
        100_000
    );
}

#[test]
fn full_means_an_error_and_not_an_overlap() {
    assert!(matches!(
        allocate(&[range("a", 0, u32::MAX)], &[]),
        Err(SubidError::Exhausted)
    ));
}

#[test]
fn a_line_that_is_no_range_is_named() {
    let error = parse("a:1:2\nb:1\n", Path::new("/etc/subuid"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("/etc/subuid:2"), "{error}");
    assert!(parse("# note\n\na:1:2\n", Path::new("x")).is_ok());
}

#[test]
fn both_files_get_the_same_range_and_other_lines_stay() {
    let (_keep, files) = etc(
        "me:100000:65536\n",
        "me:100000:65536\nyou:165536:65536\n",
        "",
    );
    let owners = ["n-orchestrator".to_owned(), "n-exec".to_owned()];
    files.assign(&owners).unwrap();
    let (uids, gids) = files.ranges().unwrap();
    assert_eq!(held("n-orchestrator", &uids, &gids).unwrap().first, 231_072);
    assert_eq!(held("n-exec", &uids, &gids).unwrap().first, 296_608);
    assert!(uids.contains(&range("me", 100_000, 65_536)));
    assert!(gids.contains(&range("you", 165_536, 65_536)));
    assert!(!files.etc.join("subuid.lock").exists());

    let before = fs::read_to_string(files.etc.join("subuid")).unwrap();
    files.assign(&owners).unwrap();
    assert_eq!(
        before,
        fs::read_to_string(files.etc.join("subuid")).unwrap()
    );

    files.release(&owners).unwrap();
    assert_eq!(
        fs::read_to_string(files.etc.join("subuid")).unwrap(),
        "me:100000:65536\n"
    );
}

#[test]
fn half_a_range_is_repaired() {
    let (_keep, files) = etc("n-exec:100000:65536\n", "", "");
    files.assign(&["n-exec".to_owned()]).unwrap();
    let (uids, gids) = files.ranges().unwrap();
    assert!(held("n-exec", &uids, &gids).is_some());
}

#[test]
fn a_dead_holder_s_lock_is_taken_over() {
    let (_keep, files) = etc("", "", "");
    fs::write(files.etc.join("subuid.lock"), "4194305").unwrap();
    files.assign(&["n-exec".to_owned()]).unwrap();
    assert!(!files.etc.join("subuid.lock").exists());
}
