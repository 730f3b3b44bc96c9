use super::*;
use crate::accounts::Accounts;
use crate::ruleset::Ruleset;

const GOOD: &str = r#"
scope = "agents"
table = "portcullis"
gate_port = 3128
proxy = "gate"
agents = ["agent", 1600, "1500-1599"]
status = "/run/portcullis/boundary/status.json"
"#;
const PASSWD: &str = "root:x:0:0::/:/bin/sh\ngate:x:900:900::/:/bin/sh\n\
                      agent:x:1000:1000::/:/bin/sh\nother:x:1550:1550::/:/bin/sh\n";

fn problems(text: &str) -> String {
    Config::parse(text, "b.toml").unwrap_err().to_string()
}

fn build(text: &str, subuid: &str) -> Result<Ruleset, Diagnostics> {
    let config = Config::parse(text, "b.toml").unwrap();
    let accounts = Accounts::from_texts(PASSWD, subuid, "").unwrap();
    Ruleset::build(&config, &accounts, "2026-12-01T00:00:00Z".parse().unwrap())
}

#[test]
fn a_good_file_is_read() {
    let config = Config::parse(GOOD, "b.toml").unwrap();
    assert_eq!(config.scope, Scope::Agents);
    assert_eq!(config.gate_port, 3128);
    assert_eq!(config.proxy.value, User::Name("gate".into()));
    assert_eq!(config.proxy.line, 5);
    let agents: Vec<_> = config.agents.into_iter().map(|entry| entry.value).collect();
    assert_eq!(
        agents,
        [
            Agents::User(User::Name("agent".into())),
            Agents::User(User::Uid(1600)),
            Agents::Range(UidRange {
                first: 1500,
                last: 1599
            }),
        ]
    );
}

#[test]
fn every_problem_is_reported_at_once_with_its_line() {
    let text = "scope = \"hosts\"\ngateport = 3128\nproxy = \"\"\nagents = [\"9-3\", true]\n\
                table = \"a b\"\nstatus = \"run/x\"\n";
    let shown = problems(text);
    for expected in [
        "b.toml:1: scope: unknown scope \"hosts\"",
        "b.toml:2: gateport: unknown key\n  hint: did you mean \"gate_port\"?",
        "b.toml: gate_port: missing",
        "b.toml:3: proxy: not a user",
        "b.toml:4: agents[0]: \"9-3\" ends before it starts",
        "b.toml:4: agents[1]: not a user",
        "b.toml:5: table: \"a b\" cannot name a table",
        "b.toml:6: status: must be an absolute path",
    ] {
        assert!(shown.contains(expected), "{expected}\n--\n{shown}");
    }
}

#[test]
fn broken_toml_names_the_line() {
    assert!(problems("scope = \"agents\"\nproxy = \n").contains("b.toml:2:"));
}

#[test]
fn nobody_shut_is_an_error_and_a_guest_may_name_its_agents() {
    assert!(problems(&GOOD.replace("[\"agent\", 1600, \"1500-1599\"]", "[]")).contains("nobody"));
    let without: String = GOOD
        .lines()
        .filter(|line| !line.starts_with("agents"))
        .collect::<Vec<_>>()
        .join("\n");
    assert!(problems(&without).contains("agents: missing"));
    let guest = without.replace("\"agents\"", "\"guest\"");
    assert!(Config::parse(&guest, "b.toml").is_ok());
    let named = GOOD.replace("scope = \"agents\"", "scope = \"guest\"");
    let named = Config::parse(&named, "b.toml").unwrap();
    assert_eq!(named.agents.len(), 3);
}

