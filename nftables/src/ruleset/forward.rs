//! What this machine would pass on for others: containers and virtual machines behind a bridge or a veth.
//!
//! Such packets have no uid, and nothing else tells an agent's container from another's. So none passes.

use super::{Base, COUNTER_FORWARDED, Chain, Hook, MARK_REFUSED, Policy, Term, rule};

/// Containers hear their refusal too, unless they lie about who they are. `marked` where only marked resets may leave.
pub(super) fn chain(marked: bool) -> Chain {
    let mut told = vec![Term::Tcp];
    if marked {
        told.push(Term::SetMark(MARK_REFUSED));
    }
    told.push(Term::RejectReset);
    Chain {
        name: "forward",
        base: Base::filter(Hook::Forward, Policy::Drop),
        rules: vec![
            rule(
                "how much was forwarded here",
                vec![Term::Count(COUNTER_FORWARDED)],
            ),
            rule(
                "a false source hears nothing",
                vec![Term::SourceIsSpoofed, Term::Drop],
            ),
            rule("forwarded TCP callers hear it at once", told),
            rule(
                "other forwarded callers hear it",
                vec![Term::RejectProhibited],
            ),
        ],
    }
}
