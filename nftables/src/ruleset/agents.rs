//! Scope `agents`: a host that does other things. Only the listed uids are shut.

use super::{
    Base, COUNTER_REFUSED, COUNTER_SQUATTED, Chain, Elements, Hook, Policy, Ruleset, SET_AGENTS,
    Set, Term, exceptions, gate, refuse, rule,
};
use crate::config::{Resolved, Scope};

/// Without redirection no `ct` expression appears here: a host without connection tracking does
/// not get it from us. Inbound needs no chain of its own: a listening agent's SYN-ACK carries its
/// uid and is refused.
pub(super) fn ruleset(table: &str, resolved: &Resolved) -> Ruleset {
    let who = Term::UserIn(SET_AGENTS.into());
    let mut output = gate::squatters(&resolved.ports, resolved.gate);
    output.extend(exceptions::rules(&resolved.openings, false));
    output.extend(gate::reachable(&resolved.ports, Some(&who)));
    output.push(rule(
        "agents reach nothing else",
        vec![who.clone(), Term::Goto("refuse")],
    ));
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
    Ruleset {
        table: table.to_owned(),
        scope: Scope::Agents,
        counters: vec![COUNTER_REFUSED, COUNTER_SQUATTED],
        sets,
        chains,
        detour: gate::detour(table, &resolved.ports, resolved.agents.clone()),
    }
}
