//! Exceptions in force: one user, one place, until a date.
//!
//! The user stands in a set of its own whose element the kernel takes out when the exception
//! expires: it lapses although nobody watches.

use std::net::IpAddr;

use super::{Elements, MARK_OPEN, Rule, Set, SetName, Term, rule};
use crate::config::Protocol;

/// Who, where to, until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Opening {
    /// Place in the file, from 1: names the rule and the set, also after another one lapsed.
    pub(crate) number: usize,
    pub(crate) uid: u32,
    pub(crate) address: IpAddr,
    pub(crate) prefix: u8,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
    pub(crate) reason: String,
    pub(crate) expires: jiff::Timestamp,
}

impl Opening {
    fn set(&self) -> SetName {
        format!("exception_{}", self.number).into()
    }

    fn terms(&self) -> Vec<Term> {
        vec![
            Term::UserUntil(self.set()),
            Term::Destination(self.address, self.prefix),
            Term::DestinationPort(self.protocol, self.port),
        ]
    }
}

pub(super) fn sets(openings: &[Opening]) -> impl Iterator<Item = Set> {
    openings.iter().map(|opening| Set {
        name: opening.set(),
        elements: Elements::Until {
            uid: opening.uid,
            expires: opening.expires,
        },
    })
}

/// The rules that let them out; with `mark` so that the answers come in.
pub(super) fn rules(openings: &[Opening], mark: bool) -> impl Iterator<Item = Rule> {
    openings.iter().map(move |opening| {
        let mut terms = opening.terms();
        if mark {
            terms.push(Term::SetMark(MARK_OPEN));
        }
        terms.push(Term::Accept);
        rule(
            format!("exception {}: {}", opening.number, opening.reason),
            terms,
        )
    })
}

/// The same flows in the chain that redirects: they go where they were meant to.
pub(super) fn untouched(openings: &[Opening]) -> impl Iterator<Item = Rule> {
    openings.iter().map(|opening| {
        let mut terms = opening.terms();
        terms.push(Term::Accept);
        let comment = format!(
            "exception {}, not redirected: {}",
            opening.number, opening.reason
        );
        rule(comment, terms)
    })
}
