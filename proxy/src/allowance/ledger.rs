//! What has been taken and what is reserved, counter by counter. It knows neither files nor clocks.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::amount::{Amount, Measure};
use super::claim::{Claim, window};

/// Everything that is counted.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) counters: BTreeMap<Arc<str>, Counter>,
    pub(super) open: BTreeMap<u64, Open>,
    next: u64,
}

/// What one asker has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counter {
    /// Which of its windows this is.
    pub window: u64,
    /// When its first request came, in seconds since 1970.
    pub since: u64,
    /// When its last one did.
    pub seen: u64,
    /// Taken for good.
    pub spent: Amount,
    /// Reserved for what is under way.
    pub reserved: Amount,
}

/// One reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Open {
    pub keys: Vec<Arc<str>>,
    pub amount: Amount,
}

/// A limit that is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spent {
    /// The counter.
    pub key: Arc<str>,
    /// What there is no more of.
    pub measure: Measure,
    /// What was taken for good.
    pub taken: u64,
    /// What is reserved beside it.
    pub reserved: u64,
    /// What may be.
    pub limit: u64,
    /// Seconds until it is renewed.
    pub renewed: Option<u64>,
    /// How long its window is.
    pub window: Option<u64>,
}

impl Counter {
    fn all(&self) -> Amount {
        self.spent.and(self.reserved)
    }
}

impl Ledger {
    /// Reserves `wanted` in the counters of all claims, or in none. While there is anything left of
    /// each limit a reservation is made, so that no limit is exceeded by more than one.
    ///
    /// # Errors
    /// The first limit that is reached.
    pub(super) fn reserve(
        &mut self,
        claims: &[Claim],
        wanted: Amount,
        now: u64,
    ) -> Result<u64, Spent> {
        for claim in claims {
            self.roll(&claim.key, now);
            self.check(claim, wanted, now)?;
        }
        let id = self.next;
        self.next += 1;
        let keys = claims.iter().map(|claim| Arc::clone(&claim.key)).collect();
        self.put(id, keys, wanted, now);
        Ok(id)
    }

    /// Reserves more, under the same rule.
    ///
    /// # Errors
    /// The first limit that is reached; nothing is added then.
    pub(super) fn grow(
        &mut self,
        id: u64,
        claims: &[Claim],
        more: Amount,
        now: u64,
    ) -> Result<(), Spent> {
        for claim in claims {
            self.roll(&claim.key, now);
            self.check(claim, more, now)?;
        }
        self.add(id, more);
        Ok(())
    }

    /// Ends a reservation: this is what was taken.
    pub(super) fn settle(&mut self, id: u64, taken: Amount) {
        let Some(open) = self.open.remove(&id) else {
            return;
        };
        // Two limits may share a counter, which is counted once.
        for key in distinct(&open.keys) {
            if let Some(counter) = self.counters.get_mut(key) {
                counter.reserved = counter.reserved.without(open.amount);
                counter.spent = counter.spent.and(taken);
            }
        }
    }

    /// Seconds that are left of the claims' wall time.
    pub(super) fn seconds_left(&self, claims: &[Claim], now: u64) -> Option<u64> {
        let left = claims.iter().filter_map(|claim| {
            let since = self.counters.get(&claim.key)?.since;
            Some(
                claim
                    .limit
                    .seconds?
                    .saturating_sub(now.saturating_sub(since)),
            )
        });
        left.min()
    }

    /// Reads a reservation back.
    pub(super) fn put(&mut self, id: u64, keys: Vec<Arc<str>>, amount: Amount, now: u64) {
        for key in distinct(&keys) {
            self.roll(key, now);
            let counter = self.counters.entry(Arc::clone(key)).or_default();
            counter.reserved = counter.reserved.and(amount);
            counter.seen = now;
        }
        self.next = self.next.max(id.saturating_add(1));
        self.open.insert(id, Open { keys, amount });
    }

    /// Reads an addition to one back.
    pub(super) fn add(&mut self, id: u64, more: Amount) {
        let Some(open) = self.open.get_mut(&id) else {
            return;
        };
        open.amount = open.amount.and(more);
        for key in distinct(&open.keys) {
            if let Some(counter) = self.counters.get_mut(key) {
                counter.reserved = counter.reserved.and(more);
            }
        }
    }

