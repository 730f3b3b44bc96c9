//! Loading, verifying, watching, removing.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use tests::gate::{Boundary, Gate};
use tests::wait;

use super::lab::{AGENT, GATE, Lab, OTHER_AGENT, PEER4, PEER6, Running, SUBORDINATE, status};

const SCOPES: [&str; 2] = ["agents", "guest"];
const TABLE: [&str; 2] = ["inet", "portcullis-lab"];

/// Text and netlink batch are one ruleset: nft(8) lists them alike, and `verify` accepts both.
#[test]
fn text_and_batch_are_the_same_ruleset() {
    for scope in SCOPES {
        let exceptions = [
            ("192.0.2.0/24:80", "tcp"),
            ("192.0.2.128/27:53", "udp"),
            ("[2001:db8::/33]:443", "tcp"),
            ("[2001:db8::1]:443", "udp"),
        ]
        .map(|(destination, protocol)| {
            format!(
                "[[exception]]\nuser = \"lab-monitor\"\ndestination = \"{destination}\"\n\
                 protocol = \"{protocol}\"\nreason = \"every form\"\nexpires = \"2999-01-01T00:00:00Z\"\n"
            )
        })
        .concat();
        let redirection = "[redirect]\nport = 3129\n[resolver]\nport = 3153\n";
        let named = if scope == "guest" {
            "[guest.dhcp]\nuser = 0\nservers = [\"192.0.2.9\", \"2001:db8::9\"]\nreason = \"lease\"\n\
             [guest.resolver]\nuser = \"lab-monitor\"\nreason = \"names\"\n\
             servers = [\"192.0.2.8:53\", \"[2001:db8::8]:53\"]\n\
             [[guest.administration]]\nsources = [\"192.0.2.0/28\", \"2001:db8::/33\"]\n\
             ports = [22, 2222]\nreason = \"maintenance\"\n"
        } else {
            ""
        };
        let (batch, text) = (Lab::new(scope), Lab::new(scope));
        for lab in [&batch, &text] {
            lab.write_config(scope, &[exceptions.as_str(), redirection, named].concat());
        }
        batch.shut();
        let script = text.boundary(&["render"]).ok().stdout;
        text.host.nft(&script);
        assert_eq!(batch.listed(), text.listed(), "{scope}");
        // Routes are beyond nft: the text names them as commands.
        for line in script.lines().filter_map(|line| line.strip_prefix("# ip ")) {
            let words: Vec<&str> = line.split(' ').collect();
            text.host.ip(&words);
        }
        text.boundary(&["verify"]).ok();
        batch.boundary(&["verify"]).ok();
        // And the text loads over what is there, in one transaction.
        batch.host.nft(&script);
        batch.boundary(&["verify"]).ok();
    }
}

#[test]
fn apply_is_idempotent_and_writes_the_status() {
    for scope in SCOPES {
        let lab = Lab::new(scope);
        let finished = lab.boundary(&["verify"]);
        assert_eq!(finished.code(), 1, "{}", finished.shown());
        assert!(
            finished.stdout.contains("missing: table portcullis-lab"),
            "{}",
            finished.shown()
        );
        let first = lab.boundary(&["apply"]).ok().stdout;
        assert!(first.contains("loaded ruleset"), "{first}");
        lab.attempt(AGENT, &["tcp", PEER4, "443"]);
        let counted = lab.refused(AGENT);
        let second = lab.boundary(&["apply"]).ok().stdout;
        assert!(second.contains("nothing changed"), "{second}");
        assert_eq!(
            lab.refused(AGENT),
            counted,
            "counters survive a second apply"
        );
        let status = status(&lab.status()).unwrap();
        assert!(status.ok, "{status:?}");
        assert_eq!(status.scope, scope);
        assert_eq!(status.table, "portcullis-lab");
        let inode = std::fs::metadata(format!("/run/netns/{}", lab.host.name()))
            .unwrap()
            .ino();
        assert_eq!(
            status.netns, inode,
            "it speaks of the namespace it was applied in"
        );
        let rendered = lab.boundary(&["render", "--json"]).ok().stdout;
        let rendered: serde_json::Value = serde_json::from_str(&rendered).unwrap();
        assert_eq!(rendered["ruleset_hash"], status.ruleset_hash);
        let mode = std::fs::metadata(lab.status())
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o644);
        assert!(lab.boundary(&["remove"]).ok().stdout.contains("removed"));
        assert!(
            lab.boundary(&["remove"])
                .ok()
                .stdout
                .contains("nothing to remove")
        );
        assert!(
            !super::lab::status(&lab.status()).unwrap().ok,
            "the gate hears of it"
        );
    }
}

