//! What `prove` only looks at, or tries in a world of its own: red where it is so, held beside its control where it is not.

use std::fs;

use super::lab::Lab;
use super::machine::with_account;

/// A machine that takes commands for later, from these users.
fn taking(refused: &str) -> String {
    let crontab = format!(
        "#!/bin/sh\\n{refused}\\ntable=/usr/local/sbin/tables/$(id -u)\\ncase $1 in\\n-l) cat $table;;\\n-r) rm $table;;\\n*) cat >$table;;\\nesac\\n"
    );
    format!(
        "mount -t tmpfs none /usr/local/sbin\nmkdir -m 1777 /usr/local/sbin/tables\n\
         printf '{crontab}' >/usr/local/sbin/crontab\nprintf '#!/bin/sh\\nexit 1\\n' >/usr/local/sbin/at\n\
         chmod 755 /usr/local/sbin/crontab /usr/local/sbin/at"
    )
}

/// Attack: KRN-23
#[test]
fn a_command_that_is_taken_for_later_is_red_and_its_remedy_is_said() {
    const LIST: &[&str] = &["KRN-23-later"];
    let (lab, account) = with_account("pt-later", "", "");
    lab.shut();
    let id = |uid: u32| format!("KRN-23-later/uid{uid}");
    let red = lab.prove_only(LIST, &taking(":"));
    assert_eq!(red.code, 1, "{}", red.shown());
    for uid in [account, lab.agent()] {
        assert_eq!(red.status(&id(uid)), "broken", "{}", red.shown());
        for word in ["crontab", "cron.allow", "at.deny", "disable-linger"] {
            assert!(red.saw(&id(uid)).contains(word), "{}", red.saw(&id(uid)));
        }
    }
    // As cron itself: a uid without an account, which is what runs have, is told no, whatever the lists say. An account is
    // judged by the lists alone, and can it log in or not.
    let without_account = "getent passwd $(id -u) >/dev/null || exit 1";
    let stock = lab.prove_only(LIST, &taking(without_account));
    assert_eq!(stock.code, 1, "{}", stock.shown());
    assert_eq!(stock.status(&id(account)), "broken", "{}", stock.shown());
    assert_eq!(stock.status(&id(lab.agent())), "holds", "{}", stock.shown());
    // With an empty cron.allow root alone.
    let held = lab.prove_only(LIST, &taking("test $(id -u) = 0 || exit 1"));
    assert_eq!(held.code, 0, "{}", held.shown());
    for uid in [account, lab.agent()] {
        let saw = held.saw(&id(uid));
        assert!(saw.contains("control: root: granted"), "{saw}");
    }
}

/// A process of an agent, started by root with these words of python before it becomes the agent, or by `setpriv` alone.
fn agent_runs(lab: &Lab, options: &str, before: &str) -> String {
    let uid = lab.agent();
    let program = format!(
        "import os, socket, time; {before}; os.execvp(\"setpriv\", \"setpriv --reuid {uid} --regid {uid} --clear-groups {options} \
         sh -c\".split() + [\"echo up >/run/ready; exec sleep 60\"])"
    );
    format!(
        "mount -t tmpfs none /run\nmkfifo -m 666 /run/ready\n\
         timeout 60 python3 -c '{program}' >/dev/null 2>&1 &\nread ready </run/ready"
    )
}

