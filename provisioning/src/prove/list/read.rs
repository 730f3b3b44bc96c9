//! TOML text to [`List`], collecting every problem with its line.

use nftables::diagnostics::Diagnostics;
use nftables::reader::{Reader, Value, nearest};
use toml::de::DeTable;

use super::{Elsewhere, List, Proof, Redundant};
use crate::prove::kind::{Families, Kind, Must, Service, Who, Word};

const KEYS: &[&str] = &["version", "extends", "proof", "elsewhere", "redundant"];
const PROOF_KEYS: &[&str] = &[
    "id",
    "must",
    "attempt",
    "as",
    "family",
    "ports",
    "paths",
    "names",
    "headers",
    "inside",
    "scope",
    "answer",
    "without_gate",
    "reason",
];
const ELSEWHERE_KEYS: &[&str] = &["case", "test", "reason"];
const REDUNDANT_KEYS: &[&str] = &["rule", "scope", "reason"];
const ID_HINT: &str = "a short name without blanks, unique in the list: \"KRN-01\", \"OWN-backup\"";
const REASON_HINT: &str = "say in a sentence why this must hold";

pub(super) fn list(text: &str, file: &str) -> Result<List, Diagnostics> {
    Reader::read(text, file, |reader, table| Some(whole(reader, table)))
}

fn whole(reader: &mut Reader<'_>, table: &DeTable<'_>) -> List {
    reader.known(table, "", KEYS);
    version(reader, table);
    let mut list = List {
        extends: flag(reader, table, "", "extends", false),
        ..List::default()
    };
    for (entry, table, name) in reader.tables(table, "", "proof") {
        let (prefix, line) = (format!("{name}."), reader.line(&entry.span()));
        if let Some(proof) = proof(reader, table, &prefix, line) {
            if list.proofs.iter().any(|other| other.id == proof.id) {
                let text = format!("{:?} names two proofs", proof.id);
                let key = format!("{prefix}id");
                reader.problems.add(line, key, text, ID_HINT);
            }
            list.proofs.push(proof);
        }
    }
    for (entry, table, name) in reader.tables(table, "", "elsewhere") {
        let line = reader.line(&entry.span());
        list.elsewhere
            .extend(elsewhere(reader, table, &format!("{name}."), line));
    }
    for (entry, table, name) in reader.tables(table, "", "redundant") {
        let line = reader.line(&entry.span());
        list.redundant
            .extend(redundant(reader, table, &format!("{name}."), line));
    }
    if list.proofs.is_empty() && reader.problems.problems.is_empty() {
        let hint = "a list without a proof would always hold; write at least one [[proof]]";
        reader.problems.add(0, "proof", "there is none", hint);
    }
    list
}

fn version(reader: &mut Reader<'_>, table: &DeTable<'_>) {
    let hint = "write `version = 1` as the first line";
    match table.get("version") {
        None => reader.problems.add(0, "version", "missing", hint),
        Some(value) => {
            let number = value.get_ref().as_integer();
            if number.is_none_or(|number| number.as_str() != "1") {
                reader.problem(value, "version", "this program reads version 1", hint);
            }
        }
    }
}

fn text<'a>(
    reader: &mut Reader<'_>,
    table: &'a DeTable<'_>,
    at: (&str, usize),
    key: &str,
    hint: &str,
) -> Option<&'a str> {
    let (prefix, line) = at;
    let full = format!("{prefix}{key}");
    let Some(value) = table.get(key) else {
        reader.problems.add(line, full, "missing", hint);
        return None;
    };
    let text = value.get_ref().as_str().map(str::trim);
    if text.is_none_or(str::is_empty) {
        reader.problem(value, &full, "must be a string that is not empty", hint);
    }
    text.filter(|text| !text.is_empty())
}

