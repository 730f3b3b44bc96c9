//! Allowances as `allowance list` and `status` show them.

use std::collections::BTreeMap;

use policy::grant::{Grant, Limit};
use policy::money::Usd;
use serde::Serialize;

use super::amount::Amount;
use super::claim::window;
use super::{Allowances, now};

/// One counter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AllowanceView {
    /// Its name: `agent/COMPANY/AGENT` and the like.
    pub name: String,
    /// What was taken.
    pub spent: TakenView,
    /// What is reserved for requests that are under way.
    pub reserved: TakenView,
    /// Seconds since its first request.
    pub seconds: u64,
    /// Seconds until it is renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewed_in: Option<u64>,
    /// What it is held to, as far as open runs and the configuration say.
    pub limits: Vec<Limit>,
}

/// So much of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TakenView {
    /// US dollars.
    pub usd: Usd,
    /// Tokens that models read and wrote.
    pub tokens: u64,
    /// Requests.
    pub requests: u64,
    /// Bytes of bodies.
    pub bytes: u64,
}

impl From<Amount> for TakenView {
    fn from(amount: Amount) -> Self {
        Self {
            usd: Usd::from_nano(amount.nano),
            tokens: amount.tokens,
            requests: amount.requests,
            bytes: amount.bytes,
        }
    }
}

impl Allowances {
    /// Every counter, by name. `askers` are those whose limits are known, with what their grants say.
    #[must_use]
    pub fn view(&self, askers: &[(Grant, Vec<Limit>)]) -> Vec<AllowanceView> {
        let now = now();
        let mut limits: BTreeMap<String, Vec<Limit>> = BTreeMap::new();
        for (grant, granted) in askers {
            for claim in self.claims(grant, granted) {
                let known = limits.entry(claim.key.to_string()).or_default();
                if !known.contains(&claim.limit) {
                    known.push(claim.limit);
                }
            }
        }
        let books = self.books();
        let mut views = BTreeMap::new();
        for (key, counter) in &books.ledger.counters {
            let over = window(key).is_some_and(|seconds| counter.window < now / seconds);
            let spent = if over {
                Amount::default()
            } else {
                counter.spent
            };
            views.insert(
                key.to_string(),
                AllowanceView {
                    name: key.to_string(),
                    spent: spent.into(),
                    reserved: counter.reserved.into(),
                    seconds: if over {
                        0
                    } else {
                        now.saturating_sub(counter.since)
                    },
                    renewed_in: window(key).map(|seconds| seconds - now % seconds),
                    limits: limits.remove(&**key).unwrap_or_default(),
                },
            );
        }
        drop(books);
        // Whoever has asked for nothing yet has an allowance all the same.
        for (name, limits) in limits {
            let none = TakenView::from(Amount::default());
            let renewed_in = window(&name).map(|seconds| seconds - now % seconds);
            let view = AllowanceView {
                name: name.clone(),
                spent: none,
                reserved: none,
                seconds: 0,
                renewed_in,
                limits,
            };
            views.insert(name, view);
        }
        views.into_values().collect()
    }
}
