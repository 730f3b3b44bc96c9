//! Sentinels: each user that makes attempts first does what nobody forbids, in a network namespace without rules. Whoever
//! cannot do even that is kept by something else than the boundary, and no refusal of its is held.

use std::collections::HashMap;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use super::{LONG_PATIENCE_MS, Run};
use crate::prove::case::Case;
use crate::prove::identity::{Identity, Keeps};
use crate::prove::kind::{Kind, Must};
use crate::prove::spawn;
use crate::prove::task::{Outcome, Task};
use crate::prove::verdict::{Status, Verdict};

/// Why processes of a user mean nothing, for those of whom it is so.
pub(super) type Unable = HashMap<Option<Identity>, String>;

impl Run<'_> {
    /// One sentinel for every user of these cases.
    pub(super) fn sentinels(&self, cases: &[&Case], gate_down: bool) -> (Vec<Verdict>, Unable) {
        let mut users: Vec<Option<Identity>> = Vec::new();
        for case in cases {
            if !users.contains(&case.identity) {
                users.push(case.identity);
            }
        }
        let done: Mutex<Vec<(usize, Verdict)>> = Mutex::default();
        thread::scope(|scope| {
            for (place, user) in users.iter().enumerate() {
                let done = &done;
                scope.spawn(move || {
                    let verdict = self.sentinel(*user, gate_down);
                    if let Ok(mut done) = done.lock() {
                        done.push((place, verdict));
                    }
                });
            }
        });
        let mut done = done.into_inner().unwrap_or_default();
        done.sort_by_key(|(place, _)| *place);
        let mut unable: Unable = users
            .iter()
            .map(|user| (*user, "its sentinel said nothing".to_owned()))
            .collect();
        for (place, verdict) in &done {
            let user = users[*place];
            match verdict.status {
                Status::Holds => unable.remove(&user),
                _ => unable.insert(user, verdict.saw.clone()),
            };
        }
        let verdicts = done.into_iter().map(|(_, verdict)| verdict);
        (verdicts.collect(), unable)
    }

    fn sentinel(&self, user: Option<Identity>, gate_down: bool) -> Verdict {
        let began = Instant::now();
        let uid = user.map_or(0, |user| user.uid);
        let mut names = vec!["ipv4"];
        if self.peer.without_six().is_none() {
            names.push("ipv6");
        }
        if user.is_none_or(|user| user.keeps == Keeps::RawSockets) {
            names.push("raw");
        }
        let task = Task {
            number: uid,
            names: names.into_iter().map(str::to_owned).collect(),
            ..Task::new(Kind::Able, LONG_PATIENCE_MS)
        };
        let report = spawn::attempt_without_rules(user, &task);
        let keeps = user.map_or("", |user| user.keeps.word());
        let down = if gate_down { "/gate-down" } else { "" };
        Verdict {
            id: format!("SEN-uid{uid}{keeps}{down}"),
            must: Must::Succeed,
            // Not broken: it says nothing about the boundary.
            status: if report.outcome == Outcome::Granted {
                Status::Holds
            } else {
                Status::CouldNotTell
            },
            tried: format!("uid {uid} does what nobody forbids, where there are no rules"),
            reason: "whoever cannot do even that is not kept by the boundary".to_owned(),
            saw: report.words(),
            gate_down,
            ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    }
}
