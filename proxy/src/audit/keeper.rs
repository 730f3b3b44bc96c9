//! The log's thread: it writes and syncs for all who wait, writes what nobody waits for, and tries a
//! failed log again.

use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use policy::record::{Record, RecordKind};

use super::{AuditError, Shared, State, WRITTEN_WITHIN, new_id, now};

/// How often a failed log is tried again.
const PROBE_EVERY: Duration = Duration::from_millis(250);
/// A sync that is to be shared waits for company as long as the last one took, but no longer.
const GATHERING: Duration = Duration::from_millis(1);

/// What the thread is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sleep {
    /// Busy; it looks for work before it sleeps again.
    Awake,
    /// Until anything is to be done.
    Deep,
    /// Until somebody waits, or pending lines are due.
    UntilDue,
    /// Until so many wait as shared the last sync, or it has waited long enough.
    Gathering(usize),
}

type Held<'s> = MutexGuard<'s, State>;

impl Shared {
    /// Wakes the thread if what was just added is more than it knows of.
    pub(super) fn wake(&self, state: &State) {
        let wanted = match state.sleep {
            Sleep::Awake => false,
            Sleep::Deep => true,
            Sleep::UntilDue => !state.waiters.is_empty(),
            Sleep::Gathering(enough) => state.waiters.len() >= enough,
        };
        if wanted {
            self.work.notify_one();
        }
    }

    /// The thread, until the log is closed.
    pub(super) fn run(&self) {
        let _fuse = Fuse(self);
        let mut state = self.lock();
        let mut last = Group::default();
        loop {
            if state.failed.is_some() {
                state = self.probe(state);
            } else if !state.waiters.is_empty() {
                state = self.sync(state, &mut last);
                continue;
            }
            if state.stop {
                // Best effort: whoever needed certainty has waited for it.
                let _ = self.write(&mut state);
                let _ = state.log.sync();
                return;
            }
            if state.failed.is_none() && state.waiters.is_empty() {
                state = self.rest(state);
            }
        }
    }

    /// One write and one sync for all who wait now.
    fn sync<'s>(&'s self, mut state: Held<'s>, last: &mut Group) -> Held<'s> {
        if last.size > 1 {
            let until = Instant::now() + last.took.min(GATHERING);
            while state.waiters.len() < last.size && state.failed.is_none() && !state.stop {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                state = self.sleep(state, Sleep::Gathering(last.size), Some(left));
            }
        }
        if state.failed.is_some() || self.write(&mut state).is_err() {
            return state;
        }
        let waiters = std::mem::take(&mut state.waiters);
        let file = state.log.file();
        drop(state);
        let begun = Instant::now();
        let synced = file.sync_data();
        *last = Group {
            size: waiters.len(),
            took: begun.elapsed(),
        };
        let answer = synced.map_err(|problem| self.fail(&mut self.lock(), &problem));
        for waiter in waiters {
            // A waiter that went away has cancelled its request.
            let _ = waiter.send(answer.clone());
        }
        self.lock()
    }

    /// Sleeps until there is something to do, and writes what is due.
    fn rest<'s>(&'s self, state: Held<'s>) -> Held<'s> {
        let seen = state.log.seq();
        if state.log.pending() == 0 {
            let state = self.sleep(state, Sleep::Deep, None);
            if state.log.seq() == seen || !state.waiters.is_empty() {
                return state;
            }
            return self.until_due(state);
        }
        self.until_due(state)
    }

    /// Lets lines gather while there is traffic, writing them each time they are due.
    fn until_due<'s>(&'s self, mut state: Held<'s>) -> Held<'s> {
        loop {
            let (seen, due) = (state.log.seq(), Instant::now() + WRITTEN_WITHIN);
            while state.waiters.is_empty() && state.failed.is_none() && !state.stop {
                let left = due.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                state = self.sleep(state, Sleep::UntilDue, Some(left));
            }
            if !state.waiters.is_empty() || state.failed.is_some() || state.stop {
                return state;
            }
            // A failure has been noted in the state.
            let _ = self.write(&mut state);
            if state.log.seq() == seen {
                return state;
            }
        }
    }

    fn sleep<'s>(&'s self, mut state: Held<'s>, how: Sleep, most: Option<Duration>) -> Held<'s> {
        state.sleep = how;
        let mut state = match most {
            None => self
                .work
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner),
            Some(most) => {
                self.work
                    .wait_timeout(state, most)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        };
        state.sleep = Sleep::Awake;
        state
    }

    fn probe<'s>(&'s self, mut state: Held<'s>) -> Held<'s> {
        for waiter in std::mem::take(&mut state.waiters) {
            let problem = state.failed.clone().unwrap_or_default();
            // As above.
            let _ = waiter.send(Err(AuditError::Unavailable(problem)));
        }
        if state.stop {
            return state;
        }
        let deadline = Instant::now() + PROBE_EVERY;
        while !state.stop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.sleep(state, Sleep::Awake, Some(left));
        }
        let last = state.log.seq();
        let former = state.failed.clone().unwrap_or_default();
        let mut record = Record::new(RecordKind::Event, &new_id(), &now());
        record.reason = Some(format!(
            "the audit log can be written again after: {former}; records around {last} may be \
             missing"
        ));
        if state.log.has_room()
            && state.log.push(&mut record).is_ok()
            && state.log.write().is_ok()
            && state.log.sync().is_ok()
        {
            tracing::warn!("the audit log can be written again");
            state.failed = None;
        }
        state
    }
}

/// Without its thread the log accepts nothing: a panic must not leave waiters waiting.
struct Fuse<'s>(&'s Shared);

/// Those who shared the last sync, and what it took.
#[derive(Debug, Default)]
struct Group {
    size: usize,
    took: Duration,
}

impl Drop for Fuse<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.failed = Some("the log is closed".to_owned());
        state.waiters.clear();
    }
}
