//! The installed instance proves itself: by root, with the gate killed, and from inside a run.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;
use tests::binaries;
use tests::command::{Finished, Program};
use tests::host;
use tests::instance::Instance;
use tests::wait;

use super::interrupted;

#[track_caller]
fn report(finished: &Finished) -> Value {
    serde_json::from_str(&finished.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", finished.shown()))
}

fn status<'a>(report: &'a Value, id: &str) -> &'a str {
    let proofs = report["proofs"].as_array().unwrap();
    let proof = proofs.iter().find(|proof| proof["id"] == id);
    proof.map_or("no such proof", |proof| proof["status"].as_str().unwrap())
}

#[track_caller]
fn assert_code(finished: &Finished, code: i32) {
    let odd: Vec<Value> = report(finished)["proofs"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|proof| proof["status"] != "holds" && proof["status"] != "not-applicable")
        .cloned()
        .collect();
    assert_eq!(finished.code(), code, "{odd:#?} {}", finished.stderr);
}

/// Attack: CRD-07, CRD-11, CRD-16, CRD-21, CRD-22, CRD-23
#[test]
fn an_instance_proves_itself_also_while_its_gate_is_dead_and_from_inside_a_run() {
    let instance = Instance::up();
    let gate = instance.processes("portcullis-proxy run");
    let proven = instance
        .portcullis()
        .args(["prove", "--kill-gate", "--format", "json"])
        .run();
    assert_code(&proven, 0);
    let report = report(&proven);
    for id in [
        "KRN-01/ipv6/443",
        "KRN-24-stranger/ipv4/gate-down",
        "KRN-01/ipv4/443/gate-down",
        "KRN-07",
        "KRN-08",
        "KRN-26",
        "CRD-01",
        "CRD-02",
        "CRD-03",
        "CRD-07",
        "CRD-11",
        "CRD-16",
        "CRD-21-processes",
        "CRD-22",
        "CRD-23",
        "OWN-control-socket",
        "OWN-credential-files",
        "OWN-unlisted",
        "OPN-listed",
        "OPN-gate-is-down",
        "OPN-gate-is-back",
    ] {
        assert_eq!(status(&report, id), "holds", "{id}: {report:#}");
    }
    // It was killed indeed, and is another process now.
    let now = instance.processes("portcullis-proxy run");
    assert!(now.len() == 1 && now != gate, "{gate:?} {now:?}");
    wait::until_true("all is up again", || instance.run_status(&[]).code() == 0);

    inside(&instance);
    interrupted::killed(&instance);
    interrupted::told_to_end(&instance);
    interrupted::killed_with_its_holder(&instance);
    without_rules(&instance);
}

/// In a run there is no interface but loopback, and nothing but the gate's socket.
fn inside(instance: &Instance) {
    let folder = host::scratch();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy(
        binaries::path("portcullis"),
        folder.path().join("portcullis"),
    )
    .unwrap();
    let linked = Program::new("ldd")
        .arg(binaries::path("portcullis"))
        .run()
        .ok()
        .stdout;
    for line in linked
        .lines()
        .filter(|line| line.contains("libmnl") || line.contains("libnftnl"))
    {
        let path = line.split_whitespace().nth(2).unwrap();
        let name = line.split_whitespace().next().unwrap();
        fs::copy(path, folder.path().join(name)).unwrap();
    }
    let policy = instance.path("etc/portcullis/policies/default.toml");
    let proven = instance
        .portcullis()
        .args(["exec", "--policy"])
        .arg(policy)
        .args([
            "--",
            "sh",
            "-c",
            "LD_LIBRARY_PATH=$PWD exec ./portcullis prove --format json --gate 3128",
        ])
        .in_directory(folder.path())
        .run();
    assert_code(&proven, 0);
    let report = report(&proven);
    for id in [
        "KRN-01/ipv4/443",
        "KRN-03-quic/ipv6/443",
        "KRN-18-new-privileges",
        "CRD-21-environment",
        "OPN-gate-port/ipv4",
    ] {
        assert_eq!(status(&report, id), "holds", "{id}: {report:#}");
    }
}

/// The control of all that: the same host with the rules taken away by hand, and nobody to put them back.
fn without_rules(instance: &Instance) {
    let boundary = instance.processes("portcullis-boundary watch");
    for pid in instance
        .processes("supervise boundary")
        .iter()
        .chain(&boundary)
    {
        Program::new("kill")
            .args(["-STOP", &pid.to_string()])
            .run()
            .ok();
    }
    Program::new("nft")
        .args(["delete", "table", "inet", &instance.name])
        .run()
        .ok();
    let open = instance
        .portcullis()
        .args(["prove", "--format", "json"])
        .run();
    for pid in instance
        .processes("supervise boundary")
        .iter()
        .chain(&boundary)
    {
        Program::new("kill")
            .args(["-CONT", &pid.to_string()])
            .run()
            .ok();
    }
    assert_code(&open, 1);
    let report = report(&open);
    for id in [
        "KRN-01/ipv4/443",
        "KRN-02-link-local/ipv6/443",
        "KRN-03-quic/ipv6/443",
        "KRN-24-stranger/ipv4",
    ] {
        assert_eq!(status(&report, id), "broken", "{id}: {report:#}");
    }
}

/// What docs/ci.md tells people to type is typed here, as it stands there.
#[test]
fn the_commands_of_the_ci_page_work() {
    let text = fs::read_to_string(binaries::repository().join("docs/ci.md")).unwrap();
    let blocks: Vec<&str> = text
        .split("```sh\n")
        .skip(1)
        .map(|block| block.split("```").next().unwrap())
        .collect();
    let rules = blocks
        .iter()
        .find(|block| block.contains("ip netns"))
        .unwrap();
    let folder = host::scratch();
    for name in ["portcullis", "portcullis-boundary"] {
        fs::copy(binaries::path(name), folder.path().join(name)).unwrap();
    }
    let namespace = format!("pt-{}-ci", std::process::id());
    let uid = host::uid();
    let config = format!(
        "scope = \"agents\"\ntable = \"ci\"\ngate_port = 3128\nproxy = {}\nagents = [\"{uid}\"]\nstatus = \"{}\"\n",
        host::uid(),
        folder.path().join("status.json").display()
    );
    fs::write(folder.path().join("boundary.toml"), config).unwrap();
    let script = format!(
        "set -eu\nPATH=$PWD:$PATH\n{}",
        rules.replace("ci-boundary", &namespace)
    );
    let ran = Program::new("bash")
        .args(["-c", &script])
        .in_directory(folder.path())
        .run();
    Program::new("ip")
        .args(["netns", "delete", &namespace])
        .run();
    assert_eq!(ran.code(), 0, "{}", ran.shown());
    assert!(
        fs::read_to_string(folder.path().join("prove-rules.xml"))
            .unwrap()
            .contains("failures=\"0\" errors=\"0\"")
    );
    // The rest needs an instance; its options are at least options.
    let help = Program::new(binaries::path("portcullis"))
        .args(["prove", "--help"])
        .run()
        .ok()
        .stdout;
    for word in text
        .split_whitespace()
        .filter(|word| word.starts_with("--") && !word.contains("="))
    {
        let docker = [
            "--rm",
            "--network",
            "--user",
            "--cap-drop",
            "--security-opt",
            "--config",
        ]
        .contains(&word);
        assert!(
            docker || help.contains(word),
            "{word} is no option of prove"
        );
    }
}
