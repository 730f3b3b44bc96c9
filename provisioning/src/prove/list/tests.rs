use super::*;

fn problems(text: &str) -> String {
    read::list(text, "my.toml").unwrap_err().to_string()
}

const GOOD: &str = "version = 1\n[[proof]]\nid = \"A-1\"\nmust = \"fail\"\nattempt = \"tcp\"\nports = [443]\nreason = \"because\"\n";

#[test]
fn the_built_in_list_is_read_and_covers_both_groups() {
    let list = List::built_in().unwrap_or_else(|problems| panic!("{problems}"));
    for group in ["KRN-", "CRD-"] {
        assert!(list.proofs.iter().any(|proof| proof.id.starts_with(group)));
    }
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
