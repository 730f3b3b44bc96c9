use std::collections::BTreeMap;

use super::*;
use crate::accounts::Accounts;
use crate::config::Config;
use crate::netlink::ObservedChain;

fn ruleset(scope: &str) -> Ruleset {
    let agents = if scope == "agents" {
        "agents = [1000]"
    } else {
        ""
    };
    let text = format!("scope = \"{scope}\"\ngate_port = 3128\nproxy = 900\n{agents}\n");
    let config = Config::parse(&text, "b.toml").unwrap();
    Ruleset::build(&config, &Accounts::default(), jiff::Timestamp::UNIX_EPOCH).unwrap()
}

fn node(kind: &'static str, fields: &[(u32, Vec<u8>)]) -> Node {
    Node {
        kind,
        fields: fields
            .iter()
            .map(|(attribute, value)| (u16::try_from(*attribute).unwrap(), value.clone()))
            .collect::<BTreeMap<_, _>>(),
        inner: Vec::new(),
    }
}

/// One table with one base chain and one rule.
fn others(
    family: i32,
    hook: u32,
    priority: i32,
    kind: &str,
    nodes: Vec<Node>,
    text: &str,
) -> Others {
    let place = Place {
        family: family.cast_unsigned(),
        table: "theirs".into(),
    };
    let chain = ObservedChain {
        hook: Some((hook, priority, 1, kind.to_owned())),
    };
    let rule = ObservedRule {
        chain: "c".into(),
        comment: None,
        nodes,
        text: text.into(),
    };
    Others {
        chains: vec![(place.clone(), "c".into(), chain)],
        rules: vec![(place, rule)],
    }
}

#[test]
fn rewriting_afterwards_is_a_breach_and_before_a_warning() {
    let agents = ruleset("agents");
    let nat = || vec![node("nat", &[])];
    let cases = [
        // Docker's and kube-proxy's: before, and on the way out sources only.
        (libc::NFPROTO_IPV4, OUTPUT, -100, "nat", nat(), (0, 1)),
        (libc::NFPROTO_IPV4, POSTROUTING, 100, "nat", nat(), (0, 0)),
        (libc::NFPROTO_INET, OUTPUT, 10, "nat", nat(), (1, 0)),
        (libc::NFPROTO_INET, OUTPUT, 0, "nat", nat(), (1, 0)),
        (
            libc::NFPROTO_INET,
            POSTROUTING,
            0,
            "filter",
            vec![node("dup", &[])],
            (1, 0),
        ),
        (
            libc::NFPROTO_NETDEV,
            EGRESS,
            0,
            "filter",
            vec![node("fwd", &[])],
            (1, 0),
        ),
        (
            libc::NFPROTO_IPV4,
            OUTPUT,
            -150,
            "filter",
            vec![node("queue", &[])],
            (0, 1),
        ),
        // Input and forward are no matter of what leaves.
        (
            libc::NFPROTO_INET,
            1,
            0,
            "filter",
            vec![node("queue", &[])],
            (0, 0),
        ),
        (
            libc::NFPROTO_INET,
            OUTPUT,
            10,
            "filter",
            vec![node("counter", &[])],
            (0, 0),
        ),
    ];
    for (family, hook, priority, kind, nodes, expected) in cases {
        let shown = format!("{family} {hook} {priority} {kind} {nodes:?}");
        let found = judge(&agents, &others(family, hook, priority, kind, nodes, ""));
        assert_eq!(
            (found.breaches.len(), found.warnings.len()),
            expected,
            "{shown}: {found:?}"
        );
    }
}

#[test]
fn iptables_targets_are_known_by_name() {
    let agents = ruleset("agents");
    for (target, breaches) in [
        ("DNAT", 1),
        ("REDIRECT", 1),
        ("TEE", 1),
        ("NFQUEUE", 1),
        ("LOG", 0),
    ] {
        let text = format!("[ match name tcp rev 0 ] [ target name {target} rev 1 ]");
        let found = judge(
            &agents,
            &others(libc::NFPROTO_IPV4, OUTPUT, 50, "nat", Vec::new(), &text),
        );
        assert_eq!(found.breaches.len(), breaches, "{target}: {found:?}");
    }
}

#[test]
fn writing_an_address_is_rewriting_and_reading_it_is_not() {
    let agents = ruleset("agents");
    let payload = |offset: u32, writes: bool| {
        let register = if writes {
            sys::NFTNL_EXPR_PAYLOAD_SREG
        } else {
            sys::NFTNL_EXPR_PAYLOAD_DREG
        };
        node(
            "payload",
            &[
                (register, 1u32.to_ne_bytes().to_vec()),
                (
                    sys::NFTNL_EXPR_PAYLOAD_BASE,
                    libc::NFT_PAYLOAD_NETWORK_HEADER.to_ne_bytes().to_vec(),
                ),
                (
                    sys::NFTNL_EXPR_PAYLOAD_OFFSET,
                    offset.to_ne_bytes().to_vec(),
                ),
            ],
        )
    };
    for (offset, writes, breaches) in [(16, true, 1), (16, false, 0), (1, true, 0)] {
        let nodes = vec![payload(offset, writes)];
        let found = judge(
            &agents,
            &others(libc::NFPROTO_IPV4, OUTPUT, 50, "filter", nodes, ""),
        );
        assert_eq!(found.breaches.len(), breaches, "{offset} {writes}");
    }
}

#[test]
fn an_accept_is_told_and_our_mark_is_a_breach_in_a_guest() {
    let verdict = libc::NF_ACCEPT.to_ne_bytes().to_vec();
    let accept = vec![node("immediate", &[(sys::NFTNL_EXPR_IMM_VERDICT, verdict)])];
    let other = others(libc::NFPROTO_IPV4, OUTPUT, 0, "filter", accept, "");
    let found = judge(&ruleset("agents"), &other);
    assert_eq!((found.breaches.len(), found.warnings.len()), (0, 1));

    let mark = |mark: u32| {
        vec![
            node(
                "immediate",
                &[(sys::NFTNL_EXPR_IMM_DATA, mark.to_ne_bytes().to_vec())],
            ),
            node(
                "ct",
                &[
                    (
                        sys::NFTNL_EXPR_CT_KEY,
                        libc::NFT_CT_MARK.to_ne_bytes().to_vec(),
                    ),
                    (sys::NFTNL_EXPR_CT_SREG, 1u32.to_ne_bytes().to_vec()),
                ],
            ),
        ]
    };
    for (scope, value, breaches) in [
        ("guest", MARK_OPEN, 1),
        ("guest", 7, 0),
        ("agents", MARK_OPEN, 0),
    ] {
        let other = others(libc::NFPROTO_INET, OUTPUT, -10, "filter", mark(value), "");
        let found = judge(&ruleset(scope), &other);
        assert_eq!(found.breaches.len(), breaches, "{scope} {value}");
    }
}
