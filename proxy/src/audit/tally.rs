//! What the lines of this process add up to, for metrics and checkpoints. What an agent chooses
//! (hosts, paths, methods) is no label here, and the number of labels is bounded.

use std::collections::{BTreeMap, HashMap};

use policy::record::{Record, RecordKind, Verdict};

/// Services told apart; policies that a peer sends could name any number.
const MOST_SERVICES: usize = 256;
/// The label of what has none of its own.
pub const OTHER: &str = "other";
/// The label of what no rule decided.
const NONE: &str = "none";

/// Upper bounds of the latency histogram, in milliseconds.
pub const BOUNDS_MS: [u64; 13] = [
    1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 5000, 30_000, 120_000,
];

/// How long requests took.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Latencies {
    /// How many took at most the bound of the same place, and above all the previous one; the last
    /// one is for those above all bounds.
    pub counts: [u64; BOUNDS_MS.len() + 1],
    /// All of them together.
    pub sum_ms: u64,
}

impl Latencies {
    fn add(&mut self, ms: u64) {
        let at = BOUNDS_MS.partition_point(|bound| *bound < ms);
        self.counts[at] += 1;
        self.sum_ms = self.sum_ms.saturating_add(ms);
    }
}

/// How often each verdict (`allow`, `refuse`) met each class of status (`2xx` and the like; `none` where
/// there was no answer).
pub type Outcomes = BTreeMap<(&'static str, &'static str), u64>;

/// What the lines add up to since the process began.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Requests that have ended, or were refused, by the rule that decided, which the policy names.
    pub requests: HashMap<String, Outcomes>,
    /// Refusals by code.
    pub refused: BTreeMap<&'static str, u64>,
    /// Of permitted requests, to their end.
    pub latencies: Latencies,
    /// Body bytes from clients, and to them.
    pub bytes: (u64, u64),
    /// Tokens that models read, and wrote.
    pub tokens: (u64, u64),
    /// Millionths of a US dollar.
    pub cost_microusd: u64,
    /// Requests that waited for a decision.
    pub holds: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, record: &Record) {
        match record.kind {
            RecordKind::Request | RecordKind::Event | RecordKind::Checkpoint => return,
            RecordKind::Response => {
                self.latencies.add(record.ms.unwrap_or(0));
                self.bytes.0 += record.bytes_in.unwrap_or(0);
                self.bytes.1 += record.bytes_out.unwrap_or(0);
                self.tokens.0 += record.tokens_in.unwrap_or(0);
                self.tokens.1 += record.tokens_out.unwrap_or(0);
                self.cost_microusd += record.cost_microusd.unwrap_or(0);
            }
            RecordKind::Refusal => {
                let code = record.code.map_or(OTHER, |code| code.as_str());
                *self.refused.entry(code).or_default() += 1;
            }
        }
        // Whatever was decided, or if nobody did in time.
        self.holds += u64::from(record.hold.is_some());
        let verdict = match record.verdict {
            Some(Verdict::Allow) => "allow",
            Some(Verdict::Refuse) | None => "refuse",
        };
        let service = record.rule.as_ref().map_or(NONE, |rule| rule.as_str());
        self.count(service, (verdict, class(record.status)));
    }

    /// Makes no copy of the service's name, but for the first of it.
    fn count(&mut self, service: &str, outcome: (&'static str, &'static str)) {
        if let Some(outcomes) = self.requests.get_mut(service) {
            *outcomes.entry(outcome).or_default() += 1;
            return;
        }
        let full = self.requests.len() >= MOST_SERVICES && service != NONE;
        let service = if full { OTHER } else { service };
        let outcomes = self.requests.entry(service.to_owned()).or_default();
        *outcomes.entry(outcome).or_default() += 1;
    }
}

fn class(status: Option<u16>) -> &'static str {
    match status.unwrap_or(0) / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        5 => "5xx",
        _ => "none",
    }
}

#[cfg(test)]
mod tests {
    use policy::RuleId;

    use super::*;

    #[test]
    fn labels_are_bounded_whatever_is_asked_for() {
        let mut tally = Tally::default();
        for number in 0..2000 {
            let mut record = Record::new(RecordKind::Refusal, "x", "t");
            record.authority = Some(format!("h{number}.example:443"));
            record.path = Some(format!("/{number}"));
            record.rule = Some(RuleId::parse(&format!("r{number}")).unwrap());
            record.code = Some(policy::Code::ALL[0]);
            tally.add(&record);
        }
        assert_eq!(tally.requests.len(), MOST_SERVICES + 1);
        let all = tally.requests.values().flat_map(Outcomes::values);
        assert_eq!(all.sum::<u64>(), 2000);
        assert_eq!(tally.refused[policy::Code::ALL[0].as_str()], 2000);
    }

    #[test]
    fn a_request_that_waited_counts_once_however_it_was_decided() {
        let mut tally = Tally::default();
        for kind in [
            RecordKind::Request,
            RecordKind::Response,
            RecordKind::Refusal,
            RecordKind::Event,
        ] {
            let mut record = Record::new(kind, "x", "t");
            tally.add(&record);
            record.hold = Some("h".to_owned());
            tally.add(&record);
        }
        assert_eq!(tally.holds, 2, "approved, and denied or expired");
    }

    #[test]
    fn a_latency_falls_into_the_first_bound_that_is_not_below_it() {
        let mut latencies = Latencies::default();
        for ms in [0, 1, 2, 3, 120_001] {
            latencies.add(ms);
        }
        assert_eq!(latencies.counts[..3], [2, 1, 1]);
        assert_eq!(latencies.counts[BOUNDS_MS.len()], 1);
        assert_eq!(latencies.sum_ms, 120_007);
    }
}
