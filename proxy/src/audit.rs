//! The audit log: JSON lines that are written before what they describe happens.
//!
//! [`Audit::append`] returns when the line is in the kernel's hands, [`Audit::append_durable`] when
//! it is on the disk. [`Audit::append_end`] is for the end of what a line already announced: such
//! lines are written with the next one, or within [`WRITTEN_WITHIN`]. Order is that of `seq`, and
//! each line carries the hash of the one before ([`chain`]). A thread of its own writes and syncs for
//! all who wait at that moment; it also writes checkpoints ([`checkpoint`]) and begins new files.
//! After a failed write or sync nothing is accepted until a probe has succeeded: no record, no
//! action. [`verify`] checks it all again, later and elsewhere.
//! The format is described in `docs/audit-log.md`.

pub mod chain;
pub mod checkpoint;
mod clock;
mod company;
mod error;
mod index;
mod keeper;
mod opening;
mod place;
mod probe;
pub mod query;
mod recovery;
pub mod segment;
mod settings;
mod shared;
mod shelf;
pub mod signing;
pub mod snapshot;
pub mod tail;
pub mod tally;
mod turn;
pub mod verify;
mod vouching;
mod workers;
mod writer;

use std::borrow::BorrowMut;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use policy::record::{LogFact, Record, RecordKind};
use serde::Serialize;
use tokio::sync::broadcast;

use checkpoint::Commitments;
use company::Member;
use shared::Shared;
use tally::Tally;

pub use clock::now;
pub use error::AuditError;
pub use settings::Settings;
pub use workers::Workers;

/// The file inside the audit directory.
pub const FILE: &str = "audit.jsonl";
/// Lines that a slow subscriber may lag behind before it loses some.
const BROADCAST_LINES: usize = 1024;
/// The end of a request may be written this much later.
pub const WRITTEN_WITHIN: Duration = Duration::from_millis(5);
/// Lines of so many bytes do not wait for others.
const PENDING_BYTES: usize = 64 * 1024;

/// Position of a record in the log, from 1.
pub type Seq = u64;

/// What status says about the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditView {
    /// Whether records are being accepted.
    pub ok: bool,
    /// The last record's position.
    pub seq: Seq,
    /// What failed, while it fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The file.
    pub path: PathBuf,
    /// Fingerprint of the key that signs checkpoints; absent where nothing is signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signing_key: Option<String>,
}

/// How far the disk is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lag {
    /// Lines that are not known to be on the disk.
    pub lines: u64,
    /// How many wait for the disk.
    pub waiting: usize,
    /// How long the last sync took.
    pub last_sync: Duration,
    /// How often this process has synced the log.
    pub syncs: u64,
}

/// The open log. Dropping it closes the log with a last checkpoint and stops the thread.
#[allow(
    missing_debug_implementations,
    reason = "status shows it through view()"
)]
pub struct Audit {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Dropped to end the thread that looks after closed files.
    shelf: Option<(std::sync::mpsc::Sender<()>, JoinHandle<()>)>,
}

/// A record that is in the log and not known to be on the disk.
#[derive(Debug)]
#[must_use = "it is on the disk when `written` says so"]
pub struct Begun {
    seq: Seq,
    member: Option<Member>,
}

impl Begun {
    /// Waits until it is on the disk.
    ///
    /// # Errors
    /// As [`Audit::append`], also when the sync fails.
    pub async fn written(self) -> Result<Seq, AuditError> {
        match self.member {
            Some(member) => member.wait().await.map(|()| self.seq),
            None => Ok(self.seq),
        }
    }
}

impl Audit {
    /// Has checkpoints commit to what `source` tells beside the log itself. It is asked by the log's
    /// thread and may wait for locks, but not for the log.
    pub fn commit_to(&self, source: impl Fn() -> Commitments + Send + Sync + 'static) {
        let mut place = self
            .shared
            .source
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *place = Some(Box::new(source));
    }

    /// Writes a record; `seq` is set here, and `time` where it is empty.
    ///
    /// # Errors
    /// [`AuditError::Unavailable`]: what the record describes must not happen.
    pub fn append(&self, record: impl BorrowMut<Record>) -> Result<Seq, AuditError> {
        if self.shared.settings.without.is_log_left_out() {
            return Ok(0);
        }
        let mut state = self.shared.lock();
        let seq = self.shared.number(&mut state, record)?;
        self.shared.write(&mut state)?;
        Ok(seq)
    }

    /// Writes a record and waits until it is on the disk.
    ///
    /// # Errors
    /// As [`Audit::append`], also when the sync fails.
    pub async fn append_durable(&self, record: impl BorrowMut<Record>) -> Result<Seq, AuditError> {
        self.begin_durable(record)?.written().await
    }

