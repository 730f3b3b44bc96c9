//! What a machine may have beside good rules that lets an agent out all the same, or that keeps `prove` from telling. Each
//! turns it red, or makes it say that it could not tell; beside each the same machine without it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use tests::command::Program;

use super::lab::{Lab, Proven};

const HELPERS: &[&str] = &[
    "KRN-31-elevate",
    "OWN-newuidmap",
    "OWN-newgidmap",
    "OWN-subordinate-ids",
    "KRN-28-become-gate",
];

/// A lab whose configuration names an account of its own, which has these lines in `/etc/subuid` and `/etc/subgid`.
pub(super) fn with_account(name: &str, ids: &str, more: &str) -> (Lab, u32) {
    let lab = Lab::with("agents", more);
    let uid = lab.agent() + 20;
    lab.netns.set_account(uid, name, Path::new("/"));
    let etc = Path::new("/etc/netns").join(lab.netns.name());
    for file in ["subuid", "subgid"] {
        fs::write(etc.join(file), ids).unwrap();
    }
    let config = lab.path("boundary.toml");
    let text = fs::read_to_string(&config).unwrap();
    let named = format!("agents = [\"{name}\", \"");
    fs::write(&config, text.replace("agents = [\"", &named)).unwrap();
    (lab, uid)
}

#[track_caller]
fn assert_all(proven: &Proven, ids: &[String], status: &str) {
    for id in ids {
        assert_eq!(proven.status(id), status, "{id}: {}", proven.shown());
    }
}

#[test]
fn a_named_account_with_subordinate_ids_is_red() {
    let of = |uid: u32| {
        ["newuidmap", "newgidmap", "subordinate-ids"].map(|what| format!("OWN-{what}/uid{uid}"))
    };
    let (lab, uid) = with_account("pt-subids", "pt-subids:700000:1000\n", "");
    lab.shut();
    let red = lab.prove_only(HELPERS, "");
    assert_eq!(red.code, 1, "{}", red.shown());
    assert_all(&red, &of(uid), "broken");
    // Judged as one of the range's uids alone, nothing would have been seen.
    assert_all(&red, &of(lab.agent()), "holds");

    let (lab, uid) = with_account("pt-plain", "", "");
    lab.shut();
    let held = lab.prove_only(HELPERS, "");
    assert_eq!(held.code, 0, "{}", held.shown());
    assert_all(&held, &of(uid), "holds");
    // As an account that is there for others' ids no agent runs.
    let reserved = "reserves = [\"pt-reserve\"]\n";
    let (lab, _) = with_account("pt-reserve", "pt-reserve:700000:1000\n", reserved);
    lab.shut();
    let held = lab.prove_only(HELPERS, "");
    assert_eq!(held.code, 0, "{}", held.shown());
    assert_eq!(held.status("OWN-newuidmap"), "holds");
    // That an agent owns none was seen by a look that sees what that account owns.
    let saw = held.saw("OWN-subordinate-ids");
    assert!(saw.contains("owns none; control: what uid"), "{saw}");
}