#[test]
fn without_privilege_it_refuses_and_says_why() {
    let lab = Lab::new("agents");
    lab.shut();
    // The files lie in a folder others may pass through.
    for verb in ["apply", "verify", "counters", "remove", "watch"] {
        let mut words: Vec<String> = [
            "setpriv",
            "--reuid",
            "61500",
            "--regid",
            "61500",
            "--clear-groups",
        ]
        .map(str::to_owned)
        .to_vec();
        let copy = lab.path("portcullis-boundary");
        std::fs::copy(tests::binaries::path("portcullis-boundary"), &copy).unwrap();
        words.push(copy.display().to_string());
        words.push(verb.to_owned());
        words.push("--config".to_owned());
        words.push(lab.path("boundary.toml").display().to_string());
        let finished = lab.on_host(words).run();
        assert_eq!(finished.code(), 2, "{verb}: {}", finished.shown());
        assert!(
            finished.stderr.contains("hint:"),
            "{verb}: {}",
            finished.shown()
        );
        if verb != "watch" {
            assert!(
                finished.stderr.contains("CAP_NET_ADMIN"),
                "{verb}: {}",
                finished.shown()
            );
        }
    }
    lab.boundary(&["verify"]).ok();
}

/// An agent's own tools are refused, also as root of a user namespace of its own. As root they work,
/// which is what the watcher is for.
/// Attack: KRN-14
#[test]
fn krn_14_flush_the_real_ruleset() {
    let lab = Lab::new("agents");
    lab.shut();
    let attempts = [
        &["nft", "flush", "ruleset"][..],
        &["nft", "delete", "table", "inet", "portcullis-lab"],
        &["iptables-nft", "-F"],
        &["ip6tables-nft", "-F"],
        &["iptables-nft", "-t", "nat", "-A", "OUTPUT", "-j", "ACCEPT"],
        &["ip", "route", "add", "203.0.113.0/24", "dev", "lo"],
    ];
    for words in attempts {
        let mut all: Vec<String> = [
            "setpriv",
            "--reuid",
            "61500",
            "--regid",
            "61500",
            "--clear-groups",
        ]
        .map(str::to_owned)
        .to_vec();
        all.extend(words.iter().map(|word| (*word).to_owned()));
        lab.on_host(all.clone()).run().refused();
        all.splice(6..6, ["unshare", "-Ur"].map(str::to_owned));
        lab.on_host(all).run().refused();
    }
    lab.boundary(&["verify"]).ok();
    // The control: the same words, spoken by root, are heard.
    for words in &attempts[2..] {
        lab.on_host(words.iter().map(|word| (*word).to_owned()))
            .run()
            .ok();
    }
    lab.nft(&["flush", "ruleset"]).ok();
    assert_eq!(lab.boundary(&["verify"]).code(), 1);
    assert_eq!(
        lab.attempt(AGENT, &["tcp", PEER4, "443"]).outcome,
        "reached"
    );
}

#[test]
fn the_watcher_puts_the_rules_back_and_says_so() {
    for scope in SCOPES {
        let lab = Lab::new(scope);
        let watch = Running::start(lab.boundary_program(&["watch"]), "");
        let first = fresh(&lab, 0);
        for (words, expected) in [
            (&["flush", "ruleset"][..], "missing: table"),
            (
                &["flush", "chain", TABLE[0], TABLE[1], "output"],
                "missing: rule output/",
            ),
            (
                &["add", "rule", TABLE[0], TABLE[1], "refuse", "accept"],
                "extra: rule refuse/",
            ),
        ] {
            lab.nft(words).ok();
            watch.until("were put back");
            watch.until(expected);
            lab.boundary(&["verify"]).ok();
        }
        let later = fresh(&lab, first);
        assert!(later > first, "the status is rewritten");
        // It holds one capability, in no set more.
        let text = std::fs::read_to_string(format!("/proc/{}/status", pid_of(&watch))).unwrap();
        for line in text.lines().filter(|line| line.starts_with("Cap")) {
            let (set, bits) = line.split_once(':').unwrap();
            let bits = u64::from_str_radix(bits.trim(), 16).unwrap();
            let expected = match set {
                "CapPrm" | "CapEff" | "CapBnd" => 1 << 12,
                _ => 0,
            };
            assert_eq!(bits, expected, "{line}");
        }
        assert!(text.contains("NoNewPrivs:\t1"), "{text}");
        watch.signal_and_wait();
        lab.boundary(&["verify"]).ok();
        assert_eq!(
            lab.attempt(AGENT, &["tcp", PEER4, "443"]).outcome,
            "refused",
            "{scope}"
        );
    }
}