    /// A counter whose window is over begins anew; what is under way is carried over.
    fn roll(&mut self, key: &Arc<str>, now: u64) {
        let current = window(key).map_or(0, |seconds| now / seconds);
        let counter = self.counters.entry(Arc::clone(key)).or_insert(Counter {
            window: current,
            since: now,
            seen: now,
            ..Counter::default()
        });
        // A clock that was set back renews nothing.
        if counter.window < current {
            *counter = Counter {
                window: current,
                since: now,
                seen: now,
                spent: Amount::default(),
                reserved: counter.reserved,
            };
        }
    }

    fn check(&self, claim: &Claim, wanted: Amount, now: u64) -> Result<(), Spent> {
        let counter = self.counters.get(&claim.key).copied().unwrap_or_default();
        let seconds = now.saturating_sub(counter.since);
        let over = claim.limit.seconds.filter(|most| seconds >= *most);
        let over = over.map(|most| (Measure::Seconds, seconds, most));
        let Some((measure, all, limit)) = over.or(counter.all().reaches(&claim.limit, &wanted))
        else {
            return Ok(());
        };
        let taken = match measure {
            Measure::Money => counter.spent.nano,
            Measure::Tokens => counter.spent.tokens,
            Measure::Requests => counter.spent.requests,
            Measure::Bytes => counter.spent.bytes,
            Measure::Seconds => seconds,
        };
        Err(Spent {
            key: Arc::clone(&claim.key),
            measure,
            taken,
            reserved: all.saturating_sub(taken),
            limit,
            renewed: claim
                .limit
                .window_seconds
                .map(|window| window - now % window.max(1)),
            window: claim.limit.window_seconds,
        })
    }
}

fn distinct(keys: &[Arc<str>]) -> impl Iterator<Item = &Arc<str>> {
    let seen_before = |at: usize| keys[..at].contains(&keys[at]);
    keys.iter()
        .enumerate()
        .filter(move |(at, _)| !seen_before(*at))
        .map(|(_, key)| key)
}

#[cfg(test)]
mod tests {
    use policy::grant::{Limit, Scope};
    use policy::money::Usd;
    use proptest::prelude::*;

    use super::*;

    fn claim(key: &str, limit: Limit) -> Claim {
        Claim {
            key: key.into(),
            limit,
        }
    }

    fn none(per: Scope) -> Limit {
        Limit {
            per,
            usd: None,
            tokens: None,
            requests: None,
            bytes: None,
            seconds: None,
            window_seconds: None,
        }
    }

    fn tokens(count: u64) -> Amount {
        Amount {
            tokens: count,
            requests: 1,
            ..Amount::default()
        }
    }

    #[test]
    fn a_limit_is_never_exceeded_by_more_than_one_reservation() {
        let limit = Limit {
            tokens: Some(100),
            ..none(Scope::Agent)
        };
        let claims = [claim("agent/a/b", limit)];
        let mut ledger = Ledger::default();
        let ids: Vec<_> = (0..64)
            .filter_map(|_| ledger.reserve(&claims, tokens(30), 5).ok())
            .collect();
        assert_eq!(ids.len(), 4);
        let spent = ledger.reserve(&claims, tokens(30), 5).unwrap_err();
        assert_eq!(
            (spent.measure, spent.taken, spent.reserved),
            (Measure::Tokens, 0, 120)
        );
        for id in ids {
            ledger.settle(id, tokens(10));
            ledger.settle(id, tokens(10));
        }
        assert_eq!(ledger.counters["agent/a/b"].spent.tokens, 40);
        assert_eq!(ledger.counters["agent/a/b"].reserved, Amount::default());
        assert!(ledger.reserve(&claims, tokens(30), 5).is_ok(), "control");
    }

