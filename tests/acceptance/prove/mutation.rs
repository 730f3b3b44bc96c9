//! Each rule of the boundary is taken away in turn: `prove` goes red, or, for a rule that is listed with a reason as
//! redundant, `portcullis-boundary verify` does. So does each chain's policy. Every rule of every kind of configuration has
//! its turn, by its name and scope once.

use std::sync::Mutex;
use std::thread;

use serde_json::Value;

use super::SCOPES;
use super::lab::{Lab, TABLE};
use tests::binaries;

/// Hosts side by side: most of a run is waiting.
const HOSTS: usize = 5;

/// Flows that are led to the gate without having asked.
const LED: &str = "[redirect]\nport = 3129\n[resolver]\nport = 3153\n";
/// The same for some ports alone.
const PORTS: &str = "[redirect]\nport = 3129\nports = [80, 8443]\n";
/// Who may leave for a while, over both protocols.
const EXCEPTIONS: &str = r#"
[[exception]]
user = 42
destination = "203.0.113.10:443"
reason = "packages"
expires = "2100-01-01T00:00:00Z"
[[exception]]
user = 42
destination = "[2001:db8:ffff::]:53"
protocol = "udp"
reason = "names"
expires = "2100-01-01T00:00:00Z"
"#;
/// What a guest names.
const NAMED: &str = r#"
[guest.dhcp]
user = 0
servers = ["203.0.113.1", "ff02::1:2"]
reason = "the lease"
[guest.resolver]
user = 43
servers = ["203.0.113.53:53", "[2001:db8:ffff::53]:53"]
reason = "names for the gate"
[[guest.administration]]
sources = ["203.0.113.0/28", "2001:db8:ffff::/64"]
ports = [22, 2222]
reason = "maintenance"
[[guest.administration]]
sources = ["203.0.113.16/28"]
ports = [22]
user = 44
reason = "more of it"
"#;

/// The proofs that a rule of packets may touch: they are tried first, and the whole list only where none of them noticed.
const FIRST: &[&str] = &[
    "KRN-01",
    "KRN-03-udp",
    "KRN-05-from-gate-port",
    "KRN-05-loopback",
    "KRN-24-agent",
    "KRN-24-full",
    "OPN-counted",
    "OPN-finish",
    "OPN-gate-away",
    "OPN-gate-dns",
    "OPN-gate-loopback",
    "OPN-gate-port",
    "OPN-gate-tcp",
    "OPN-neighbour",
    "OWN-inbound",
    "OWN-spoofed-tcp",
    "OWN-spoofed-udp",
];

/// One thing to take away, by its name in `[[redundant]]`.
#[derive(Debug, Clone)]
struct Mutation {
    name: String,
    words: Vec<String>,
}

/// One entry of `[[redundant]]`: a rule, or with a `*` each rule of a kind that a configuration may have any number of.
#[derive(Debug)]
struct Redundant(String);

impl Redundant {
    fn is(&self, name: &str) -> bool {
        match self.0.split_once('*') {
            None => self.0 == name,
            Some((head, tail)) => {
                name.len() >= head.len() + tail.len()
                    && name.starts_with(head)
                    && name.ends_with(tail)
            }
        }
    }

    /// What lets something through, and nothing else: taken away together they are taken away one by one.
    fn is_opening(&self) -> bool {
        self.0.contains('*')
    }
}