/// A user that is gone, or a range that appears, cannot be expressed: the old rules stay, and the
/// status says that nothing is proven.
#[test]
fn the_watcher_says_when_it_cannot_tell() {
    let lab = Lab::new("agents");
    lab.write_accounts(false);
    lab.write_config_with("agents", "agents = [\"61500-61599\"]", "");
    let watch = Running::start(lab.boundary_program(&["watch"]), "stands");
    assert!(wait::until("a status", || status(&lab.status())).ok);
    std::fs::write(lab.path("etc/subuid"), "lab-agent:700000:1000\n").unwrap();
    watch.until("NOT PROVEN");
    wait::until_true("the status says so", || {
        status(&lab.status()).is_some_and(|status| {
            !status.ok
                && status
                    .problem
                    .is_some_and(|problem| problem.contains("700000-700999"))
        })
    });
    assert_eq!(
        lab.attempt(AGENT, &["tcp", PEER4, "443"]).outcome,
        "refused"
    );
    std::fs::write(lab.path("etc/subuid"), "").unwrap();
    watch.until("stands again");
    wait::until_true("the status recovers", || {
        status(&lab.status()).is_some_and(|status| status.ok)
    });
}

/// A user that was deleted and made anew has another uid, and what runs under the old one is still
/// there: the watcher shuts it as before, until somebody decides otherwise.
#[test]
fn the_watcher_opens_nothing_until_it_is_restarted() {
    let lab = Lab::new("agents");
    lab.write_config("agents", "");
    let watch = Running::start(lab.boundary_program(&["watch"]), "stands");
    let passwd = std::fs::read_to_string(lab.path("etc/passwd")).unwrap();
    let moved = passwd.replace(&format!("lab-agent:x:{AGENT}:"), "lab-agent:x:61599:");
    assert_ne!(moved, passwd);
    std::fs::write(lab.path("etc/passwd"), moved).unwrap();
    watch.until("the watcher only shuts");
    let attempt = || lab.attempt(AGENT, &["tcp", PEER4, "443"]).outcome;
    assert_eq!(attempt(), "refused");
    assert!(
        !wait::until("a status", || status(&lab.status())
            .filter(|status| !status.ok))
        .ok
    );
    // More to shut needs nobody's decision.
    std::fs::write(lab.path("etc/passwd"), &passwd).unwrap();
    watch.until("stands again");
    let more = format!("lab-agent:{SUBORDINATE}:2000\n");
    for file in ["etc/subuid", "etc/subgid"] {
        std::fs::write(lab.path(file), &more).unwrap();
    }
    watch.until("another ruleset was due");
    let late = SUBORDINATE + 1500;
    assert_eq!(lab.attempt(late, &["tcp", PEER4, "443"]).outcome, "refused");

    let moved = passwd.replace(&format!("lab-agent:x:{AGENT}:"), "lab-agent:x:61599:");
    std::fs::write(lab.path("etc/passwd"), moved).unwrap();
    watch.until("NOT PROVEN");
    watch.signal_and_wait();
    assert_eq!(attempt(), "refused");
    let _watch = Running::start(lab.boundary_program(&["watch"]), "stands");
    assert_eq!(attempt(), "reached", "the control: a restart opens");
}

fn fresh(lab: &Lab, after: u64) -> u64 {
    wait::until("a fresh status", || {
        status(&lab.status())
            .filter(|status| status.ok && status.boottime_ms > after)
            .map(|status| status.boottime_ms)
    })
}

/// `ip netns exec`, `unshare` and `sh` all exec: the child is the watcher itself.
fn pid_of(watch: &Running) -> u32 {
    let comm = std::fs::read_to_string(format!("/proc/{}/comm", watch.pid())).unwrap();
    assert!(comm.starts_with("portcullis-boun"), "{comm}");
    watch.pid()
}