#[test]
fn a_guest_that_names_its_agents_has_the_same_rules() {
    let accounts = |more: &str| {
        let passwd = format!("gate:x:900:900::/:/bin/sh\nagent:x:1000:1000::/:/bin/sh\n{more}");
        Accounts::from_texts(&passwd, "agent:70000:1000\n", "").unwrap()
    };
    let build = |agents: &str, accounts: &Accounts| {
        let text = format!("scope = \"guest\"\ngate_port = 3128\nproxy = \"gate\"\n{agents}\n");
        let config = Config::parse(&text, "b.toml").unwrap();
        let ruleset = Ruleset::build(&config, accounts, jiff::Timestamp::UNIX_EPOCH);
        ruleset.map(|ruleset| (ruleset, config.shut(accounts)))
    };
    let (plain, nobody) = build("", &accounts("")).unwrap();
    let (named, agents) = build("agents = [\"agent\"]", &accounts("")).unwrap();
    assert_eq!(plain, named);
    let first: Vec<u32> = agents.iter().map(|range| range.first).collect();
    assert_eq!((nobody.len(), first), (0, vec![1000, 70_000]));
    let problems = build("agents = [\"gate\"]", &accounts("")).unwrap_err();
    assert!(problems.to_string().contains("also listed under agents"));
    let problems = build("agents = [\"nobody-here\"]", &accounts("")).unwrap_err();
    assert!(problems.to_string().contains("does not exist"));
}

#[test]
fn what_is_forwarded_is_refused_or_left_to_the_host_by_a_word() {
    let of = |line: &str| {
        Config::parse(&format!("{GOOD}{line}\n"), "b.toml").map(|config| config.forward)
    };
    assert_eq!(of("").unwrap(), None);
    assert_eq!(of("forward = \"refuse\"").unwrap(), Some(Forward::Refuse));
    assert_eq!(of("forward = \"host\"").unwrap(), Some(Forward::Host));
    assert!(problems(&format!("{GOOD}forward = \"drop\"\n")).contains("unknown word \"drop\""));
    let guest =
        |word: &str| format!("scope = \"guest\"\ngate_port = 1\nproxy = 9\nforward = \"{word}\"\n");
    assert!(problems(&guest("host")).contains("a guest passes nothing on"));
    assert!(Config::parse(&guest("refuse"), "b.toml").is_ok(), "control");
}

#[test]
fn ports_are_ports() {
    for bad in ["0", "65536", "-1", "\"3128\"", "3.5"] {
        let text = GOOD.replace("3128", bad);
        assert!(problems(&text).contains("gate_port: not a port"), "{bad}");
    }
}

fn exception(destination: &str, more: &str) -> String {
    format!(
        "{GOOD}[[exception]]\nuser = \"agent\"\ndestination = \"{destination}\"\n\
         reason = \"why\"\nexpires = \"2027-01-01T00:00:00Z\"\n{more}\n"
    )
}

#[test]
fn exceptions_say_where_to() {
    for good in [
        "192.0.2.1:443",
        "10.0.0.0/8:53",
        "[2001:db8::1]:1",
        "[2001:db8::/33]:65535",
    ] {
        assert!(
            Config::parse(&exception(good, ""), "b.toml").is_ok(),
            "{good}"
        );
    }
    for (bad, why) in [
        ("192.0.2.1", "no port"),
        ("192.0.2.1:0", "not a port"),
        ("192.0.2.1/33:1", "not a prefix"),
        ("192.0.2.1/24:1", "bits set"),
        ("0.0.0.0/0:1", "everything"),
        ("[::]/0:1", "not an IP address"),
        ("[::/0]:1", "everything"),
        ("example.org:443", "not an IP address"),
        ("2001:db8::1:443", "brackets"),
        ("[192.0.2.1]:443", "brackets"),
    ] {
        assert!(
            problems(&exception(bad, "")).contains(why),
            "{bad}: {}",
            problems(&exception(bad, ""))
        );
    }
}

#[test]
fn an_exception_needs_its_reason_and_its_end() {
    let full = exception("192.0.2.1:443", "");
    for key in ["user", "destination", "reason", "expires"] {
        let without: Vec<_> = full.lines().rev().collect();
        let mut dropped = false;
        let text: Vec<_> = without
            .into_iter()
            .filter(|line| {
                let hit = !dropped && line.starts_with(&format!("{key} ="));
                dropped |= hit;
                !hit
            })
            .collect();
        let text = text.into_iter().rev().collect::<Vec<_>>().join("\n");
        assert!(
            problems(&text).contains(&format!("exception[0].{key}: missing")),
            "{key}"
        );
    }
    assert!(problems(&full.replace("\"why\"", "\"a \\\" quote\"")).contains("not a reason"));
    assert!(problems(&full.replace("\"why\"", "\" \"")).contains("not a reason"));
    assert!(problems(&full.replace("2027-01-01T00:00:00Z", "tomorrow")).contains("not a date"));
    assert!(problems(&exception("192.0.2.1:443", "protocol = \"icmp\"")).contains("protocol"));
    assert!(problems(&exception("192.0.2.1:443", "until = 1")).contains("exception[0].until"));
}

