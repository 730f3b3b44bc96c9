//! Scope `guest`: a machine that exists only for agents. Everything but the gate's uid is shut,
//! root included.

use super::{
    COUNTER_FORWARDED, COUNTER_INBOUND, COUNTER_REFUSED, COUNTER_SQUATTED, Chain, Hook, MARK_OPEN,
    MARK_REFUSED, Policy, Rule, Ruleset, State, Term, exceptions, refuse, refused_set, rule,
    squatter, to_gate,
};
use crate::config::{Protocol, Resolved, Scope};

const ESTABLISHED: &[State] = &[State::Established];
const RELATED: &[State] = &[State::Related];
const BOTH: &[State] = &[State::Established, State::Related];

pub(super) fn ruleset(table: &str, port: u16, who: &Resolved) -> Ruleset {
    Ruleset {
        table: table.to_owned(),
        scope: Scope::Guest,
        counters: vec![
            COUNTER_REFUSED,
            COUNTER_SQUATTED,
            COUNTER_INBOUND,
            COUNTER_FORWARDED,
        ],
        sets: vec![refused_set()],
        chains: vec![refuse(true), output(port, who), input(), forward()],
    }
}

fn output(port: u16, who: &Resolved) -> Chain {
    let mut rules = vec![
        squatter(port, who.gate),
        rule(
            "the gate's port answers, or the kernel for it",
            vec![
                Term::OutLoopback,
                Term::SourcePort(Protocol::Tcp, port),
                Term::Accept,
            ],
        ),
    ];
    rules.extend(to_gate(port, None));
    rules.push(rule(
        "the gate leaves and marks its flows",
        vec![
            Term::UserIs(who.gate),
            Term::SetMark(MARK_OPEN),
            Term::Accept,
        ],
    ));
    rules.extend(exceptions(&who.openings, true));
    rules.extend([
        rule(
            "what the gate opened on loopback may answer",
            vec![
                Term::OutLoopback,
                Term::MarkIs(MARK_OPEN),
                Term::Reply,
                Term::State(ESTABLISHED),
                Term::Accept,
            ],
        ),
        rule(
            "any other user",
            vec![Term::UserIsNot(who.gate), Term::Goto("refuse")],
        ),
    ]);
    // From here on no packet has a uid: it is the kernel's own.
    rules.extend(neighbours(&[
        (135, "solicitation"),
        (136, "advertisement"),
        (133, "routers"),
    ]));
    rules.extend([
        rule(
            "the gate's closed sockets finish",
            vec![
                Term::Tcp,
                Term::MarkIs(MARK_OPEN),
                Term::State(ESTABLISHED),
                Term::Accept,
            ],
        ),
        rule(
            "resets made by this table",
            vec![
                Term::Reset,
                Term::MarkIs(MARK_REFUSED),
                Term::State(RELATED),
                Term::Accept,
            ],
        ),
        rule(
            "unreachable over IPv4, to ourselves",
            vec![Term::OutLoopback, Term::Icmp4(3), Term::Accept],
        ),
        rule(
            "unreachable over IPv6, to ourselves",
            vec![Term::OutLoopback, Term::Icmp6(1), Term::Accept],
        ),
        rule("everything else", vec![Term::Goto("refuse")]),
    ]);
    Chain {
        name: "output",
        hook: Some((Hook::Output, Policy::Drop)),
        rules,
    }
}

fn input() -> Chain {
    let mut rules = vec![rule("loopback", vec![Term::InLoopback, Term::Accept])];
    rules.extend(neighbours(&[
        (135, "solicitation"),
        (136, "advertisement"),
        (134, "routers"),
    ]));
    rules.extend([
        rule(
            "answers to the gate",
            vec![Term::MarkIs(MARK_OPEN), Term::State(BOTH), Term::Accept],
        ),
        rule(
            "everything else",
            vec![Term::Count(COUNTER_INBOUND), Term::Drop],
        ),
    ]);
    Chain {
        name: "input",
        hook: Some((Hook::Input, Policy::Drop)),
        rules,
    }
}

/// Containers behind a bridge hear their refusal too, unless they lie about who they are.
fn forward() -> Chain {
    Chain {
        name: "forward",
        hook: Some((Hook::Forward, Policy::Drop)),
        rules: vec![
            rule(
                "how much was forwarded here",
                vec![Term::Count(COUNTER_FORWARDED)],
            ),
            rule(
                "a false source hears nothing",
                vec![Term::SourceIsSpoofed, Term::Drop],
            ),
            rule(
                "TCP callers hear it at once",
                vec![Term::Tcp, Term::SetMark(MARK_REFUSED), Term::RejectReset],
            ),
            rule("others are refused", vec![Term::RejectProhibited]),
        ],
    }
}

/// Neighbour discovery is sent by the kernel without a uid; without it even the gate loses IPv6.
/// Hop limit 255 shows that no router forwarded it.
fn neighbours(types: &'static [(u8, &'static str)]) -> impl Iterator<Item = Rule> {
    types.iter().map(|(kind, name)| {
        rule(
            format!("neighbour discovery: {name}"),
            vec![Term::HopLimit255, Term::Icmp6(*kind), Term::Accept],
        )
    })
}