/// Attack: KRN-31
#[test]
fn programs_that_raise_an_account_are_red_and_helpers_that_do_nothing_tell_nothing() {
    let (lab, uid) = with_account("pt-raised", "", "");
    lab.shut();
    // `unshare -n id -u` is what it is asked for by the name of sudo.
    let sudo = "mount -t tmpfs none /usr/local/sbin\n\
                cp /usr/bin/unshare /usr/local/sbin/sudo\nchmod 4755 /usr/local/sbin/sudo";
    let red = lab.prove_only(HELPERS, sudo);
    assert_eq!(red.code, 1, "{}", red.shown());
    for uid in [uid, lab.agent()] {
        let id = format!("KRN-31-elevate/uid{uid}");
        assert_eq!(red.status(&id), "broken", "{}", red.shown());
    }
    // One that thinks for long has not said no, whatever the others say, and whoever else they raise.
    let late = "mount -t tmpfs none /usr/local/sbin\n\
                printf '#!/bin/sh\\nexec sleep 120\\n' >/usr/local/sbin/sudo\nchmod 755 /usr/local/sbin/sudo";
    let untold = lab.prove_only(&["KRN-31-elevate"], late);
    assert_eq!(untold.code, 2, "{}", untold.shown());
    for uid in [uid, lab.agent()] {
        let id = format!("KRN-31-elevate/uid{uid}");
        assert_eq!(untold.status(&id), "could-not-tell", "{}", untold.shown());
        assert!(untold.saw(&id).contains("sudo did not end in time"));
    }
    let refuses = late.replace("exec sleep 120", "exit 1");
    let held = lab.prove_only(&["KRN-31-elevate"], &refuses);
    assert_eq!(held.code, 0, "{}", held.shown());
    let deaf = "mount -t tmpfs none /usr/local/sbin\n\
                printf '#!/bin/sh\\nexit 1\\n' >/usr/local/sbin/newuidmap\nchmod 755 /usr/local/sbin/newuidmap";
    let untold = lab.prove_only(HELPERS, deaf);
    assert_eq!(untold.code, 2, "{}", untold.shown());
    for uid in [uid, lab.agent()] {
        let id = format!("OWN-newuidmap/uid{uid}");
        assert_eq!(untold.status(&id), "could-not-tell", "{}", untold.shown());
    }
}

/// The program's owner is let out where only agents are shut, and shut in where everybody is.
/// Attack: KRN-18
#[test]
fn a_set_user_id_ping_is_red_where_its_owner_gets_out() {
    for (scope, mode, code) in [
        ("agents", "4755", 1),
        ("agents", "755", 0),
        ("guest", "4755", 0),
    ] {
        let lab = Lab::new(scope);
        lab.shut();
        let (source, program) = (lab.path("ping.c"), lab.path("ping"));
        fs::write(&source, include_str!("ping.c")).unwrap();
        let compiler = Program::new("cc").arg("-o").arg(&program).arg(&source);
        compiler.run().ok();
        let place = format!(
            "mount -t tmpfs none /usr/local/sbin\ncp {} /usr/local/sbin/ping\nchmod {mode} /usr/local/sbin/ping",
            program.display()
        );
        // What a user without rights cannot ping with proves nothing; something else has to hold then.
        let proven = lab.prove_only(&["KRN-18-ping", "KRN-15-packet"], &place);
        let expected = match (code, mode) {
            (1, _) => "broken",
            (_, "755") => "could-not-tell",
            _ => "holds",
        };
        let code = if mode == "755" { 2 } else { code };
        assert_eq!(proven.code, code, "{scope} {mode}: {}", proven.shown());
        for id in ["KRN-18-ping/ipv4", "KRN-18-ping/ipv6"] {
            assert_eq!(
                proven.status(id),
                expected,
                "{scope} {mode}: {}",
                proven.shown()
            );
        }
    }
}

