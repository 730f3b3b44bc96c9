use std::collections::BTreeMap;

use super::*;
use crate::accounts::Accounts;
use crate::config::Config;
use crate::netlink::{Element, ObservedChain};

fn expected() -> Ruleset {
    let text =
        "scope = \"agents\"\ngate_port = 3128\nproxy = 900\nagents = [1000, \"1500-1599\"]\n";
    let config = Config::parse(text, "b.toml").unwrap();
    Ruleset::build(&config, &Accounts::default(), jiff::Timestamp::UNIX_EPOCH).unwrap()
}

/// What the kernel holds when all is well.
fn faithful(ruleset: &Ruleset) -> ObservedTable {
    let mut table = ObservedTable::default();
    for counter in &ruleset.counters {
        table.counters.insert((*counter).to_owned(), (7, 420));
    }
    for set in &ruleset.sets {
        let observed = match &set.elements {
            Elements::Intervals(ranges) => ObservedSet {
                key_type: 24,
                key_len: 4,
                flags: 4,
                size: 0,
                elements: crate::netlink::interval_keys(ranges)
                    .into_iter()
                    .map(|(key, flags)| Element {
                        key: key.to_be_bytes().to_vec(),
                        flags,
                        ..Element::default()
                    })
                    .collect(),
            },
            Elements::Until { uid, .. } => ObservedSet {
                key_type: 24,
                key_len: 4,
                flags: 16,
                size: 0,
                elements: vec![Element {
                    key: uid.to_ne_bytes().to_vec(),
                    lapses_in: Some(1000),
                    ..Element::default()
                }],
            },
            Elements::Dynamic { size } => ObservedSet {
                key_type: 24,
                key_len: 4,
                flags: 32,
                size: *size,
                elements: vec![Element {
                    key: 1000u32.to_ne_bytes().to_vec(),
                    counted: (5, 300),
                    ..Element::default()
                }],
            },
        };
        table.sets.insert(set.name.to_string(), observed);
    }
    table.chains = BTreeMap::from([
        ("refuse".to_owned(), ObservedChain { hook: None }),
        (
            "output".to_owned(),
            ObservedChain {
                hook: Some((3, 0, 1, "filter".to_owned())),
            },
        ),
        (
            "forward".to_owned(),
            ObservedChain {
                hook: Some((2, 0, 0, "filter".to_owned())),
            },
        ),
    ]);
    for chain in &ruleset.chains {
        for rule in &chain.rules {
            table.rules.push(ObservedRule {
                chain: chain.name.to_owned(),
                comment: Some(rule.comment.clone()),
                nodes: encode::rule(rule),
                text: String::new(),
            });
        }
    }
    table
}

fn shown(change: impl FnOnce(&mut ObservedTable)) -> Vec<String> {
    let ruleset = expected();
    let mut table = faithful(&ruleset);
    change(&mut table);
    differences(&ruleset, Some(&table))
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn a_faithful_table_has_no_difference_whatever_was_counted() {
    assert_eq!(shown(|_| {}), Vec::<String>::new());
    assert_eq!(differences(&expected(), None).len(), 1);
}

#[test]
fn order_is_part_of_the_meaning() {
    let found = shown(|table| {
        let mut rules = table.rules.iter();
        let last = rules.rposition(|rule| rule.chain == "output").unwrap();
        table.rules.swap(last - 1, last);
    });
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("changed: rule output/\"no handshake of nobody's listener\""),
        "{found:?}"
    );
}

#[test]
fn a_repeated_rule_is_extra() {
    let found = shown(|table| {
        let copy = table.rules[0].clone();
        table.rules.push(copy);
    });
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("extra: rule refuse/\"who was refused\""),
        "{found:?}"
    );
}

#[test]
fn policy_hook_and_priority_count() {
    for hook in [(3, 0, 0), (3, 5, 1), (1, 0, 1)] {
        let found = shown(|table| {
            let (number, priority, policy) = hook;
            let hook = Some((number, priority, policy, "filter".to_owned()));
            table
                .chains
                .insert("output".to_owned(), ObservedChain { hook });
        });
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("changed: chain output"), "{found:?}");
    }
}

#[test]
fn sets_are_compared_by_their_fixed_elements_only() {
    let found = shown(|table| {
        let set = table.sets.get_mut("agents").unwrap();
        set.elements
            .retain(|element| element.key != 1500u32.to_be_bytes());
        table.sets.get_mut("refused_uids").unwrap().elements.clear();
    });
    let expected = "missing: element of set agents: a range that starts at uid 1500";
    assert_eq!(found, [expected]);
    let found = shown(|table| table.sets.get_mut("refused_uids").unwrap().size = 1);
    assert!(
        found[0].starts_with("changed: set refused_uids"),
        "{found:?}"
    );
    let found = shown(|table| {
        table.sets.remove("agents");
    });
    assert_eq!(found, ["missing: set agents"]);
}

#[test]
fn a_dormant_table_is_no_boundary() {
    let found = shown(|table| table.flags = 1);
    assert!(found[0].contains("dormant"), "{found:?}");
}
