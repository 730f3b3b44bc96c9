//! The log's thread: it writes and syncs for all who wait, writes what nobody waits for, and tries a
//! failed log again.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use policy::Code;
use policy::record::{Checkpoint, LogFact, Record, RecordKind, Verdict};

use super::checkpoint::{Commitments, Interval, Statement};
use super::{AuditError, Owed, Shared, State, WRITTEN_WITHIN, event, new_id, now};

/// How often a failed log is tried again.
const PROBE_EVERY: Duration = Duration::from_millis(250);
/// How often at least, where each try begins a file.
const PROBE_SELDOM: Duration = Duration::from_secs(8);
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

pub(super) type Held<'s> = MutexGuard<'s, State>;

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
            let until = Instant::now() + last.took.min(GATHERING);
            while state.waiters.len() < last.size && state.failed.is_none() && !state.stop {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                state = self.sleep(state, Sleep::Gathering(last.size), Some(left));
            }
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
        let waiters = std::mem::take(&mut state.waiters);
        let begun = Instant::now();
        let (mut state, synced) = self.make_durable(state);
        *last = Group {
            size: waiters.len(),
            took: begun.elapsed(),
        };
        if synced.is_err() {
            let ids = waiters.iter().map(|waiter| waiter.id.clone());
            state.owed.refused.extend(ids);
        }
        drop(state);
        for waiter in waiters {
            // A waiter that went away has cancelled its request.
            let _ = waiter.done.send(synced.clone());
        }
        self.lock()
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

    /// How long until a checkpoint is due; nothing if there is nothing to commit to.
    fn until_checkpoint(&self, state: &State) -> Option<Duration> {
        let (seq, at) = state.checked;
        let lines = state.log.seq().saturating_sub(seq);
        if lines == 0 {
            return None;
        }
        if lines >= self.settings.checkpoint_records {
            return Some(Duration::ZERO);
        }
        Some(self.settings.checkpoint_every.saturating_sub(at.elapsed()))
    }

    /// Writes a checkpoint, makes it durable, and tells those who listen.
    fn check<'s>(&'s self, state: Held<'s>, closing: bool) -> Held<'s> {
        // Whoever answers may wait for locks that somebody holds who waits for the log's.
        drop(state);
        let mut commitments = self
            .source
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .map_or_else(Commitments::default, |source| source());
        let mut state = self.lock();
        if self.write(&mut state).is_err() {
            return state;
        }
        let refused = state.tally.refused.iter();
        let refused = refused.map(|(code, count)| ((*code).to_owned(), *count));
        commitments.refused.extend(refused);
        let every = self.settings.checkpoint_every;
        commitments.interval = Some(Interval {
            lines: self.settings.checkpoint_records,
            seconds: every.as_secs() + u64::from(every.subsec_nanos() > 0),
        });
        let statement = Statement {
            seq: state.log.seq(),
            head: state.log.head(),
            closing,
        };
        let mut record = Record::new(RecordKind::Checkpoint, &new_id(), &now());
        let statement = statement.text(&record.time, &commitments);
        let signer = self.settings.signer.as_ref();
        let signature = match signer.map(|signer| signer.sign(&statement)).transpose() {
            Ok(signature) => signature,
            Err(problem) => {
                self.fail(&mut state, &problem);
                return state;
            }
        };
        record.checkpoint = Some(Checkpoint {
            statement,
            closing,
            key: signer.map(|signer| signer.fingerprint()),
            signature,
        });
        let line = match state.log.push(&mut record).and_then(|()| state.log.write()) {
            Ok(line) => String::from_utf8_lossy(line).trim_end().to_owned(),
            Err(problem) => {
                self.fail(&mut state, &problem);
                return state;
            }
        };
        state.checked = (state.log.seq(), Instant::now());
        let (mut state, synced) = self.make_durable(state);
        if synced.is_ok() {
            // Only now: what others keep must not be ahead of the disk. An error means that nobody
            // listens.
            let line: Arc<str> = Arc::from(line);
            state.checkpoint = Some(Arc::clone(&line));
            let _ = self.lines.send(line);
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
            let _ = waiter.done.send(Err(AuditError::Unavailable(problem)));
        }
        if state.stop {
            return state;
        }
        let deadline = Instant::now() + state.owed.patience.max(PROBE_EVERY);
        while !state.stop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.sleep(state, Sleep::Awake, Some(left));
        }
        state = self.await_turn(state);
        if state.log.has_room() {
            match self.recover(&mut state) {
                Ok(()) => {
                    tracing::warn!("the audit log can be written again");
                    state.failed = None;
                    state.owed = Owed::default();
                }
                // Said in the status; it was logged when it began.
                Err(problem) => {
                    state.failed = Some(problem.to_string());
                    if state.owed.abandon {
                        let patience = state.owed.patience.max(PROBE_EVERY) * 2;
                        state.owed.patience = patience.min(PROBE_SELDOM);
                    }
                }
            }
        }
        state
    }

    /// Tries to write and sync what must be said after a failure.
    fn recover(&self, state: &mut State) -> std::io::Result<()> {
        let (durable, last) = (state.log.durable(), state.log.settled());
        let moved = !state.log.is_in_place();
        if state.owed.abandon || moved {
            state.log.begin()?;
        }
        state.log.name()?;
        let former = state.failed.clone().unwrap_or_default();
        let mut what = format!("the audit log can be written again after: {former}");
        let fact = if state.owed.abandon {
            what.push_str(&format!(
                "; records {} to {last} may be missing",
                durable + 1
            ));
            Some(LogFact::Abandoned { durable, last })
        } else {
            moved.then_some(LogFact::Moved { last })
        };
        let mut record = event(&what, fact);
        record.time = now();
        state.log.push(&mut record)?;
        for id in &state.owed.refused {
            state.log.push(&mut not_sent(id))?;
        }
        state.log.write()?;
        if let Err(problem) = (self.settings.sync)(&state.log.file()) {
            state.owed.abandon = true;
            state.losses += 1;
            return Err(problem);
        }
        let settled = state.log.settled();
        state.log.synced(settled);
        Ok(())
    }
}

/// The end of a request that was recorded, but not on the disk, and so did not leave.
fn not_sent(id: &str) -> Record {
    let mut record = Record::new(RecordKind::Response, id, &now());
    record.verdict = Some(Verdict::Refuse);
    record.code = Some(Code::AuditUnavailable);
    record.reason = Some("not sent: its record could not be made durable".to_owned());
    record
}

/// Without its thread the log accepts nothing: a panic must not leave waiters waiting.
struct Fuse<'s>(&'s Shared);

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
