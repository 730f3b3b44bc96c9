//! The ruleset as nft text: what a person reads, and what `nft -f` loads in one transaction.

use std::fmt::Write as _;
use std::net::IpAddr;

use crate::ruleset::{Chain, Elements, Hook, Policy, Rule, Ruleset, State, Term};

/// The whole file. Loading it replaces the table atomically (create, delete, create).
///
/// ```text
/// table inet portcullis
/// delete table inet portcullis
/// table inet portcullis {
///     counter refused {
///     }
///     ...
/// ```
pub fn text(ruleset: &Ruleset) -> String {
    let table = &ruleset.table;
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "table inet {table}\ndelete table inet {table}\ntable inet {table} {{\n"
    );
    for counter in &ruleset.counters {
        let _ = write!(out, "    counter {counter} {{\n    }}\n\n");
    }
    for set in &ruleset.sets {
        let _ = write!(out, "    set {} {{\n        type uid\n", set.name);
        match &set.elements {
            Elements::Intervals(ranges) => {
                out.push_str("        flags interval\n");
                if !ranges.is_empty() {
                    let list: Vec<String> = ranges.iter().map(ToString::to_string).collect();
                    let _ = writeln!(out, "        elements = {{ {} }}", list.join(", "));
                }
            }
            Elements::Dynamic { size } => {
                let _ = write!(out, "        size {size}\n        flags dynamic\n");
            }
        }
        out.push_str("    }\n\n");
    }
    for (index, chain) in ruleset.chains.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        self::chain(&mut out, chain);
    }
    out.push_str("}\n");
    out
}

/// One rule as it stands in the text, without its comment.
pub fn rule(rule: &Rule) -> String {
    let words: Vec<String> = rule.terms.iter().map(term).collect();
    words.join(" ")
}

fn chain(out: &mut String, chain: &Chain) {
    let _ = writeln!(out, "    chain {} {{", chain.name);
    if let Some((hook, policy)) = chain.hook {
        let hook = match hook {
            Hook::Input => "input",
            Hook::Forward => "forward",
            Hook::Output => "output",
        };
        let policy = match policy {
            Policy::Accept => "accept",
            Policy::Drop => "drop",
        };
        let _ = writeln!(
            out,
            "        type filter hook {hook} priority filter; policy {policy};"
        );
    }
    for rule in &chain.rules {
        let _ = writeln!(
            out,
            "        {} comment \"{}\"",
            self::rule(rule),
            rule.comment
        );
    }
    out.push_str("    }\n");
}

fn term(term: &Term) -> String {
    match term {
        Term::OutLoopback => "oif \"lo\"".into(),
        Term::InLoopback => "iif \"lo\"".into(),
        Term::UserIs(uid) => format!("meta skuid {uid}"),
        Term::UserIsNot(uid) => format!("meta skuid != {uid}"),
        Term::UserIn(set) => format!("meta skuid @{set}"),
        Term::Destination(address, prefix) => {
            let family = if address.is_ipv4() { "ip" } else { "ip6" };
            if *prefix == host_prefix(address) {
                format!("{family} daddr {address}")
            } else {
                format!("{family} daddr {address}/{prefix}")
            }
        }
        Term::SourcePort(protocol, port) => format!("{} sport {port}", protocol.as_str()),
        Term::DestinationPort(protocol, port) => format!("{} dport {port}", protocol.as_str()),
        Term::Tcp => "meta l4proto tcp".into(),
        Term::Reset => "tcp flags & rst == rst".into(),
        Term::HopLimit255 => "ip6 hoplimit 255".into(),
        Term::Icmp4(kind) => format!("icmp type {kind}"),
        Term::Icmp6(kind) => format!("icmpv6 type {kind}"),
        Term::MarkIs(mark) => format!("ct mark {mark:#010x}"),
        Term::Reply => "ct direction reply".into(),
        Term::State(states) => {
            let list: Vec<&str> = states.iter().map(state).collect();
            format!("ct state {}", list.join(","))
        }
        Term::SourceIsLocal => "fib saddr type local".into(),
        Term::SourceIsSpoofed => "fib saddr . iif oif 0".into(),
        Term::SetMark(mark) => format!("ct mark set {mark:#010x}"),
        Term::NoteUser(set) => format!("update @{set} {{ meta skuid counter }}"),
        Term::Count(counter) => format!("counter name \"{counter}\""),
        Term::Accept => "accept".into(),
        Term::Drop => "drop".into(),
        Term::Goto(chain) => format!("goto {chain}"),
        Term::RejectReset => "reject with tcp reset".into(),
        Term::RejectProhibited => "reject with icmpx admin-prohibited".into(),
    }
}

fn state(state: &State) -> &'static str {
    match state {
        State::Established => "established",
        State::Related => "related",
    }
}

fn host_prefix(address: &IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}
