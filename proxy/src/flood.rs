//! Refusals on their way to the log. Anybody who may connect can be refused as often as it likes;
//! of one kind from one asker only so many are written out in a while, and the rest is one line
//! that says how many. Only what is written changes: a refusal is a refusal.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use policy::Code;
use policy::grant::RunId;
use policy::record::{Record, RecordKind, Verdict};

/// How long refusals are counted together.
const WINDOW: Duration = Duration::from_secs(10);
/// Lines written out for one kind in that time.
const WRITTEN: u64 = 200;
/// Kinds told apart at once; further ones share one count.
const MOST_KINDS: usize = 1024;
/// Of these, kinds that only a place tells apart, which costs an asker nothing: further ones of a code
/// share one count, and leave room for askers that are known.
const MOST_PLACES: usize = 512;

/// Refusals that are alike: who was refused, or from where, and why.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Kind {
    run: Option<RunId>,
    peer_uid: Option<u32>,
    code: Option<Code>,
    place: Option<IpAddr>,
}

#[derive(Debug)]
struct Burst {
    since: Instant,
    seen: u64,
    /// The last one that was not written out.
    last: Option<Record>,
}

/// Counts refusals.
#[derive(Debug, Default)]
pub(crate) struct Flood {
    bursts: Mutex<HashMap<Kind, Burst>>,
}

impl Flood {
    /// What is to be written of this refusal: itself, nothing, or first a line about those before.
    /// `place` is where its asker is, if nothing else is known of it.
    pub(crate) fn admit(&self, record: Record, place: Option<IpAddr>, now: Instant) -> Vec<Record> {
        let mut bursts = self.bursts();
        let mut kind = Kind {
            run: record.run.clone(),
            peer_uid: record.peer_uid,
            code: record.code,
            place,
        };
        if place.is_some() && !bursts.contains_key(&kind) {
            let placed = bursts.keys().filter(|kind| kind.place.is_some()).count();
            if placed >= MOST_PLACES {
                kind.place = None;
            }
        }
        if bursts.len() >= MOST_KINDS && !bursts.contains_key(&kind) {
            kind = Kind::default();
        }
        let burst = bursts.entry(kind).or_insert_with(|| Burst {
            since: now,
            seen: 0,
            last: None,
        });
        let mut lines = Vec::new();
        if now.duration_since(burst.since) >= WINDOW {
            lines.extend(burst.rest());
            burst.since = now;
            burst.seen = 0;
        }
        burst.seen += 1;
        if burst.seen <= WRITTEN {
            lines.push(record);
        } else {
            burst.last = Some(record);
        }
        lines
    }

    /// Lines about what was not written out, of every kind whose time is over at `now`.
    pub(crate) fn settle(&self, now: Instant) -> Vec<Record> {
        self.end(|burst| now.duration_since(burst.since) >= WINDOW)
    }

    /// Lines about everything that was not written out.
    pub(crate) fn settle_all(&self) -> Vec<Record> {
        self.end(|_| true)
    }

    fn end(&self, over: impl Fn(&Burst) -> bool) -> Vec<Record> {
        let mut lines = Vec::new();
        self.bursts().retain(|_, burst| {
            let over = over(burst);
            if over {
                lines.extend(burst.rest());
            }
            !over
        });
        lines
    }

    fn bursts(&self) -> MutexGuard<'_, HashMap<Kind, Burst>> {
        self.bursts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Burst {
    /// One line for all that were not written out.
    fn rest(&mut self) -> Option<Record> {
        let last = self.last.take()?;
        let more = self.seen.saturating_sub(WRITTEN);
        let mut line = Record::new(RecordKind::Refusal, &last.id, "");
        line.run = last.run;
        line.ticket = last.ticket;
        line.agent = last.agent;
        line.company = last.company;
        line.profile = last.profile;
        line.entrance = last.entrance;
        line.peer_uid = last.peer_uid;
        line.verdict = Some(Verdict::Refuse);
        line.code = last.code;
        line.reason = Some(format!(
            "portcullis: and {more} more like it within {} s, of which this is the last; they were \
             refused too and are not written out",
            WINDOW.as_secs()
        ));
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(uid: u32, id: usize) -> Record {
        let mut record = Record::new(RecordKind::Refusal, &format!("r-{id}"), "t");
        record.peer_uid = Some(uid);
        record.code = Some(Code::IdentityUnknown);
        record
    }

    /// Attack: RES-12
    #[test]
    fn fifty_thousand_alike_are_two_hundred_lines_and_a_count() {
        let (flood, start) = (Flood::default(), Instant::now());
        let written: usize = (0..50_000)
            .map(|id| flood.admit(refusal(7, id), None, start).len())
            .sum();
        assert_eq!(written, 200);
        let other = flood.admit(refusal(8, 0), None, start);
        assert_eq!(other.len(), 1, "control: another asker is not hushed up");
        assert!(flood.settle(start).is_empty(), "not before its time");
        let later = flood.settle(start + WINDOW);
        assert_eq!(later.len(), 1, "one line for the rest: {later:?}");
        assert_eq!(later[0].id, "r-49999");
        let reason = later[0].reason.clone().unwrap();
        assert!(reason.contains("and 49800 more like it"), "{reason}");
        let again = flood.admit(refusal(7, 1), None, start + WINDOW);
        assert_eq!(again.len(), 1, "the next time begins anew");
    }

    #[test]
    fn the_count_is_told_before_the_next_refusal_and_at_the_end() {
        let (flood, start) = (Flood::default(), Instant::now());
        for id in 0..202 {
            flood.admit(refusal(7, id), None, start);
        }
        let lines = flood.admit(refusal(7, 900), None, start + WINDOW);
        let ids: Vec<&str> = lines.iter().map(|line| line.id.as_str()).collect();
        assert_eq!(ids, ["r-201", "r-900"]);
        for id in 0..201 {
            flood.admit(refusal(9, id), None, start);
        }
        assert_eq!(flood.settle_all().len(), 1);
        assert!(flood.settle_all().is_empty());
    }

    #[test]
    fn a_place_hushes_up_no_other_place_and_many_hush_up_nobody_who_is_known() {
        let (flood, start) = (Flood::default(), Instant::now());
        let place = |at: u32| Some(IpAddr::from(std::net::Ipv4Addr::from_bits(at)));
        let wrong = |id| {
            let mut record = refusal(0, id);
            record.peer_uid = None;
            record.code = Some(Code::TokenUnknown);
            record
        };
        let one: usize = (0..500)
            .map(|id| flood.admit(wrong(id), place(1), start).len())
            .sum();
        assert_eq!(one, 200);
        assert_eq!(
            flood.admit(wrong(0), place(2), start).len(),
            1,
            "a neighbour"
        );
        for at in 0..5000 {
            flood.admit(wrong(0), place(at), start);
        }
        assert!(flood.bursts().len() <= MOST_PLACES + 1);
        for uid in 0..300 {
            let known = flood.admit(refusal(uid, 0), None, start);
            assert_eq!(known.len(), 1, "control: {uid} is told apart");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (flood, start) = (Flood::default(), Instant::now());
        for uid in 0..5000 {
            flood.admit(refusal(uid, 0), None, start);
        }
        assert!(flood.bursts().len() <= MOST_KINDS + 1);
    }
}
