//! TOML text to [`List`], collecting every problem with its line.

use std::ops::Range;

use nftables::diagnostics::Diagnostics;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{List, Proof, Redundant};
use crate::prove::kind::{Families, Kind, Must, Service, Who, Word};

const KEYS: &[&str] = &["version", "extends", "proof", "redundant"];
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
const REDUNDANT_KEYS: &[&str] = &["rule", "scope", "reason"];
const ID_HINT: &str = "a short name without blanks, unique in the list: \"KRN-01\", \"OWN-backup\"";
const REASON_HINT: &str = "say in a sentence why this must hold";

pub(super) fn list(text: &str, file: &str) -> Result<List, Diagnostics> {
    let mut reader = Reader {
        text,
        problems: Diagnostics::new(file),
    };
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let line = error.span().map_or(0, |span| reader.line(&span));
        reader
            .problems
            .add(line, "", error.message(), "the file must be valid TOML");
    }
    let table = document.get_ref();
    reader.known(table, "", KEYS);
    reader.version(table);
    let extends = reader.flag(table, "", "extends", false);
    let mut list = List {
        extends,
        ..List::default()
    };
    for (table, prefix, line) in reader.tables(table, "proof") {
        if let Some(proof) = reader.proof(table, &prefix, line) {
            if list.proofs.iter().any(|other| other.id == proof.id) {
                let text = format!("{:?} names two proofs", proof.id);
                reader
                    .problems
                    .add(line, format!("{prefix}id"), text, ID_HINT);
            }
            list.proofs.push(proof);
        }
    }
    for (table, prefix, line) in reader.tables(table, "redundant") {
        list.redundant
            .extend(reader.redundant(table, &prefix, line));
    }
    if list.proofs.is_empty() && reader.problems.problems.is_empty() {
        let hint = "a list without a proof would always hold; write at least one [[proof]]";
        reader.problems.add(0, "proof", "there is none", hint);
    }
    reader.problems.finish(Some(list))
}

struct Reader<'t> {
    text: &'t str,
    problems: Diagnostics,
}

type Value<'a, 'i> = &'a Spanned<DeValue<'i>>;

