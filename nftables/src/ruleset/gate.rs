//! The gate's own ports on loopback: who may answer from them, who may reach them, and what is led
//! there without having asked.
//!
//! Redirection happens in a `nat` chain before the filter chain looks. The filter then sees the
//! gate's port and 127.0.0.1 or ::1, but still the interface that the packet would have left by: so
//! redirected flows are recognised by address, port and the translation itself. Whoever dials the
//! redirect port directly is refused: no translation, no way in.
//!
//! Whatever comes to these ports must come from an address of this machine. `IPV6_FREEBIND` lets an
//! unprivileged program send from any address; the gate's answer, or the kernel's reset where nobody
//! listens, would go to that address, and both are let out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sha2::{Digest, Sha256};

use super::{
    Base, COUNTER_SQUATTED, Chain, Detour, Hook, Kind, Policy, Rule, Term, exceptions, rule,
};
use crate::accounts::UidRange;
use crate::config::{Protocol, Redirect, Resolved};

const LOOPBACK: [(&str, IpAddr, u8); 2] = [
    ("IPv4", IpAddr::V4(Ipv4Addr::LOCALHOST), 32),
    ("IPv6", IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
];
const BOTH: [Protocol; 2] = [Protocol::Udp, Protocol::Tcp];
/// Where destinations are rewritten on output: before every filter.
const PRIORITY_NAT: i32 = -100;
const DNS: u16 = 53;

/// The ports that the gate listens on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) gate: u16,
    pub(crate) redirect: Option<Redirect>,
    /// The policy resolver, UDP and TCP.
    pub(crate) resolver: Option<u16>,
}

impl Ports {
    pub(crate) fn redirects(&self) -> bool {
        self.redirect.is_some() || self.resolver.is_some()
    }

    fn all(&self) -> impl Iterator<Item = (&'static str, Protocol, u16)> {
        let redirect = self.redirect.as_ref().map(|redirect| redirect.port);
        let mut all = vec![("its port", Protocol::Tcp, self.gate)];
        all.extend(redirect.map(|port| ("its redirect port", Protocol::Tcp, port)));
        if let Some(port) = self.resolver {
            all.push(("its resolver's UDP port", Protocol::Udp, port));
            all.push(("its resolver's TCP port", Protocol::Tcp, port));
        }
        all.into_iter()
    }
}

/// Nobody answers from the gate's ports in the gate's place: the SYN-ACK of a listener carries the
/// listener's uid, and so does a datagram.
pub(super) fn squatters(ports: &Ports, gate: u32) -> Vec<Rule> {
    ports
        .all()
        .map(|(which, protocol, port)| {
            rule(
                format!("only the gate answers on {which}"),
                vec![
                    Term::OutLoopback,
                    Term::SourcePort(protocol, port),
                    Term::UserIsNot(gate),
                    Term::Count(COUNTER_SQUATTED),
                    Term::Drop,
                ],
            )
        })
        .collect()
}

/// What comes from the gate's ports over loopback once squatters are gone, for scope `guest`.
///
/// A handshake must have the gate's uid: a SYN cookie is sent without a socket, and anybody's listener
/// makes the kernel send one (`listen` with backlog 0).
pub(super) fn answers(ports: &Ports, gate: u32) -> Vec<Rule> {
    let mut rules = Vec::new();
    for (which, protocol, port) in ports.all() {
        let which = which.replacen("its", "the gate's", 1);
        let from = [Term::OutLoopback, Term::SourcePort(protocol, port)];
        if protocol == Protocol::Tcp {
            let mut terms = from.to_vec();
            terms.extend([Term::Handshake, Term::UserIs(gate), Term::Accept]);
            rules.push(rule(format!("{which} begins"), terms));
        }
        let mut terms = from.to_vec();
        if protocol == Protocol::Tcp {
            terms.push(Term::NotHandshake);
        }
        terms.push(Term::Accept);
        let comment = format!("{which} answers, or the kernel for it");
        rules.push(rule(comment, terms));
    }
    rules
}

