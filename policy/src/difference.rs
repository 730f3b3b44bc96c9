//! What becomes possible, and what no longer is, when one policy takes another's place.
//!
//! Compared by what the rules cover, not by how they are written: an entry that is moved, split or renamed is
//! no difference. Where only several entries together cover one, it is told all the same: what is said to be the
//! same is the same.

use serde::Serialize;

use crate::credential::CredentialName;
use crate::path::Slashes;
use crate::pattern::{Entry, RefGlob, methods_text};
use crate::permit::RuleId;
use crate::policy::Policy;
use crate::record::RefOp;
use crate::service::{Destination, Service};

/// What is different.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What only the new policy permits, or no longer denies.
    pub gained: Vec<Power>,
    /// What only the old one permits, or what the new one denies.
    pub lost: Vec<Power>,
    /// What both permit in another name, or by another way.
    pub changed: Vec<Power>,
}

/// One line of a service, as far as it makes the difference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Power {
    /// Such as `GET,HEAD https://api.example.com:443/v1/**`.
    pub what: String,
    /// The rule that says so.
    pub rule: RuleId,
    /// The credential that it injects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<CredentialName>,
    /// What about it is different, where it is permitted on both sides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Difference {
    /// Whether nothing is different.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.gained.is_empty() && self.lost.is_empty() && self.changed.is_empty()
    }
}

impl Policy {
    /// What becomes possible, and what no longer is, when `new` takes this policy's place.
    #[must_use]
    pub fn difference(&self, new: &Self) -> Difference {
        let (old, new) = (items(self.compiled()), items(new.compiled()));
        let mut difference = Difference::default();
        for item in &new {
            let (left, note) = item.beyond(&old);
            // What is no longer denied is possible where something allows it.
            let list = if item.denies() {
                &mut difference.lost
            } else {
                &mut difference.gained
            };
            list.extend((left != 0).then(|| item.power(left, None)));
            difference
                .changed
                .extend(note.map(|note| item.power(item.entry.methods(), Some(note))));
        }
        for item in &old {
            let (left, _) = item.beyond(&new);
            let list = if item.denies() {
                &mut difference.gained
            } else {
                &mut difference.lost
            };
            list.extend((left != 0).then(|| item.power(left, None)));
        }
        for list in [
            &mut difference.gained,
            &mut difference.lost,
            &mut difference.changed,
        ] {
            list.sort();
            list.dedup();
        }
        difference
    }
}

/// One entry of one service at one destination.
struct Item<'a> {
    service: &'a Service,
    destination: &'a Destination,
    entry: &'a Entry,
    does: Does<'a>,
}

enum Does<'a> {
    Allow,
    Deny,
    Hold,
    /// What the push may do to the refs; creating and moving where it is not said.
    Push(Option<RefOp>, &'a RefGlob),
    /// Under these conditions, as lines.
    When(Vec<String>),
}

fn items(services: &[Service]) -> Vec<Item<'_>> {
    let mut items = Vec::new();
    for service in services {
        for destination in &service.destinations {
            let mut add = |entry, does| {
                items.push(Item {
                    service,
                    destination,
                    entry,
                    does,
                });
            };
            for entry in &service.allow {
                add(entry, Does::Allow);
            }
            for when in &service.when {
                for entry in &when.entries {
                    add(entry, Does::When(when.conditions.lines()));
                }
            }
            for entry in &service.deny {
                add(entry, Does::Deny);
            }
            for entry in service.hold.iter().flat_map(|hold| &hold.entries) {
                add(entry, Does::Hold);
            }
            for entry in &service.push {
                let refs = &service.refs;
                for (op, globs) in [
                    (None, &refs.both),
                    (Some(RefOp::Create), &refs.create),
                    (Some(RefOp::Update), &refs.update),
                    (Some(RefOp::Delete), &refs.delete),
                ] {
                    for glob in globs {
                        add(entry, Does::Push(op, glob));
                    }
                }
            }
        }
    }
    items
}

