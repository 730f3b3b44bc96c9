//! `portcullis prove` where systemd is process 1: it brings the gate back that it killed, and holds it to nothing else.

use serde_json::Value;
use tests::machine::Machine;

const GATE: &str = "portcullis-proxy";
const TRIES: u32 = 4;

/// A list of one's own, for what one attempt of each kind tells: that the agent gets nowhere, and the gate does.
const SHORT: &str = "/root/proofs.toml";
const SHORT_LIST: &str = r#"version = 1
[[proof]]
id = "OWN-tcp"
must = "fail"
attempt = "tcp"
ports = [443]
reason = "the plainest way out"
[[proof]]
id = "OWN-udp"
must = "fail"
attempt = "udp"
ports = [53]
reason = "the other one"
[[proof]]
id = "OWN-gate"
must = "succeed"
attempt = "tcp"
as = "gate"
ports = [443]
reason = "the gate goes that way"
"#;

/// Runs `prove` once and returns its exit status and its report.
fn report(machine: &mut Machine, options: &str) -> (i32, Value) {
    let answer = machine.run(&format!(
        "portcullis prove {options} --format json 2>/run/prove.said"
    ));
    let report = serde_json::from_str(&answer.output).unwrap_or_else(|error| {
        let said = machine.run("cat /run/prove.said").output;
        panic!("{error}: {}{said}", answer.output)
    });
    (answer.code, report)
}

/// Runs `prove` until it can tell: on a loaded host an emulated attempt may not end in its time. What is broken is never
/// tried again.
fn prove(machine: &mut Machine, options: &str) -> Value {
    let mut untold = Vec::new();
    for _ in 0..TRIES {
        machine.until("everything serves", "portcullis status");
        let (code, report) = report(machine, options);
        let broken = ids(&report, "broken");
        assert!(broken.is_empty() && code != 1, "{code}: {broken:?}");
        untold = ids(&report, "could-not-tell");
        assert_eq!(code == 0, untold.is_empty(), "{code}: {untold:?}");
        if code == 0 {
            return report;
        }
    }
    panic!("{TRIES} times prove could not tell, at last: {untold:?}");
}

/// The ids of a report by their verdict.
fn ids(report: &Value, status: &str) -> Vec<String> {
    let proofs = report["proofs"].as_array().unwrap();
    let of_status = proofs.iter().filter(|proof| proof["status"] == status);
    of_status
        .map(|proof| format!("{}: {}", proof["id"], proof["saw"]))
        .collect()
}

/// The boundary holds.
pub(super) fn assert_green(machine: &mut Machine) {
    let report = prove(machine, "");
    assert!(ids(&report, "holds").len() > 50, "{report}");
    for id in ["KRN-07", "KRN-08", "KRN-26", "KRN-33"] {
        assert_eq!(status_of(&report, id), "holds", "{id}: {report}");
    }
}

/// What a boot starts and in which order, as the units say it.
const ORDER: &str = "version = 1\n[[proof]]\nid = \"OWN-order\"\nmust = \"fail\"\nattempt = \"boot-order\"\nreason = \"ours\"\n";
/// Units that say it no more, each in its way.
const DISORDER: [(&str, &str); 3] = [
    (
        "sed -i '/^Requires=/d' /etc/systemd/system/portcullis-proxy.service",
        "portcullis-proxy.service starts without a proven boundary",
    ),
    (
        "sed -i 's/network-pre.target//' /etc/systemd/system/portcullis-boundary.service",
        "portcullis-boundary.service does not come before the network",
    ),
    (
        "systemctl --quiet disable portcullis-boundary",
        "portcullis-boundary.service is not started at boot",
    ),
];

/// Its cases, and what each is without a boundary.
const SHORT_CASES: [(&str, &str); 6] = [
    ("OWN-tcp/ipv4/443", "broken"),
    ("OWN-tcp/ipv6/443", "broken"),
    ("OWN-udp/ipv4/53", "broken"),
    ("OWN-udp/ipv6/53", "broken"),
    ("OWN-gate/ipv4/443", "holds"),
    ("OWN-gate/ipv6/443", "holds"),
];

