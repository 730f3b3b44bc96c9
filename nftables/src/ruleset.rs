//! The boundary as a value: one `inet` table of counters, sets and chains, before it is text or
//! netlink messages.
//!
//! The order of rules carries the meaning. In both scopes a packet that *has* a uid is judged by
//! it on every packet, so it does not matter how old its flow is. What has no uid is the kernel's
//! own: orphaned sockets, resets, neighbour discovery. Scope `agents` lets that pass, because the
//! host does other things; scope `guest` names what may pass and refuses the rest.
//!
//! Every rule has a comment of its own, unique in the table and stable: it is the rule's name in
//! `verify`, in the documentation and in proofs.

mod agents;
mod compare;
mod exceptions;
mod forward;
mod gate;
mod guest;
mod refuse;
mod union;

use std::borrow::Cow;
use std::net::IpAddr;

use sha2::{Digest, Sha256};

pub(crate) use agents::cookies;
pub(crate) use exceptions::Opening;
pub(crate) use gate::{Ports, routing_table};

use crate::accounts::{Accounts, UidRange};
use crate::config::{Config, Protocol, Scope};
use crate::diagnostics::Diagnostics;

/// Connections the gate (or an exception) opened. Spells "port" in ASCII, so that it is unlikely
/// to meet a mark of somebody else's.
pub const MARK_OPEN: u32 = 0x706f_7274;
/// Connections this table refused: their reset may travel back to the local sender.
pub const MARK_REFUSED: u32 = 0x706f_7275;
/// Connections that administration opened from outside: their answers may travel back.
pub const MARK_ADMINISTRATION: u32 = 0x706f_7276;

/// No uid: `meta skuid` ends a rule for packets without a socket, so that "is not this one" means "has
/// a uid".
pub(crate) const NOBODY_AT_ALL: u32 = u32::MAX;

pub const COUNTER_REFUSED: &str = "refused";
pub const COUNTER_SQUATTED: &str = "squatted";
/// SYN-ACKs that had no uid.
pub const COUNTER_HANDSHAKES: &str = "handshakes";
pub const COUNTER_INBOUND: &str = "inbound";
pub const COUNTER_FORWARDED: &str = "forwarded";
/// Dynamic set keyed by uid, one counter each: who was refused.
pub const SET_REFUSED: &str = "refused_uids";
/// Users that fit into it. Whoever is refused beyond that is counted in total, and not named.
pub const SET_REFUSED_SIZE: u32 = 65_535;
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
    /// What leads the redirected users' packets to the rules when no other route does.
    pub detour: Option<Detour>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    pub name: SetName,
    pub elements: Elements,
}

/// `agents`, `refused_uids`, `exception_1` ...
pub type SetName = Cow<'static, str>;

/// All kinds are keyed by uid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Elements {
    /// Sorted, disjoint ranges, fixed when the table is loaded.
    Intervals(Vec<UidRange>),
    /// Filled by packets; at most `size` keys.
    Dynamic { size: u32 },
    /// One uid, which the kernel itself takes out at that instant.
    Until { uid: u32, expires: jiff::Timestamp },
}

/// A route over loopback, consulted after every other one and for these users alone. Without any
/// route the kernel answers ENETUNREACH before a rule could redirect the packet; what is not
/// redirected is refused on output all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detour {
    /// The routing table that holds the route.
    pub table: u32,
    /// Sorted and disjoint; one routing rule each.
    pub users: Vec<UidRange>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    pub name: &'static str,
    /// `None` for a chain that is only jumped to.
    pub base: Option<Base>,
    pub rules: Vec<Rule>,
}

/// Where a chain begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Base {
    pub kind: Kind,
    pub hook: Hook,
    pub priority: i32,
    pub policy: Policy,
}

impl Base {
    const fn filter(hook: Hook, policy: Policy) -> Option<Self> {
        Some(Self {
            kind: Kind::Filter,
            hook,
            priority: 0,
            policy,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Filter,
    Nat,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Filter => "filter",
            Kind::Nat => "nat",
        }
    }
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
/// unique within the table: `verify` finds rules by it.
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
    /// In an interval set.
    UserIn(SetName),
    /// In a set whose element lapses.
    UserUntil(SetName),
    Source(IpAddr, u8),
    Destination(IpAddr, u8),
    SourcePort(Protocol, u16),
    DestinationPort(Protocol, u16),
    /// Source and destination port.
    Ports(Protocol, u16, u16),
    /// This port or a higher one.
    SourcePortFrom(Protocol, u16),
    Tcp,
    Reset,
    /// What answers a SYN.
    Handshake,
    NotHandshake,
    HopLimit255,
    Icmp4(u8),
    Icmp6(u8),
    MarkIs(u32),
    Reply,
    State(&'static [State]),
    /// The flow's destination was rewritten, by this table's redirection.
    Translated,
    /// The packet's source is an address of this machine.
    SourceIsLocal,
    /// The packet's destination is no address of this machine.
    DestinationIsAway,
    /// The way back to the packet's source is not the interface it came from.
    SourceIsSpoofed,
    SetMark(u32),
    NoteUser(SetName),
    Count(&'static str),
    Accept,
    Drop,
    Goto(&'static str),
    /// To this port of loopback.
    Redirect(u16),
    RejectReset,
    RejectProhibited,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Established,
    Related,
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
        Ok(match config.scope {
            Scope::Guest => guest::ruleset(&config.table, &resolved),
            Scope::Agents => agents::ruleset(&config.table, &resolved, accounts.first_port()),
        })
    }

    /// The uids that are shut in scope `agents`; none in scope `guest`, where all but one are.
    pub fn agents(&self) -> &[UidRange] {
        self.intervals(SET_AGENTS)
    }

    fn intervals(&self, name: &str) -> &[UidRange] {
        let set = self.sets.iter().find(|set| set.name == name);
        match set.map(|set| &set.elements) {
            Some(Elements::Intervals(ranges)) => ranges,
            Some(Elements::Dynamic { .. } | Elements::Until { .. }) | None => &[],
        }
    }

    /// SHA-256 of the rendered text, in hex: names this ruleset in status files and audit logs.
    pub fn hash(&self) -> String {
        let digest = Sha256::digest(crate::render::canonical(self).as_bytes());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn rule(comment: impl Into<String>, terms: Vec<Term>) -> Rule {
    Rule {
        comment: comment.into(),
        terms,
    }
}
