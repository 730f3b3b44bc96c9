//! What is left of the process's power once it serves.

use std::os::unix::process::CommandExt;
use std::process::Command;

use super::fixture::{Fixture, USER, uid_of};

#[test]
fn every_capability_is_gone_and_nothing_can_be_gained() {
    let mut fixture = Fixture::new();
    fixture.start();
    let uid = uid_of(USER);
    let tasks = format!("/proc/{}/task", fixture.pid());
    let mut threads = 0;
    for task in std::fs::read_dir(tasks).unwrap() {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line[name.len()..].trim().to_owned()
        };
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
            assert_eq!(u64::from_str_radix(&field(set), 16).unwrap(), 0, "{set}");
        }
        assert_eq!(field("NoNewPrivs:"), "1");
        assert_eq!(field("Uid:"), format!("{uid}\t{uid}\t{uid}\t{uid}"));
        assert_eq!(field("Groups:"), "");
        threads += 1;
    }
    assert!(threads > 1, "the runtime's threads are looked at too");

    let limits = std::fs::read_to_string(format!("/proc/{}/limits", fixture.pid())).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"))
        .unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
    fixture.stop();
}

/// CRD-21, CRD-23: not even a process of the same uid may look inside.
/// Attack: CRD-21, CRD-23
#[test]
fn it_cannot_be_looked_into() {
    let mut fixture = Fixture::new();
    fixture.start();
    let uid = uid_of(USER);
    let read = |pid: u32, file: &str, uid: u32| {
        Command::new("cat")
            .arg(format!("/proc/{pid}/{file}"))
            .uid(uid)
            .gid(uid)
            .output()
            .unwrap()
            .status
            .success()
    };
    // The control: an ordinary process of that uid can be looked into by its own.
    let mut ordinary = Command::new("sleep")
        .arg("60")
        .uid(uid)
        .gid(uid)
        .spawn()
        .unwrap();
    super::fixture::eventually("the ordinary process can be read", || {
        read(ordinary.id(), "environ", uid)
    });
    for file in ["environ", "maps", "mem", "fdinfo/0", "auxv"] {
        assert!(!read(fixture.pid(), file, uid), "{file} by its own uid");
        assert!(!read(fixture.pid(), file, 65_533), "{file} by another uid");
    }
    ordinary.kill().unwrap();
    ordinary.wait().unwrap();
    // Not even root finds the secret in environment or arguments.
    for file in ["environ", "cmdline"] {
        let bytes = std::fs::read(format!("/proc/{}/{file}", fixture.pid())).unwrap();
        assert!(
            !String::from_utf8_lossy(&bytes).contains("canary"),
            "{file}"
        );
    }
    let said = fixture.stop();
    assert!(!said.contains("canary"), "{said}");
}