/// Attack: KRN-05
#[test]
fn a_service_that_resolves_names_for_whoever_asks_is_red() {
    let lab = Lab::new("agents");
    lab.shut();
    let script = lab.path("services.py");
    fs::write(&script, include_str!("services.py")).unwrap();
    let sockets = [
        (
            "resolved-varlink",
            "/run/systemd/resolve/io.systemd.Resolve",
        ),
        ("resolved-bus", "/run/dbus/system_bus_socket"),
        ("nscd", "/run/nscd/socket"),
        ("avahi", "/run/avahi-daemon/socket"),
    ];
    let id = |service: &str| format!("KRN-05-services/{service}");
    let served = |mode: &str, how: &str| {
        let mut lines = vec![
            "mount -t tmpfs none /run".to_owned(),
            "mkfifo /run/ready".to_owned(),
            format!(
                "timeout 60 python3 {} {how} stub resolved-varlink resolved-bus nscd avahi >/run/ready 2>/dev/null &",
                script.display()
            ),
            "read ready </run/ready".to_owned(),
        ];
        lines.extend(sockets.map(|(_, path)| format!("chmod {mode} {path}")));
        lab.prove_only(&["KRN-05-services"], &lines.join("\n"))
    };
    let beside = |mode: &str| served(mode, "");
    let red = beside("666");
    assert_eq!(red.code, 1, "{}", red.shown());
    // What is asked over a socket no rule of packets sees; what is asked over loopback one does.
    assert_eq!(red.status(&id("stub")), "holds", "{}", red.shown());
    for (service, _) in sockets {
        assert_eq!(red.status(&id(service)), "broken", "{}", red.shown());
    }
    let closed = beside("600");
    assert_eq!(closed.code, 0, "{}", closed.shown());
    for (service, _) in sockets {
        assert_eq!(closed.status(&id(service)), "holds", "{}", closed.shown());
    }
    // Who took a question may have passed it on, also when the answer comes late.
    let late = served("666", "late");
    assert_eq!(late.code, 2, "{}", late.shown());
    for (service, _) in sockets {
        let status = late.status(&id(service));
        assert_eq!(status, "could-not-tell", "{service}: {}", late.shown());
    }
    lab.open();
    let open = beside("600");
    assert_eq!(open.status(&id("stub")), "broken", "{}", open.shown());
    let none = lab.prove_only(&["KRN-05-services"], "mount -t tmpfs none /run");
    for (service, _) in sockets {
        assert_eq!(
            none.status(&id(service)),
            "not-applicable",
            "{}",
            none.shown()
        );
    }
}

#[test]
fn ipv6_that_could_not_be_tried_is_not_proven() {
    const LIST: &[&str] = &["KRN-01", "OPN-gate-tcp"];
    let disable = |lab: &Lab, which: &[&str]| {
        for name in which {
            let path = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
            let words = format!("echo 1 >{path}");
            let shell = Program::new("sh").args(["-c", &words]);
            shell.in_netns(&lab.netns).run().ok();
        }
    };
    // New interfaces get none, and one that was there before has it still.
    let lab = Lab::new("agents");
    lab.wire();
    lab.netns
        .ip(&["address", "add", "2001:db8:9::1/64", "dev", "wire", "nodad"]);
    disable(&lab, &["default"]);
    lab.shut();
    let untold = lab.prove_only(LIST, "");
    assert_eq!(untold.code, 2, "{}", untold.shown());
    assert_eq!(untold.status("KRN-01/ipv6/443"), "could-not-tell");
    assert_eq!(untold.status("KRN-01/ipv4/443"), "holds");
    // Off it is only when it is off everywhere.
    disable(&lab, &["all"]);
    let off = lab.prove_only(LIST, "");
    assert_eq!(off.code, 0, "{}", off.shown());
    assert_eq!(off.status("KRN-01/ipv6/443"), "not-applicable");
}

/// A connection that does not come in says something only where one does when there are no rules.
#[test]
fn inbound_stands_beside_a_connection_that_comes_in_without_rules() {
    let lab = Lab::new("guest");
    lab.shut();
    let held = lab.prove_only(&["OWN-inbound"], "");
    assert_eq!(held.code, 0, "{}", held.shown());
    for id in ["OWN-inbound/ipv4", "OWN-inbound/ipv6"] {
        let saw = held.saw(id);
        let control = "control: the same listener in a network namespace without rules was reached";
        assert!(saw.contains(control), "{id}: {saw}");
    }
    lab.open();
    let open = lab.prove_only(&["OWN-inbound"], "");
    assert_eq!(
        open.status("OWN-inbound/ipv4"),
        "broken",
        "{}",
        open.shown()
    );
    // Where a program cannot be executed by the agent nobody listens, with rules or without.
    lab.shut();
    chown(lab.program(), Some(lab.gate()), None).unwrap();
    fs::set_permissions(lab.program(), fs::Permissions::from_mode(0o700)).unwrap();
    let untold = lab.prove_only(&["OWN-inbound"], "");
    assert_eq!(untold.code, 2, "{}", untold.shown());
    assert_eq!(untold.status("OWN-inbound/ipv4"), "could-not-tell");
}

