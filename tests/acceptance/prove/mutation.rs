//! Each rule of the boundary is taken away in turn: `prove` goes red, or, for a rule that is listed with a reason as
//! redundant, `portcullis-boundary verify` does. So does each chain's policy.

use std::sync::Mutex;
use std::thread;

use serde_json::Value;

use super::SCOPES;
use super::lab::{Lab, TABLE};
use tests::binaries;

/// Hosts side by side: most of a run is waiting.
const HOSTS: usize = 5;

/// Plain, and with flows that are led to the gate without having asked. Of the second only what the
/// first has not: the others are the same rules.
const CONFIGURATIONS: [&str; 2] = ["", "[redirect]\nport = 3129\n[resolver]\nport = 3153\n"];

/// One thing to take away, by its name in `[[redundant]]`.
#[derive(Debug, Clone)]
struct Mutation {
    name: String,
    words: Vec<String>,
}

#[test]
fn no_rule_goes_unnoticed() {
    let mut all = Vec::new();
    for scope in SCOPES {
        let redundant = redundant(scope);
        let mut known: Vec<String> = Vec::new();
        for more in CONFIGURATIONS {
            let mut fresh = mutations(scope, more);
            fresh.retain(|mutation| !known.contains(&mutation.name));
            assert!(fresh.len() > 8, "{scope}: only {} mutations", fresh.len());
            known.extend(fresh.iter().map(|mutation| mutation.name.clone()));
            all.extend(unnoticed(scope, more, fresh, &redundant));
        }
        let gone = redundant.iter().filter(|name| !known.contains(name));
        all.extend(
            gone.map(|name| format!("{scope}: {name} is listed as redundant and is no rule")),
        );
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

/// What is wrong with how these were noticed, on several hosts side by side.
fn unnoticed(
    scope: &str,
    more: &str,
    mutations: Vec<Mutation>,
    redundant: &[String],
) -> Vec<String> {
    let work = Mutex::new(mutations);
    let wrong = Mutex::new(Vec::new());
    thread::scope(|threads| {
        for _ in 0..HOSTS {
            threads.spawn(|| {
                let lab = Lab::with(scope, more);
                loop {
                    let Some(mutation) = work.lock().unwrap().pop() else {
                        return;
                    };
                    let problem = judge(&lab, &mutation, redundant.contains(&mutation.name));
                    wrong
                        .lock()
                        .unwrap()
                        .extend(problem.map(|text| format!("{scope}: {}: {text}", mutation.name)));
                }
            });
        }
    });
    wrong.into_inner().unwrap()
}

/// What is wrong with how a mutation was noticed.
fn judge(lab: &Lab, mutation: &Mutation, redundant: bool) -> Option<String> {
    lab.shut();
    let words: Vec<&str> = mutation.words.iter().map(String::as_str).collect();
    let words = [&words[..], &handle(lab, mutation)].concat();
    lab.nft(&words);
    let verified = lab.boundary("verify");
    if verified.code() != 1 {
        return Some(format!("verify does not notice: {}", verified.shown()));
    }
    let proven = lab.prove(&[]);
    match (proven.code, redundant) {
        (1, false) | (0, true) => None,
        (1, true) => Some(format!(
            "is no longer redundant, prove notices:\n{}",
            proven.shown()
        )),
        (_, _) => Some(format!(
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
fn redundant(scope: &str) -> Vec<String> {
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
    here.map(|entry| entry["rule"].as_str().unwrap().to_owned())
        .collect()
}