#[test]
fn no_rule_goes_unnoticed() {
    let mut all = Vec::new();
    for scope in SCOPES {
        let named = if scope == "guest" { NAMED } else { "" };
        let everything = format!("{EXCEPTIONS}{LED}{named}");
        let redundant = redundant(scope);
        let mut known: Vec<String> = Vec::new();
        // Of each only what those before it have not: the others are the same rules.
        for more in ["", LED, PORTS, &everything] {
            let mut fresh = mutations(scope, more);
            fresh.retain(|mutation| !known.contains(&mutation.name));
            assert!(!fresh.is_empty(), "{scope}: nothing new in {more}");
            known.extend(fresh.iter().map(|mutation| mutation.name.clone()));
            all.extend(unnoticed(scope, more, fresh, &redundant));
        }
        let gone = redundant
            .iter()
            .filter(|entry| !known.iter().any(|name| entry.is(name)));
        all.extend(
            gone.map(|entry| format!("{scope}: {} is listed as redundant and is no rule", entry.0)),
        );
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

/// What is wrong with how these were noticed, on several hosts side by side.
fn unnoticed(
    scope: &str,
    more: &str,
    mutations: Vec<Mutation>,
    redundant: &[Redundant],
) -> Vec<String> {
    let entry = |name: &str| redundant.iter().find(|entry| entry.is(name));
    let is_opening =
        |mutation: &&Mutation| entry(&mutation.name).is_some_and(Redundant::is_opening);
    let openings: Vec<Mutation> = mutations.iter().filter(is_opening).cloned().collect();
    let wrong = Mutex::new(Vec::new());
    let work = Mutex::new(mutations);
    thread::scope(|threads| {
        threads.spawn(|| {
            wrong
                .lock()
                .unwrap()
                .extend(without(scope, more, &openings))
        });
        for _ in 0..HOSTS {
            threads.spawn(|| {
                let lab = Lab::with(scope, more);
                loop {
                    let Some(mutation) = work.lock().unwrap().pop() else {
                        return;
                    };
                    let problem = judge(&lab, &mutation, entry(&mutation.name));
                    let problem = problem.map(|text| format!("{scope}: {}: {text}", mutation.name));
                    wrong.lock().unwrap().extend(problem);
                }
            });
        }
    });
    wrong.into_inner().unwrap()
}

/// With these rules, and without all of them: green.
fn without(scope: &str, more: &str, openings: &[Mutation]) -> Option<String> {
    let lab = Lab::with(scope, more);
    lab.shut();
    for mutation in openings {
        take_away(&lab, mutation);
    }
    let proven = lab.prove(&[]);
    (proven.code != 0).then(|| {
        let names: Vec<&str> = openings.iter().map(|one| one.name.as_str()).collect();
        format!(
            "{scope}: {more}: without {names:?} not green: {}",
            proven.shown()
        )
    })
}

fn take_away(lab: &Lab, mutation: &Mutation) {
    let words: Vec<&str> = mutation.words.iter().map(String::as_str).collect();
    lab.nft(&[&words[..], &handle(lab, mutation)].concat());
}

/// What is wrong with how a mutation was noticed.
fn judge(lab: &Lab, mutation: &Mutation, redundant: Option<&Redundant>) -> Option<String> {
    lab.shut();
    take_away(lab, mutation);
    let verified = lab.boundary("verify");
    if verified.code() != 1 {
        return Some(format!("verify does not notice: {}", verified.shown()));
    }
    if redundant.is_some_and(Redundant::is_opening) {
        return None;
    }
    let proven = lab.prove_only(FIRST, "");
    match (proven.code, redundant) {
        (1, None) | (0, Some(_)) => return None,
        (1, Some(_)) => {
            return Some(format!(
                "is no longer redundant, prove notices:\n{}",
                proven.shown()
            ));
        }
        _ => {}
    }
    let proven = lab.prove(&[]);
    match (proven.code, redundant) {
        (1, None) | (0, Some(_)) => None,
        _ => Some(format!(
            "prove does not notice, and it is not listed as redundant:\n{}",
            proven.shown()
        )),
    }
}

/// A rule is deleted by the handle it has on this host.
fn handle<'a>(lab: &Lab, mutation: &Mutation) -> Vec<&'a str> {
    if mutation.words[0] != "delete" {
        return Vec::new();
    }
    let (chain, comment) = mutation.name.split_once('/').unwrap();
    let rules = listed(lab);
    let rule = rules
        .iter()
        .find(|rule| rule["rule"]["chain"] == chain && rule["rule"]["comment"] == comment);
    let handle =
        rule.unwrap_or_else(|| panic!("no rule {}", mutation.name))["rule"]["handle"].to_string();
    vec!["handle", handle.leak()]
}

fn listed(lab: &Lab) -> Vec<Value> {
    let text = lab.nft(&["-j", "list", "table", "inet", TABLE]).stdout;
    let value: Value = serde_json::from_str(&text).unwrap();
    value["nftables"].as_array().unwrap().clone()
}

/// Every rule, and every policy that refuses, as the kernel holds them.
fn mutations(scope: &str, more: &str) -> Vec<Mutation> {
    let lab = Lab::with(scope, more);
    lab.shut();
    let mut found = Vec::new();
    for object in listed(&lab) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if let Some(rule) = object.get("rule") {
            let (chain, comment) = (text(&rule["chain"]), text(&rule["comment"]));
            assert!(!comment.is_empty(), "a rule without a comment: {rule}");
            let words = ["delete", "rule", "inet", TABLE, &chain].map(str::to_owned);
            found.push(Mutation {
                name: format!("{chain}/{comment}"),
                words: words.to_vec(),
            });
        }
        let chain = &object["chain"];
        if chain["policy"] == "drop" {
            let name = text(&chain["name"]);
            let words = ["chain", "inet", TABLE, &name, "{ policy accept; }"].map(str::to_owned);
            found.push(Mutation {
                name: format!("{name}/policy"),
                words: words.to_vec(),
            });
        }
    }
    found
}

/// What the list of proofs calls redundant in this scope.
fn redundant(scope: &str) -> Vec<Redundant> {
    let text =
        std::fs::read_to_string(binaries::repository().join("provisioning/proofs.toml")).unwrap();
    let list: toml::Value = toml::from_str(&text).unwrap();
    let entries = list
        .get("redundant")
        .and_then(toml::Value::as_array)
        .cloned()
        .unwrap_or_default();
    let here = entries.iter().filter(|entry| {
        entry
            .get("scope")
            .is_none_or(|only| only.as_str() == Some(scope))
    });
    here.map(|entry| Redundant(entry["rule"].as_str().unwrap().to_owned()))
        .collect()
}
