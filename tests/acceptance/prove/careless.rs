//! What is tried through the gate is red where a gate is careless of that, and holds where it is not.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};

use super::lab::{Lab, Proven};

/// What a gate may be careless of, and the proofs that notice.
const CARELESS: [(&str, &[&str]); 5] = [
    (
        "headers",
        &["CRD-01", "CRD-02", "CRD-03", "CRD-04", "CRD-05"],
    ),
    ("methods", &["CRD-11"]),
    ("pages", &["CRD-16"]),
    ("places", &["OWN-unlisted"]),
    ("clear", &["CRD-07"]),
];

/// Attack: CRD-01, CRD-02, CRD-03, CRD-04, CRD-05, CRD-07, CRD-11, CRD-16
#[test]
fn a_careless_gate_is_red_for_what_it_is_careless_of_and_for_nothing_else() {
    let all: Vec<&str> = CARELESS.iter().flat_map(|(_, ids)| *ids).copied().collect();
    let lab = Lab::new("agents");
    lab.shut();
    let careful = proven(&lab, "", &all);
    assert_eq!(careful.code, 0, "{}", careful.shown());
    for id in &all {
        assert_eq!(careful.status(id), "holds", "{}", careful.shown());
    }
    for (what, ids) in CARELESS {
        let red = proven(&lab, what, &all);
        assert_eq!(red.code, 1, "{what}: {}", red.shown());
        for id in &all {
            let expected = if ids.contains(id) { "broken" } else { "holds" };
            assert_eq!(red.status(id), expected, "{what}: {id}: {}", red.shown());
        }
    }
}

/// These proofs, with a gate of that kind in front of them.
#[track_caller]
fn proven(lab: &Lab, careless: &str, ids: &[&str]) -> Proven {
    let (prefix, script) = (lab.path("prefix"), lab.path("gate.py"));
    // The former gate's sockets are in its way.
    if prefix.exists() {
        fs::remove_dir_all(&prefix).unwrap();
    }
    let (etc, run) = (prefix.join("etc/portcullis"), prefix.join("run/portcullis"));
    for directory in [&etc, &run] {
        fs::create_dir_all(directory).unwrap();
    }
    chown(&run, Some(lab.gate()), None).unwrap();
    fs::copy(lab.path("boundary.toml"), etc.join("boundary.toml")).unwrap();
    let record = "name = \"portcullis\"\nrepo = \"a/b\"\ngate_port = 3128\n";
    fs::write(etc.join("instance.toml"), record).unwrap();
    fs::write(&script, include_str!("gate.py")).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o644)).unwrap();
    let gate = lab.gate();
    let start = format!(
        "mkfifo -m 666 {0}/ready\n\
         timeout 300 setpriv --reuid {gate} --regid {gate} --clear-groups python3 {1} {0} {careless} >{0}/ready 2>/dev/null &\n\
         read ready <{0}/ready",
        prefix.display(),
        script.display()
    );
    lab.prove_instance(&prefix, ids, &start)
}
