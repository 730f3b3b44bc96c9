//! Parameters of Proxmox VE.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use policy::authority::{Authority, Scheme};
use policy::{Body, Content, Decision, Facts, Policy, Reading, Request, Routing};

use crate::inspect::parameters::{Pairs, of_form, of_json};

const POLICY: &str = "[[service]]\nkind = \"proxmox\"\nhost = \"pve.lan.example\"\napi = \"operator\"\n\
    vmids = [\"100-199\"]\nstorages = [\"local\"]\n";

static OPERATOR: LazyLock<Policy> = LazyLock::new(|| {
    Policy::parse(POLICY, "proxmox.toml").expect("the policy is this file's own, and loads")
});

/// What is read of a form is what Proxmox reads; JSON says the same; what is permitted stays within its bounds as
/// Proxmox reads it.
pub(crate) fn check(bytes: &[u8]) {
    if let Ok(pairs) = of_json(bytes) {
        judged(&pairs);
    }
    let Ok(pairs) = of_form(bytes) else {
        return;
    };
    let read = as_proxmox_reads(bytes);
    let mut joined: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for (name, value) in &pairs {
        let all = joined.entry(name.clone().into_bytes());
        all.and_modify(|all| {
            all.push(0);
            all.extend_from_slice(value.as_bytes());
        })
        .or_insert_with(|| value.clone().into_bytes());
    }
    assert_eq!(joined, read);
    if joined.len() == pairs.len() {
        let members = pairs
            .iter()
            .map(|(name, value)| (name.clone(), value.clone().into()));
        let object = serde_json::Value::Object(members.collect());
        let mut sorted = pairs.clone();
        sorted.sort();
        let mut json = of_json(object.to_string().as_bytes()).expect("plain members are read");
        json.sort();
        assert_eq!(json, sorted);
    }
    if judged(&pairs) {
        let new = read.get(&b"newid"[..]).map(Vec::as_slice);
        let new = new.and_then(|text| std::str::from_utf8(text).ok()?.parse::<u32>().ok());
        assert!(new.is_some_and(|new| (100..200).contains(&new)), "{read:?}");
        let storage = read.get(&b"storage"[..]).map(Vec::as_slice);
        assert!(
            storage.is_none_or(|storage| storage == b"local"),
            "{read:?}"
        );
        let known = [
            "newid",
            "pool",
            "storage",
            "target",
            "full",
            "snapname",
            "description",
            "bwlimit",
            "hostname",
        ];
        assert!(
            read.keys()
                .all(|name| known.iter().any(|known| known.as_bytes() == name)),
            "{read:?}"
        );
    }
}

/// Whether a clone that carries these is permitted.
fn judged(pairs: &Pairs) -> bool {
    let authority = Authority::parse("pve.lan.example:8006").expect("a plain authority");
    let Routing::Route(route) = OPERATOR.route(Scheme::Https, &authority) else {
        panic!("the host is listed");
    };
    let request = Request {
        scheme: Scheme::Https,
        authority: &authority,
        method: "POST",
        target: "/api2/json/nodes/pve/lxc/101/clone",
    };
    let facts = Facts::Content(Arc::new(Content {
        body: Some(Body {
            bytes: Some(1),
            parameters: Reading::Read(pairs.clone()),
            ..Body::beyond()
        }),
        ..Content::default()
    }));
    matches!(
        OPERATOR.decide(&route, &request, &facts),
        Decision::Permit(_)
    )
}

/// `decode_urlencoded` of pve-http-server, in other words.
fn as_proxmox_reads(text: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut read: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for part in text
        .split(|byte| matches!(byte, b'&' | b';'))
        .filter(|part| !part.is_empty())
    {
        let mut halves = part.split(|byte| *byte == b'=');
        let (name, value) = (
            halves.next().unwrap_or_default(),
            halves.next().unwrap_or_default(),
        );
        let value = unescaped(value);
        let all = read.entry(unescaped(name));
        all.and_modify(|all| {
            all.push(0);
            all.extend_from_slice(&value);
        })
        .or_insert(value.clone());
    }
    read
}

fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let digits = text
            .get(at + 1..at + 3)
            .and_then(|two| std::str::from_utf8(two).ok());
        let digits = digits.filter(|two| two.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match (
            byte,
            digits.and_then(|two| u8::from_str_radix(two, 16).ok()),
        ) {
            (b'%', Some(value)) => {
                out.push(value);
                at += 2;
            }
            (b'+', _) => out.push(b' '),
            (other, _) => out.push(other),
        }
        at += 1;
    }
    out
}
