//! Rules in force that have to shut more than they were made for: an account was made anew, and whom its old uid means now is
//! not whom the rules meant.

use super::{Chain, Elements, NOBODY_AT_ALL, Ruleset, SET_AGENTS, Term};
use crate::accounts::{Accounts, UidRange};
use crate::config::{Config, User};

impl Ruleset {
    /// These rules, which also shut whoever `config` calls an agent on a host with these accounts; and nobody is let out as
    /// the gate when the gate's uid is not the gate's any more. They never let through what these refuse.
    pub(crate) fn shut_also(&self, config: &Config, accounts: &Accounts) -> Self {
        let mut more = self.clone();
        let agents = config.shut(accounts);
        for set in &mut more.sets {
            if let (SET_AGENTS, Elements::Intervals(ranges)) =
                (set.name.as_ref(), &mut set.elements)
            {
                *ranges = UidRange::merge([ranges.clone(), agents.clone()].concat());
                if let Some(detour) = &mut more.detour {
                    detour.users.clone_from(ranges);
                }
            }
        }
        if let Some(gate) = self.gate()
            && is_anothers(gate, config, accounts)
        {
            more.chains
                .iter_mut()
                .for_each(|chain| nobody_is(gate, chain));
        }
        more
    }

    /// The gate's uid, in the words of the rule that keeps its port for it.
    fn gate(&self) -> Option<u32> {
        let mut rules = self.chains.iter().flat_map(|chain| &chain.rules);
        let kept = rules.find(|rule| rule.comment.starts_with("only the gate answers on"))?;
        kept.terms.iter().find_map(|term| match term {
            Term::UserIsNot(gate) => Some(*gate),
            _ => None,
        })
    }
}

/// Whether the gate's account has another uid by now, or is gone while somebody else has this one.
fn is_anothers(gate: u32, config: &Config, accounts: &Accounts) -> bool {
    match &config.proxy.value {
        User::Uid(_) => false,
        User::Name(name) => match accounts.uid_of(name) {
            Some(uid) => uid != gate,
            None => accounts.describe(gate).is_some(),
        },
    }
}

fn nobody_is(gate: u32, chain: &mut Chain) {
    for term in chain.rules.iter_mut().flat_map(|rule| &mut rule.terms) {
        match term {
            Term::UserIs(uid) | Term::UserIsNot(uid) if *uid == gate => *uid = NOBODY_AT_ALL,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts(lines: &[(&str, u32)]) -> Accounts {
        let passwd: String = lines
            .iter()
            .map(|(name, uid)| format!("{name}:x:{uid}:{uid}::/:/bin/sh\n"))
            .collect();
        Accounts::from_texts(&passwd, "", "").unwrap()
    }

    fn config(scope: &str) -> Config {
        let agents = if scope == "agents" {
            "agents = [\"agent\"]"
        } else {
            ""
        };
        let text = format!(
            "scope = \"{scope}\"\ngate_port = 3128\nproxy = \"gate\"\n{agents}\n[redirect]\nport = 3129\n"
        );
        Config::parse(&text, "b.toml").unwrap()
    }

    #[test]
    fn whoever_has_the_gates_old_uid_is_shut() {
        let before = accounts(&[("gate", 900), ("agent", 1000)]);
        for scope in ["agents", "guest"] {
            let config = config(scope);
            let stand = Ruleset::build(&config, &before, jiff::Timestamp::UNIX_EPOCH).unwrap();
            assert_eq!(stand.gate(), Some(900), "{scope}");
            assert_eq!(stand.shut_also(&config, &before), stand, "{scope}: control");
            for after in [
                &[("gate", 901), ("agent", 900)][..],
                &[("agent", 900)],
                &[("gate", 901), ("agent", 1000)],
            ] {
                let union = stand.shut_also(&config, &accounts(after));
                let names = |uid: u32| {
                    let mut terms = union.chains.iter().flat_map(|chain| &chain.rules);
                    terms.any(|rule| {
                        rule.terms.contains(&Term::UserIs(uid))
                            || rule.terms.contains(&Term::UserIsNot(uid))
                    })
                };
                assert!(!names(900) && names(NOBODY_AT_ALL), "{scope} {after:?}");
                if scope == "agents" {
                    let shut = |uid| union.agents().iter().any(|range| range.contains(uid));
                    assert!(shut(1000), "{after:?}");
                    assert_eq!(shut(900), after.contains(&("agent", 900)), "{after:?}");
                    let users = &union.detour.as_ref().unwrap().users;
                    assert_eq!(users, union.agents(), "{after:?}");
                }
            }
            // Gone, and nobody came: no program can be started with that uid.
            let gone = stand.shut_also(&config, &accounts(&[("agent", 1000)]));
            assert_eq!(gone, stand, "{scope}");
        }
    }
}
