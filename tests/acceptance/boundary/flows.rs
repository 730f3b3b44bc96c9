//! Traffic that is not new: older flows, inbound ones, orphans, forwarded ones, and the instant of
//! replacement.

use tests::command::Program;
use tests::netns::Netns;
use tests::wait;

use super::lab::{AGENT, GATE, HOST4, HOST6, Lab, PEER4, PEER6, Running, SUBORDINATE};

const SCOPES: [&str; 2] = ["agents", "guest"];

/// Connection tracking was active before: "established" would know these flows.
fn track(lab: &Lab) {
    lab.host.nft(
        "table inet tracking {
            chain c {
                type filter hook output priority 0; policy accept;
                ct state established accept
            }
        }",
    );
}

/// Attack: KRN-07
#[test]
fn krn_07_tcp_opened_before_the_rules_were_loaded() {
    for scope in SCOPES {
        for address in [PEER4, PEER6] {
            let lab = Lab::new(scope);
            track(&lab);
            // Datagrams have no connection to cut, and connection tracking calls their flow established all the same.
            let words = ["tcp", "udp"].map(|kind| ["hold", address, "443", kind]);
            for words in &words {
                let mut control = lab.start(AGENT, words, "open");
                control.say("again");
                let attempt = control.finish();
                assert_eq!(attempt.outcome, "reached", "control: {scope}: {attempt:?}");
            }
            let held = words.map(|words| lab.start(AGENT, &words, "open"));
            lab.shut();
            let before = lab.received();
            for mut held in held {
                held.say("again");
                let attempt = held.finish();
                assert_eq!(attempt.outcome, "refused", "{scope}: {attempt:?}");
            }
            assert_eq!(lab.received(), before, "{scope} {address}");
        }
    }
}

/// A closed socket with data still queued has no uid any more, and the kernel goes on sending.
/// Attack: KRN-07
#[test]
fn a_flow_closed_with_data_queued_does_not_outlive_the_rules() {
    for scope in SCOPES {
        for address in [PEER4, PEER6] {
            for shut in [false, true] {
                let mut lab = Lab::new(scope);
                track(&lab);
                let mut orphan = lab.start(AGENT, &["orphan", address, "9"], "open");
                if shut {
                    lab.shut();
                }
                orphan.say("close");
                orphan.finish();
                let before = lab.received_data();
                lab.peer_reads();
                if shut {
                    // The peer asks for more until it gives up; nothing may answer. Its own data
                    // shows that time enough has passed for an answer.
                    for _ in 0..5 {
                        lab.attempt(AGENT, &["udp", address, "443"]);
                    }
                    assert_eq!(
                        lab.received_data(),
                        before,
                        "{scope} {address}: an orphan sent on"
                    );
                } else {
                    wait::until_true("control: the orphan's data arrives", || {
                        lab.received_data() > before + 3
                    });
                }
            }
        }
    }
}

#[test]
fn a_listening_agent_is_not_a_channel() {
    for scope in SCOPES {
        let lab = Lab::new(scope);
        for (any, address) in [("0.0.0.0", HOST4), ("::", HOST6)] {
            let _agent = lab.start(AGENT, &["listen", any, "8080"], "listening");
            let dial = || lab.outside(&["tcp", address, "8080"]).run().stdout;
            lab.open();
            let open = dial();
            assert!(open.contains("reached"), "control: {scope}: {open}");
            lab.settle();
            lab.shut();
            let before = lab.received();
            let shut = dial();
            assert!(!shut.contains("reached"), "{scope}: {shut}");
            assert_eq!(lab.received(), before, "{scope}: {any} answered");
            let counted = if scope == "guest" {
                lab.total("inbound")
            } else {
                lab.refused(AGENT)
            };
            assert!(counted > 0, "{scope}: {}", lab.counters());
        }
    }
}