impl Running {
    fn signal_and_wait(self) {
        assert_eq!(self.terminate(), Some(0), "a stopped watcher ends well");
    }
}

#[test]
fn counters_name_users() {
    let lab = Lab::new("agents");
    let finished = lab.boundary(&["counters"]);
    assert_eq!(finished.code(), 1, "{}", finished.shown());
    lab.shut();
    lab.attempt(AGENT, &["tcp", PEER4, "443"]);
    let text = lab.boundary(&["counters"]).ok().stdout;
    assert!(text.contains("uid 61500 (lab-agent)"), "{text}");
}

/// The proxy's account is made anew with another uid: the rules that stand are no longer the ones
/// that are meant, and the old uid is nobody special once they are.
/// Attack: KRN-28
#[test]
fn krn_28_uid_drift() {
    let lab = Lab::new("guest");
    lab.shut();
    let both = [PEER4, PEER6].map(|address| ["tcp", address, "443"]);
    for words in &both {
        assert_eq!(lab.attempt(GATE, words).outcome, "reached", "control");
    }
    let passwd = std::fs::read_to_string(lab.path("etc/passwd")).unwrap();
    let drifted = passwd.replace("lab-gate:x:61900", "lab-gate:x:61910");
    std::fs::write(lab.path("etc/passwd"), drifted).unwrap();
    let finished = lab.boundary(&["verify"]);
    assert_eq!(finished.code(), 1, "{}", finished.shown());
    let expected = "changed: rule output/\"the gate leaves and marks its flows\"";
    assert!(finished.stdout.contains(expected), "{}", finished.shown());
    lab.shut();
    for words in &both {
        assert_eq!(
            lab.attempt(GATE, words).outcome,
            "refused",
            "the old uid is an agent like any"
        );
        assert_eq!(lab.attempt(61_910, words).outcome, "reached");
    }
}

/// The gate's account is made anew while watcher and gate run, and an agent's gets the uid it had: nothing of whoever has it
/// now passes, and the gate serves nobody until somebody has applied the new rules.
/// Attack: KRN-28
#[test]
fn krn_28_the_gates_old_uid_is_shut_by_the_watcher_and_the_gate_closes() {
    for scope in ["agents", "guest"] {
        let lab = Lab::new(scope);
        let mut gate = Gate::prepare(
            &lab.path("gate"),
            &[OTHER_AGENT],
            "version = 1\n",
            &[],
            Boundary::Kernel,
        );
        let old = gate.uid;
        let passwd = std::fs::read_to_string(lab.path("etc/passwd")).unwrap();
        let account = |gate: u32, agent: u32| {
            let text = passwd
                .replace("lab-gate:x:61900:", &format!("lab-gate:x:{gate}:"))
                .replace(
                    &format!("lab-agent:x:{AGENT}:"),
                    &format!("lab-agent:x:{agent}:"),
                );
            assert_ne!(text, passwd);
            std::fs::write(lab.path("etc/passwd.new"), text).unwrap();
            std::fs::rename(lab.path("etc/passwd.new"), lab.path("etc/passwd")).unwrap();
        };
        account(old, AGENT);
        let text = std::fs::read_to_string(gate.config()).unwrap();
        let here = lab.status().display().to_string();
        let text = text.replace(&gate.boundary_status().display().to_string(), &here);
        std::fs::write(gate.config(), text).unwrap();
        let watch = Running::start(lab.boundary_program(&["watch"]), "stands");
        gate.start(&lab.host);
        let asked = || {
            let words = [
                "curl",
                "-sS",
                "-m",
                "5",
                "-x",
                "http://127.0.0.1:3128",
                "http://place.test/",
            ];
            let ids = [
                format!("--reuid={OTHER_AGENT}"),
                format!("--regid={OTHER_AGENT}"),
            ];
            let before = ["setpriv", "--clear-groups", "--no-new-privs"].map(str::to_owned);
            let words = before
                .into_iter()
                .chain(ids)
                .chain(words.map(str::to_owned));
            lab.on_host(words).run().stdout
        };
        wait::until_true("the gate serves", || {
            asked().contains("destination_not_listed")
        });
        let both = [PEER4, PEER6].map(|address| ["tcp", address, "443"]);
        for words in &both {
            assert_eq!(
                lab.attempt(old, words).outcome,
                "reached",
                "{scope}: control"
            );
        }
        lab.settle();

        account(61_910, old);
        watch.until("NOT PROVEN");
        let before = lab.received();
        for words in &both {
            assert_eq!(lab.attempt(old, words).outcome, "refused", "{scope}");
            assert_eq!(
                lab.attempt(OTHER_AGENT, words).outcome,
                "refused",
                "{scope}"
            );
        }
        assert!(lab.refused(old) > 0, "{scope}");
        assert_eq!(lab.received(), before, "{scope}");
        wait::until_true("the gate is closed", || {
            gate.log().contains("serving nothing until it is proven")
        });
        // Nor does anybody answer from its port by the uid that it had.
        assert_eq!(asked(), "", "{scope}");
        // Who has the old uid is shut whatever root does to the rules meanwhile.
        lab.nft(&["delete", "table", "inet", "portcullis-lab"]).ok();
        watch.until("were put back");
        assert_eq!(lab.attempt(old, &both[0]).outcome, "refused", "{scope}");

        // It was a mistake: the former accounts mean the former rules.
        account(old, AGENT);
        watch.until("stands again");
        assert_eq!(lab.attempt(old, &both[0]).outcome, "reached", "{scope}");
        wait::until_true("the gate serves again", || {
            asked().contains("destination_not_listed")
        });
        // Or it was meant, and somebody says so.
        account(61_910, old);
        watch.until("NOT PROVEN");
        lab.shut();
        watch.until("stands again");
        assert_eq!(lab.attempt(61_910, &both[0]).outcome, "reached", "{scope}");
        assert_eq!(lab.attempt(old, &both[0]).outcome, "refused", "{scope}");
    }
}

