//! Whether one ruleset lets through what another refuses.

use super::{Elements, Rule, Ruleset, Set, Term};

impl Ruleset {
    /// What this ruleset would let through that `before` refuses, in words; `None` when it is at
    /// least as shut.
    pub fn opens_beyond(&self, before: &Ruleset) -> Option<String> {
        self.shuts_fewer(before)
            .or_else(|| self.lapses_later(before))
            .or_else(|| {
                let opening = missing(&rules(before, true), rules(self, true))?;
                Some(format!("{:?} would be a new opening", opening.comment))
            })
            .or_else(|| {
                let gone = missing(&rules(self, false), rules(before, false))?;
                Some(format!("{:?} would be gone or another", gone.comment))
            })
    }

    fn shuts_fewer(&self, before: &Ruleset) -> Option<String> {
        before.sets.iter().find_map(|set| {
            let now = self.intervals(&set.name);
            let then = before.intervals(&set.name).iter();
            let open = then.copied().find(|range| !range.covered_by(now))?;
            Some(format!("of uids {open} not all would be shut any more"))
        })
    }

    fn lapses_later(&self, before: &Ruleset) -> Option<String> {
        let longer = |set: &&Set| {
            let Elements::Until { uid, expires } = &set.elements else {
                return false;
            };
            !before.sets.iter().any(|held| {
                held.name == set.name
                    && matches!(&held.elements, Elements::Until { uid: other, expires: until }
                        if other == uid && until >= expires)
            })
        };
        let set = self.sets.iter().find(longer)?;
        Some(format!(
            "{} would be for another user or later",
            set.name.replace('_', " ")
        ))
    }
}

/// The rules that let something pass, or the others, each with its chain.
fn rules(ruleset: &Ruleset, accepting: bool) -> Vec<(&'static str, &Rule)> {
    let all = ruleset
        .chains
        .iter()
        .flat_map(|chain| chain.rules.iter().map(|rule| (chain.name, rule)));
    all.filter(|(_, rule)| (rule.terms.last() == Some(&Term::Accept)) == accepting)
        .collect()
}

/// The first that is wanted and not held. Reasons stand in comments; what a rule does is in its
/// terms.
fn missing<'r>(held: &[(&str, &Rule)], wanted: Vec<(&str, &'r Rule)>) -> Option<&'r Rule> {
    let (_, rule) = wanted.into_iter().find(|(chain, rule)| {
        !held
            .iter()
            .any(|(other, held)| other == chain && (held.terms == rule.terms || wider(held, rule)))
    })?;
    Some(rule)
}

/// Whether `held` drops what `rule` drops, from a lower port on or from all.
fn wider(held: &Rule, rule: &Rule) -> bool {
    let Some((Term::SourcePortFrom(protocol, port), rest)) = rule.terms.split_first() else {
        return false;
    };
    if rest.last() != Some(&Term::Drop) {
        return false;
    }
    match held.terms.split_first() {
        Some((Term::SourcePortFrom(other, lower), same)) => {
            other == protocol && lower <= port && same == rest
        }
        Some(_) => held.terms == rest,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Protocol;
    use crate::ruleset::rule;

    #[test]
    fn more_ports_whose_cookies_are_dropped_open_nothing() {
        let from = |port: u16| {
            let mut terms = Vec::new();
            if port > 0 {
                terms.push(Term::SourcePortFrom(Protocol::Tcp, port));
            }
            terms.extend([Term::Handshake, Term::Drop]);
            rule("cookies", terms)
        };
        assert!(wider(&from(80), &from(1024)) && wider(&from(0), &from(1024)));
        assert!(!wider(&from(1024), &from(80)) && !wider(&from(1024), &from(0)));
        let accepts = rule("another", vec![Term::Handshake, Term::Accept]);
        assert!(!wider(&accepts, &from(1024)));
    }
}
