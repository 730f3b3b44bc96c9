//! How often one asker has used a rule lately.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use policy::{Code, Permit, Rate, Refusal, RuleId};

/// With more askers than this, those who have waited long enough are forgotten.
const MOST: usize = 16 * 1024;

/// For each rule and asker, when it may be used up to its rate again.
#[derive(Debug, Default)]
pub struct Rates(Mutex<HashMap<(RuleId, String), Instant>>);

impl Rates {
    /// Counts one more request of `asker` by each rule of the permit that has a rate; all of them or
    /// none.
    ///
    /// # Errors
    /// The refusal, which says when to ask again.
    pub fn take(&self, permit: &Permit, asker: &str) -> Result<(), Refusal> {
        if permit.rates().is_empty() {
            return Ok(());
        }
        self.take_at(permit.rates(), asker, Instant::now())
    }

    fn take_at(&self, rates: &[(RuleId, Rate)], asker: &str, now: Instant) -> Result<(), Refusal> {
        let mut due = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = Vec::new();
        for (rule, rate) in rates {
            let key = (rule.clone(), asker.to_owned());
            let whole = Duration::from_secs(rate.seconds.into());
            // One request moves it on by its share; it may run ahead by the others'.
            let share = whole / rate.requests;
            let from = due.get(&key).copied().unwrap_or(now).max(now);
            let ahead = from.saturating_duration_since(now);
            if ahead + share > whole {
                let wait = (ahead + share).saturating_sub(whole);
                return Err(refusal(rule, *rate, wait));
            }
            taken.push((key, from + share));
        }
        due.extend(taken);
        if due.len() > MOST {
            due.retain(|_, when| *when > now);
        }
        Ok(())
    }
}

fn refusal(rule: &RuleId, rate: Rate, wait: Duration) -> Refusal {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let seconds = seconds.max(1);
    let sentence = format!("rule `{rule}` permits {rate} of one agent, and no more");
    let remedy = format!("ask again in {seconds} s, or have rate raised in the [[service]]");
    Refusal::new(Code::RateLimited, &sentence, &remedy)
        .by(rule, None)
        .retry_after(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_asker_has_its_rate_of_each_rule_and_it_comes_back() {
        let rates = Rates::default();
        let rule = |id: &str| RuleId::parse(id).unwrap();
        let three = Rate {
            requests: 3,
            seconds: 60,
        };
        let of = |id: &str| [(rule(id), three)];
        let now = Instant::now();
        for _ in 0..3 {
            rates.take_at(&of("a"), "x", now).unwrap();
        }
        let refused = rates.take_at(&of("a"), "x", now).unwrap_err();
        assert_eq!((refused.code, refused.status()), (Code::RateLimited, 429));
        assert_eq!(refused.retry_after.unwrap().get(), 20);
        rates.take_at(&of("a"), "y", now).unwrap();
        rates.take_at(&of("b"), "x", now).unwrap();
        let later = now + Duration::from_secs(20);
        rates.take_at(&of("a"), "x", later).unwrap();
        rates.take_at(&of("a"), "x", later).unwrap_err();
        let both = [(rule("b"), three), (rule("a"), three)];
        rates.take_at(&both, "x", later).unwrap_err();
        for _ in 0..3 {
            rates.take_at(&of("b"), "x", later).unwrap();
        }
    }
}
