//! The log's thread: it writes and syncs for all who wait, writes what nobody waits for, and tries a
//! failed log again.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::WRITTEN_WITHIN;
use super::shared::{Held, Shared, State};

/// While all threads that serve are at work, a sync that is to be shared waits for company so many times
/// as long as the last one took.
const GATHERING_TIMES: u32 = 16;
/// But no longer than this.
const GATHERING: Duration = Duration::from_millis(3);
/// Where one of them has nothing to do, for this part of the time that the last one took: a sync costs the
/// processor as much as several requests, however many share it.
const PATIENCE_PART: u32 = 4;
/// Nor for more than so many.
const COMPANY: usize = 256;

/// What the thread is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sleep {
    /// Busy; it looks for work before it sleeps again.
    Awake,
    /// Until anything is to be done.
    Deep,
    /// Until somebody waits, or pending lines are due.
    UntilDue,
    /// Until so many wait, or a thread that serves has nothing to do, or it has waited long enough.
    Gathering,
}

impl Shared {
    /// Wakes the thread if what was just added is more than it knows of.
    pub(super) fn wake(&self, state: &State) {
        let wanted = match state.sleep {
            Sleep::Awake => false,
            Sleep::Deep => true,
            Sleep::UntilDue => !state.waiters.is_empty(),
            Sleep::Gathering => !is_awaiting_more(state),
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
                state = self.upkeep(state);
                continue;
            }
            if state.stop {
                drop(self.check(state, true));
                return;
            }
            if state.failed.is_none() && state.waiters.is_empty() {
                state = self.rest(state);
                state = self.upkeep(state);
            }
        }
    }

    /// One write and one sync for all who wait now.
    fn sync<'s>(&'s self, mut state: Held<'s>, last: &mut Group) -> Held<'s> {
        if last.size > 1 {
            state = self.gather(state, last);
        }
        if state.failed.is_some() {
            return state;
        }
        if !state.log.is_in_place() {
            let moved;
            (state, moved) = self.relocate(state);
            if moved.is_err() {
                return state;
            }
        }
        if self.write(&mut state).is_err() {
            return state;
        }
        let waiters = state.waiters.take();
        let begun = Instant::now();
        let (mut state, synced) = self.make_durable(state);
        *last = Group {
            size: waiters.len(),
            took: begun.elapsed(),
        };
        if synced.is_err() {
            state.owed.refused.extend(waiters.ids());
        }
        drop(state);
        waiters.tell(synced);
        self.lock()
    }

    /// Lets others join while all threads that serve have other things to do, and for a moment after that.
    /// Expected are those who shared the last sync and those who wait already.
    fn gather<'s>(&'s self, mut state: Held<'s>, last: &Group) -> Held<'s> {
        let Some(workers) = &self.settings.workers else {
            return state;
        };
        state.expected = last.size + state.waiters.len();
        let until = Instant::now() + (last.took * GATHERING_TIMES).min(GATHERING);
        workers.await_one(true);
        while !workers.is_any_idle() && is_awaiting_more(&state) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.sleep(state, Sleep::Gathering, Some(left));
        }
        workers.await_one(false);
        // Those who are elsewhere for a moment may still come.
        let until = until.min(Instant::now() + last.took / PATIENCE_PART);
        while is_awaiting_more(&state) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.sleep(state, Sleep::Gathering, Some(left));
        }
        state
    }

    /// Writes a checkpoint and begins a new file when that is due.
    fn upkeep<'s>(&'s self, mut state: Held<'s>) -> Held<'s> {
        if state.failed.is_some() || state.stop {
            return state;
        }
        let (bytes, age) = state.log.extent();
        let settings = &self.settings;
        let full = bytes > 0 && (bytes >= settings.segment_bytes || age >= settings.segment_age);
        if full || self.until_checkpoint(&state) == Some(Duration::ZERO) {
            state = self.check(state, false);
        }
        if full {
            state = self.await_turn(state);
            // Failures have been noted in the state.
            if self.write(&mut state).is_ok()
                && self.sync_held(&mut state).is_ok()
                && let Err(problem) = state.log.begin()
            {
                state.owed.abandon = true;
                self.fail(&mut state, &problem);
            }
        }
        state
    }

    /// Sleeps until there is something to do, and writes what is due.
    fn rest<'s>(&'s self, state: Held<'s>) -> Held<'s> {
        let seen = state.log.seq();
        if state.log.pending() == 0 {
            let due = self.until_due_for_upkeep(&state);
            let state = self.sleep(state, Sleep::Deep, due);
            if state.log.seq() == seen || !state.waiters.is_empty() {
                return state;
            }
            return self.until_due(state);
        }
        self.until_due(state)
    }

    /// How long nothing needs to be done. A line that nobody waits for does not wake the thread, so
    /// it looks by itself whether there was one.
    fn until_due_for_upkeep(&self, state: &State) -> Option<Duration> {
        let (bytes, age) = state.log.extent();
        let rotation = (bytes > 0).then(|| self.settings.segment_age.saturating_sub(age));
        let look = Some(self.settings.checkpoint_every);
        let due = [rotation, self.until_checkpoint(state), look];
        due.into_iter().flatten().min()
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

    pub(super) fn sleep<'s>(
        &'s self,
        mut state: Held<'s>,
        how: Sleep,
        most: Option<Duration>,
    ) -> Held<'s> {
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
}

/// Whether more may come to the sync that is about to begin.
fn is_awaiting_more(state: &State) -> bool {
    let complete = state.waiters.len() >= state.expected.min(COMPANY);
    !complete && state.failed.is_none() && !state.stop
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
        // They hear that it has ended.
        drop(state.waiters.take());
    }
}
