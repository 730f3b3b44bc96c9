//! The ruleset as nft text: what a person reads, and what `nft -f` loads in one transaction.

use std::net::IpAddr;

use crate::ruleset::{Chain, Detour, Elements, Hook, Policy, Rule, Ruleset, State, Term};

/// The whole file, to be loaded at `now`. Loading it replaces the table atomically (create, delete,
/// create). Routes are no matter of nft: they stand as commands in comments at the end.
///
/// ```text
/// table inet portcullis
/// delete table inet portcullis
/// table inet portcullis {
///     counter refused {
///     }
///     ...
/// ```
pub fn text(ruleset: &Ruleset, now: jiff::Timestamp) -> String {
    write(ruleset, |expires| {
        format!("timeout {}s", seconds_until(expires, now))
    })
}

/// The same with the instants at which exceptions lapse instead of the time that is left: equal for
/// equal rulesets, whenever they are rendered. Its hash names the ruleset.
pub fn canonical(ruleset: &Ruleset) -> String {
    write(ruleset, |expires| format!("until {expires}"))
}

/// How long an exception has left; at most a year, which every nft(8) can read. Whoever watches
/// renews the time.
pub(crate) fn seconds_until(expires: jiff::Timestamp, now: jiff::Timestamp) -> u64 {
    const YEAR: u64 = 365 * 24 * 3600;
    let left = expires.duration_since(now).as_secs();
    u64::try_from(left).unwrap_or(0).clamp(1, YEAR)
}

fn write(ruleset: &Ruleset, lapse: impl Fn(jiff::Timestamp) -> String) -> String {
    let table = &ruleset.table;
    let mut out = String::new();
    out.push_str(&format!(
        "table inet {table}\ndelete table inet {table}\ntable inet {table} {{\n"
    ));
    for counter in &ruleset.counters {
        out.push_str(&format!("    counter {counter} {{\n    }}\n\n"));
    }
    for set in &ruleset.sets {
        out.push_str(&format!("    set {} {{\n        type uid\n", set.name));
        match &set.elements {
            Elements::Intervals(ranges) => {
                out.push_str("        flags interval\n");
                if !ranges.is_empty() {
                    let list: Vec<String> = ranges.iter().map(ToString::to_string).collect();
                    out.push_str(&format!("        elements = {{ {} }}\n", list.join(", ")));
                }
            }
            Elements::Dynamic { size } => {
                out.push_str(&format!("        size {size}\n        flags dynamic\n"));
            }
            Elements::Until { uid, expires } => {
                let lapse = lapse(*expires);
                out.push_str(&format!(
                    "        flags timeout\n        elements = {{ {uid} {lapse} }}\n"
                ));
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
    if let Some(detour) = &ruleset.detour {
        self::detour(&mut out, detour);
    }
    out
}

fn detour(out: &mut String, detour: &Detour) {
    let table = detour.table;
    for (version, loopback) in [(4, "127.0.0.1"), (6, "::1")] {
        out.push_str(&format!(
            "# ip -{version} route add default dev lo src {loopback} table {table}\n"
        ));
        for users in &detour.users {
            let (first, last) = (users.first, users.last);
            out.push_str(&format!(
                "# ip -{version} rule add priority {} uidrange {first}-{last} lookup {table}\n",
                crate::detour::PRIORITY
            ));
        }
    }
}

/// One rule as it stands in the text, without its comment.
pub fn rule(rule: &Rule) -> String {
    let words: Vec<String> = rule.terms.iter().map(term).collect();
    words.join(" ")
}

fn chain(out: &mut String, chain: &Chain) {
    out.push_str(&format!("    chain {} {{\n", chain.name));
    if let Some(base) = chain.base {
        let hook = match base.hook {
            Hook::Input => "input",
            Hook::Forward => "forward",
            Hook::Output => "output",
        };
        let policy = match base.policy {
            Policy::Accept => "accept",
            Policy::Drop => "drop",
        };
        let priority = match base.priority {
            0 => "filter".to_owned(),
            other => other.to_string(),
        };
        let kind = base.kind.as_str();
        out.push_str(&format!(
            "        type {kind} hook {hook} priority {priority}; policy {policy};\n"
        ));
    }
    for rule in &chain.rules {
        out.push_str(&format!(
            "        {} comment \"{}\"\n",
            self::rule(rule),
            rule.comment
        ));
    }
    out.push_str("    }\n");
}

fn term(term: &Term) -> String {
    match term {
        Term::OutLoopback => "oif \"lo\"".into(),
        Term::InLoopback => "iif \"lo\"".into(),
        Term::UserIs(uid) => format!("meta skuid {uid}"),
        Term::UserIsNot(uid) => format!("meta skuid != {uid}"),
        Term::UserIn(set) | Term::UserUntil(set) => format!("meta skuid @{set}"),
        Term::Source(address, prefix) => self::address("saddr", address, *prefix),
        Term::Destination(address, prefix) => self::address("daddr", address, *prefix),
        Term::SourcePort(protocol, port) => format!("{} sport {port}", protocol.as_str()),
        Term::DestinationPort(protocol, port) => format!("{} dport {port}", protocol.as_str()),
        Term::Ports(protocol, source, destination) => {
            let protocol = protocol.as_str();
            format!("{protocol} sport {source} {protocol} dport {destination}")
        }
        Term::Tcp => "meta l4proto tcp".into(),
        Term::SourcePortFrom(protocol, port) => format!("{} sport >= {port}", protocol.as_str()),
        Term::Reset => "tcp flags & rst == rst".into(),
        Term::Handshake => "tcp flags & (syn | ack) == syn | ack".into(),
        Term::NotHandshake => "tcp flags & (syn | ack) != syn | ack".into(),
        Term::HopLimit255 => "ip6 hoplimit 255".into(),
        Term::Icmp4(kind) => format!("icmp type {kind}"),
        Term::Icmp6(kind) => format!("icmpv6 type {kind}"),
        Term::MarkIs(mark) => format!("ct mark {mark:#010x}"),
        Term::Reply => "ct direction reply".into(),
        Term::State(states) => {
            let list: Vec<&str> = states.iter().map(state).collect();
            format!("ct state {}", list.join(","))
        }
        Term::Translated => "ct status dnat".into(),
        Term::DestinationIsAway => "fib daddr type != local".into(),
        Term::Redirect(port) => format!("redirect to :{port}"),
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

fn address(which: &str, address: &IpAddr, prefix: u8) -> String {
    let family = if address.is_ipv4() { "ip" } else { "ip6" };
    if prefix == host_prefix(address) {
        format!("{family} {which} {address}")
    } else {
        format!("{family} {which} {address}/{prefix}")
    }
}

fn host_prefix(address: &IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}