/// A word of a closed list, if the key is there.
fn word<W: Word>(
    reader: &mut Reader<'_>,
    table: &DeTable<'_>,
    prefix: &str,
    key: &str,
) -> Option<W> {
    let value = table.get(key)?;
    let words: Vec<&str> = W::WORDS.iter().map(|(word, _)| *word).collect();
    let text = value.get_ref().as_str().unwrap_or_default();
    let found = W::of(text);
    if found.is_none() {
        let hint = nearest(text, &words).unwrap_or_else(|| format!("one of {}", words.join(", ")));
        let text = format!("unknown word {text:?}");
        reader.problem(value, &format!("{prefix}{key}"), text, &hint);
    }
    found
}

fn flag(
    reader: &mut Reader<'_>,
    table: &DeTable<'_>,
    prefix: &str,
    key: &str,
    default: bool,
) -> bool {
    let Some(value) = table.get(key) else {
        return default;
    };
    let flag = value.get_ref().as_bool();
    if flag.is_none() {
        let key = format!("{prefix}{key}");
        reader.problem(value, &key, "must be true or false", "true or false");
    }
    flag.unwrap_or(default)
}

fn strings(reader: &mut Reader<'_>, table: &DeTable<'_>, prefix: &str, key: &str) -> Vec<String> {
    let Some(value) = table.get(key) else {
        return Vec::new();
    };
    let entries: Option<Vec<&str>> = value
        .get_ref()
        .as_array()
        .and_then(|list| list.iter().map(|entry| entry.get_ref().as_str()).collect());
    if entries.is_none() {
        let key = format!("{prefix}{key}");
        reader.problem(value, &key, "must be a list of strings", "[\"…\", \"…\"]");
    }
    let entries = entries.unwrap_or_default();
    entries.into_iter().map(str::to_owned).collect()
}

fn ports(reader: &mut Reader<'_>, table: &DeTable<'_>, prefix: &str) -> Vec<u16> {
    let Some(value) = table.get("ports") else {
        return Vec::new();
    };
    let read = |entry: Value<'_, '_>| {
        let number = entry.get_ref().as_integer()?;
        let port = u16::from_str_radix(number.as_str(), number.radix()).ok()?;
        (port != 0).then_some(port)
    };
    let ports: Option<Vec<u16>> = value
        .get_ref()
        .as_array()
        .and_then(|list| list.iter().map(read).collect());
    if ports.is_none() {
        let key = format!("{prefix}ports");
        reader.problem(value, &key, "must be a list of ports", "[443, 8443]");
    }
    ports.unwrap_or_default()
}

fn proof(reader: &mut Reader<'_>, table: &DeTable<'_>, prefix: &str, line: usize) -> Option<Proof> {
    reader.known(table, prefix, PROOF_KEYS);
    let at = (prefix, line);
    let id = text(reader, table, at, "id", ID_HINT);
    if let (Some(text), Some(value)) = (id, table.get("id"))
        && !text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    {
        let text = format!("{text:?} is no id");
        reader.problem(value, &format!("{prefix}id"), text, ID_HINT);
    }
    for key in ["must", "attempt"] {
        text(reader, table, at, key, "see docs/prove.md for the words");
    }
    let reason = text(reader, table, at, "reason", REASON_HINT);
    let must: Option<Must> = word(reader, table, prefix, "must");
    let kind: Option<Kind> = word(reader, table, prefix, "attempt");
    let proof = Proof {
        id: id.unwrap_or_default().to_owned(),
        must: must.unwrap_or(Must::Fail),
        kind: kind.unwrap_or(Kind::Tcp),
        who: word(reader, table, prefix, "as").unwrap_or(Who::Agent),
        families: word(reader, table, prefix, "family").unwrap_or(Families::Both),
        ports: ports(reader, table, prefix),
        paths: strings(reader, table, prefix, "paths"),
        names: strings(reader, table, prefix, "names"),
        headers: strings(reader, table, prefix, "headers"),
        inside: word(reader, table, prefix, "inside"),
        only_in: word(reader, table, prefix, "scope"),
        answer: word(reader, table, prefix, "answer"),
        without_gate: flag(reader, table, prefix, "without_gate", true),
        reason: reason.unwrap_or_default().to_owned(),
    };
    kind?;
    fits(reader, &proof, prefix, line, table);
    (must.is_some() && !proof.id.is_empty() && !proof.reason.is_empty()).then_some(proof)
}

