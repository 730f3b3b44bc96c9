//! Other tables of the namespace: what they could do to packets that this one has judged.
//!
//! Every base chain has its say, and a refusal of ours is final: no other table's accept undoes it.
//! What could undo a judgement is a rewriting after it: a destination exchanged, a copy sent, a packet
//! handed to a program. That breaks the boundary. What rewrites before it is judged as rewritten,
//! which opens nothing but may keep agents from the gate: worth a warning.

use std::collections::BTreeMap;

use nftnl_sys as sys;

use crate::config::Scope;
use crate::encode::Node;
use crate::netlink::{self, NetlinkError, ObservedRule, Others, Place};
use crate::ruleset::{MARK_ADMINISTRATION, MARK_OPEN, Ruleset};
use crate::verify::{Difference, Kind};
use crate::warning::{About, Warning};

/// What `verify` says about the neighbours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Neighbours {
    /// They can undo a judgement: the boundary does not stand.
    pub breaches: Vec<Difference>,
    /// They open nothing; somebody may want to know.
    pub warnings: Vec<Warning>,
}

impl Neighbours {
    fn warn(&mut self, text: String) {
        self.warnings.push(Warning {
            about: About::Foreign,
            text,
        });
    }
}

/// Reads every other table.
pub fn look(ruleset: &Ruleset) -> Result<Neighbours, NetlinkError> {
    let others = netlink::others(&ruleset.table)?;
    let mut found = judge(ruleset, &others);
    if let Some(tables) = legacy_tables() {
        found.warnings.push(Warning {
            about: About::Unreadable,
            text: format!(
                "iptables-legacy has tables here ({tables}), which nftables cannot read: what they rewrite \
                 before this table is judged as rewritten"
            ),
        });
    }
    Ok(found)
}

/// The judgement alone.
pub fn judge(ruleset: &Ruleset, others: &Others) -> Neighbours {
    let mut rules: BTreeMap<&Place, Vec<&ObservedRule>> = BTreeMap::new();
    for (place, rule) in &others.rules {
        rules.entry(place).or_default().push(rule);
    }
    let mut found = Neighbours::default();
    for (place, name, chain) in &others.chains {
        let Some((hook, priority, _, kind)) = &chain.hook else {
            continue;
        };
        let when = When::of(place, *hook, *priority);
        // Chains that are jumped to may be anywhere in the table: all its rules count.
        let held = rules.get(place).map(Vec::as_slice).unwrap_or_default();
        let what = format!("{}/{name}", shown(place));
        let rewriting = held
            .iter()
            .filter_map(|rule| rewrites(place, rule))
            .max_by_key(|how| *how != TRANSLATES);
        match (when, rewriting) {
            (When::Later, Some(how)) if !(kind == "nat" && how == TRANSLATES && *hook != OUTPUT) => {
                found.breaches.push(Difference {
                    kind: Kind::Foreign,
                    what: what.clone(),
                    detail: format!(
                        "after this table has judged, a rule there {how}: delete it, or give its chain \
                         a priority below 0"
                    ),
                });
            }
            (When::Earlier, Some(how)) => found.warn(format!(
                "{what}: a rule there {how} before this table judges: what it rewrites is judged as \
                 rewritten, and may not reach the gate"
            )),
            (When::Earlier | When::Later, None) if *hook == OUTPUT && accepts(held, name) => {
                found.warn(format!(
                    "{what} accepts packets: that opens nothing, this table refuses all the same"
                ));
            }
            (When::Earlier | When::Later | When::Elsewhere, _) => {}
        }
    }
    if ruleset.scope == Scope::Guest {
        for (place, rule) in &others.rules {
            if sets_our_mark(rule) {
                found.breaches.push(Difference {
                    kind: Kind::Foreign,
                    what: format!("{}/{}", shown(place), rule.chain),
                    detail: "a rule there sets the connection mark by which this table knows the gate's \
                             flows: delete it"
                        .to_owned(),
                });
            }
        }
    }
    found.breaches.dedup();
    found
}

const OUTPUT: u32 = libc::NF_INET_LOCAL_OUT.cast_unsigned();
const POSTROUTING: u32 = libc::NF_INET_POST_ROUTING.cast_unsigned();
/// `NF_NETDEV_EGRESS` of linux/netfilter.h.
const EGRESS: u32 = 1;
const TRANSLATES: &str = "translates destinations";

/// When a chain sees a packet that leaves, as seen from this table's output chain.
enum When {
    Earlier,
    Later,
    Elsewhere,
}

impl When {
    fn of(place: &Place, hook: u32, priority: i32) -> Self {
        match place.family.cast_signed() {
            libc::NFPROTO_NETDEV if hook == EGRESS => Self::Later,
            libc::NFPROTO_INET | libc::NFPROTO_IPV4 | libc::NFPROTO_IPV6 => match hook {
                // With the same priority nobody can tell the order.
                OUTPUT if priority >= 0 => Self::Later,
                OUTPUT => Self::Earlier,
                POSTROUTING => Self::Later,
                _ => Self::Elsewhere,
            },
            _ => Self::Elsewhere,
        }
    }
}

