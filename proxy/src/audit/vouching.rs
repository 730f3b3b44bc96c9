//! Checkpoints: when one is due, and how it is made, signed and kept.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use policy::record::{Checkpoint, Record, RecordKind};

use super::checkpoint::{Commitments, Interval, Statement};
use super::shared::{Held, Shared, State};
use super::{new_id, now};

impl Shared {
    /// How long until a checkpoint is due; nothing if there is nothing to commit to.
    pub(super) fn until_checkpoint(&self, state: &State) -> Option<Duration> {
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
    pub(super) fn check<'s>(&'s self, state: Held<'s>, closing: bool) -> Held<'s> {
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
}
