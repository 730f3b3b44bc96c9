//! What one request may take, from before it leaves to its end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use policy::{Code, Refusal};

use super::amount::{Amount, Measure};
use super::claim::Claim;
use super::journal::{Journal, Line};
use super::ledger::Spent;
use super::{Allowances, now, refusal, unavailable};

/// So much of a body is reserved at a time.
const BYTES_STEP: u64 = 256 * 1024;

/// A reservation. Dropped before [`Reservation::leave`] it is given back; dropped after that and not
/// settled, what it holds was taken.
#[derive(Debug)]
pub struct Reservation {
    allowances: Arc<Allowances>,
    journal: Arc<Journal>,
    id: u64,
    claims: Vec<Claim>,
    held: Mutex<Amount>,
    /// The same for bytes, to be looked at for each piece of a body; no bound where there is no limit.
    bytes: AtomicU64,
    left: AtomicBool,
    settled: AtomicBool,
    /// Why nothing could be added.
    spent: Mutex<Option<Spent>>,
    seconds: Option<u64>,
}

impl Reservation {
    pub(super) fn new(
        allowances: Arc<Allowances>,
        journal: Arc<Journal>,
        id: u64,
        claims: Vec<Claim>,
        held: Amount,
        seconds: Option<u64>,
    ) -> Self {
        let bounded = claims.iter().any(|claim| claim.limit.bytes.is_some());
        Self {
            bytes: AtomicU64::new(if bounded { held.bytes } else { u64::MAX }),
            allowances,
            journal,
            id,
            claims,
            held: Mutex::new(held),
            left: AtomicBool::new(false),
            settled: AtomicBool::new(false),
            spent: Mutex::new(None),
            seconds,
        }
    }

    /// What it holds.
    pub fn held(&self) -> Amount {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the request may last.
    pub fn lasts(&self) -> Option<Duration> {
        self.seconds.map(Duration::from_secs)
    }

    /// The request leaves: ends when the reservation is on the disk.
    ///
    /// # Errors
    /// It cannot be; the request must not leave.
    pub async fn leave(&self) -> Result<(), Refusal> {
        if !self.journal.synced().await {
            return Err(unavailable());
        }
        self.left.store(true, Ordering::Release);
        Ok(())
    }

    /// So many bytes have gone by, both ways together. `false`: there are none left.
    pub fn bytes(&self, all: u64) -> bool {
        let held = self.bytes.load(Ordering::Relaxed);
        if all <= held {
            return true;
        }
        let more = Amount {
            bytes: (all - held).max(BYTES_STEP),
            ..Amount::default()
        };
        let grown = self.grow(more);
        if grown {
            self.bytes.fetch_add(more.bytes, Ordering::Relaxed);
        }
        grown
    }

    /// It takes at least this much in money and tokens. `false`: there is not so much left.
    pub fn needs(&self, nano: u64, tokens: u64) -> bool {
        let held = self.held();
        if nano <= held.nano && tokens <= held.tokens {
            return true;
        }
        // A step as large as what it holds, so that a long answer asks but a few times; yet never more
        // than that, so that no limit is exceeded by more.
        let step = |needed: u64, held: u64| match needed.saturating_sub(held) {
            0 => 0,
            more => more.max(held / 2),
        };
        self.grow(Amount {
            nano: step(nano, held.nano),
            tokens: step(tokens, held.tokens),
            ..Amount::default()
        })
    }

    /// Its time is over.
    pub fn is_late(&self) {
        let late = self
            .claims
            .iter()
            .filter_map(|claim| Some((claim, claim.limit.seconds?)));
        if let Some((claim, seconds)) = late.min_by_key(|(_, seconds)| *seconds) {
            self.note(Spent {
                key: Arc::clone(&claim.key),
                measure: Measure::Seconds,
                taken: seconds,
                reserved: 0,
                limit: seconds,
                renewed: None,
                window: claim.limit.window_seconds,
            });
        }
    }

    /// Why nothing could be added, as the agent reads it.
    pub fn refusal(&self) -> Refusal {
        let spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        match &*spent {
            Some(spent) => refusal(spent),
            None => Refusal::new(
                Code::AllowanceSpent,
                "the allowance of this request is spent",
                "the operator can raise it, you cannot",
            ),
        }
    }

    /// The request has ended and took this. `learn`: of which agent and model.
    pub fn settle(&self, taken: Amount, learn: Option<&str>) {
        if self.settled.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut books = self.allowances.books();
        books.ledger.settle(self.id, taken);
        if let Some(key) = learn {
            books.learnt.note(key, taken);
        }
        self.journal.write(&Line::Settle {
            id: self.id,
            amount: taken,
            learn: learn.map(str::to_owned),
        });
    }

    fn grow(&self, more: Amount) -> bool {
        let mut books = self.allowances.books();
        match books.ledger.grow(self.id, &self.claims, more, now()) {
            Ok(()) => {
                let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
                *held = held.and(more);
                self.journal.write(&Line::Grow {
                    id: self.id,
                    amount: more,
                });
                true
            }
            Err(spent) => {
                drop(books);
                self.note(spent);
                false
            }
        }
    }

    fn note(&self, why: Spent) {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        spent.get_or_insert(why);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let taken = if self.left.load(Ordering::Acquire) {
            self.held()
        } else {
            Amount::default()
        };
        self.settle(taken, None);
    }
}