    #[test]
    fn requests_are_counted_one_by_one_and_what_is_not_taken_is_not_asked() {
        let limits = Limit {
            requests: Some(2),
            usd: Some(Usd::from_nano(0)),
            ..none(Scope::Run)
        };
        let claims = [claim("run/r", limits)];
        let mut ledger = Ledger::default();
        let one = Amount {
            requests: 1,
            ..Amount::default()
        };
        ledger.reserve(&claims, one, 1).unwrap();
        ledger.reserve(&claims, one, 1).unwrap();
        let spent = ledger.reserve(&claims, one, 1).unwrap_err();
        assert_eq!(spent.measure, Measure::Requests);
        let paid = Amount { nano: 1, ..one };
        let spent = Ledger::default().reserve(&claims, paid, 1).unwrap_err();
        assert_eq!(spent.measure, Measure::Money, "nothing may be spent");
    }

    #[test]
    fn one_limit_that_is_reached_leaves_the_others_as_they_were() {
        let open = claim(
            "company/a",
            Limit {
                tokens: Some(1000),
                ..none(Scope::Company)
            },
        );
        let shut = claim(
            "run/r",
            Limit {
                tokens: Some(0),
                ..none(Scope::Run)
            },
        );
        let mut ledger = Ledger::default();
        ledger
            .reserve(&[open.clone(), shut], tokens(5), 1)
            .unwrap_err();
        assert_eq!(ledger.counters["company/a"].reserved, Amount::default());
        ledger.reserve(&[open], tokens(5), 1).unwrap();
        assert_eq!(ledger.counters["company/a"].reserved.tokens, 5, "control");
    }

    #[test]
    fn windows_renew_and_wall_time_runs_from_the_first_request() {
        let day = Limit {
            tokens: Some(10),
            window_seconds: Some(100),
            ..none(Scope::Agent)
        };
        let claims = [claim("agent/a/b@100", day)];
        let mut ledger = Ledger::default();
        let id = ledger.reserve(&claims, tokens(10), 1050).unwrap();
        ledger.settle(id, tokens(10));
        let spent = ledger.reserve(&claims, tokens(1), 1060).unwrap_err();
        assert_eq!((spent.renewed, spent.taken), (Some(40), 10));
        ledger.reserve(&claims, tokens(1), 1100).unwrap();
        let wall = [claim(
            "run/r",
            Limit {
                seconds: Some(60),
                ..none(Scope::Run)
            },
        )];
        ledger.reserve(&wall, tokens(1), 1000).unwrap();
        assert_eq!(ledger.seconds_left(&wall, 1059), Some(1));
        ledger.reserve(&wall, tokens(1), 1059).unwrap();
        let spent = ledger.reserve(&wall, tokens(1), 1060).unwrap_err();
        assert_eq!(spent.measure, Measure::Seconds);
    }

    proptest! {
        /// Whatever is reserved, grown and settled within what was reserved.
        #[test]
        fn what_is_taken_stays_below_the_limit_and_one_reservation(
            steps in proptest::collection::vec((0_u8..4, 0_usize..8, 1_u64..50), 1..200),
        ) {
            let limit = Limit { tokens: Some(100), ..none(Scope::Agent) };
            let claims = [claim("agent/a/b", limit)];
            let mut ledger = Ledger::default();
            let mut open: Vec<(u64, u64)> = Vec::new();
            let mut largest = 0;
            for (what, which, count) in steps {
                match what {
                    0 | 1 => if let Ok(id) = ledger.reserve(&claims, tokens(count), 1) {
                        largest = largest.max(count);
                        open.push((id, count));
                    },
                    2 if which < open.len() => {
                        let (id, held) = open[which];
                        if ledger.grow(id, &claims, tokens(count), 1).is_ok() {
                            largest = largest.max(count);
                            open[which] = (id, held + count);
                        }
                    }
                    3 if which < open.len() => {
                        let (id, held) = open.remove(which);
                        ledger.settle(id, tokens(count.min(held)));
                    }
                    _ => {}
                }
                let counter = ledger.counters.get("agent/a/b").copied().unwrap_or_default();
                prop_assert!(counter.all().tokens < 100 + largest.max(1));
                let held: u64 = open.iter().map(|(_, held)| held).sum();
                prop_assert_eq!(counter.reserved.tokens, held);
            }
        }
    }
}
