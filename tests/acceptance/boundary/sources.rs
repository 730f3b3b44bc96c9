//! A false source address: whatever answers such a packet sends the answer outside.
//!
//! `IPV6_FREEBIND` lets every program send from any IPv6 address; for IPv4 the same takes a
//! capability, which the attempt here is given. The gate's answer and the kernel's reset both leave
//! by right, so that nothing may reach the gate's ports from an address that is not this machine's.

use std::collections::BTreeSet;

use serde_json::Value;
use tests::command::Program;
use tests::wait;

use super::lab::{AGENT, Attempt, GATE, GATE_PORT, Lab, PEER4, PEER6, Running};

const REDIRECT: &str = "3129";
const RESOLVER: &str = "3153";
const BOTH: &str = "[redirect]\nport = 3129\n[resolver]\nport = 3153\n";

/// Where a packet with a false source is sent, and by which protocol: the gate's port itself, what
/// is led to the redirect port, and questions that are led to the resolver.
const WAYS: [[&str; 3]; 10] = [
    ["127.0.0.1", GATE_PORT, "tcp"],
    ["::1", GATE_PORT, "tcp"],
    [PEER4, "443", "tcp"],
    [PEER6, "443", "tcp"],
    ["203.0.113.9", "22", "tcp"],
    ["2001:db8:9::9", "22", "tcp"],
    [PEER4, "53", "tcp"],
    [PEER6, "53", "tcp"],
    [PEER4, "53", "udp"],
    [PEER6, "53", "udp"],
];

/// A source behind the peer for each of the ways, so that the peer can tell who was told.
fn source(way: usize) -> String {
    if WAYS[way][0].contains(':') {
        format!("2001:db8:5::{way}")
    } else {
        format!("198.51.100.{way}")
    }
}

/// The kernel sends nothing from ::1 to the outside, so that one way leads nowhere by itself.
fn all_but_one() -> BTreeSet<String> {
    let ways = 0..WAYS.len();
    ways.filter(|way| WAYS[*way][0] != "::1")
        .map(source)
        .collect()
}

/// The false sources that the peer has been sent something for.
fn told(lab: &Lab) -> BTreeSet<String> {
    let list = |set| ["-j", "list", "set", "inet", "told", set];
    let mut found = BTreeSet::new();
    for set in ["four", "six"] {
        let text = Program::new("nft")
            .args(list(set))
            .in_netns(&lab.peer)
            .run();
        let value: Value = serde_json::from_str(&text.ok().stdout).unwrap();
        let objects = value["nftables"].as_array().unwrap();
        let elements = objects
            .iter()
            .find_map(|object| object["set"]["elem"].as_array());
        for element in elements.into_iter().flatten() {
            found.insert(element.as_str().unwrap().to_owned());
        }
    }
    found
}

/// As the agent, with the one capability that lets IPv4 lie as well.
fn liar(lab: &Lab, words: &[&str]) -> Program {
    let mut all = lab.attempt_words(AGENT, words);
    let caps = ["--inh-caps", "+net_raw", "--ambient-caps", "+net_raw"];
    all.splice(1..1, caps.map(str::to_owned));
    lab.on_host(all)
}

/// All that the gate listens on.
fn gate(lab: &Lab) -> Vec<Running> {
    ["127.0.0.1", "::1"]
        .iter()
        .flat_map(|address| {
            [
                lab.start(GATE, &["listen", address, GATE_PORT], "listening"),
                lab.start(GATE, &["take", address, REDIRECT], "listening"),
                lab.start(GATE, &["answer", address, RESOLVER], "listening"),
                lab.start(GATE, &["listen", address, RESOLVER], "listening"),
            ]
        })
        .collect()
}

/// Loads the same rules without their look at the source, as they would be if nobody had thought of
/// it.
fn careless(lab: &Lab) {
    let text = lab.boundary(&["render"]).ok().stdout;
    let looks = text.matches("fib saddr type local ").count();
    assert!(looks > 8, "{looks} rules look at the source:\n{text}");
    let text = text.replace("fib saddr type local ", "");
    lab.host.nft(&text);
}

/// All the ways at once, each to its end.
fn lie_every_way(lab: &Lab) -> Vec<Attempt> {
    let liars: Vec<Program> = WAYS
        .iter()
        .enumerate()
        .map(|(way, [address, port, protocol])| {
            liar(lab, &["spoof", address, port, &source(way), protocol])
        })
        .collect();
    std::thread::scope(|threads| {
        let all: Vec<_> = liars
            .into_iter()
            .map(|liar| threads.spawn(move || Attempt::of(&liar.run())))
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

#[test]
fn no_answer_of_the_gate_and_no_reset_goes_to_a_false_source() {
    for scope in ["agents", "guest"] {
        for listening in [true, false] {
            let lab = Lab::new(scope);
            lab.write_config(scope, BOTH);
            // As container platforms set it: answers from 127.0.0.1 are sent outside.
            lab.sysctl("net/ipv4/conf/all/route_localnet", "1");
            lab.host
                .ip(&["route", "add", "198.51.100.0/24", "via", PEER4]);
            lab.host
                .ip(&["route", "add", "2001:db8:5::/64", "via", PEER6]);
            lab.peer.nft(
                "table inet told {
                    set four { type ipv4_addr; flags dynamic; size 64; }
                    set six { type ipv6_addr; flags dynamic; size 64; }
                    chain arrival {
                        type filter hook prerouting priority -290; policy accept;
                        ip daddr 198.51.100.0/24 update @four { ip daddr }
                        ip6 daddr 2001:db8:5::/64 update @six { ip6 daddr }
                    }
                }",
            );
            let gate = listening.then(|| gate(&lab));
            let what = format!("{scope}, the gate listens: {listening}");
            lab.shut();
            lab.boundary(&["verify"]).ok();
            let (before, refused) = (lab.received(), lab.refused(AGENT));
            let attempts = lie_every_way(&lab);
            assert_eq!(told(&lab), BTreeSet::new(), "{what}: {attempts:?}");
            assert_eq!(lab.received(), before, "{what}: {attempts:?}");
            let counted = lab.refused(AGENT) - refused;
            assert!(counted >= WAYS.len() as u64, "{what}: {counted} refused");

            // The control: the same packets, the same listeners, rules without that look.
            careless(&lab);
            let attempts = lie_every_way(&lab);
            // In scope `guest` the kernel's own resets have no way out whatever they answer.
            if scope == "agents" || listening {
                wait::until_true(&format!("control: {what}: {attempts:?}"), || {
                    told(&lab) == all_but_one()
                });
            }
            drop(gate);
        }
    }
}
