//! A log that could not be written: it is tried again until it can be, and then says what happened.

use std::time::{Duration, Instant};

use policy::Code;
use policy::record::{LogFact, Record, RecordKind, Verdict};

use super::keeper::Sleep;
use super::shared::{Held, Owed, Shared, State};
use super::{AuditError, event, now};

/// How long a failed log waits for its next try.
const PROBE_EVERY: Duration = Duration::from_millis(250);
/// How often at least, where each try begins a file.
const PROBE_SELDOM: Duration = Duration::from_secs(8);

impl Shared {
    pub(super) fn probe<'s>(&'s self, mut state: Held<'s>) -> Held<'s> {
        if !state.waiters.is_empty() {
            let problem = state.failed.clone().unwrap_or_default();
            let refused = state.waiters.take();
            refused.tell(Err(AuditError::Unavailable(problem)));
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
        state.syncs += 1;
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
