//! What the kernel holds against what it should: every difference, by name.
//!
//! Counter values and the contents of dynamic sets are traffic, not rules, and are left out.

use std::collections::BTreeSet;
use std::fmt;

use crate::encode;
use crate::netlink::{NetlinkError, ObservedRule, ObservedSet, ObservedTable};
use crate::render;
use crate::ruleset::{Base, Chain, Elements, Hook, Policy, Ruleset};

/// One thing that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub kind: Kind,
    /// `rule output/"agents reach nothing else"`, `set agents`, `table portcullis` ...
    pub what: String,
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Missing,
    Extra,
    Changed,
    /// Another table can undo what this one judged.
    Foreign,
    /// An agent could become somebody whom the rules do not shut.
    Able,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Missing => "missing",
            Kind::Extra => "extra",
            Kind::Changed => "changed",
            Kind::Foreign => "foreign",
            Kind::Able => "able",
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.as_str(), self.what)?;
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

/// Reads the kernel's table and routes and compares. Empty means: exactly as it should be.
pub fn verify(expected: &Ruleset) -> Result<Vec<Difference>, NetlinkError> {
    let observed = crate::netlink::observe(&expected.table)?;
    compare(expected, observed.as_ref())
}

/// The same with a table that was read already.
pub fn compare(
    expected: &Ruleset,
    observed: Option<&ObservedTable>,
) -> Result<Vec<Difference>, NetlinkError> {
    let mut found = differences(expected, observed);
    found.extend(around(expected)?);
    Ok(found)
}

/// What belongs to the boundary beside its table: no guard, and the routes. Routes are read under a lock that the kernel has
/// once for all networks, and holds while one of them goes: this may wait where the table does not.
pub(crate) fn around(expected: &Ruleset) -> Result<Vec<Difference>, NetlinkError> {
    let mut found = Vec::new();
    if crate::netlink::guard_left(&expected.table)? {
        found.push(Difference {
            kind: Kind::Extra,
            what: format!("table {}-guard", expected.table),
            detail: "left by an interrupted replacement; it refuses, and the next apply removes it"
                .to_owned(),
        });
    }
    let routing_table = crate::ruleset::routing_table(&expected.table);
    found.extend(crate::detour::differences(
        routing_table,
        expected.detour.as_ref(),
    )?);
    Ok(found)
}

/// Milliseconds by which an exception may lapse early or late: clocks are set while it stands.
const LAPSE_SLACK: i128 = 2000;

/// The comparison alone.
pub fn differences(expected: &Ruleset, observed: Option<&ObservedTable>) -> Vec<Difference> {
    let mut report = Report(Vec::new());
    let Some(observed) = observed else {
        report.add(
            Kind::Missing,
            format!("table {}", expected.table),
            "the boundary is not loaded in this network namespace",
        );
        return report.0;
    };
    if observed.flags != 0 {
        report.add(
            Kind::Changed,
            format!("table {}", expected.table),
            format!(
                "flags {:#x}, expected none (1 is dormant: no rule is in force)",
                observed.flags
            ),
        );
    }
    report.counters(expected, observed);
    report.sets(expected, observed);
    for chain in &expected.chains {
        report.chain(chain, observed);
    }
    for name in observed.chains.keys() {
        if !expected.chains.iter().any(|chain| chain.name == name) {
            report.add(Kind::Extra, format!("chain {name}"), "");
        }
    }
    report.0
}

struct Report(Vec<Difference>);

impl Report {
    fn add(&mut self, kind: Kind, what: impl Into<String>, detail: impl Into<String>) {
        self.0.push(Difference {
            kind,
            what: what.into(),
            detail: detail.into(),
        });
    }

    fn counters(&mut self, expected: &Ruleset, observed: &ObservedTable) {
        for name in &expected.counters {
            if !observed.counters.contains_key(*name) {
                self.add(Kind::Missing, format!("counter {name}"), "");
            }
        }
        for name in observed.counters.keys() {
            if !expected.counters.contains(&name.as_str()) {
                self.add(Kind::Extra, format!("counter {name}"), "");
            }
        }
        for name in &observed.other_objects {
            self.add(Kind::Extra, format!("object {name}"), "");
        }
    }

    fn sets(&mut self, expected: &Ruleset, observed: &ObservedTable) {
        for set in &expected.sets {
            let what = format!("set {}", set.name);
            match observed.sets.get(set.name.as_ref()) {
                None => self.add(Kind::Missing, what, ""),
                Some(found) => self.set(what, &set.elements, found),
            }
        }
        for name in observed.sets.keys() {
            if !expected.sets.iter().any(|set| set.name == *name) {
                self.add(Kind::Extra, format!("set {name}"), "");
            }
        }
    }

    fn set(&mut self, what: String, expected: &Elements, found: &ObservedSet) {
        let (flags, size) = match expected {
            Elements::Intervals(_) => (libc::NFT_SET_INTERVAL.cast_unsigned(), 0),
            Elements::Dynamic { size } => (libc::NFT_SET_EVAL.cast_unsigned(), *size),
            Elements::Until { .. } => (libc::NFT_SET_TIMEOUT.cast_unsigned(), 0),
        };
        if (found.flags, found.key_len, found.size) != (flags, 4, size) {
            let detail = format!(
                "flags {:#x}, key of {} bytes, size {}; expected flags {flags:#x}, key of 4 \
                 bytes, size {size}",
                found.flags, found.key_len, found.size
            );
            self.add(Kind::Changed, what.clone(), detail);
        }
        let ranges = match expected {
            Elements::Intervals(ranges) => ranges,
            Elements::Until { uid, expires } => return self.lapsing(&what, *uid, *expires, found),
            Elements::Dynamic { .. } => return,
        };
        let wanted: BTreeSet<(Vec<u8>, u32)> = crate::netlink::interval_keys(ranges)
            .into_iter()
            .map(|(key, flags)| (key.to_be_bytes().to_vec(), flags))
            .collect();
        let held: BTreeSet<(Vec<u8>, u32)> = found
            .elements
            .iter()
            .map(|element| (element.key.clone(), element.flags))
            .collect();
        for (key, flags) in wanted.difference(&held) {
            self.add(
                Kind::Missing,
                format!("element of {what}"),
                boundary(key, *flags),
            );
        }
        for (key, flags) in held.difference(&wanted) {
            self.add(
                Kind::Extra,
                format!("element of {what}"),
                boundary(key, *flags),
            );
        }
    }