/// In scope `agents` the accounts say who is shut: a gate with an agent's uid is no gate, and the rules stay.
/// Attack: KRN-28
#[test]
fn krn_28_a_gate_with_an_agents_uid_loads_nothing() {
    let lab = Lab::new("agents");
    lab.shut();
    let passwd = std::fs::read_to_string(lab.path("etc/passwd")).unwrap();
    let drifted = passwd.replace("lab-gate:x:61900", &format!("lab-gate:x:{AGENT}"));
    assert_ne!(drifted, passwd);
    std::fs::write(lab.path("etc/passwd"), drifted).unwrap();
    for verb in ["apply", "verify"] {
        let finished = lab.boundary(&[verb]);
        assert_eq!(finished.code(), 2, "{}", finished.shown());
        assert!(finished.stderr.contains("hint:"), "{}", finished.shown());
    }
    for address in [PEER4, PEER6] {
        let words = ["tcp", address, "443"];
        assert_eq!(lab.attempt(AGENT, &words).outcome, "refused", "{address}");
        assert_eq!(lab.attempt(GATE, &words).outcome, "reached", "{address}");
    }
}

/// An interrupted replacement leaves its guard, which refuses; the next apply takes it away.
#[test]
fn a_guard_left_behind_is_named_and_removed() {
    let lab = Lab::new("agents");
    lab.shut();
    let text = lab.boundary(&["render"]).ok().stdout;
    lab.host
        .nft(&text.replace("portcullis-lab", "portcullis-lab-guard"));
    let finished = lab.boundary(&["verify"]);
    assert_eq!(finished.code(), 1, "{}", finished.shown());
    assert!(
        finished
            .stdout
            .contains("extra: table portcullis-lab-guard"),
        "{}",
        finished.shown()
    );
    assert!(lab.boundary(&["apply"]).ok().stdout.contains("loaded"));
    lab.boundary(&["verify"]).ok();
}

#[test]
fn a_broken_file_is_explained_and_changes_nothing() {
    let lab = Lab::new("agents");
    lab.shut();
    lab.write_config_with("agents", "agents = [\"lab-agnet\"]\nsize = 3", "");
    for verb in ["render", "apply", "verify", "counters", "remove", "watch"] {
        let finished = lab.boundary(&[verb]);
        assert_eq!(finished.code(), 2, "{verb}: {}", finished.shown());
        assert!(
            finished
                .stderr
                .contains("boundary.toml:6: size: unknown key"),
            "{}",
            finished.shown()
        );
        assert!(
            finished.stderr.contains("hint:"),
            "{verb}: {}",
            finished.shown()
        );
    }
    assert_eq!(
        lab.attempt(AGENT, &["tcp", PEER4, "443"]).outcome,
        "refused"
    );
    lab.write_config("agents", "");
    lab.boundary(&["verify"]).ok();
}
