//! Scope `agents`: a host that does other things. Only the listed uids are shut.

use super::{
    COUNTER_REFUSED, COUNTER_SQUATTED, Chain, Elements, Hook, Policy, Ruleset, SET_AGENTS, Set,
    Term, exceptions, refuse, refused_set, rule, squatter, to_gate,
};
use crate::config::{Resolved, Scope};

/// No `ct` expression appears here: a host without connection tracking does not get it from us.
/// Inbound needs no chain of its own: a listening agent's SYN-ACK carries its uid and is refused.
pub(super) fn ruleset(table: &str, port: u16, who: &Resolved) -> Ruleset {
    let mut output = vec![squatter(port, who.gate)];
    output.extend(exceptions(&who.openings, false));
    output.extend(to_gate(port, Some(Term::UserIn(SET_AGENTS))));
    output.push(rule(
        "agents reach nothing else",
        vec![Term::UserIn(SET_AGENTS), Term::Goto("refuse")],
    ));
    Ruleset {
        table: table.to_owned(),
        scope: Scope::Agents,
        counters: vec![COUNTER_REFUSED, COUNTER_SQUATTED],
        sets: vec![
            Set {
                name: SET_AGENTS,
                elements: Elements::Intervals(who.agents.clone()),
            },
            refused_set(),
        ],
        chains: vec![
            refuse(false),
            Chain {
                name: "output",
                hook: Some((Hook::Output, Policy::Accept)),
                rules: output,
            },
        ],
    }
}
