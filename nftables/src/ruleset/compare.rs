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
            .any(|(other, held)| other == chain && held.terms == rule.terms)
    })?;
    Some(rule)
}