/// The one thing on loopback that an agent reaches by itself, and where it is led without asking.
/// `who` comes first when only some are judged.
pub(super) fn reachable(ports: &Ports, who: Option<&Term>) -> Vec<Rule> {
    let mut rules = Vec::new();
    for (family, address, prefix) in LOOPBACK {
        let mut terms: Vec<Term> = who.cloned().into_iter().collect();
        terms.extend([
            Term::OutLoopback,
            Term::Destination(address, prefix),
            Term::DestinationPort(Protocol::Tcp, ports.gate),
            Term::SourceIsLocal,
            Term::Accept,
        ]);
        rules.push(rule(format!("to the gate over {family}"), terms));
    }
    let mut led = |what: &str, protocol, port| {
        for (family, address, prefix) in LOOPBACK {
            let mut terms: Vec<Term> = who.cloned().into_iter().collect();
            terms.extend([
                Term::Destination(address, prefix),
                Term::DestinationPort(protocol, port),
                Term::Translated,
                Term::SourceIsLocal,
                Term::Accept,
            ]);
            rules.push(rule(format!("{what} over {family}"), terms));
        }
    };
    if let Some(redirect) = &ports.redirect {
        led("redirected to the gate", Protocol::Tcp, redirect.port);
    }
    if let Some(port) = ports.resolver {
        for protocol in BOTH {
            let what = format!("{} to the policy resolver", upper(protocol));
            led(&what, protocol, port);
        }
    }
    rules
}

/// The chain that leads agents' flows to the gate. `others` are flows of theirs that go where they
/// were meant to.
pub(super) fn redirection(who: &Term, resolved: &Resolved, others: Vec<Rule>) -> Option<Chain> {
    let ports = &resolved.ports;
    if !ports.redirects() {
        return None;
    }
    let mut rules: Vec<Rule> = exceptions::untouched(&resolved.openings).collect();
    rules.extend(others);
    if let Some(port) = ports.resolver {
        for protocol in BOTH {
            rules.push(rule(
                format!("{} questions go to the policy resolver", upper(protocol)),
                vec![
                    who.clone(),
                    Term::DestinationPort(protocol, DNS),
                    Term::SourceIsLocal,
                    Term::Redirect(port),
                ],
            ));
        }
    }
    if let Some(redirect) = &ports.redirect {
        let led = |comment: String, which| {
            let terms = vec![
                who.clone(),
                Term::DestinationIsAway,
                which,
                Term::SourceIsLocal,
                Term::Redirect(redirect.port),
            ];
            rule(comment, terms)
        };
        if redirect.ports.is_empty() {
            rules.push(led("TCP goes to the gate".to_owned(), Term::Tcp));
        }
        for port in &redirect.ports {
            rules.push(led(
                format!("TCP {port} goes to the gate"),
                Term::DestinationPort(Protocol::Tcp, *port),
            ));
        }
    }
    Some(Chain {
        name: "redirection",
        base: Some(Base {
            kind: Kind::Nat,
            hook: Hook::Output,
            priority: PRIORITY_NAT,
            policy: Policy::Accept,
        }),
        rules,
    })
}

/// The route of last resort for these users, in a routing table of this boundary's own.
pub(super) fn detour(table: &str, ports: &Ports, users: Vec<UidRange>) -> Option<Detour> {
    ports.redirects().then(|| Detour {
        table: routing_table(table),
        users,
    })
}

/// Spells "p" and three bytes of the name's hash: no number that people or programs choose.
pub(crate) fn routing_table(table: &str) -> u32 {
    let digest = Sha256::digest(table.as_bytes());
    u32::from_be_bytes([0x70, digest[0], digest[1], digest[2]])
}

fn upper(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "DNS over TCP",
        Protocol::Udp => "DNS over UDP",
    }
}