/// What is only looked at is held because the same look sees it in a process of our own.
/// Attack: KRN-10, KRN-15, KRN-18
#[test]
fn what_running_agents_hold_is_red_and_every_look_has_its_control() {
    const LIST: &[&str] = &[
        "KRN-10",
        "KRN-15-capabilities",
        "KRN-18-new-privileges",
        "KRN-18-helpers",
    ];
    let lab = Lab::new("agents");
    lab.shut();
    let none = lab.prove_only(LIST, "");
    for id in LIST {
        assert_eq!(none.status(id), "not-applicable", "{}", none.shown());
    }
    let held = lab.prove_only(LIST, &agent_runs(&lab, "--no-new-privs", "0"));
    assert_eq!(held.code, 0, "{}", held.shown());
    for id in LIST {
        assert_eq!(held.status(id), "holds", "{}", held.shown());
        assert!(held.saw(id).contains("control: "), "{id}: {}", held.saw(id));
    }
    let capable = "--no-new-privs --inh-caps +net_raw --ambient-caps +net_raw";
    let packet =
        "s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x300); s.set_inheritable(True)";
    let datagram = "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.set_inheritable(True)";
    for (options, before, red, word) in [
        (
            "--no-new-privs",
            packet,
            &["KRN-10"][..],
            "packet socket of uid 0",
        ),
        ("--no-new-privs", datagram, &["KRN-10"], "socket of uid 0"),
        (capable, "0", &["KRN-15-capabilities"], "CAP_NET_RAW"),
        (
            "",
            "0",
            &["KRN-18-new-privileges", "KRN-18-helpers"],
            "(process ",
        ),
    ] {
        let seen = lab.prove_only(LIST, &agent_runs(&lab, options, before));
        assert_eq!(seen.code, 1, "{options} {before}: {}", seen.shown());
        for id in LIST {
            let expected = if red.contains(id) { "broken" } else { "holds" };
            assert_eq!(seen.status(id), expected, "{id}: {}", seen.shown());
        }
        for id in red {
            assert!(seen.saw(id).contains(word), "{id}: {}", seen.saw(id));
        }
    }
}

/// What is about the moment rules are loaded, or about what this machine passes on, is tried with the configured rules in a
/// world of its own.
/// Attack: KRN-07, KRN-08, KRN-19, KRN-26
#[test]
fn older_flows_replacements_containers_and_exceptions_are_tried() {
    const WORLD: &[&str] = &["KRN-07", "KRN-08", "KRN-26"];
    for scope in ["agents", "guest"] {
        let lab = Lab::new(scope);
        lab.shut();
        let held = lab.prove_only(&[WORLD, &["KRN-19"]].concat(), "");
        assert_eq!(held.code, 0, "{scope}: {}", held.shown());
        for id in WORLD {
            let saw = held.saw(id);
            assert_eq!(held.status(id), "holds", "{scope}: {}", held.shown());
            assert!(
                saw.contains("over IPv4 and IPv6; control: the same"),
                "{saw}"
            );
        }
        let none = held.saw("KRN-19/ipv4/443");
        assert!(none.contains("no exception is configured"), "{none}");
        if scope == "agents" {
            // Somebody whom these rules do not shut, by the same attempts.
            let open = lab.prove_as(lab.agent() + 60, WORLD);
            for id in ["KRN-07", "KRN-08"] {
                assert_eq!(open.status(id), "broken", "{}", open.shown());
            }
        }

        let config = lab.path("boundary.toml");
        let text = fs::read_to_string(&config).unwrap();
        let exception = format!(
            "[[exception]]\nuser = {}\ndestination = \"203.0.113.1:443\"\nreason = \"updates\"\nexpires = \"2999-01-01T00:00:00Z\"\n",
            lab.agent() + 3
        );
        fs::write(&config, text + &exception).unwrap();
        lab.shut();
        let held = lab.prove_only(&["KRN-19", "KRN-19-udp"], "");
        assert_eq!(held.code, 0, "{scope}: {}", held.shown());
        let id = "KRN-19/ipv4/443";
        assert_eq!(held.status(id), "holds", "{scope}: {}", held.shown());
        lab.open();
        let open = lab.prove_only(&["KRN-19", "KRN-19-udp"], "");
        for id in [id, "KRN-19/ipv6/8443", "KRN-19-udp/ipv4/443"] {
            assert_eq!(open.status(id), "broken", "{scope}: {}", open.shown());
        }
    }
    // Where the host's owner decided it, what is forwarded is not this boundary's.
    let lab = Lab::with("agents", "forward = \"host\"\n");
    lab.shut();
    let left = lab.prove_only(&["KRN-26"], "");
    assert_eq!(left.status("KRN-26"), "not-applicable", "{}", left.shown());
}