#[test]
fn a_user_stands_for_its_subordinates() {
    let ruleset = build(GOOD, "agent:100000:65536\nunrelated:300000:10\n").unwrap();
    let text = crate::render::canonical(&ruleset);
    assert!(
        text.contains("elements = { 1000, 1500-1600, 100000-165535 }"),
        "{text}"
    );
}

#[test]
fn an_uncovered_subordinate_range_is_refused() {
    let text = build(GOOD, "other:200000:10\n").unwrap_err().to_string();
    assert!(text.contains("b.toml:6: agents: uid 1550"), "{text}");
    assert!(text.contains("200000-200009"), "{text}");
    assert!(
        build(GOOD, "1550:200000:10\n").is_err(),
        "an owner in digits is an owner"
    );
    let covered = GOOD.replace("\"1500-1599\"", "\"1500-1599\", \"200000-200009\"");
    assert!(build(&covered, "other:200000:10\n").is_ok());
    let named = GOOD.replace("\"1500-1599\"", "\"1500-1599\", \"other\"");
    assert!(build(&named, "other:200000:10\n").is_ok());
}

#[test]
fn subordinate_groups_are_held_to_the_same_rule() {
    let with_groups = |text: &str, subgid: &str| {
        let config = Config::parse(text, "b.toml").unwrap();
        let accounts = Accounts::from_texts(PASSWD, "", subgid).unwrap();
        Ruleset::build(&config, &accounts, jiff::Timestamp::UNIX_EPOCH)
    };
    for owner in ["other", "1550"] {
        let line = format!("{owner}:200000:10\n");
        let text = with_groups(GOOD, &line).unwrap_err().to_string();
        assert!(
            text.contains("gids 200000-200009") && text.contains("/etc/subgid"),
            "{text}"
        );
    }
    for more in ["\"200000-200009\"", "\"other\""] {
        let covered = GOOD.replace("\"1500-1599\"", &format!("\"1500-1599\", {more}"));
        assert!(with_groups(&covered, "other:200000:10\n").is_ok(), "{more}");
    }
    assert!(with_groups(GOOD, "unrelated:200000:10\n").is_ok());
}

#[test]
fn a_table_cannot_be_named_like_the_guard_of_another() {
    let named = |name: &str| GOOD.replace("\"portcullis\"", name);
    let text = problems(&named("\"a-guard\""));
    assert!(text.contains("a-guard"), "{text}");
    assert!(Config::parse(&named("\"a-guards\""), "b.toml").is_ok());
}

