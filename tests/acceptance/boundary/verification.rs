//! `verify` says exactly what is missing, extra or changed.

use tests::host;

use super::lab::Lab;

const SCOPES: [&str; 2] = ["agents", "guest"];
const TABLE: [&str; 2] = ["inet", "portcullis-lab"];

/// Each rule in turn is taken away: `verify` names exactly that one.
#[test]
fn verify_names_each_missing_rule() {
    for scope in SCOPES {
        let lab = Lab::new(scope);
        lab.shut();
        let text = lab
            .nft(&["-a", "-j", "list", "table", TABLE[0], TABLE[1]])
            .ok()
            .stdout;
        let listed: serde_json::Value = serde_json::from_str(&text).unwrap();
        let rules: Vec<(String, String)> = listed["nftables"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|object| {
                let rule = object.get("rule")?;
                Some((
                    rule["chain"].as_str().unwrap().to_owned(),
                    rule["comment"].as_str().unwrap().to_owned(),
                ))
            })
            .collect();
        assert!(rules.len() >= 9, "{scope}: {rules:?}");
        for (chain, comment) in rules {
            let handle = handle(&lab, &chain, &comment);
            lab.nft(&[
                "delete", "rule", TABLE[0], TABLE[1], &chain, "handle", &handle,
            ])
            .ok();
            let finished = lab.boundary(&["verify"]);
            assert_eq!(finished.code(), 1, "{}", finished.shown());
            let expected = format!("missing: rule {chain}/{comment:?}");
            assert!(
                finished.stdout.contains(&expected),
                "{expected}: {}",
                finished.shown()
            );
            assert_eq!(finished.stdout.lines().count(), 1, "{}", finished.shown());
            lab.shut();
            lab.boundary(&["verify"]).ok();
        }
    }
}

fn handle(lab: &Lab, chain: &str, comment: &str) -> String {
    let text = lab
        .nft(&["-a", "-j", "list", "chain", TABLE[0], TABLE[1], chain])
        .ok()
        .stdout;
    let listed: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rule = listed["nftables"]
        .as_array()
        .unwrap()
        .iter()
        .find(|object| object["rule"]["comment"] == comment)
        .unwrap();
    rule["rule"]["handle"].to_string()
}

#[test]
fn verify_names_what_is_extra_or_changed() {
    let lab = Lab::new("agents");
    let [family, table] = TABLE;
    let cases: [(&[&str], &str); 9] = [
        (
            &["add", "rule", family, table, "output", "accept"],
            "extra: rule output/(without comment)",
        ),
        (
            &[
                "insert", "rule", family, table, "output", "meta", "skuid", "61500", "accept",
            ],
            "extra: rule output/(without comment): at place 1",
        ),
        (
            &["add", "chain", family, table, "more"],
            "extra: chain more",
        ),
        (
            &["add", "counter", family, table, "more"],
            "extra: counter more",
        ),
        (
            &["add", "quota", family, table, "more", "100", "bytes"],
            "extra: object more",
        ),
        (
            &["add", "set", family, table, "more", "{ type uid; }"],
            "extra: set more",
        ),
        (
            &["add", "element", family, table, "agents", "{ 70000 }"],
            "extra: element of set agents: a range that starts at uid 70000",
        ),
        (
            &[
                "delete",
                "element",
                family,
                table,
                "agents",
                "{ 700000-700999 }",
            ],
            "missing: element of set agents: a range that starts at uid 700000",
        ),
        (
            &["add", "table", family, table, "{ flags dormant; }"],
            "changed: table portcullis-lab",
        ),
    ];
    for (words, expected) in cases {
        lab.open();
        lab.shut();
        lab.boundary(&["verify"]).ok();
        lab.nft(words).ok();
        let finished = lab.boundary(&["verify"]);
        assert_eq!(finished.code(), 1, "{words:?}: {}", finished.shown());
        assert!(
            finished.stdout.contains(expected),
            "{words:?}: {}",
            finished.shown()
        );
        let json = lab.boundary(&["verify", "--json"]).stdout;
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["ok"], false);
    }
    // A rule with the right name and another meaning.
    lab.open();
    lab.shut();
    let comment = "agents reach nothing else";
    let handle = handle(&lab, "output", comment);
    let replacement = format!("meta skuid @agents accept comment \"{comment}\"");
    lab.nft(&[
        "replace",
        "rule",
        family,
        table,
        "output",
        "handle",
        &handle,
        &replacement,
    ])
    .ok();
    let finished = lab.boundary(&["verify"]);
    assert_eq!(finished.code(), 1, "{}", finished.shown());
    assert!(
        finished
            .stdout
            .contains("changed: rule output/\"agents reach nothing else\""),
        "{}",
        finished.shown()
    );
}