    /// One uid that goes when its time is over, and not much later.
    fn lapsing(&mut self, what: &str, uid: u32, expires: jiff::Timestamp, found: &ObservedSet) {
        let left = expires.duration_since(jiff::Timestamp::now()).as_millis();
        let what = format!("element of {what}");
        let mut held = false;
        for element in &found.elements {
            let key = <[u8; 4]>::try_from(element.key.as_slice()).ok();
            let key = key.map(u32::from_ne_bytes);
            if key != Some(uid) {
                let detail = match key {
                    Some(uid) => format!("uid {uid}"),
                    None => format!("{:02x?}", element.key),
                };
                self.add(Kind::Extra, what.clone(), detail);
                continue;
            }
            held = true;
            match element.lapses_in {
                None => self.add(
                    Kind::Changed,
                    what.clone(),
                    format!("uid {uid} never lapses"),
                ),
                Some(lapses) if i128::from(lapses) > left + LAPSE_SLACK => {
                    let late = (i128::from(lapses) - left) / 1000;
                    let detail = format!("uid {uid} lapses {late} s too late");
                    self.add(Kind::Changed, what.clone(), detail);
                }
                Some(_) => {}
            }
        }
        if !held && left > LAPSE_SLACK {
            self.add(Kind::Missing, what, format!("uid {uid}, until {expires}"));
        }
    }

    fn chain(&mut self, chain: &Chain, observed: &ObservedTable) {
        let what = format!("chain {}", chain.name);
        let Some(found) = observed.chains.get(chain.name) else {
            self.add(
                Kind::Missing,
                what,
                format!("with its {} rules", chain.rules.len()),
            );
            return;
        };
        let base = chain.base.map(numbers);
        if found.hook != base {
            let detail = format!("{}; expected {}", shown(&found.hook), shown(&base));
            self.add(Kind::Changed, what.clone(), detail);
        }
        let held: Vec<&ObservedRule> = observed
            .rules
            .iter()
            .filter(|rule| rule.chain == chain.name)
            .collect();
        self.rules(chain, &held);
    }

    /// Rules are recognised by their comments, which are unique within a chain.
    fn rules(&mut self, chain: &Chain, held: &[&ObservedRule]) {
        let mut order = Vec::new();
        let mut used = vec![false; held.len()];
        for rule in &chain.rules {
            let what = format!("rule {}/{:?}", chain.name, rule.comment);
            let place = held.iter().enumerate().position(|(index, found)| {
                !used[index] && found.comment.as_deref() == Some(rule.comment.as_str())
            });
            let Some(place) = place else {
                self.add(Kind::Missing, what, render::rule(rule));
                continue;
            };
            used[place] = true;
            order.push((place, what.clone()));
            if held[place].nodes != encode::rule(rule) {
                let detail = format!(
                    "expected {}; the kernel has {}",
                    render::rule(rule),
                    held[place].text
                );
                self.add(Kind::Changed, what, detail);
            }
        }
        for (index, found) in held.iter().enumerate() {
            if !used[index] {
                let name = match &found.comment {
                    Some(comment) => format!("{comment:?}"),
                    None => "(without comment)".to_owned(),
                };
                let what = format!("rule {}/{name}", chain.name);
                self.add(
                    Kind::Extra,
                    what,
                    format!("at place {}: {}", index + 1, found.text),
                );
            }
        }
        for pair in order.windows(2) {
            if let [(first, _), (second, what)] = pair
                && second < first
            {
                let detail = format!("stands at place {}, before its predecessor", second + 1);
                self.add(Kind::Changed, what.clone(), detail);
            }
        }
    }
}

/// As the kernel tells it: hook, priority, policy, type.
fn numbers(base: Base) -> (u32, i32, u32, String) {
    let hook = match base.hook {
        Hook::Input => libc::NF_INET_LOCAL_IN,
        Hook::Forward => libc::NF_INET_FORWARD,
        Hook::Output => libc::NF_INET_LOCAL_OUT,
    };
    let policy = match base.policy {
        Policy::Accept => libc::NF_ACCEPT,
        Policy::Drop => libc::NF_DROP,
    };
    (
        hook.cast_unsigned(),
        base.priority,
        policy.cast_unsigned(),
        base.kind.as_str().to_owned(),
    )
}

fn shown(base: &Option<(u32, i32, u32, String)>) -> String {
    match base {
        None => "no hook".into(),
        Some((hook, priority, policy, kind)) => {
            let policy = if *policy == 0 { "drop" } else { "accept" };
            format!("type {kind}, hook {hook}, priority {priority}, policy {policy}")
        }
    }
}

fn boundary(key: &[u8], flags: u32) -> String {
    let uid = <[u8; 4]>::try_from(key).map(u32::from_be_bytes);
    match uid {
        Ok(uid) if flags & 1 == 0 => format!("a range that starts at uid {uid}"),
        Ok(uid) => format!("a range that ends before uid {uid}"),
        Err(_) => format!("{key:02x?}"),
    }
}

#[cfg(test)]
mod tests;