    /// The first half of it: the record is in the log, and will be on the disk soon. Its end is owed
    /// from here on, also by who does not wait any longer.
    ///
    /// # Errors
    /// As [`Audit::append`].
    pub fn begin_durable(&self, mut record: impl BorrowMut<Record>) -> Result<Begun, AuditError> {
        if self.shared.settings.without.is_wait_left_out() {
            return Ok(Begun {
                seq: self.append(record)?,
                member: None,
            });
        }
        let mut state = self.shared.lock();
        let seq = self.shared.number(&mut state, record.borrow_mut())?;
        let member = state.waiters.join(&record.borrow().id);
        self.shared.wake(&state);
        Ok(Begun {
            seq,
            member: Some(member),
        })
    }

    /// Records the end of what another line announced. Nothing waits for it: it is written with the
    /// next line, or within [`WRITTEN_WITHIN`] and the sync under way, if there is one. A crash
    /// before that, or a write that fails, leaves the announcement in the log without its end.
    ///
    /// # Errors
    /// As [`Audit::append`], except for a write that fails later.
    pub fn append_end(&self, record: impl BorrowMut<Record>) -> Result<Seq, AuditError> {
        if self.shared.settings.without.is_log_left_out() {
            return Ok(0);
        }
        let mut state = self.shared.lock();
        let seq = self.shared.number(&mut state, record)?;
        if state.log.pending() >= PENDING_BYTES {
            self.shared.write(&mut state)?;
        } else {
            self.shared.wake(&state);
        }
        Ok(seq)
    }

    /// Writes what is still to be written, for somebody who is about to read the file.
    ///
    /// # Errors
    /// As [`Audit::append`].
    pub fn flush(&self) -> Result<(), AuditError> {
        self.shared.write(&mut self.shared.lock())
    }

    /// Writes an event of the gate itself. A failure is logged: no action waits for an event.
    pub fn event(&self, what: &str) {
        self.tell(event(what, None));
    }

    fn note(&self, what: &str, fact: LogFact) {
        self.tell(event(what, Some(fact)));
    }

    fn tell(&self, record: Record) {
        let what = record.reason.clone().unwrap_or_default();
        if let Err(problem) = self.append(record) {
            tracing::error!("{problem}; not recorded: {what}");
        }
    }

    /// Every line from now on, without its line end. A subscriber that lags loses lines and is
    /// told so; it never holds up the log.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<str>> {
        self.shared.lines.subscribe()
    }

    /// Whether records are accepted, and where the log stands.
    #[must_use]
    pub fn view(&self) -> AuditView {
        let mut state = self.shared.lock();
        if state.failed.is_none() && !state.log.is_in_place() {
            // Should that fail, the state says so, here as elsewhere.
            state = self.shared.relocate(state).0;
        }
        AuditView {
            ok: state.failed.is_none(),
            seq: state.log.seq(),
            problem: state.failed.clone(),
            path: self.shared.path.clone(),
            signing_key: self
                .shared
                .settings
                .signer
                .as_ref()
                .map(|signer| signer.fingerprint()),
        }
    }

    /// What the lines of this process add up to, and how far the disk is behind them.
    #[must_use]
    pub fn tally(&self) -> (Tally, Lag) {
        let state = self.shared.lock();
        let lag = Lag {
            lines: state.log.seq().saturating_sub(state.log.durable()),
            waiting: state.waiters.len(),
            last_sync: state.synced_in,
            syncs: state.syncs,
        };
        (state.tally.clone(), lag)
    }

    /// The last checkpoint that is on the disk, as its line: of this process, or the one that its
    /// predecessor closed the log with.
    #[must_use]
    pub fn checkpoint(&self) -> Option<Arc<str>> {
        self.shared.lock().checkpoint.clone()
    }

    /// Has a signature vouch for the log as it is now, so that one that has just begun can be told
    /// from one that nobody signs. Blocks on the disk; nothing where no key signs.
    pub fn vouch(&self) {
        if self.shared.settings.signer.is_some() {
            drop(self.shared.check(self.shared.lock(), false));
        }
    }

    /// Follows a rotation by others: if the path no longer names the open file, a new one is begun
    /// there. The sequence and the chain go on.
    ///
    /// # Errors
    /// [`AuditError::Unavailable`]; nothing is accepted until there can be a new file.
    pub fn reopen(&self) -> Result<(), AuditError> {
        let state = self.shared.lock();
        if state.log.is_in_place() {
            return Ok(());
        }
        self.shared.relocate(state).1
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        if let Some((open, shelf)) = self.shelf.take() {
            drop(open);
            // As below.
            let _ = shelf.join();
        }
        self.shared.lock().stop = true;
        self.shared.work.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by the panic hook; there is nobody left to tell.
            let _ = thread.join();
        }
    }
}

/// An event, for what concerns the log itself with the fact.
fn event(what: &str, fact: Option<LogFact>) -> Record {
    let mut record = Record::new(RecordKind::Event, &new_id(), "");
    record.reason = Some(what.to_owned());
    record.log = fact;
    record
}

/// An id for an event: time-ordered, unique.
#[must_use]
pub fn new_id() -> String {
    uuid::Uuid::now_v7().simple().to_string()
}

#[cfg(test)]
mod tests;