fn write(machine: &mut Machine, list: &str) {
    machine
        .run(&format!("cat >{SHORT} <<'LIST'\n{list}LIST"))
        .ok();
}

/// The short list where there is no boundary. With one it is green, which [`assert_green_without_the_gate`] shows.
///
/// Its units are in order all the same, until one is changed: systemd is asked, and not the packets.
pub(super) fn assert_red(machine: &mut Machine) {
    let order = ORDER.split_once('\n').map_or("", |(_, proof)| proof);
    write(machine, &format!("{SHORT_LIST}{order}"));
    let options = format!("--proofs {SHORT}");
    let (code, short) = report(machine, &options);
    assert_eq!(code, 1, "{short}");
    for (id, status) in SHORT_CASES {
        assert_eq!(status_of(&short, id), status, "{id}: {short}");
    }
    assert_eq!(status_of(&short, "OWN-order"), "holds", "{short}");
    for (change, _) in DISORDER {
        machine.run(change).ok();
    }
    machine.run("systemctl daemon-reload").ok();
    write(machine, ORDER);
    let (code, order) = report(machine, &options);
    assert_eq!(code, 1, "{order}");
    let broken = ids(&order, "broken");
    let found = broken.iter().find(|proof| proof.contains("OWN-order"));
    let found = found.unwrap_or_else(|| panic!("{order}"));
    for (_, words) in DISORDER {
        assert!(found.contains(words), "{words}: {found}");
    }
}

fn status_of(report: &Value, id: &str) -> String {
    let proofs = report["proofs"].as_array().unwrap();
    let found = proofs.iter().find(|proof| proof["id"] == id);
    let found = found.unwrap_or_else(|| panic!("{id}: {report}"));
    found["status"].as_str().unwrap().to_owned()
}

/// The short list holds with the gate and without it; afterwards the gate is another process of a unit that is as before.
pub(super) fn assert_green_without_the_gate(machine: &mut Machine) {
    let unit = |machine: &mut Machine| {
        ["Restart", "DropInPaths", "FragmentPath"].map(|property| machine.property(GATE, property))
    };
    let (gate, before) = (machine.property(GATE, "MainPID"), unit(machine));
    let others = ["portcullis-orchestrator", "portcullis-boundary-watch"];
    let others_before = others.map(|name| machine.property(name, "MainPID"));
    write(machine, SHORT_LIST);
    let report = prove(machine, &format!("--kill-gate --proofs {SHORT}"));
    for id in ["OPN-gate-is-down", "OPN-gate-is-back"] {
        assert_eq!(status_of(&report, id), "holds", "{id}: {report}");
    }
    for (id, _) in SHORT_CASES {
        assert_eq!(status_of(&report, id), "holds", "{id}: {report}");
        let id = format!("{id}/gate-down");
        assert_eq!(status_of(&report, &id), "holds", "{id}: {report}");
    }
    machine.until("everything serves", "portcullis status");
    assert_ne!(machine.property(GATE, "MainPID"), gate);
    assert_eq!(unit(machine), before);
    assert_eq!(
        others.map(|name| machine.property(name, "MainPID")),
        others_before
    );
    assert_killed_prove_leaves_a_gate(machine, &before);
}

/// Killed with every process of its unit while it holds the gate down, it still brings the gate back.
fn assert_killed_prove_leaves_a_gate(machine: &mut Machine, before: &[String; 3]) {
    let gate = machine.property(GATE, "MainPID");
    machine
        .run(&format!(
            "systemd-run --quiet --unit proving portcullis prove --kill-gate --proofs {SHORT}"
        ))
        .ok();
    machine.until(
        "the gate is held down",
        "[ $(systemctl show --value -p ActiveState portcullis-proxy) = failed ]",
    );
    machine.run("systemctl kill --signal KILL proving").ok();
    machine.until(
        "another gate",
        &format!(
            "pid=$(systemctl show --value -p MainPID {GATE}); [ $pid != 0 ] && [ $pid != {gate} ]"
        ),
    );
    machine.until("everything serves", "portcullis status");
    let after =
        ["Restart", "DropInPaths", "FragmentPath"].map(|property| machine.property(GATE, property));
    assert_eq!(&after, before);
}