/// Whether the keys fit the attempt: one that would be ignored is a mistake.
fn fits(reader: &mut Reader<'_>, proof: &Proof, prefix: &str, line: usize, table: &DeTable<'_>) {
    let word = proof.kind.word();
    let wants = [
        ("ports", proof.kind.has_ports(), proof.ports.is_empty()),
        ("paths", proof.kind.has_paths(), proof.paths.is_empty()),
        ("names", proof.kind.has_names(), proof.names.is_empty()),
        (
            "headers",
            proof.kind.has_headers(),
            proof.headers.is_empty(),
        ),
    ];
    for (key, wanted, empty) in wants {
        let full = format!("{prefix}{key}");
        if wanted && empty {
            let text = format!("missing: {word:?} needs it");
            reader.problems.add(line, full, text, "see docs/prove.md");
        } else if let (false, Some(value)) = (wanted, table.get(key)) {
            let text = format!("has no meaning for {word:?}");
            reader.problem(value, &full, text, "remove it");
        }
    }
    if proof.kind == Kind::NameService
        && let Some(value) = table.get("names")
    {
        let words: Vec<&str> = Service::WORDS.iter().map(|(word, _)| *word).collect();
        let unknown = proof
            .names
            .iter()
            .filter(|name| Service::of(name).is_none());
        for name in unknown {
            let hint =
                nearest(name, &words).unwrap_or_else(|| format!("one of {}", words.join(", ")));
            let text = format!("unknown service {name:?}");
            reader.problem(value, &format!("{prefix}names"), text, &hint);
        }
    }
    for (key, fits) in [
        ("family", proof.kind.has_family()),
        (
            "inside",
            proof.kind.has_family() || proof.kind == Kind::Netlink,
        ),
    ] {
        if let (false, Some(value)) = (fits, table.get(key)) {
            let text = format!("has no meaning for {word:?}");
            reader.problem(value, &format!("{prefix}{key}"), text, "remove it");
        }
    }
    if proof.must == Must::Fail
        && proof.who == Who::Gate
        && let Some(value) = table.get("as")
    {
        let hint = "the gate is the positive control of what must fail; use \"agent\"";
        let text = "the gate may do what others may not";
        reader.problem(value, &format!("{prefix}as"), text, hint);
    }
}

fn elsewhere(
    reader: &mut Reader<'_>,
    table: &DeTable<'_>,
    prefix: &str,
    line: usize,
) -> Option<Elsewhere> {
    reader.known(table, prefix, ELSEWHERE_KEYS);
    let at = (prefix, line);
    let case = text(reader, table, at, "case", "\"CRD-12\"");
    let test = text(
        reader,
        table,
        at,
        "test",
        "\"path/of/file.rs::name_of_the_test\"",
    );
    let reason = text(reader, table, at, "reason", "say why no proof tries it");
    Some(Elsewhere {
        case: case?.to_owned(),
        test: test?.to_owned(),
        reason: reason?.to_owned(),
    })
}

fn redundant(
    reader: &mut Reader<'_>,
    table: &DeTable<'_>,
    prefix: &str,
    line: usize,
) -> Option<Redundant> {
    reader.known(table, prefix, REDUNDANT_KEYS);
    let at = (prefix, line);
    let rule = text(reader, table, at, "rule", "\"chain/comment of the rule\"");
    let reason = text(reader, table, at, "reason", REASON_HINT);
    Some(Redundant {
        only_in: word(reader, table, prefix, "scope"),
        rule: rule?.to_owned(),
        reason: reason?.to_owned(),
    })
}
