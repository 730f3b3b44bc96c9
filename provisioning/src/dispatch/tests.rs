use super::*;

fn strings(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

#[test]
fn each_word_has_one_entry_and_a_line_of_help() {
    for (index, entry) in TABLE.iter().enumerate() {
        assert!(
            TABLE[index + 1..]
                .iter()
                .all(|other| other.word != entry.word),
            "{}",
            entry.word
        );
        assert!(!entry.about.is_empty() && !entry.about.ends_with('.'));
    }
    assert_eq!(find("audit").unwrap().program, "portcullis-proxy");
    assert_eq!(find("why").unwrap().program, "portcullis-orchestrator");
    assert_eq!(find("boundary").unwrap().program, "portcullis-boundary");
    assert_eq!(find("nonsense"), None);
}

#[test]
fn the_word_is_passed_on_and_boundary_is_not() {
    let audit = find("audit").unwrap();
    assert_eq!(
        arguments(audit, &strings(&["tail", "-f"]), None),
        strings(&["audit", "tail", "-f"])
    );
    let boundary = find("boundary").unwrap();
    assert_eq!(
        arguments(boundary, &strings(&["verify"]), None),
        strings(&["verify"])
    );
}

#[test]
fn the_instance_s_configuration_is_given_unless_the_person_gave_one() {
    let exec = find("exec").unwrap();
    let config = Some(Path::new("/c.toml"));
    let with = |typed: &[&str]| arguments(exec, &strings(typed), config);
    assert_eq!(
        with(&["--json"]),
        strings(&["--config", "/c.toml", "exec", "--json"])
    );
    assert_eq!(
        with(&["--config", "/d"]),
        strings(&["exec", "--config", "/d"])
    );
    assert_eq!(with(&["--config=/d"]), strings(&["exec", "--config=/d"]));
    // What follows -- is the container's command.
    assert_eq!(
        with(&["--", "x", "--config=/d"]),
        strings(&["--config", "/c.toml", "exec", "--", "x", "--config=/d"])
    );
}

#[test]
fn the_gate_s_program_takes_it_behind_the_commands_that_read_it() {
    let config = Some(Path::new("/c.toml"));
    let with = |word: &str, typed: &[&str]| arguments(find(word).unwrap(), &strings(typed), config);
    assert_eq!(
        with("audit", &["tail", "-f"]),
        strings(&["audit", "tail", "-f", "--config", "/c.toml"])
    );
    assert_eq!(
        with("gate", &["status"]),
        strings(&["status", "--config", "/c.toml"])
    );
    assert_eq!(
        with("policy", &["show", "p.toml"]),
        strings(&["policy", "show", "p.toml"])
    );
    assert_eq!(
        with("allowance", &["list"]),
        strings(&["allowance", "list", "--config", "/c.toml"])
    );
    assert_eq!(with("audit", &["--help"]), strings(&["audit", "--help"]));
}

#[test]
fn a_slip_of_the_finger_gets_the_nearest_name() {
    let text = unknown("tikcet", &["up", "down", "status"]).to_string();
    assert!(text.contains("did you mean ticket"), "{text}");
    let text = unknown("stauts", &["up", "down", "status"]).to_string();
    assert!(text.contains("status"), "{text}");
    let text = unknown("xylophone", &["up", "down", "status"]).to_string();
    assert!(!text.contains("did you mean"), "{text}");
}
