//! What runs, tickets, agents, projects and companies may take, and what they have taken.
//!
//! A request that belongs to somebody with a limit makes a [`Reservation`] of what it is expected to
//! take before it leaves, and settles it at its end, however it ends. [`ledger`] counts, [`journal`]
//! keeps it over restarts, [`learnt`] says what is to be expected.

mod amount;
mod claim;
mod journal;
mod learnt;
mod ledger;
mod reservation;
mod view;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use policy::grant::{Grant, Limit};
use policy::{Code, Refusal};

pub use amount::{Amount, Measure};
pub use claim::{Claim, ConfiguredLimit, escaped};
pub use journal::JournalError;
pub use ledger::Spent;
pub use reservation::Reservation;
pub use view::{AllowanceView, TakenView};

use journal::{Journal, LENGTH_MOST, Line};
use learnt::Learnt;
use ledger::Ledger;

/// A counter that is renewed within so many seconds is worth waiting for.
const WORTH_WAITING: u64 = 3600;
/// A counter of a run that nobody has asked for in so many seconds is forgotten when the journal is
/// written anew.
const RUN_FORGOTTEN: u64 = 30 * 24 * 3600;

/// All allowances.
#[derive(Debug)]
pub struct Allowances {
    configured: Vec<ConfiguredLimit>,
    directory: PathBuf,
    /// Held while something is counted, never across an await.
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    ledger: Ledger,
    learnt: Learnt,
    /// Opened when something is counted for the first time, or was before.
    journal: Option<Arc<Journal>>,
}

impl Allowances {
    /// Reads back what was taken, if anything was.
    ///
    /// # Errors
    /// [`JournalError`] of a journal that is there and cannot be used.
    pub fn open(
        configured: Vec<ConfiguredLimit>,
        directory: PathBuf,
    ) -> Result<Self, JournalError> {
        let this = Self {
            configured,
            books: Mutex::default(),
            directory,
        };
        if !this.configured.is_empty() || this.directory.exists() {
            this.journal(&mut this.books())?;
        }
        Ok(this)
    }

    /// The limits of an asker. `granted` are those of its grant.
    #[must_use]
    pub fn claims(&self, grant: &Grant, granted: &[Limit]) -> Vec<Claim> {
        claim::claims(&self.configured, grant, granted)
    }

    /// Reserves, unless a limit is reached. Nobody's request needs none.
    ///
    /// # Errors
    /// The refusal, which says what was taken of what.
    pub fn reserve(
        self: &Arc<Self>,
        claims: Vec<Claim>,
        wanted: Amount,
    ) -> Result<Option<Arc<Reservation>>, Refusal> {
        if claims.is_empty() {
            return Ok(None);
        }
        let mut books = self.books();
        let journal = self.journal(&mut books).map_err(|problem| {
            tracing::error!(%problem, "allowances cannot be counted");
            unavailable()
        })?;
        if journal.has_failed() {
            journal.renew(&books.ledger, &books.learnt);
            return Err(unavailable());
        }
        let now = now();
        let reserved = books.ledger.reserve(&claims, wanted, now);
        let id = reserved.map_err(|spent| refusal(&spent))?;
        journal.write(&Line::Reserve {
            id,
            at: now,
            keys: claims.iter().map(|claim| claim.key.to_string()).collect(),
            amount: wanted,
        });
        if journal.length() > LENGTH_MOST {
            books.forget(now);
            journal.renew(&books.ledger, &books.learnt);
        }
        let seconds = books.ledger.seconds_left(&claims, now);
        drop(books);
        let reservation = Reservation::new(Arc::clone(self), journal, id, claims, wanted, seconds);
        Ok(Some(Arc::new(reservation)))
    }

    /// What a request of this agent to this model is expected to take, where that is known.
    #[must_use]
    pub fn expected(&self, key: &str) -> Option<Amount> {
        self.books().learnt.expected(key)
    }

    fn journal(&self, books: &mut Books) -> Result<Arc<Journal>, JournalError> {
        if let Some(journal) = &books.journal {
            return Ok(Arc::clone(journal));
        }
        let (ledger, learnt) = (&mut books.ledger, &mut books.learnt);
        let journal = Arc::new(Journal::open(&self.directory, ledger, learnt)?);
        books.journal = Some(Arc::clone(&journal));
        Ok(journal)
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    /// Drops counters that nobody will ask for again.
    fn forget(&mut self, now: u64) {
        self.ledger.counters.retain(|key, counter| {
            let over = match claim::window(key) {
                Some(seconds) => counter.window < now / seconds,
                None => key.starts_with("run/") && now.saturating_sub(counter.seen) > RUN_FORGOTTEN,
            };
            !over || counter.reserved != Amount::default()
        });
    }
}

/// The refusal of a request for which there is nothing left.
pub fn refusal(spent: &Spent) -> Refusal {
    let Spent {
        key,
        measure,
        taken,
        reserved,
        limit,
        renewed,
        window,
    } = spent;
    let whose = key.split('@').next().unwrap_or(key);
    let mut sentence = format!(
        "the allowance of {whose} is spent: {} of {}",
        measure.shown(*taken),
        measure.shown(*limit)
    );
    if *reserved > 0 {
        let reserved = measure.shown(*reserved);
        sentence.push_str(&format!(", and {reserved} reserved for what is under way"));
    }
    let waits = window.is_some_and(|window| window <= WORTH_WAITING);
    let remedy = match renewed {
        Some(seconds) => {
            format!("it is renewed in {seconds} s; the operator can raise it, you cannot")
        }
        None => {
            "finish without it, and say what is left to do; the operator can raise it, you cannot"
                .to_owned()
        }
    };
    match renewed.filter(|_| waits) {
        Some(seconds) => {
            Refusal::new(Code::AllowanceWaits, &sentence, &remedy).retry_after(seconds)
        }
        None => Refusal::new(Code::AllowanceSpent, &sentence, &remedy),
    }
}

fn unavailable() -> Refusal {
    Refusal::new(
        Code::AllowanceUnavailable,
        "what is taken of an allowance cannot be noted, so nothing is given out",
        "the operator must make room for the gate's state; it recovers by itself",
    )
}

/// Seconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests;
