use super::*;

fn problems(text: &str) -> String {
    read::list(text, "my.toml").unwrap_err().to_string()
}

const GOOD: &str = "version = 1\n[[proof]]\nid = \"A-1\"\nmust = \"fail\"\nattempt = \"tcp\"\nports = [443]\nreason = \"because\"\n";

/// Every case of the groups that the list has to cover.
const CASES: [&str; 44] = [
    "KRN-01", "KRN-02", "KRN-03", "KRN-04", "KRN-05", "KRN-07", "KRN-08", "KRN-10", "KRN-11",
    "KRN-13", "KRN-14", "KRN-15", "KRN-18", "KRN-19", "KRN-21", "KRN-23", "KRN-24", "KRN-26",
    "KRN-28", "KRN-31", "KRN-33", "CRD-01", "CRD-02", "CRD-03", "CRD-04", "CRD-05", "CRD-07",
    "CRD-09", "CRD-11", "CRD-12", "CRD-14", "CRD-16", "CRD-17", "CRD-20", "CRD-21", "CRD-22",
    "CRD-23", "CRD-25", "CRD-26", "CRD-27", "CRD-28", "CRD-29", "CRD-31", "CRD-34",
];

#[test]
fn the_built_in_list_is_read_and_covers_both_groups() {
    let list = List::built_in().unwrap_or_else(|problems| panic!("{problems}"));
    for case in CASES {
        let part = format!("{case}-");
        let tried = list.proofs.iter().any(|proof| {
            proof.must == Must::Fail && (proof.id == case || proof.id.starts_with(&part))
        });
        let elsewhere = list.elsewhere.iter().filter(|entry| entry.case == case);
        assert_eq!(
            usize::from(tried) + elsewhere.count(),
            1,
            "{case} is to be tried, or listed with the test that shows it, and not both"
        );
    }
    for proof in &list.proofs {
        let case: String = proof.id.chars().take(6).collect();
        let group = case.starts_with("KRN-") || case.starts_with("CRD-");
        assert!(
            !group || CASES.contains(&case.as_str()),
            "{} is of no case",
            proof.id
        );
    }
    let known = |entry: &&Elsewhere| !CASES.contains(&entry.case.as_str());
    assert_eq!(list.elsewhere.iter().find(known), None);
    assert!(list.proofs.iter().any(|proof| proof.must == Must::Succeed));
}

#[test]
fn a_good_list_is_read_and_each_mistake_is_named_with_its_line() {
    assert_eq!(read::list(GOOD, "my.toml").unwrap().proofs.len(), 1);
    for (from, to, expected) in [
        (
            "ports",
            "prots",
            "my.toml:6: proof[0].prots: unknown key\n  hint: did you mean \"ports\"?",
        ),
        (
            "\"tcp\"",
            "\"tpc\"",
            "my.toml:5: proof[0].attempt: unknown word \"tpc\"\n  hint: did you mean \"tcp\"?",
        ),
        ("\"fail\"", "\"fall\"", "did you mean \"fail\"?"),
        (
            "[443]",
            "[0]",
            "my.toml:6: proof[0].ports: must be a list of ports",
        ),
        ("[443]", "[]", "missing: \"tcp\" needs it"),
        (
            "reason = \"because\"",
            "",
            "my.toml:2: proof[0].reason: missing",
        ),
        (
            "version = 1",
            "version = 2",
            "my.toml:1: version: this program reads version 1",
        ),
        ("version = 1", "vershun = 1", "did you mean \"version\"?"),
        ("id = \"A-1\"", "id = \"A 1\"", "is no id"),
        (
            "reason",
            "paths = [\"/x\"]\nreason",
            "proof[0].paths: has no meaning for \"tcp\"",
        ),
        (
            "reason",
            "as = \"gate\"\nreason",
            "the gate may do what others may not",
        ),
        ("ports = [443]", "ports = [443", "my.toml:"),
        (
            "[[proof]]",
            "[[elsewhere]]\ncase = \"A-2\"\nreason = \"no\"\n[[proof]]",
            "my.toml:2: elsewhere[0].test: missing",
        ),
    ] {
        let text = GOOD.replacen(from, to, 1);
        assert!(
            problems(&text).contains(expected),
            "{text}\n{}",
            problems(&text)
        );
    }
}

#[test]
fn a_list_without_a_proof_and_an_id_twice_are_refused() {
    assert!(problems("version = 1\n").contains("there is none"));
    let twice = format!("{GOOD}{}", GOOD.replace("version = 1\n", ""));
    assert!(
        problems(&twice).contains("names two proofs"),
        "{}",
        problems(&twice)
    );
}

#[test]
fn a_list_that_extends_replaces_by_id_and_adds() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("my.toml");
    let own = GOOD.replace("version = 1", "version = 1\nextends = true");
    std::fs::write(&path, own.replace("A-1", "KRN-01")).unwrap();
    let (built_in, list) = (List::built_in().unwrap(), List::load(&path).unwrap());
    assert_eq!(list.proofs.len(), built_in.proofs.len());
    let changed = list.proofs.iter().find(|proof| proof.id == "KRN-01");
    assert_eq!(changed.unwrap().reason, "because");
    std::fs::write(&path, &own).unwrap();
    assert_eq!(
        List::load(&path).unwrap().proofs.len(),
        built_in.proofs.len() + 1
    );
    std::fs::write(&path, GOOD).unwrap();
    assert_eq!(List::load(&path).unwrap().proofs.len(), 1);
}
