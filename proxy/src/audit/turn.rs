//! One sync of the log at a time, and what comes of it: the system tells of a lost write once only.

use std::sync::PoisonError;
use std::time::Instant;

use policy::record::LogFact;

use super::shared::{Held, Shared, State};
use super::{AuditError, event, now};

impl Shared {
    /// The file is not where it was: goes on in a new one.
    pub(super) fn relocate<'s>(&'s self, state: Held<'s>) -> (Held<'s>, Result<(), AuditError>) {
        let mut state = self.await_turn(state);
        let moved = if let Some(problem) = &state.failed {
            Err(AuditError::Unavailable(problem.clone()))
        } else if state.log.is_in_place() {
            Ok(())
        } else {
            self.follow(&mut state)
        };
        (state, moved)
    }

    /// The same, in one's turn to sync.
    fn follow(&self, state: &mut State) -> Result<(), AuditError> {
        self.sync_held(state)?;
        let last = state.log.settled();
        let begun = state.log.begin();
        let said = begun.and_then(|()| {
            let what = "the file of the log was moved or removed; it goes on in a new one";
            let mut record = event(what, Some(LogFact::Moved { last }));
            record.time = now();
            state.log.push(&mut record)
        });
        match said {
            Ok(()) => {
                tracing::warn!(
                    "the file of the audit log was moved or removed: a new one is begun"
                );
                self.write(state)
            }
            Err(problem) => Err(self.fail(state, &problem)),
        }
    }

    /// Waits until nobody syncs. The system tells of a lost write once only: two syncs at a time,
    /// and the one that is told nothing would vouch for what the other one lost.
    pub(super) fn await_turn<'s>(&'s self, mut state: Held<'s>) -> Held<'s> {
        while state.syncing {
            state = self
                .turn
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// Syncs what was written while the state is held, in one's turn.
    pub(super) fn sync_held(&self, state: &mut State) -> Result<(), AuditError> {
        state.syncs += 1;
        match (self.settings.sync)(&state.log.file()) {
            Ok(()) => {
                let settled = state.log.settled();
                state.log.synced(settled);
                Ok(())
            }
            Err(problem) => Err(self.lose(state, &problem)),
        }
    }

    /// Notes that a sync failed. The kernel may have dropped what it could not write, and says so
    /// once: this file is done with.
    pub(super) fn lose(&self, state: &mut State, problem: &std::io::Error) -> AuditError {
        state.owed.abandon = true;
        state.losses += 1;
        self.fail(state, problem)
    }

    /// Syncs what was written, while others may go on adding. One at a time syncs, until what came of
    /// it is noted.
    pub(super) fn make_durable<'s>(
        &'s self,
        state: Held<'s>,
    ) -> (Held<'s>, Result<(), AuditError>) {
        let losses = state.losses;
        let mut state = self.await_turn(state);
        let problem = match &state.failed {
            Some(problem) => Some(problem.clone()),
            None if state.losses != losses => Some("a sync failed meanwhile".to_owned()),
            None => None,
        };
        if let Some(problem) = problem {
            return (state, Err(AuditError::Unavailable(problem)));
        }
        // Not those of before: the file may be another one. What a former one held was synced when
        // it was closed, or is counted as lost.
        let (file, upto) = (state.log.file(), state.log.settled());
        state.syncing = true;
        state.syncs += 1;
        drop(state);
        let begun = Instant::now();
        let turn = Turn(self);
        let synced = (self.settings.sync)(&file);
        let took = begun.elapsed();
        let mut state = self.lock();
        state.synced_in = took;
        let result = match synced {
            Ok(()) => {
                state.log.synced(upto);
                Ok(())
            }
            Err(problem) => Err(self.lose(&mut state, &problem)),
        };
        turn.end(&mut state);
        (state, result)
    }
}

/// One's turn to sync.
struct Turn<'s>(&'s Shared);

impl Turn<'_> {
    fn end(self, state: &mut State) {
        state.syncing = false;
        self.0.turn.notify_all();
        std::mem::forget(self);
    }
}

impl Drop for Turn<'_> {
    /// Only while a panic unwinds.
    fn drop(&mut self) {
        let mut state = self.0.lock();
        let problem = std::io::Error::other("a sync did not end");
        self.0.lose(&mut state, &problem);
        state.syncing = false;
        self.0.turn.notify_all();
    }
}