/// All that an agent tries fails, and the boundary has no part in it.
#[test]
fn a_harness_that_is_broken_for_the_agent_holds_nothing() {
    for applied in [true, false] {
        let lab = Lab::new("agents");
        if applied {
            lab.shut();
        }
        // The gate's user may execute it, and agents may not.
        chown(lab.program(), Some(lab.gate()), None).unwrap();
        fs::set_permissions(lab.program(), fs::Permissions::from_mode(0o700)).unwrap();
        let untold = lab.prove(&[]);
        assert_ne!(untold.code, 0, "{}", untold.shown());
        let sentinel = format!("SEN-uid{}", lab.agent());
        assert_eq!(untold.status(&sentinel), "could-not-tell");
        let held: Vec<&str> = untold.held_refusals();
        assert!(held.is_empty(), "applied: {applied}: {held:?}");
        assert_eq!(untold.status("OPN-gate-tcp/ipv4/443"), "holds");
    }
}

/// Attack: KRN-21, KRN-23, KRN-28
#[test]
fn sockets_and_tables_of_root_are_tried_beside_root() {
    let lab = Lab::new("agents");
    lab.shut();
    let list = [
        "KRN-21",
        "KRN-23-timers",
        "OWN-system-files",
        "KRN-28-become-gate",
    ];
    let prepare = |socket: &str, mode: &str, listener: bool| {
        let stay = if listener { "; time.sleep(60)" } else { "" };
        format!(
            "mount -t tmpfs none /run\nmount -t tmpfs none /etc/cron.d\nchmod {mode} /etc/cron.d\nmkfifo /run/ready\n\
             timeout 60 python3 -uc 'import os, socket, time; s = socket.socket(socket.AF_UNIX); \
             s.bind(\"/run/docker.sock\"); s.listen(8); os.chmod(\"/run/docker.sock\", 0o{socket}); print(1){stay}' >/run/ready 2>/dev/null &\n\
             read ready </run/ready"
        )
    };
    let held = lab.prove_only(&list, &prepare("600", "755", true));
    assert_eq!(held.code, 0, "{}", held.shown());
    for id in [
        "KRN-21",
        "KRN-23-timers",
        "OWN-system-files",
        "KRN-28-become-gate",
    ] {
        assert!(
            held.saw(id).contains("control: root"),
            "{id}: {}",
            held.saw(id)
        );
    }
    let red = lab.prove_only(&list, &prepare("666", "1777", true));
    assert_eq!(red.code, 1, "{}", red.shown());
    for id in ["KRN-21", "KRN-23-timers"] {
        assert_eq!(red.status(id), "broken", "{}", red.shown());
    }
    // A socket that nobody listens at is nothing that could be refused.
    let stale = lab.prove_only(&list, &prepare("666", "755", false));
    assert_eq!(
        stale.status("KRN-21"),
        "not-applicable",
        "{}",
        stale.shown()
    );
}

/// Each process of the gate's user is closed to the agent, and open to root.
#[test]
fn processes_of_the_gate_are_tried_one_by_one() {
    let lab = Lab::new("agents");
    lab.shut();
    let gate = lab.gate();
    let start = format!(
        "setpriv --reuid {gate} --regid {gate} --clear-groups sleep 120 >/dev/null 2>&1 &\n\
         until [ \"$(cat /proc/$!/comm)\" = sleep ]; do :; done"
    );
    // The shell that starts them kills the last one; `timeout` ends with the first.
    let first = start.replace("sleep 120", "timeout 30 sleep 120");
    let first = first.replace("= sleep", "= timeout");
    for (what, count) in [(start.clone(), 1), (format!("{first}\n{start}"), 3)] {
        let held = lab.prove_only(&["CRD-23"], &what);
        assert_eq!(held.code, 0, "{}", held.shown());
        assert_eq!(held.status("CRD-23"), "holds", "{}", held.shown());
        let saw = held.saw("CRD-23");
        assert_eq!(saw.matches("(process").count(), count, "{saw}");
        assert!(saw.contains("control: root reads each"), "{saw}");
    }
    let lab = Lab::new("agents");
    lab.shut();
    let none = lab.prove_only(&["CRD-23"], "");
    assert_eq!(none.status("CRD-23"), "not-applicable", "{}", none.shown());
}
