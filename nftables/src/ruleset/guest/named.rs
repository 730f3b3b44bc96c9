//! What a guest needs besides the gate, each named in the file with its reason: renewal of its DHCP
//! lease, the resolver's own questions, administration from outside.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::ESTABLISHED;
use crate::config::{Guest, Protocol};
use crate::ruleset::{MARK_ADMINISTRATION, MARK_OPEN, Rule, Term, rule};

/// Where a DHCPv4 client asks when it does not know (any more) whom.
const BROADCAST: (IpAddr, u8) = (IpAddr::V4(Ipv4Addr::BROADCAST), 32);
/// All DHCPv6 servers and relays of the link.
const SERVERS6: (IpAddr, u8) = (IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2)), 128);
/// DHCPv6 servers answer from a link-local address.
const LINK_LOCAL: (IpAddr, u8) = (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10);

/// Packets of named users that leave.
pub(super) fn outgoing(guest: &Guest) -> Vec<Rule> {
    let mut rules = Vec::new();
    if let Some(dhcp) = &guest.dhcp {
        let servers = dhcp.servers.iter().copied().chain([BROADCAST, SERVERS6]);
        rules.extend((1..).zip(servers).map(|(number, (address, prefix))| {
            let (client, server) = dhcp_ports(address);
            rule(
                format!("DHCP asks server {number}: {}", dhcp.reason),
                vec![
                    Term::UserIs(dhcp.uid),
                    Term::Destination(address, prefix),
                    Term::Ports(Protocol::Udp, client, server),
                    Term::Accept,
                ],
            )
        }));
    }
    rules.extend(resolver(
        guest,
        "",
        &[Term::SetMark(MARK_OPEN), Term::Accept],
    ));
    for (number, entry) in (1..).zip(&guest.administration) {
        let answers = entry.ports.iter().map(|port| {
            let mut terms = vec![Term::UserIs(entry.uid)];
            terms.extend(answer(*port));
            rule(
                format!(
                    "administration {number}, port {port} answers: {}",
                    entry.reason
                ),
                terms,
            )
        });
        rules.extend(answers);
    }
    rules
}

/// Packets without a user: connections that were not yet accepted, or closed already. Not what begins
/// one: a SYN cookie may be of anybody's listener.
pub(super) fn kernel(guest: &Guest) -> Vec<Rule> {
    let mut rules = Vec::new();
    for (number, entry) in (1..).zip(&guest.administration) {
        rules.extend(entry.ports.iter().map(|port| {
            let comment = format!(
                "administration {number}, port {port} without a socket: {}",
                entry.reason
            );
            let mut terms = vec![Term::NotHandshake];
            terms.extend(answer(*port));
            rule(comment, terms)
        }));
    }
    rules
}

/// What may arrive without having been asked for.
pub(super) fn incoming(guest: &Guest) -> Vec<Rule> {
    let mut rules = Vec::new();
    if let Some(dhcp) = &guest.dhcp {
        let servers = dhcp.servers.iter().copied().chain([LINK_LOCAL]);
        rules.extend((1..).zip(servers).map(|(number, (address, prefix))| {
            let (client, server) = dhcp_ports(address);
            rule(
                format!("DHCP server {number} answers: {}", dhcp.reason),
                vec![
                    Term::Source(address, prefix),
                    Term::Ports(Protocol::Udp, server, client),
                    Term::Accept,
                ],
            )
        }));
    }
    for (number, entry) in (1..).zip(&guest.administration) {
        let mut count = 0;
        for (address, prefix) in &entry.sources {
            for port in &entry.ports {
                count += 1;
                rules.push(rule(
                    format!("administration {number}, way {count}: {}", entry.reason),
                    vec![
                        Term::Source(*address, *prefix),
                        Term::DestinationPort(Protocol::Tcp, *port),
                        Term::SetMark(MARK_ADMINISTRATION),
                        Term::Accept,
                    ],
                ));
            }
        }
    }
    rules
}

/// In the chain that redirects: the resolver's own questions are not led to the gate.
pub(super) fn untouched(guest: &Guest) -> Vec<Rule> {
    resolver(guest, ", not redirected", &[Term::Accept])
}

fn resolver(guest: &Guest, note: &str, end: &[Term]) -> Vec<Rule> {
    let mut rules = Vec::new();
    let Some(resolver) = &guest.resolver else {
        return rules;
    };
    for (number, (address, prefix, port)) in (1..).zip(&resolver.servers) {
        for protocol in [Protocol::Udp, Protocol::Tcp] {
            let mut terms = vec![
                Term::UserIs(resolver.uid),
                Term::Destination(*address, *prefix),
                Term::DestinationPort(protocol, *port),
            ];
            terms.extend_from_slice(end);
            let by = protocol.as_str();
            let comment = format!(
                "resolver asks server {number} by {by}{note}: {}",
                resolver.reason
            );
            rules.push(rule(comment, terms));
        }
    }
    rules
}

/// The client's port and the server's.
fn dhcp_ports(address: IpAddr) -> (u16, u16) {
    if address.is_ipv4() {
        (68, 67)
    } else {
        (546, 547)
    }
}

fn answer(port: u16) -> [Term; 5] {
    [
        Term::SourcePort(Protocol::Tcp, port),
        Term::MarkIs(MARK_ADMINISTRATION),
        Term::Reply,
        Term::State(ESTABLISHED),
        Term::Accept,
    ]
}
