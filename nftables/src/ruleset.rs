//! The boundary as a value: one `inet` table of counters, sets and chains, before it is text or
//! netlink messages.
//!
//! The order of rules carries the meaning. In both scopes a packet that *has* a uid is judged by
//! it on every packet, so it does not matter how old its flow is. What has no uid is the kernel's
//! own: orphaned sockets, resets, neighbour discovery. Scope `agents` lets that pass, because the
//! host does other things; scope `guest` names what may pass and refuses the rest.

mod agents;
mod guest;

use std::net::IpAddr;

use sha2::{Digest, Sha256};

use crate::accounts::{Accounts, UidRange};
use crate::config::{Config, Protocol, Scope};
use crate::diagnostics::Diagnostics;

/// Connections the gate (or an exception) opened. Spells "port" in ASCII, so that it is unlikely
/// to meet a mark of somebody else's.
pub const MARK_OPEN: u32 = 0x706f_7274;
/// Connections this table refused: their reset may travel back to the local sender.
pub const MARK_REFUSED: u32 = 0x706f_7275;

pub const COUNTER_REFUSED: &str = "refused";
pub const COUNTER_SQUATTED: &str = "squatted";
pub const COUNTER_INBOUND: &str = "inbound";
pub const COUNTER_FORWARDED: &str = "forwarded";
/// Dynamic set keyed by uid, one counter each: who was refused.
pub const SET_REFUSED: &str = "refused_uids";
/// Interval set of the uids that are shut in scope `agents`.
pub const SET_AGENTS: &str = "agents";

/// One table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruleset {
    pub table: String,
    pub scope: Scope,
    pub counters: Vec<&'static str>,
    pub sets: Vec<Set>,
    pub chains: Vec<Chain>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    pub name: &'static str,
    pub elements: Elements,
}

/// Both kinds are keyed by uid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Elements {
    /// Sorted, disjoint ranges, fixed when the table is loaded.
    Intervals(Vec<UidRange>),
    /// Filled by packets; at most `size` keys.
    Dynamic { size: u32 },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    pub name: &'static str,
    /// `None` for a chain that is only jumped to.
    pub hook: Option<(Hook, Policy)>,
    pub rules: Vec<Rule>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    Input,
    Forward,
    Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    Accept,
    Drop,
}

/// Terms are tried left to right; the first that does not match ends the rule. The comment is
/// unique within its chain: `verify` finds rules by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub comment: String,
    pub terms: Vec<Term>,
}