impl Item<'_> {
    fn denies(&self) -> bool {
        matches!(self.does, Does::Deny | Does::Hold)
    }

    /// The methods that no item of the other policy covers; and what is different where one does.
    fn beyond(&self, other: &[Self]) -> (u8, Option<String>) {
        let covering = || other.iter().filter(|wide| wide.covers(self));
        let left = covering().fold(self.entry.methods(), |left, wide| {
            left & !wide.entry.methods()
        });
        if left != 0 || self.denies() {
            return (left, None);
        }
        // One of those that cover it is enough, if it is the same in everything else.
        let notes = covering()
            .filter(|wide| wide.entry.methods() & self.entry.methods() != 0)
            .map(|wide| self.note(wide));
        (
            0,
            notes
                .min_by_key(|note| note.as_ref().map_or(0, String::len))
                .flatten(),
        )
    }

    fn covers(&self, narrow: &Self) -> bool {
        let does = match (&self.does, &narrow.does) {
            (Does::Allow, Does::Allow) | (Does::Deny, Does::Deny) | (Does::Hold, Does::Hold) => {
                true
            }
            (Does::Push(op, wide), Does::Push(narrow_op, narrow)) => {
                let does = match (op, narrow_op) {
                    (None, None | Some(RefOp::Create | RefOp::Update)) => true,
                    (None, Some(RefOp::Delete)) | (Some(_), None) => false,
                    (Some(op), Some(narrow)) => op == narrow,
                };
                does && wide.covers(narrow)
            }
            // Conditions also shut what is beside them, so that only the same ones are the same.
            (Does::When(wide), Does::When(narrow)) => wide == narrow,
            (Does::Allow | Does::Deny | Does::Hold | Does::Push(..) | Does::When(_), _) => false,
        };
        let (to, from) = (self.destination, narrow.destination);
        does && to.scheme == from.scheme
            && to.port == from.port
            && to.host.covers(&from.host)
            && (self.service.slashes == Slashes::Segment
                || narrow.service.slashes == Slashes::Refused
                || self.denies())
            && self
                .entry
                .covers(self.service.case, narrow.entry, narrow.service.case)
    }

    /// How this one differs from the one of the old policy that covers it.
    fn note(&self, old: &Self) -> Option<String> {
        let (now, was) = (self.service, old.service);
        let mut notes = Vec::new();
        if now.credential != was.credential {
            let name = |of: &Service| {
                let name = of.credential.as_ref();
                name.map_or_else(|| String::from("none"), |name| format!("`{name}`"))
            };
            notes.push(format!("credential {} -> {}", name(was), name(now)));
        }
        if now.reach != was.reach {
            notes.push(String::from("another address, ca_file or pin"));
        }
        let opened = [
            ("trailers", now.features.trailers, was.features.trailers),
            ("websocket", now.features.websocket, was.features.websocket),
        ];
        for (name, now, was) in opened {
            if now != was {
                notes.push(format!("{name} {}", if now { "opened" } else { "shut" }));
            }
        }
        let bound =
            |bound: Option<u64>| bound.map_or_else(|| "none".to_owned(), |it| it.to_string());
        let bounds = [
            (
                "max_request_bytes",
                now.caps.request_bytes,
                was.caps.request_bytes,
            ),
            (
                "max_response_bytes",
                now.caps.response_bytes,
                was.caps.response_bytes,
            ),
            ("max_seconds", now.caps.seconds, was.caps.seconds),
        ];
        for (name, now, was) in bounds {
            if now != was {
                notes.push(format!("{name} {} -> {}", bound(was), bound(now)));
            }
        }
        let shown = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
        let rate = |of: &Service| shown(of.rate.map(|rate| rate.to_string()));
        if now.rate != was.rate {
            notes.push(format!("rate {} -> {}", rate(was), rate(now)));
        }
        let usage = |of: &Service| shown(of.usage.map(|one| one.to_string()));
        if now.usage != was.usage {
            notes.push(format!("usage {} -> {}", usage(was), usage(now)));
        }
        (!notes.is_empty()).then(|| notes.join(", "))
    }

    fn power(&self, methods: u8, note: Option<String>) -> Power {
        let Destination { scheme, host, port } = self.destination;
        let (methods, path) = (methods_text(methods), self.entry.pattern());
        let request = format!("{methods} {}://{host}:{port}{path}", scheme.as_str());
        Power {
            what: match &self.does {
                Does::Allow => request,
                Does::Deny => format!("denied: {request}"),
                Does::Hold => format!("held for a person: {request}"),
                Does::When(conditions) => {
                    format!(
                        "{request} when {}, and not otherwise",
                        conditions.join(" and ")
                    )
                }
                Does::Push(op, glob) => {
                    let does = match op {
                        None => "to",
                        Some(RefOp::Create) => "creating",
                        Some(RefOp::Update) => "moving",
                        Some(RefOp::Delete) => "deleting",
                    };
                    format!("{request} {does} {}", glob.as_str())
                }
            },
            rule: self.service.id.clone(),
            credential: self.service.credential.clone(),
            note,
        }
    }
}

#[cfg(test)]
mod tests;
