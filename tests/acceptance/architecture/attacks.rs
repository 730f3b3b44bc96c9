//! The page of attacks, the list of proofs and the tests tell the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use tests::binaries::repository;

use super::{ROOMS, files};

/// `docs/attacks.md` and the lines `/// Attack: ID, ID` above tests tell the same: each test that the
/// page names shows that case, each case that a test shows has its line, and the count is right.
#[test]
fn the_page_of_attacks_and_the_tests_agree() {
    let shown = attacks();
    let page = fs::read_to_string(repository().join("docs/attacks.md")).unwrap();
    let (mut cases, mut proven) = (BTreeSet::new(), 0);
    for row in page.lines().filter(|line| is_case(line)) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [id, _, _, tests] = cells[..] else {
            panic!("{row}: not four cells")
        };
        assert!(cases.insert(id.to_owned()), "{id} stands there twice");
        let named: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        for test in &named {
            let known = shown.get(id).is_some_and(|tests| tests.contains(*test));
            assert!(known, "{id}: no test `{test}` says `/// Attack: {id}`");
        }
        assert!(
            !named.is_empty() || tests.starts_with("not shown: "),
            "{id}: neither a test nor why there is none"
        );
        proven += usize::from(!named.is_empty());
    }
    for id in shown.keys() {
        assert!(cases.contains(id), "{id} is shown and not on the page");
    }
    let count = format!("**{proven} of {} cases are shown by tests.**", cases.len());
    assert!(page.contains(&count), "the page should say {count}");
    assert!(cases.len() >= 146, "{} cases", cases.len());
}

/// `provisioning/proofs.toml` tries every case of the kernel's and the credentials' groups, or names a test that shows it: that
/// test is there, and says so itself.
#[test]
fn what_no_proof_tries_a_test_shows() {
    let shown = attacks();
    let text = fs::read_to_string(repository().join("provisioning/proofs.toml")).unwrap();
    let list: toml::Table = toml::from_str(&text).unwrap();
    let of = |entry: &toml::Value, key: &str| entry[key].as_str().unwrap().to_owned();
    let mut covered = BTreeSet::new();
    for entry in list["elsewhere"].as_array().unwrap() {
        let (case, test) = (of(entry, "case"), of(entry, "test"));
        let known = shown.get(&case).is_some_and(|tests| tests.contains(&test));
        assert!(known, "{case}: no test `{test}` says `/// Attack: {case}`");
        covered.insert(case);
    }
    for entry in list["proof"].as_array().unwrap() {
        covered.insert(of(entry, "id").chars().take(6).collect());
    }
    // The page of attacks has every case, and another test holds it to.
    let groups = |case: &&String| case.starts_with("KRN-") || case.starts_with("CRD-");
    let missing: Vec<&String> = shown
        .keys()
        .filter(groups)
        .filter(|case| !covered.contains(*case))
        .collect();
    assert!(
        missing.is_empty(),
        "{missing:?} are neither tried nor listed"
    );
}

fn is_case(row: &str) -> bool {
    let id = row
        .strip_prefix("| ")
        .and_then(|rest| rest.split(' ').next());
    id.and_then(|id| id.split_once('-'))
        .is_some_and(|(group, number)| {
            group.len() == 3
                && group.bytes().all(|byte| byte.is_ascii_uppercase())
                && number.bytes().all(|byte| byte.is_ascii_digit())
        })
}

/// By id the tests that say so, as `path::function`.
fn attacks() -> BTreeMap<String, BTreeSet<String>> {
    let mut shown: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for room in ROOMS {
        for file in files(&repository().join(room), "rs") {
            let text = fs::read_to_string(&file).unwrap();
            let path = file.strip_prefix(repository()).unwrap().display();
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            for (at, line) in lines.iter().enumerate() {
                let Some(ids) = line.strip_prefix("/// Attack: ") else {
                    continue;
                };
                let mut below = lines[at + 1..].iter();
                let signature = below.by_ref().find(|line| line.contains("fn ")).unwrap();
                let test = signature.split("fn ").nth(1).unwrap();
                let test = test.split('(').next().unwrap();
                let mut above = lines[at + 1..].iter().take_while(|line| *line != signature);
                let is_test = above.any(|line| line.starts_with("#[") && line.contains("test"));
                assert!(is_test, "{path}: {test} is no test");
                for id in ids.split(", ") {
                    let tests = shown.entry(id.to_owned()).or_default();
                    tests.insert(format!("{path}::{test}"));
                }
            }
        }
    }
    shown
}