/// How a rule changes where a packet goes, if it does.
fn rewrites(place: &Place, rule: &ObservedRule) -> Option<&'static str> {
    // What iptables writes: `[ target name DNAT rev 0 ]`.
    let target = rule.text.split("[ target name ").nth(1);
    let target = target.and_then(|rest| rest.split(' ').next());
    let known = target.and_then(|target| match target {
        "DNAT" | "REDIRECT" | "NETMAP" => Some(TRANSLATES),
        "TEE" => Some("sends copies"),
        "NFQUEUE" => Some("hands packets to a program"),
        _ => None,
    });
    known.or_else(|| expression_rewrites(place, rule))
}

fn expression_rewrites(place: &Place, rule: &ObservedRule) -> Option<&'static str> {
    rule.nodes.iter().find_map(|node| match node.kind {
        "nat" | "redir" => Some(TRANSLATES),
        "dup" => Some("sends copies"),
        "fwd" => Some("sends packets out by another interface"),
        "queue" => Some("hands packets to a program"),
        "payload" if writes_address(place, node) => Some("rewrites addresses or ports"),
        _ => None,
    })
}

fn writes_address(place: &Place, node: &Node) -> bool {
    let number = |attribute: u32| {
        let bytes = node.fields.get(&u16::try_from(attribute).ok()?)?;
        Some(u32::from_ne_bytes(bytes.as_slice().try_into().ok()?))
    };
    if number(sys::NFTNL_EXPR_PAYLOAD_SREG).is_none() {
        return false;
    }
    let offset = number(sys::NFTNL_EXPR_PAYLOAD_OFFSET).unwrap_or(0);
    let base = number(sys::NFTNL_EXPR_PAYLOAD_BASE)
        .unwrap_or(0)
        .cast_signed();
    // IPv4 addresses begin at 12, IPv6 addresses at 8.
    let first = if place.family.cast_signed() == libc::NFPROTO_IPV6 {
        8
    } else {
        12
    };
    match base {
        libc::NFT_PAYLOAD_LL_HEADER => true,
        libc::NFT_PAYLOAD_NETWORK_HEADER => offset >= first,
        libc::NFT_PAYLOAD_TRANSPORT_HEADER => offset < 4,
        _ => false,
    }
}

fn accepts(held: &[&ObservedRule], chain: &str) -> bool {
    let verdict = u16::try_from(sys::NFTNL_EXPR_IMM_VERDICT).unwrap_or_default();
    held.iter().filter(|rule| rule.chain == chain).any(|rule| {
        rule.nodes.iter().any(|node| {
            node.kind == "immediate"
                && node.fields.get(&verdict).map(Vec::as_slice)
                    == Some(&libc::NF_ACCEPT.to_ne_bytes())
        })
    })
}

fn sets_our_mark(rule: &ObservedRule) -> bool {
    let field = |attribute: u32| u16::try_from(attribute).unwrap_or_default();
    let marks = [MARK_OPEN, MARK_ADMINISTRATION].map(u32::to_ne_bytes);
    let holds = rule.nodes.iter().any(|node| {
        let data = node.fields.get(&field(sys::NFTNL_EXPR_IMM_DATA));
        node.kind == "immediate"
            && data.is_some_and(|data| marks.iter().any(|mark| mark[..] == data[..]))
    });
    let sets = rule.nodes.iter().any(|node| {
        let key = node
            .fields
            .get(&field(sys::NFTNL_EXPR_CT_KEY))
            .map(Vec::as_slice);
        node.kind == "ct"
            && key == Some(&libc::NFT_CT_MARK.to_ne_bytes())
            && node.fields.contains_key(&field(sys::NFTNL_EXPR_CT_SREG))
    });
    holds && sets
}

/// `table ip nat`.
pub fn shown(place: &Place) -> String {
    let family = match place.family.cast_signed() {
        libc::NFPROTO_INET => "inet",
        libc::NFPROTO_IPV4 => "ip",
        libc::NFPROTO_IPV6 => "ip6",
        libc::NFPROTO_ARP => "arp",
        libc::NFPROTO_NETDEV => "netdev",
        libc::NFPROTO_BRIDGE => "bridge",
        _ => "other",
    };
    format!("table {family} {}", place.table)
}

/// Names of iptables' own tables, if the old way is in use here.
fn legacy_tables() -> Option<String> {
    let names: Vec<String> = [
        "/proc/self/net/ip_tables_names",
        "/proc/self/net/ip6_tables_names",
    ]
    .iter()
    .filter_map(|path| std::fs::read_to_string(path).ok())
    .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
    .collect();
    (!names.is_empty()).then(|| names.join(", "))
}

#[cfg(test)]
mod tests;
