use std::fs;
use std::path::Path;

use crate::instance::{Instance, Record, Scope};
use crate::layout::Layout;
use crate::process::Call;
use crate::{service, systemd};

/// What each may be exposed to at most, of 10, as `systemd-analyze security` counts: the gate and the boundary are below 3.0.
const EXPOSED: [(&str, f32); 6] = [
    ("ptx-proxy.service", 2.0),
    ("ptx-boundary.service", 2.5),
    ("ptx-boundary-watch.service", 2.5),
    ("ptx-boundary-proof.service", 2.8),
    ("ptx-stand-in.service", 4.0),
    ("ptx-orchestrator.service", 7.5),
];

/// What systemd makes of the units as they are shipped; it needs no systemd that runs.
#[test]
fn units_are_hardened_and_what_the_gates_leaves_out_is_explained_there() {
    let folder = tempfile::tempdir().unwrap();
    let units = units();
    for (name, text) in &units {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let analyze = |name: &str, how: &str| {
        Call::new("systemd-analyze")
            .args(["security", "--offline=true", "--no-pager", how])
            .arg(folder.path().join(name))
            .run()
            .unwrap()
    };
    let exposure = |name: &str| -> f32 {
        let said = analyze(name, "--json=off");
        let last = said.lines().last().unwrap().rsplit_once(": ").unwrap().1;
        let number = last.split_whitespace().next().unwrap();
        number.parse().unwrap_or_else(|_| panic!("{name}: {last}"))
    };
    assert_eq!(units.len(), EXPOSED.len(), "every unit has its bound");
    for (name, most) in EXPOSED {
        let found = exposure(name);
        assert!(found <= most, "{name}: {found}");
    }
    // The scale is one: what hardens nothing is far up.
    let bare = "[Service]\nExecStart=/bin/true\n";
    fs::write(folder.path().join("bare.service"), bare).unwrap();
    assert!(exposure("bare.service") > 9.0);

    let gate = units.iter().find(|(name, _)| name == "ptx-proxy.service");
    let (_, gate) = gate.unwrap();
    let comments: String = gate.lines().filter(|line| line.starts_with('#')).collect();
    let points: serde_json::Value =
        serde_json::from_str(&analyze("ptx-proxy.service", "--json=short")).unwrap();
    let left_out = points
        .as_array()
        .unwrap()
        .iter()
        .filter(|point| point["exposure"].is_string())
        .map(|point| point["name"].as_str().unwrap());
    let mut any = false;
    for name in left_out {
        any = true;
        // `SystemCallFilter=~@resources`, `RootDirectory=/RootImage=`, `RestrictAddressFamilies=~AF_(INET|INET6)`.
        let word = match name.split_once("=~") {
            Some((_, "AF_(INET|INET6)")) => "AF_INET6",
            Some((_, word)) => word,
            None => name.split('=').next().unwrap_or(name),
        };
        assert!(comments.contains(word), "{name} is not explained: {gate}");
    }
    assert!(any, "{points}");
    assert!(!gate.contains("\nPrivateUsers="), "{gate}");
}

/// File name and text of every unit.
fn units() -> Vec<(String, String)> {
    let record = Record {
        name: "ptx".into(),
        repo: "a/b".into(),
        stand_in_port: Some(8443),
        gate_port: 3128,
        scope: Scope::Agents,
    };
    let layout = Layout::new(Path::new("/srv"), "ptx").unwrap();
    let instance = Instance { layout, record };
    service::services(&instance)
        .iter()
        .flat_map(|service| systemd::render(&instance, service))
        .map(|(path, text)| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, text)
        })
        .collect()
}