/// Somebody's tracking helper (FTP here; SIP, IRC and TFTP are alike) reads in a flow of the gate's that the other side may dial a
/// port, which is an agent's. That flow is related to the gate's and carries its mark.
#[test]
fn a_tracking_helper_opens_no_port_of_an_agents() {
    const HELPER: &str = "table inet helped {
        ct helper ftp { type \"ftp\" protocol tcp; }
        counter related { }
        counter arrived { }
        chain assigned { type filter hook output priority -150; tcp dport 7 ct helper set \"ftp\"; }
        chain before { type filter hook prerouting priority 0; tcp dport 8080 ct state related counter name related; }
        chain after { type filter hook input priority 100; tcp dport 8080 counter name arrived; }
    }";
    let lab = Lab::new("guest");
    let count = |name: &str| {
        let words = ["-j", "list", "counter", "inet", "helped", name];
        let listed: serde_json::Value = serde_json::from_str(&lab.nft(&words).ok().stdout).unwrap();
        let counters = listed["nftables"].as_array().unwrap();
        let packets = counters
            .iter()
            .find_map(|one| one["counter"]["packets"].as_u64());
        packets.unwrap()
    };
    lab.host.nft(HELPER);
    for (any, host, peer) in [("0.0.0.0", HOST4, PEER4), ("::", HOST6, PEER6)] {
        let _agent = lab.start(AGENT, &["listen", any, "8080"], "listening");
        let dialled = || {
            let mut flow = lab.start(GATE, &["active", peer, "7", host, "8080"], "asked");
            let related = count("related");
            let told = lab.outside(&["tcp", host, "8080"]).run().stdout;
            assert!(
                count("related") > related,
                "control: the helper opens it: {told}"
            );
            flow.say("end");
            lab.settle();
            told
        };
        lab.open();
        let open = dialled();
        assert!(open.contains("reached"), "control: {host}: {open}");
        lab.shut();
        let (arrived, inbound) = (count("arrived"), lab.total("inbound"));
        let shut = dialled();
        assert!(!shut.contains("reached"), "{host}: {shut}");
        assert_eq!(
            count("arrived"),
            arrived,
            "{host}: not even a packet comes in"
        );
        assert!(lab.total("inbound") > inbound, "{}", lab.counters());
    }
}

/// Somebody outside dialled an agent before there were rules; what it asks afterwards is not answered.
/// Attack: KRN-07
#[test]
fn a_flow_that_an_agent_accepted_before_the_rules_is_no_channel() {
    for scope in SCOPES {
        for (any, address) in [("0.0.0.0", HOST4), ("::", HOST6)] {
            let lab = Lab::new(scope);
            track(&lab);
            let _agent = lab.start(AGENT, &["listen", any, "8080"], "listening");
            let dial = || Running::start(lab.outside(&["hold", address, "8080"]), "open");
            let mut control = dial();
            control.say("again");
            let attempt = control.finish();
            assert_eq!(attempt.outcome, "reached", "control: {scope}: {attempt:?}");
            let mut held = dial();
            lab.shut();
            let before = lab.received_data();
            held.say("again");
            let attempt = held.finish();
            assert_ne!(attempt.outcome, "reached", "{scope} {address}: {attempt:?}");
            assert_eq!(lab.received_data(), before, "{scope} {address}");
        }
    }
}

/// Packets of a container behind this host cross the forward hook, where no uid is known.
/// Attack: KRN-26
#[test]
fn krn_26_forwarded_traffic_of_containers() {
    for scope in SCOPES {
        forwarded_for_a_container(scope);
    }
}

fn forwarded_for_a_container(scope: &str) {
    let lab = Lab::new(scope);
    let container = Netns::new();
    lab.host.ip(&[
        "link",
        "add",
        "inner",
        "type",
        "veth",
        "peer",
        "name",
        "inner",
        "netns",
        container.name(),
    ]);
    for (netns, four, six) in [
        (&lab.host, "198.51.100.1", "2001:db8:1::1"),
        (&container, "198.51.100.2", "2001:db8:1::2"),
    ] {
        netns.ip(&["address", "add", &format!("{four}/24"), "dev", "inner"]);
        netns.ip(&[
            "address",
            "add",
            &format!("{six}/64"),
            "dev",
            "inner",
            "nodad",
        ]);
        netns.ip(&["link", "set", "inner", "up"]);
    }
    container.ip(&["route", "add", "default", "via", "198.51.100.1"]);
    container.ip(&["-6", "route", "add", "default", "via", "2001:db8:1::1"]);
    lab.peer
        .ip(&["route", "add", "198.51.100.0/24", "via", HOST4]);
    lab.peer
        .ip(&["-6", "route", "add", "2001:db8:1::/64", "via", HOST6]);
    lab.sysctl("net/ipv4/ip_forward", "1");
    lab.sysctl("net/ipv6/conf/all/forwarding", "1");
    let dial = |words: &[&str]| {
        let uid = SUBORDINATE + 7;
        let ids = [format!("--reuid={uid}"), format!("--regid={uid}")];
        Program::new("setpriv")
            .args(ids)
            .args(["--clear-groups", "--no-new-privs", "python3"])
            .arg(lab.path("attempt.py"))
            .args(words)
            .in_netns(&container)
            .run()
            .stdout
    };
    for address in [PEER4, PEER6] {
        let words = ["tcp", address, "443"];
        lab.open();
        wait::until_true("control: the container reaches the peer", || {
            dial(&words).contains("reached")
        });
        let datagram = dial(&["udp", address, "443"]);
        assert!(datagram.contains("reached"), "control: {datagram}");
        lab.settle();
        lab.shut();
        let (before, forwarded) = (lab.received(), lab.total("forwarded"));
        let shut = dial(&words);
        assert!(shut.contains("ECONNREFUSED"), "told, not hanging: {shut}");
        let datagram = dial(&["udp", address, "443"]);
        assert!(!datagram.contains("reached"), "{datagram}");
        assert_eq!(lab.received(), before);
        assert!(lab.total("forwarded") > forwarded, "{}", lab.counters());
    }
    // With a source that is not its own, the container would aim our refusals at others.
    let spoof = ["spoof", PEER6, "443", "2001:db8::3", "udp"];
    lab.peer
        .ip(&["address", "add", "2001:db8::3/64", "dev", "wire", "nodad"]);
    let before = lab.received();
    dial(&spoof);
    dial(&["spoof", PEER6, "443", "2001:db8::3", "tcp"]);
    assert_eq!(
        lab.received(),
        before,
        "a refusal was reflected to a false source"
    );
    if scope == "guest" {
        return;
    }
    // A host that runs other containers hears what becomes of theirs, until somebody has decided it.
    let told = |said: &str| {
        for verb in ["apply", "verify"] {
            let finished = lab.boundary(&[verb]).ok();
            let warned = finished.stderr.contains("passes on packets for others");
            assert_eq!(warned, !said.is_empty(), "{verb}: {}", finished.shown());
            assert!(
                finished.stderr.contains(said),
                "{verb}: {}",
                finished.shown()
            );
        }
    };
    told("this table refuses all of them");
    lab.write_config(scope, "forward = \"refuse\"");
    told("");
    let before = lab.received();
    assert!(dial(&["tcp", PEER4, "443"]).contains("ECONNREFUSED"));
    assert_eq!(lab.received(), before);
    lab.write_config(scope, "forward = \"host\"");
    told("is not shut by this table");
    for address in [PEER4, PEER6] {
        assert!(
            dial(&["tcp", address, "443"]).contains("reached"),
            "{address}"
        );
        assert_eq!(
            lab.attempt(AGENT, &["tcp", address, "443"]).outcome,
            "refused"
        );
    }
    lab.sysctl("net/ipv4/ip_forward", "0");
    lab.sysctl("net/ipv6/conf/all/forwarding", "0");
    told("");
}

/// A sending agent meets a thousand replacements and not one gap, by UDP and TCP, IPv4 and IPv6. The
/// same code that `apply` runs, without starting a program each time.
/// Attack: KRN-08
#[test]
fn krn_08_rule_reload_gap() {
    // Most of a replacement is the kernel's waiting: both scopes at once take as long as one.
    std::thread::scope(|threads| {
        for scope in SCOPES {
            threads.spawn(move || replaced_while_sending(scope, "", 1_000));
            // Where flows are led there are a chain, a routing table and rules for it as well.
            threads.spawn(move || replaced_while_sending(scope, LED, 250));
        }
    });
}

const LED: &str = "\n[redirect]\nport = 3129\n[resolver]\nport = 3153\n";

fn replaced_while_sending(scope: &str, more: &str, rounds: u32) {
    let lab = Lab::new(scope);
    // The rules alternate, so that each loading really replaces something.
    let rulesets = [1000, 1001].map(|port| {
        let exception = format!(
            "[[exception]]\nuser = \"lab-monitor\"\ndestination = \"203.0.113.1:{port}\"\n\
             reason = \"changes the rules\"\nexpires = \"2999-01-01T00:00:00Z\"{more}"
        );
        lab.write_config(scope, &exception);
        lab.ruleset()
    });
    assert_ne!(rulesets[0], rulesets[1]);
    lab.in_its_network(|| nftables::boundary::load(&rulesets[0]).unwrap());
    let before = lab.received();
    let spin = lab.start(AGENT, &["spin", PEER4, PEER6, "443"], "spinning");
    lab.in_its_network(|| {
        for round in 0..rounds {
            let ruleset = &rulesets[usize::from(round % 2 == 0)];
            nftables::boundary::load(ruleset).unwrap();
        }
    });
    assert_eq!(
        lab.received(),
        before,
        "{scope}{more}: packets passed during a replacement"
    );
    // The last load counts anew.
    wait::until_true("control: the agent is still sending", || {
        lab.refused(AGENT) > 0
    });
    lab.open();
    for family in ["four", "six"] {
        let seen = lab.received_by(family);
        wait::until_true("control: what the agent sends arrives", || {
            lab.received_by(family) > seen + 10
        });
    }
    drop(spin);
}