/// What a rule may say. Each has one spelling as nft text and one as kernel expressions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Term {
    OutLoopback,
    InLoopback,
    UserIs(u32),
    UserIsNot(u32),
    UserIn(&'static str),
    Destination(IpAddr, u8),
    SourcePort(Protocol, u16),
    DestinationPort(Protocol, u16),
    Tcp,
    Reset,
    HopLimit255,
    Icmp4(u8),
    Icmp6(u8),
    MarkIs(u32),
    Reply,
    State(&'static [State]),
    /// The packet's source is an address of this machine.
    SourceIsLocal,
    /// The way back to the packet's source is not the interface it came from.
    SourceIsSpoofed,
    SetMark(u32),
    NoteUser(&'static str),
    Count(&'static str),
    Accept,
    Drop,
    Goto(&'static str),
    RejectReset,
    RejectProhibited,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Established,
    Related,
}

/// An exception that is in force: who, where to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Opening {
    pub(crate) uid: u32,
    pub(crate) address: IpAddr,
    pub(crate) prefix: u8,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
    pub(crate) reason: String,
}

impl Ruleset {
    /// The boundary that `config` asks for on a host with these accounts at this instant.
    ///
    /// Exceptions that have expired are left out. Fails, naming line and key, when a user does not
    /// exist, when the gate could be one of the agents, or when a listed user owns a subordinate
    /// range that no entry covers.
    pub fn build(
        config: &Config,
        accounts: &Accounts,
        now: jiff::Timestamp,
    ) -> Result<Self, Diagnostics> {
        let resolved = config.resolve(accounts, now)?;
        let port = config.gate_port;
        let ruleset = match config.scope {
            Scope::Guest => guest::ruleset(&config.table, port, &resolved),
            Scope::Agents => agents::ruleset(&config.table, port, &resolved),
        };
        Ok(ruleset)
    }

    /// What this ruleset would let through that `before` refuses, in words; `None` when it is at
    /// least as shut.
    pub fn opens_beyond(&self, before: &Ruleset) -> Option<String> {
        let covered = |ranges: &[UidRange], name| {
            let now = self.intervals(name);
            let open = ranges.iter().find(|range| !range.covered_by(now))?;
            Some(format!("of uids {open} not all would be shut any more"))
        };
        let shut = before
            .sets
            .iter()
            .find_map(|set| covered(before.intervals(set.name), set.name));
        let rules = |ruleset: &Ruleset, accepting: bool| -> Vec<(&'static str, Rule)> {
            let all = ruleset
                .chains
                .iter()
                .flat_map(|chain| chain.rules.iter().map(|rule| (chain.name, rule.clone())));
            all.filter(|(_, rule)| (rule.terms.last() == Some(&Term::Accept)) == accepting)
                .collect()
        };
        let missing = |held: &[(&'static str, Rule)], wanted: Vec<(&'static str, Rule)>| {
            // Exceptions are numbered in their comments; what they do is in the terms.
            wanted.into_iter().find(|(chain, rule)| {
                !held
                    .iter()
                    .any(|(other, held)| other == chain && held.terms == rule.terms)
            })
        };
        let accept = || missing(&rules(before, true), rules(self, true));
        let refuse = || missing(&rules(self, false), rules(before, false));
        shut.or_else(|| {
            accept().map(|(_, rule)| format!("{:?} would be a new opening", rule.comment))
        })
        .or_else(|| {
            refuse().map(|(_, rule)| format!("{:?} would be gone or another", rule.comment))
        })
    }

    fn intervals(&self, name: &str) -> &[UidRange] {
        let set = self.sets.iter().find(|set| set.name == name);
        match set.map(|set| &set.elements) {
            Some(Elements::Intervals(ranges)) => ranges,
            Some(Elements::Dynamic { .. }) | None => &[],
        }
    }

    /// SHA-256 of the rendered text, in hex: names this ruleset in status files and audit logs.
    pub fn hash(&self) -> String {
        let digest = Sha256::digest(crate::render::text(self).as_bytes());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn rule(comment: impl Into<String>, terms: Vec<Term>) -> Rule {
    Rule {
        comment: comment.into(),
        terms,
    }
}

/// Nobody answers from the gate's port in the gate's place: the SYN-ACK of a listener carries the
/// listener's uid.
fn squatter(port: u16, gate: u32) -> Rule {
    rule(
        "only the gate answers on its port",
        vec![
            Term::OutLoopback,
            Term::SourcePort(Protocol::Tcp, port),
            Term::UserIsNot(gate),
            Term::Count(COUNTER_SQUATTED),
            Term::Drop,
        ],
    )
}

/// The one thing on loopback that an agent reaches. `who` comes first when only some are judged.
fn to_gate(port: u16, who: Option<Term>) -> [Rule; 2] {
    [
        ("to the gate over IPv4", IpAddr::from([127, 0, 0, 1]), 32),
        (
            "to the gate over IPv6",
            IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1u16]),
            128,
        ),
    ]
    .map(|(comment, address, prefix)| {
        let mut terms: Vec<Term> = who.iter().cloned().collect();
        terms.extend([
            Term::OutLoopback,
            Term::Destination(address, prefix),
            Term::DestinationPort(Protocol::Tcp, port),
            Term::Accept,
        ]);
        rule(comment, terms)
    })
}

fn exceptions(openings: &[Opening], mark: bool) -> Vec<Rule> {
    openings
        .iter()
        .enumerate()
        .map(|(index, opening)| {
            let mut terms = vec![
                Term::UserIs(opening.uid),
                Term::Destination(opening.address, opening.prefix),
                Term::DestinationPort(opening.protocol, opening.port),
            ];
            if mark {
                terms.push(Term::SetMark(MARK_OPEN));
            }
            terms.push(Term::Accept);
            rule(
                format!("exception {}: {}", index + 1, opening.reason),
                terms,
            )
        })
        .collect()
}

/// Where everything refused on output ends: noted by uid, counted, and told at once.
///
/// A reset or an ICMP error goes to the packet's *source*. `IPV6_FREEBIND` lets an unprivileged
/// program send from any address, so without the look at the source a refusal would itself carry
/// the agent's bytes to an outside address of its choice.
fn refuse(mark: bool) -> Chain {
    let mut reset = vec![Term::Tcp, Term::SourceIsLocal];
    if mark {
        reset.push(Term::SetMark(MARK_REFUSED));
    }
    reset.push(Term::RejectReset);
    Chain {
        name: "refuse",
        hook: None,
        rules: vec![
            rule("who was refused", vec![Term::NoteUser(SET_REFUSED)]),
            rule("how much was refused", vec![Term::Count(COUNTER_REFUSED)]),
            rule("TCP callers hear it at once", reset),
            rule(
                "others hear it at once",
                vec![Term::SourceIsLocal, Term::RejectProhibited],
            ),
            rule("the rest in silence", vec![Term::Drop]),
        ],
    }
}

fn refused_set() -> Set {
    Set {
        name: SET_REFUSED,
        elements: Elements::Dynamic { size: 65_535 },
    }
}
