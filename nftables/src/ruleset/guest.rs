//! Scope `guest`: a machine that exists only for agents. Everything but the gate's uid is shut,
//! root included; what else the machine needs is named, each with its reason.

mod named;

use super::{
    Base, COUNTER_FORWARDED, COUNTER_INBOUND, COUNTER_REFUSED, COUNTER_SQUATTED, Chain, Hook,
    MARK_OPEN, MARK_REFUSED, Policy, Rule, Ruleset, State, Term, exceptions, forward, gate, refuse,
    rule,
};
use crate::accounts::UidRange;
use crate::config::{Resolved, Scope};

const ESTABLISHED: &[State] = &[State::Established];
const RELATED: &[State] = &[State::Related];
/// Destination unreachable, time exceeded, parameter problem; for IPv6 also packet too big.
const ERRORS4: [u8; 3] = [3, 11, 12];
const ERRORS6: [u8; 4] = [1, 2, 3, 4];

pub(super) fn ruleset(table: &str, resolved: &Resolved) -> Ruleset {
    let mut sets = vec![refuse::set()];
    sets.extend(exceptions::sets(&resolved.openings));
    let mut chains = vec![refuse::chain(true)];
    let who = Term::UserIsNot(resolved.gate);
    let untouched = named::untouched(&resolved.guest);
    chains.extend(gate::redirection(&who, resolved, untouched));
    chains.extend([output(resolved), input(resolved), forward::chain(true)]);
    Ruleset {
        table: table.to_owned(),
        scope: Scope::Guest,
        counters: vec![
            COUNTER_REFUSED,
            COUNTER_SQUATTED,
            COUNTER_INBOUND,
            COUNTER_FORWARDED,
        ],
        sets,
        chains,
        detour: gate::detour(table, &resolved.ports, everybody_but(resolved.gate)),
    }
}

/// The highest number is no uid.
fn everybody_but(gate: u32) -> Vec<UidRange> {
    [(0, gate.saturating_sub(1)), (gate + 1, u32::MAX - 1)]
        .into_iter()
        .filter(|(first, last)| first <= last)
        .map(|(first, last)| UidRange { first, last })
        .collect()
}

fn output(resolved: &Resolved) -> Chain {
    let mut rules = gate::squatters(&resolved.ports, resolved.gate);
    rules.extend(gate::answers(&resolved.ports, resolved.gate));
    rules.extend(gate::reachable(&resolved.ports, None));
    rules.push(rule(
        "the gate leaves and marks its flows",
        vec![
            Term::UserIs(resolved.gate),
            Term::SetMark(MARK_OPEN),
            Term::Accept,
        ],
    ));
    rules.extend(exceptions::rules(&resolved.openings, true));
    rules.extend(named::outgoing(&resolved.guest));
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
            vec![Term::UserIsNot(resolved.gate), Term::Goto("refuse")],
        ),
    ]);
    // From here on no packet has a uid: it is the kernel's own.
    rules.extend(neighbours(
        "neighbour discovery",
        &[
            (135, "solicitation"),
            (136, "advertisement"),
            (133, "routers"),
        ],
    ));
    rules.push(rule(
        "the gate's closed sockets finish",
        vec![
            Term::Tcp,
            Term::MarkIs(MARK_OPEN),
            Term::State(ESTABLISHED),
            Term::Accept,
        ],
    ));
    rules.extend(named::kernel(&resolved.guest));
    rules.extend([
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
        base: Base::filter(Hook::Output, Policy::Drop),
        rules,
    }
}

fn input(resolved: &Resolved) -> Chain {
    let mut rules = vec![rule("loopback", vec![Term::InLoopback, Term::Accept])];
    rules.extend(neighbours(
        "inbound neighbour discovery",
        &[
            (135, "solicitation"),
            (136, "advertisement"),
            (134, "routers"),
        ],
    ));
    rules.push(rule(
        "answers to the gate",
        vec![
            Term::MarkIs(MARK_OPEN),
            Term::State(ESTABLISHED),
            Term::Accept,
        ],
    ));
    // Related is also what a tracking helper (FTP, SIP, TFTP) reads out of a flow's contents, with its mark: a port of anybody's.
    let errors4 = ERRORS4.map(|kind| ("IPv4", kind, Term::Icmp4(kind)));
    let errors6 = ERRORS6.map(|kind| ("IPv6", kind, Term::Icmp6(kind)));
    rules.extend(errors4.into_iter().chain(errors6).map(|(by, kind, error)| {
        rule(
            format!("errors about the gate's flows over {by}: {kind}"),
            vec![
                Term::MarkIs(MARK_OPEN),
                Term::State(RELATED),
                error,
                Term::Accept,
            ],
        )
    }));
    rules.extend(named::incoming(&resolved.guest));
    rules.push(rule(
        "everything else inbound",
        vec![Term::Count(COUNTER_INBOUND), Term::Drop],
    ));
    Chain {
        name: "input",
        base: Base::filter(Hook::Input, Policy::Drop),
        rules,
    }
}

/// Neighbour discovery is sent by the kernel without a uid; without it even the gate loses IPv6.
/// Hop limit 255 shows that no router forwarded it.
fn neighbours(
    what: &'static str,
    types: &'static [(u8, &'static str)],
) -> impl Iterator<Item = Rule> {
    types.iter().map(move |(kind, name)| {
        rule(
            format!("{what}: {name}"),
            vec![Term::HopLimit255, Term::Icmp6(*kind), Term::Accept],
        )
    })
}