/// What may come to be without anybody's decision: fewer openings, more shut.
#[test]
fn a_ruleset_knows_what_it_would_open() {
    let build = |text: &str, passwd: &str, subuid: &str| {
        let config = Config::parse(text, "b.toml").unwrap();
        let accounts = Accounts::from_texts(passwd, subuid, "").unwrap();
        Ruleset::build(&config, &accounts, jiff::Timestamp::UNIX_EPOCH).unwrap()
    };
    let named = |agents: &str, more: &str| {
        format!(
            "scope = \"agents\"\ngate_port = 3128\nproxy = \"gate\"\nagents = [{agents}]\n{more}"
        )
    };
    let exception = |user: &str| {
        format!(
            "[[exception]]\nuser = {user}\ndestination = \"192.0.2.1:443\"\nreason = \"r\"\n\
             expires = \"2999-01-01T00:00:00Z\"\n"
        )
    };
    let before = build(
        &named("\"agent\"", &exception("4000")),
        PASSWD,
        "agent:100000:10\n",
    );
    let moved = PASSWD.replace("agent:x:1000:", "agent:x:1001:");
    assert_ne!(moved, PASSWD);
    let another_gate = PASSWD.replace("gate:x:900:", "gate:x:901:");
    let opening = [
        (
            "another uid",
            build(
                &named("\"agent\"", &exception("4000")),
                &moved,
                "agent:100000:10\n",
            ),
        ),
        (
            "fewer subordinates",
            build(
                &named("\"agent\"", &exception("4000")),
                PASSWD,
                "agent:100000:9\n",
            ),
        ),
        (
            "another exception",
            build(
                &named("\"agent\"", &exception("4001")),
                PASSWD,
                "agent:100000:10\n",
            ),
        ),
        (
            "another gate",
            build(
                &named("\"agent\"", &exception("4000")),
                &another_gate,
                "agent:100000:10\n",
            ),
        ),
    ];
    for (name, after) in opening {
        assert!(after.opens_beyond(&before).is_some(), "{name}");
    }
    let shutting = [
        ("the same", before.clone()),
        (
            "more subordinates",
            build(
                &named("\"agent\"", &exception("4000")),
                PASSWD,
                "agent:100000:11\n",
            ),
        ),
        (
            "no exception any more",
            build(&named("\"agent\"", ""), PASSWD, "agent:100000:10\n"),
        ),
    ];
    for (name, after) in shutting {
        assert_eq!(after.opens_beyond(&before), None, "{name}");
    }
}

#[test]
fn the_gate_is_nobodys_alias() {
    let cases = [
        (GOOD.replace("\"gate\"", "0"), "", "root and nobody"),
        (GOOD.replace("\"gate\"", "\"root\""), "", "root and nobody"),
        (GOOD.replace("\"gate\"", "65534"), "", "root and nobody"),
        (
            GOOD.replace("\"gate\"", "1555"),
            "",
            "also listed under agents",
        ),
        (
            GOOD.replace("\"gate\"", "\"agent\""),
            "",
            "also listed under agents",
        ),
        (GOOD.replace("\"gate\"", "\"gone\""), "", "does not exist"),
        (
            GOOD.to_owned(),
            "agent:800:200\n",
            "also listed under agents",
        ),
        (GOOD.to_owned(), "unlisted:800:200\nother:1:1\n", ""),
        (
            GOOD.replace("\"agent\"", "\"nobody-here\""),
            "",
            "agents[0]: user \"nobody-here\"",
        ),
        (GOOD.replace("1600", "0"), "", "uid 0 cannot be an agent"),
        (
            GOOD.replace("\"1500-1599\"", "\"0-99\""),
            "",
            "uid 0 cannot be an agent",
        ),
        (
            GOOD.replace("1500-1599", "1500-4294967295"),
            "",
            "4294967295",
        ),
    ];
    for (text, subuid, expected) in cases {
        let shown = build(&text, subuid).unwrap_err().to_string();
        assert!(shown.contains(expected), "{expected}\n--\n{shown}");
    }
    // A user outside the list that could become the gate.
    let passwd = format!("{PASSWD}unlisted:x:3000:3000::/:/bin/sh\n");
    let config = Config::parse(GOOD, "b.toml").unwrap();
    let accounts = Accounts::from_texts(&passwd, "unlisted:800:200\n", "").unwrap();
    let shown = Ruleset::build(&config, &accounts, jiff::Timestamp::UNIX_EPOCH).unwrap_err();
    assert!(
        shown.to_string().contains("could become the gate"),
        "{shown}"
    );
}

#[test]
fn an_exception_is_in_force_until_it_expires() {
    let text = exception("192.0.2.1:443", "");
    let config = Config::parse(&text, "b.toml").unwrap();
    let accounts = Accounts::from_texts(PASSWD, "", "").unwrap();
    let at = |time: &str| {
        let ruleset = Ruleset::build(&config, &accounts, time.parse().unwrap()).unwrap();
        crate::render::canonical(&ruleset).contains("192.0.2.1")
    };
    assert!(at("2026-12-31T23:59:59Z"));
    assert!(!at("2027-01-01T00:00:00Z"));
    let gate = text.replace("user = \"agent\"", "user = \"gate\"");
    assert!(
        build(&gate, "")
            .unwrap_err()
            .to_string()
            .contains("needs no exception")
    );
}
