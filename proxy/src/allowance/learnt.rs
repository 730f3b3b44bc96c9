//! What requests of an agent to a model have come to lately.

use std::collections::{BTreeMap, VecDeque};

use super::amount::Amount;

/// So many requests are remembered of each agent and model.
const MOST_SAMPLES: usize = 64;
/// With fewer than this nothing is concluded.
const FEWEST: usize = 8;
/// More agents and models than this are not told apart.
const MOST_KEYS: usize = 4096;

/// Samples by agent and model.
#[derive(Debug, Default)]
pub(super) struct Learnt(pub(super) BTreeMap<String, VecDeque<(u64, u64)>>);

impl Learnt {
    /// One more request: what it cost, and its tokens.
    pub(super) fn note(&mut self, key: &str, taken: Amount) {
        if !self.0.contains_key(key) && self.0.len() >= MOST_KEYS {
            return;
        }
        let samples = self.0.entry(key.to_owned()).or_default();
        samples.push_back((taken.nano, taken.tokens));
        if samples.len() > MOST_SAMPLES {
            samples.pop_front();
        }
    }

    /// What nineteen of twenty requests stay below; nothing while too few have been seen.
    #[must_use]
    pub(super) fn expected(&self, key: &str) -> Option<Amount> {
        let samples = self.0.get(key).filter(|samples| samples.len() >= FEWEST)?;
        let high = |of: fn(&(u64, u64)) -> u64| {
            let mut all: Vec<u64> = samples.iter().map(of).collect();
            all.sort_unstable();
            // The nearest rank, rounded up.
            let rank = (all.len() * 95).div_ceil(100);
            all.get(rank.saturating_sub(1)).copied().unwrap_or_default()
        };
        Some(Amount {
            nano: high(|sample| sample.0),
            tokens: high(|sample| sample.1),
            ..Amount::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_high_percentile_of_the_last_requests_is_expected() {
        let mut learnt = Learnt::default();
        let taken = |count| Amount {
            nano: count * 10,
            tokens: count,
            ..Amount::default()
        };
        for count in 1..=7 {
            learnt.note("a m", taken(count));
        }
        assert_eq!(learnt.expected("a m"), None, "too few");
        learnt.note("a m", taken(1000));
        assert_eq!(learnt.expected("a m").unwrap().tokens, 1000);
        for count in 1..=64 {
            learnt.note("a m", taken(count));
        }
        let expected = learnt.expected("a m").unwrap();
        assert_eq!(
            (expected.tokens, expected.nano),
            (61, 610),
            "the large one is long ago"
        );
        assert_eq!(learnt.expected("b m"), None, "control");
    }
}