/// More disjoint ranges than fit into one message, or one page of a batch: still one transaction.
#[test]
fn thousands_of_ranges_are_one_transaction() {
    let lab = Lab::new("agents");
    lab.write_accounts(false);
    let ranges: Vec<String> = (0..3_500u32)
        .map(|index| format!("\"{}-{}\"", 100_000 + index * 10, 100_004 + index * 10))
        .collect();
    lab.write_config_with("agents", &format!("agents = [{}]", ranges.join(", ")), "");
    let words = ["tcp", super::lab::PEER4, "443"];
    let (shut, free) = (134_994, 134_995);
    assert_eq!(lab.attempt(shut, &words).outcome, "reached", "control");
    lab.shut();
    lab.boundary(&["verify"]).ok();
    assert_eq!(lab.attempt(shut, &words).outcome, "refused");
    assert_eq!(lab.attempt(free, &words).outcome, "reached");
}

/// `useradd` gives ranges unasked. Only users that are there for it own some; the rules stand anyway.
#[test]
fn an_agent_that_owns_subordinate_ids_is_named_with_line_and_remedy() {
    let lab = Lab::new("agents");
    lab.shut();
    lab.boundary(&["verify"]).ok();
    let own = |uids: &str, gids: &str| {
        host::file(&lab.path("etc/subuid"), uids, 0, 0o644);
        host::file(&lab.path("etc/subgid"), gids, 0, 0o644);
    };
    let reserved = "lab-agent:700000:1000\n";
    let agents = "agents = [\"lab-agent\", \"lab-other\"]";
    let numbers = "agents = [\"lab-agent\", 61501, \"800000-800009\"]";
    let reserves = "reserves = [\"lab-agent\"]";
    for (agents, uids, gids, expected) in [
        (
            agents,
            "# people\nlab-agent:700000:1000\nlab-other:800000:10\n",
            reserved,
            "/etc/subuid:3: \"lab-other:800000:10\": uid 61501 is an agent",
        ),
        (
            agents,
            reserved,
            "lab-agent:700000:1000\n61501:800000:10\n",
            "/etc/subgid:2: \"61501:800000:10\": uid 61501 is an agent",
        ),
        (
            numbers,
            "61501:800000:10\nlab-agent:700000:1000\n",
            reserved,
            "/etc/subuid:1: \"61501:800000:10\": uid 61501 is an agent",
        ),
    ] {
        lab.write_config_with("agents", &format!("{agents}\n{reserves}"), "");
        own(uids, gids);
        lab.shut();
        let finished = lab.boundary(&["verify"]);
        assert_eq!(finished.code(), 1, "{}", finished.shown());
        assert!(finished.stdout.contains(expected), "{}", finished.shown());
        let remedy = "hint: usermod --del-sub";
        assert!(finished.stdout.contains(remedy), "{}", finished.shown());
        assert_eq!(finished.stdout.matches("owns subordinate").count(), 1);
        // The control: without that line, and the reserve still with its range.
        own(reserved, reserved);
        lab.shut();
        lab.boundary(&["verify"]).ok();
    }
    // A reserve is one because it is called so.
    lab.write_config_with("agents", agents, "");
    lab.shut();
    let finished = lab.boundary(&["verify"]);
    assert_eq!(finished.code(), 1, "{}", finished.shown());
    for line in [
        "/etc/subuid:1: \"lab-agent:700000:1000\"",
        "/etc/subgid:1: \"lab-agent:700000:1000\"",
        "usermod --del-subuids 700000-700999 lab-agent",
        "usermod --del-subgids 700000-700999 lab-agent",
    ] {
        assert!(finished.stdout.contains(line), "{}", finished.shown());
    }
    // And it has to be shut.
    lab.write_config_with(
        "agents",
        "agents = [\"lab-other\"]\nreserves = [\"lab-agent\"]",
        "",
    );
    let finished = lab.boundary(&["apply"]);
    assert_eq!(finished.code(), 2, "{}", finished.shown());
    assert!(
        finished.stderr.contains("reserves[0]"),
        "{}",
        finished.shown()
    );
}
