//! What the log, its threads and whoever appends have in common: lines are numbered and written under
//! one lock.

use std::borrow::BorrowMut;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use policy::record::Record;
use tokio::sync::broadcast;

use super::checkpoint::Commitments;
use super::company::Company;
use super::keeper::Sleep;
use super::tally::Tally;
use super::writer::Log;
use super::{AuditError, Seq, Settings, now};

/// What the lock guards.
pub(super) struct State {
    pub(super) log: Log,
    /// Those who wait for the disk.
    pub(super) waiters: Company,
    pub(super) failed: Option<String>,
    /// What must be said once the log can be written again.
    pub(super) owed: Owed,
    pub(super) stop: bool,
    /// Somebody syncs the file without holding the state.
    pub(super) syncing: bool,
    /// How often lines were lost: what was written before the last time may not be on the disk.
    pub(super) losses: u64,
    /// What the thread is doing, so that it is only woken when it must be.
    pub(super) sleep: Sleep,
    /// So many may come to the next sync: those of the last one, and those who waited already.
    pub(super) expected: usize,
    /// The last line of the last checkpoint, and when that was.
    pub(super) checked: (Seq, Instant),
    pub(super) tally: Tally,
    /// How long the last sync took.
    pub(super) synced_in: Duration,
    /// How often it was synced.
    pub(super) syncs: u64,
    /// The last checkpoint that is on the disk.
    pub(super) checkpoint: Option<Arc<str>>,
}

/// What a failure leaves to be told.
#[derive(Default)]
pub(super) struct Owed {
    /// A sync failed: the file is not to be used again.
    pub(super) abandon: bool,
    /// Requests whose line was written, but not made durable: they did not leave.
    pub(super) refused: Vec<String>,
    /// How long to wait for the next try.
    pub(super) patience: Duration,
}

pub(super) type Source = Box<dyn Fn() -> Commitments + Send + Sync>;

/// What the log, its threads and whoever appends have in common.
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) work: Condvar,
    /// Tells those who wait for their turn to sync that it may have come.
    pub(super) turn: Condvar,
    pub(super) lines: broadcast::Sender<Arc<str>>,
    pub(super) path: PathBuf,
    pub(super) settings: Settings,
    /// Tells what a checkpoint commits to beside the log.
    pub(super) source: RwLock<Option<Source>>,
}

pub(super) type Held<'s> = MutexGuard<'s, State>;

impl Shared {
    pub(super) fn lock(&self) -> Held<'_> {
        // A panic while the lock was held cannot have left half a line unnoticed: the length that
        // counts as written only moves after a whole one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Numbers a record and makes its line, which is not written yet.
    pub(super) fn number(
        &self,
        state: &mut State,
        mut record: impl BorrowMut<Record>,
    ) -> Result<Seq, AuditError> {
        let record = record.borrow_mut();
        if let Some(problem) = &state.failed {
            return Err(AuditError::Unavailable(problem.clone()));
        }
        if record.time.is_empty() {
            record.time = now();
        }
        match state.log.push(record) {
            Ok(()) => {
                state.tally.add(record);
                Ok(record.seq)
            }
            Err(problem) => Err(self.fail(state, &problem)),
        }
    }

    /// Writes every line that is not written yet, and tells those who listen.
    pub(super) fn write(&self, state: &mut State) -> Result<(), AuditError> {
        if let Some(problem) = &state.failed {
            return Err(AuditError::Unavailable(problem.clone()));
        }
        match state.log.write() {
            Ok(lines) => {
                if self.lines.receiver_count() > 0 {
                    for line in String::from_utf8_lossy(lines).lines() {
                        // An error means that the last receiver has just gone.
                        let _ = self.lines.send(Arc::from(line));
                    }
                }
                Ok(())
            }
            Err(problem) => Err(self.fail(state, &problem)),
        }
    }

    pub(super) fn fail(&self, state: &mut State, problem: &std::io::Error) -> AuditError {
        let problem = problem.to_string();
        tracing::error!("the audit log cannot be written: {problem}; nothing passes meanwhile");
        state.failed = Some(problem.clone());
        self.work.notify_one();
        AuditError::Unavailable(problem)
    }
}
