//! What a closed file is about, so that a question need not open it: the time it spans and which
//! labels occur. Only a hint for questions; `verify` reads every line.

use std::collections::BTreeSet;
use std::path::PathBuf;

use policy::record::Verdict;
use serde::{Deserialize, Serialize};

use super::query::{Filter, host_of};
use super::segment::Segment;

/// Beyond so many different labels of a kind, all are taken to occur.
const MOST: usize = 2000;

/// What a file is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Index {
    /// The earliest time in it.
    from: String,
    /// The latest time in it.
    to: String,
    runs: Labels,
    agents: Labels,
    tickets: Labels,
    hosts: Labels,
    codes: Labels,
    rules: Labels,
    verdicts: Labels,
}

/// Which labels of a kind occur; nothing if there are too many to tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Labels(Option<BTreeSet<String>>);

impl Default for Labels {
    fn default() -> Self {
        Self(Some(BTreeSet::new()))
    }
}

impl Labels {
    fn add(&mut self, label: Option<&str>) {
        let (Some(label), Some(labels)) = (label, &mut self.0) else {
            return;
        };
        if !labels.contains(label) {
            labels.insert(label.to_owned());
        }
        if labels.len() > MOST {
            self.0 = None;
        }
    }

    fn may_have(&self, wanted: Option<&String>) -> bool {
        match (wanted, &self.0) {
            (Some(wanted), Some(labels)) => labels.contains(wanted),
            (Some(_), None) | (None, _) => true,
        }
    }
}

/// The parts of a line that are indexed.
#[derive(Debug, Deserialize)]
struct Indexed<'l> {
    #[serde(borrow)]
    time: std::borrow::Cow<'l, str>,
    #[serde(borrow, default)]
    run: Option<std::borrow::Cow<'l, str>>,
    #[serde(borrow, default)]
    agent: Option<std::borrow::Cow<'l, str>>,
    #[serde(borrow, default)]
    ticket: Option<std::borrow::Cow<'l, str>>,
    #[serde(borrow, default)]
    authority: Option<std::borrow::Cow<'l, str>>,
    #[serde(borrow, default)]
    code: Option<std::borrow::Cow<'l, str>>,
    #[serde(borrow, default)]
    rule: Option<std::borrow::Cow<'l, str>>,
    #[serde(borrow, default)]
    verdict: Option<std::borrow::Cow<'l, str>>,
}

/// Where the index of a closed file lies.
#[must_use]
pub(super) fn index_path(segment: &Segment) -> Option<PathBuf> {
    let first = segment.first?;
    let folder = segment.path.parent()?;
    Some(folder.join(format!("audit-{first:020}.index.json")))
}

impl Index {
    /// Of a closed file, if it has one that can be read.
    #[must_use]
    pub(super) fn read(segment: &Segment) -> Option<Self> {
        let text = std::fs::read(index_path(segment)?).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Takes in a line; one that is no record is left out, as every question leaves it out.
    pub(super) fn add(&mut self, line: &[u8]) {
        let Ok(line) = serde_json::from_slice::<Indexed<'_>>(line) else {
            return;
        };
        if self.from.is_empty() || *line.time < *self.from {
            line.time.as_ref().clone_into(&mut self.from);
        }
        if *line.time > *self.to {
            line.time.as_ref().clone_into(&mut self.to);
        }
        self.runs.add(line.run.as_deref());
        self.agents.add(line.agent.as_deref());
        self.tickets.add(line.ticket.as_deref());
        self.hosts.add(line.authority.as_deref().map(host_of));
        self.codes.add(line.code.as_deref());
        self.rules.add(line.rule.as_deref());
        self.verdicts.add(line.verdict.as_deref());
    }

    /// Whether a line of the file can be what was asked for.
    #[must_use]
    pub(super) fn may_match(&self, filter: &Filter) -> bool {
        let since = filter.since.as_ref();
        let until = filter.until.as_ref();
        let verdict = filter.verdict.map(|verdict| match verdict {
            Verdict::Allow => "allow".to_owned(),
            Verdict::Refuse => "refuse".to_owned(),
        });
        since.is_none_or(|since| self.to >= *since)
            && until.is_none_or(|until| self.from < *until)
            && self.runs.may_have(filter.run.as_ref())
            && self.agents.may_have(filter.agent.as_ref())
            && self.tickets.may_have(filter.ticket.as_ref())
            && self.hosts.may_have(filter.host.as_ref())
            && self.codes.may_have(filter.code.as_ref())
            && self.rules.may_have(filter.rule.as_ref())
            && self.verdicts.may_have(verdict.as_ref())
    }
}
