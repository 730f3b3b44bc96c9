//! Ports whose handshakes are dropped although the setting would no longer have it.
//!
//! `net.ipv4.ip_unprivileged_port_start` says from which port on an agent could listen. When it is lowered the rules
//! follow; when it is raised again what stands shuts more than it has to, and is kept: only `apply` takes it back. Whoever
//! judges the rules therefore takes the lower port of those that stand.

use crate::encode;
use crate::netlink::ObservedTable;
use crate::ruleset::{self, Ruleset};

/// `wanted`, from the lower port of these rules.
pub(crate) fn as_low_as(wanted: Ruleset, standing: &Ruleset) -> Ruleset {
    match (wanted.first_port(), standing.first_port()) {
        (Some(port), Some(lower)) if lower < port => wanted.with_first_port(lower),
        _ => wanted,
    }
}

/// `wanted`, from the lower port of what the kernel holds. A rule that differs in anything else is no such port.
pub(crate) fn as_low_as_held(wanted: Ruleset, observed: Option<&ObservedTable>) -> Ruleset {
    let (Some(port), Some(observed)) = (wanted.first_port(), observed) else {
        return wanted;
    };
    let comment = ruleset::cookies(port).comment;
    let mut rules = observed.rules.iter();
    let Some(held) = rules.find(|rule| rule.comment.as_ref() == Some(&comment)) else {
        return wanted;
    };
    let holds = |port: &u16| encode::rule(&ruleset::cookies(*port)) == held.nodes;
    if holds(&port) {
        return wanted;
    }
    match (0..port).find(holds) {
        Some(lower) => wanted.with_first_port(lower),
        None => wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::Accounts;
    use crate::config::Config;
    use crate::netlink::ObservedRule;

    fn ruleset(scope: &str) -> Ruleset {
        let agents = if scope == "agents" {
            "agents = [1000]"
        } else {
            ""
        };
        let text = format!("scope = \"{scope}\"\ngate_port = 3128\nproxy = 900\n{agents}\n");
        let config = Config::parse(&text, "b.toml").unwrap();
        let accounts = Accounts::from_texts("", "", "").unwrap();
        Ruleset::build(&config, &accounts, jiff::Timestamp::UNIX_EPOCH).unwrap()
    }

    fn held(ruleset: &Ruleset) -> ObservedTable {
        let mut table = ObservedTable::default();
        for chain in &ruleset.chains {
            table
                .rules
                .extend(chain.rules.iter().map(|rule| ObservedRule {
                    chain: chain.name.to_owned(),
                    comment: Some(rule.comment.clone()),
                    nodes: encode::rule(rule),
                    text: String::new(),
                }));
        }
        table
    }

    #[test]
    fn a_lower_port_that_stands_is_kept_and_a_higher_one_is_not() {
        let plain = ruleset("agents");
        assert_eq!(plain.first_port(), Some(1024));
        for (wanted, stands, kept) in [(1024, 80, 80), (1024, 0, 0), (80, 1024, 80), (80, 80, 80)] {
            let [wanted, stands] = [wanted, stands].map(|port| plain.clone().with_first_port(port));
            let kept = plain.clone().with_first_port(kept);
            assert_eq!(as_low_as(wanted.clone(), &stands), kept);
            assert_eq!(as_low_as_held(wanted.clone(), Some(&held(&stands))), kept);
            assert_eq!(kept.opens_beyond(&stands), None);
            assert_eq!(as_low_as_held(wanted.clone(), None), wanted);
        }
        let guest = ruleset("guest");
        assert_eq!(as_low_as(guest.clone(), &guest), guest);
        assert_eq!(as_low_as_held(guest.clone(), Some(&held(&guest))), guest);
    }

    #[test]
    fn another_change_of_that_rule_is_not_taken_for_a_port() {
        let plain = ruleset("agents");
        let mut other = held(&plain.clone().with_first_port(80));
        let same = as_low_as_held(plain.clone(), Some(&other));
        assert_eq!(same.first_port(), Some(80), "control");
        for rule in &mut other.rules {
            // What drops, drops no more.
            rule.nodes.pop();
        }
        assert_eq!(as_low_as_held(plain.clone(), Some(&other)), plain);
    }
}