impl Reader<'_> {
    fn line(&self, span: &Range<usize>) -> usize {
        let end = span.start.min(self.text.len());
        1 + self.text.as_bytes()[..end]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
    }

    fn problem(&mut self, value: Value<'_, '_>, key: &str, text: impl Into<String>, hint: &str) {
        let line = self.line(&value.span());
        self.problems.add(line, key, text, hint);
    }

    fn known(&mut self, table: &DeTable<'_>, prefix: &str, keys: &[&str]) {
        for (key, _) in table.iter() {
            let name = key.get_ref().as_ref();
            if !keys.contains(&name) {
                let line = self.line(&key.span());
                let hint = nearest(name, keys)
                    .unwrap_or_else(|| format!("known keys: {}", keys.join(", ")));
                self.problems
                    .add(line, format!("{prefix}{name}"), "unknown key", hint);
            }
        }
    }

    fn version(&mut self, table: &DeTable<'_>) {
        let hint = "write `version = 1` as the first line";
        match table.get("version") {
            None => self.problems.add(0, "version", "missing", hint),
            Some(value) => {
                let number = value.get_ref().as_integer();
                if number.is_none_or(|number| number.as_str() != "1") {
                    self.problem(value, "version", "this program reads version 1", hint);
                }
            }
        }
    }

    /// The tables of a `[[key]]`, each with its prefix for messages and its line.
    fn tables<'a, 'i>(
        &mut self,
        table: &'a DeTable<'i>,
        key: &str,
    ) -> Vec<(&'a DeTable<'i>, String, usize)> {
        let Some(value) = table.get(key) else {
            return Vec::new();
        };
        let hint = format!("write each under its own [[{key}]]");
        let Some(entries) = value.get_ref().as_array() else {
            self.problem(value, key, "must be a list of tables", &hint);
            return Vec::new();
        };
        let mut found = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            match entry.get_ref().as_table() {
                Some(table) => {
                    found.push((table, format!("{key}[{index}]."), self.line(&entry.span())))
                }
                None => self.problem(entry, &format!("{key}[{index}]"), "must be a table", &hint),
            }
        }
        found
    }

    fn text<'a>(
        &mut self,
        table: &'a DeTable<'_>,
        at: (&str, usize),
        key: &str,
        hint: &str,
    ) -> Option<&'a str> {
        let (prefix, line) = at;
        let full = format!("{prefix}{key}");
        let Some(value) = table.get(key) else {
            self.problems.add(line, full, "missing", hint);
            return None;
        };
        let text = value.get_ref().as_str().map(str::trim);
        if text.is_none_or(str::is_empty) {
            self.problem(value, &full, "must be a string that is not empty", hint);
        }
        text.filter(|text| !text.is_empty())
    }

    /// A word of a closed list, if the key is there.
    fn word<W: Word>(&mut self, table: &DeTable<'_>, prefix: &str, key: &str) -> Option<W> {
        let value = table.get(key)?;
        let words: Vec<&str> = W::WORDS.iter().map(|(word, _)| *word).collect();
        let text = value.get_ref().as_str().unwrap_or_default();
        let found = W::of(text);
        if found.is_none() {
            let hint =
                nearest(text, &words).unwrap_or_else(|| format!("one of {}", words.join(", ")));
            let text = format!("unknown word {text:?}");
            self.problem(value, &format!("{prefix}{key}"), text, &hint);
        }
        found
    }

    fn flag(&mut self, table: &DeTable<'_>, prefix: &str, key: &str, default: bool) -> bool {
        let Some(value) = table.get(key) else {
            return default;
        };
        let flag = value.get_ref().as_bool();
        if flag.is_none() {
            let key = format!("{prefix}{key}");
            self.problem(value, &key, "must be true or false", "true or false");
        }
        flag.unwrap_or(default)
    }

    fn strings(&mut self, table: &DeTable<'_>, prefix: &str, key: &str) -> Vec<String> {
        let Some(value) = table.get(key) else {
            return Vec::new();
        };
        let entries: Option<Vec<&str>> = value
            .get_ref()
            .as_array()
            .and_then(|list| list.iter().map(|entry| entry.get_ref().as_str()).collect());
        if entries.is_none() {
            let key = format!("{prefix}{key}");
            self.problem(value, &key, "must be a list of strings", "[\"…\", \"…\"]");
        }
        let entries = entries.unwrap_or_default();
        entries.into_iter().map(str::to_owned).collect()
    }

    fn ports(&mut self, table: &DeTable<'_>, prefix: &str) -> Vec<u16> {
        let Some(value) = table.get("ports") else {
            return Vec::new();
        };
        let read = |entry: &Spanned<DeValue<'_>>| {
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
            self.problem(value, &key, "must be a list of ports", "[443, 8443]");
        }
        ports.unwrap_or_default()
    }

    fn proof(&mut self, table: &DeTable<'_>, prefix: &str, line: usize) -> Option<Proof> {
        self.known(table, prefix, PROOF_KEYS);
        let at = (prefix, line);
        let id = self.text(table, at, "id", ID_HINT);
        if let (Some(text), Some(value)) = (id, table.get("id"))
            && !text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        {
            let text = format!("{text:?} is no id");
            self.problem(value, &format!("{prefix}id"), text, ID_HINT);
        }
        for key in ["must", "attempt"] {
            self.text(table, at, key, "see docs/prove.md for the words");
        }
        let reason = self.text(table, at, "reason", REASON_HINT);
        let must: Option<Must> = self.word(table, prefix, "must");
        let kind: Option<Kind> = self.word(table, prefix, "attempt");
        let proof = Proof {
            id: id.unwrap_or_default().to_owned(),
            must: must.unwrap_or(Must::Fail),
            kind: kind.unwrap_or(Kind::Tcp),
            who: self.word(table, prefix, "as").unwrap_or(Who::Agent),
            families: self.word(table, prefix, "family").unwrap_or(Families::Both),
            ports: self.ports(table, prefix),
            paths: self.strings(table, prefix, "paths"),
            names: self.strings(table, prefix, "names"),
            headers: self.strings(table, prefix, "headers"),
            inside: self.word(table, prefix, "inside"),
            only_in: self.word(table, prefix, "scope"),
            answer: self.word(table, prefix, "answer"),
            without_gate: self.flag(table, prefix, "without_gate", true),
            reason: reason.unwrap_or_default().to_owned(),
        };
        kind?;
        self.fits(&proof, prefix, line, table);
        (must.is_some() && !proof.id.is_empty() && !proof.reason.is_empty()).then_some(proof)
    }

    /// Whether the keys fit the attempt: one that would be ignored is a mistake.
    fn fits(&mut self, proof: &Proof, prefix: &str, line: usize, table: &DeTable<'_>) {
        let word = proof.kind.word();
        let wants = [
            ("ports", proof.kind.has_ports(), proof.ports.is_empty()),
            ("paths", proof.kind.has_paths(), proof.paths.is_empty()),
            ("names", proof.kind.has_names(), proof.names.is_empty()),
            (
                "headers",
                proof.kind == Kind::GateHeaders,
                proof.headers.is_empty(),
            ),
        ];
        for (key, wanted, empty) in wants {
            let full = format!("{prefix}{key}");
            if wanted && empty {
                let text = format!("missing: {word:?} needs it");
                self.problems.add(line, full, text, "see docs/prove.md");
            } else if let (false, Some(value)) = (wanted, table.get(key)) {
                let text = format!("has no meaning for {word:?}");
                self.problem(value, &full, text, "remove it");
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
                self.problem(value, &format!("{prefix}names"), text, &hint);
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
                self.problem(value, &format!("{prefix}{key}"), text, "remove it");
            }
        }
        if proof.must == Must::Fail
            && proof.who == Who::Gate
            && let Some(value) = table.get("as")
        {
            let hint = "the gate is the positive control of what must fail; use \"agent\"";
            let text = "the gate may do what others may not";
            self.problem(value, &format!("{prefix}as"), text, hint);
        }
    }

    fn redundant(&mut self, table: &DeTable<'_>, prefix: &str, line: usize) -> Option<Redundant> {
        self.known(table, prefix, REDUNDANT_KEYS);
        let at = (prefix, line);
        let rule = self.text(table, at, "rule", "\"chain/comment of the rule\"");
        let reason = self.text(table, at, "reason", REASON_HINT);
        Some(Redundant {
            only_in: self.word(table, prefix, "scope"),
            rule: rule?.to_owned(),
            reason: reason?.to_owned(),
        })
    }
}

/// The known word that differs by a slip or two, if there is one.
fn nearest(name: &str, known: &[&str]) -> Option<String> {
    known
        .iter()
        .map(|word| (strsim::damerau_levenshtein(word, name), word))
        .min()
        .filter(|(slips, word)| *slips <= 1 + word.len() / 4)
        .map(|(_, near)| format!("did you mean {near:?}?"))
}
