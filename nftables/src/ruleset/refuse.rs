//! Where everything refused on output ends: noted by uid, counted, and told at once.

use super::{
    COUNTER_REFUSED, Chain, Elements, MARK_REFUSED, SET_REFUSED, SET_REFUSED_SIZE, Set, Term, rule,
};

/// A reset or an ICMP error goes to the packet's *source*. `IPV6_FREEBIND` lets an unprivileged
/// program send from any address, so without the look at the source a refusal would itself carry
/// the agent's bytes to an outside address of its choice.
pub(super) fn chain(mark: bool) -> Chain {
    let mut reset = vec![Term::Tcp, Term::SourceIsLocal];
    if mark {
        reset.push(Term::SetMark(MARK_REFUSED));
    }
    reset.push(Term::RejectReset);
    Chain {
        name: "refuse",
        base: None,
        rules: vec![
            rule("who was refused", vec![Term::NoteUser(SET_REFUSED.into())]),
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

pub(super) fn set() -> Set {
    Set {
        name: SET_REFUSED.into(),
        elements: Elements::Dynamic {
            size: SET_REFUSED_SIZE,
        },
    }
}
