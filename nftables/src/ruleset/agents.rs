//! Scope `agents`: a host that does other things. Only the listed uids are shut.

use super::{
    Base, COUNTER_FORWARDED, COUNTER_HANDSHAKES, COUNTER_REFUSED, COUNTER_SQUATTED, Chain,
    Elements, Hook, NOBODY_AT_ALL, Policy, Rule, Ruleset, SET_AGENTS, Set, Term, exceptions,
    forward, gate, refuse, rule,
};
use crate::config::{Protocol, Resolved, Scope};

/// Without redirection no `ct` expression appears here: a host without connection tracking does
/// not get it from us. Inbound needs no chain of its own: a listening agent's SYN-ACK carries its
/// uid and is refused, and one that has no uid is dropped. What the host passes on for others is refused whoever sent it,
/// unless the configuration leaves that to the host.
///
/// `first_port` is the lowest port that every user may bind.
pub(super) fn ruleset(table: &str, resolved: &Resolved, first_port: u16) -> Ruleset {
    let who = Term::UserIn(SET_AGENTS.into());
    let mut output = gate::squatters(&resolved.ports, resolved.gate);
    output.extend(exceptions::rules(&resolved.openings, false));
    output.extend(gate::reachable(&resolved.ports, Some(&who)));
    output.push(rule(
        "agents reach nothing else",
        vec![who.clone(), Term::Goto("refuse")],
    ));
    output.extend(handshakes(first_port));
    let mut sets = vec![
        Set {
            name: SET_AGENTS.into(),
            elements: Elements::Intervals(resolved.agents.clone()),
        },
        refuse::set(),
    ];
    sets.extend(exceptions::sets(&resolved.openings));
    let mut chains = vec![refuse::chain(false)];
    chains.extend(gate::redirection(&who, resolved, Vec::new()));
    chains.push(Chain {
        name: "output",
        base: Base::filter(Hook::Output, Policy::Accept),
        rules: output,
    });
    let mut counters = vec![COUNTER_REFUSED, COUNTER_SQUATTED, COUNTER_HANDSHAKES];
    if resolved.shuts_forwarding {
        counters.push(COUNTER_FORWARDED);
        chains.push(forward::chain(false));
    }
    Ruleset {
        table: table.to_owned(),
        scope: Scope::Agents,
        counters,
        sets,
        chains,
        detour: gate::detour(table, &resolved.ports, resolved.agents.clone()),
    }
}

/// A SYN cookie, and the answer to a TCP Fast Open, is sent without a socket: nobody can tell whose
/// listener it is, and the connection that it begins would go on without a uid as long as its program
/// leaves it alone, or once it is closed. Every program can make the kernel send one (`listen` with
/// backlog 0), so none leaves from a port that agents could be listening on.
fn handshakes(first_port: u16) -> [Rule; 2] {
    [
        rule(
            "handshakes of everybody else's listeners",
            vec![
                Term::Handshake,
                Term::UserIsNot(NOBODY_AT_ALL),
                Term::Accept,
            ],
        ),
        cookies(first_port),
    ]
}

const NOBODYS: &str = "no handshake of nobody's listener";

pub(crate) fn cookies(first_port: u16) -> Rule {
    let mut terms = Vec::new();
    if first_port > 0 {
        terms.push(Term::SourcePortFrom(Protocol::Tcp, first_port));
    }
    terms.extend([Term::Handshake, Term::Count(COUNTER_HANDSHAKES), Term::Drop]);
    rule(NOBODYS, terms)
}

impl Ruleset {
    /// The lowest port from which handshakes without a uid are dropped; `None` in scope `guest`, which knows no such port.
    pub(crate) fn first_port(&self) -> Option<u16> {
        let mut rules = self.chains.iter().flat_map(|chain| &chain.rules);
        let dropping = rules.find(|rule| rule.comment == NOBODYS)?;
        match dropping.terms.first() {
            Some(Term::SourcePortFrom(_, port)) => Some(*port),
            _ => Some(0),
        }
    }

    /// The same, where they are dropped from this port on.
    pub(crate) fn with_first_port(mut self, port: u16) -> Self {
        let rules = self.chains.iter_mut().flat_map(|chain| &mut chain.rules);
        for rule in rules.filter(|rule| rule.comment == NOBODYS) {
            *rule = cookies(port);
        }
        self
    }
}
