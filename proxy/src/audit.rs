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
mod index;
mod keeper;
pub mod query;
mod recovery;
pub mod segment;
mod settings;
mod shelf;
pub mod signing;
pub mod tail;
pub mod tally;
pub mod verify;
mod writer;

use std::borrow::BorrowMut;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use policy::record::{LogFact, Record, RecordKind};
use serde::Serialize;
use tokio::sync::{broadcast, oneshot};

use checkpoint::Commitments;
use keeper::{Held, Sleep};
use tally::Tally;
use writer::Log;

pub use settings::Settings;

/// The file inside the audit directory.
pub const FILE: &str = "audit.jsonl";
/// Lines that a slow subscriber may lag behind before it loses some.
const BROADCAST_LINES: usize = 1024;
/// The end of a request may be written this much later.
pub const WRITTEN_WITHIN: Duration = Duration::from_millis(5);
/// Lines of so many bytes do not wait for others.
const PENDING_BYTES: usize = 32 * 1024;
/// A directory that is locked may be so for the moment in which somebody looks whether it is.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// Position of a record in the log, from 1.
pub type Seq = u64;

/// Why a record is not in the log.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AuditError {
    /// The directory or the file cannot be used.
    #[error("cannot open the audit log {path}: {problem}")]
    Open {
        /// Directory or file.
        path: String,
        /// What the system said.
        problem: String,
    },
    /// Another process writes this log.
    #[error("the audit log {path} is being written by another process")]
    Busy {
        /// The file.
        path: String,
    },
    /// The log holds no readable record to continue from.
    #[error(
        "the audit log {path} has content but no readable record: move it aside, then start again"
    )]
    Corrupt {
        /// The file.
        path: String,
    },
    /// Writing or syncing failed and has not succeeded since.
    #[error("the audit log cannot be written: {0}")]
    Unavailable(String),
}

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

struct State {
    log: Log,
    waiters: Vec<Waiter>,
    failed: Option<String>,
    /// What must be said once the log can be written again.
    owed: Owed,
    stop: bool,
    /// Somebody syncs the file without holding the state.
    syncing: bool,
    /// How often lines were lost: what was written before the last time may not be on the disk.
    losses: u64,
    /// What the thread is doing, so that it is only woken when it must be.
    sleep: Sleep,
    /// The last line of the last checkpoint, and when that was.
    checked: (Seq, Instant),
    tally: Tally,
    /// How long the last sync took.
    synced_in: Duration,
    /// The last checkpoint that is on the disk.
    checkpoint: Option<Arc<str>>,
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
}

/// Somebody who waits for the disk.
struct Waiter {
    /// The id of the record.
    id: String,
    done: oneshot::Sender<Result<(), AuditError>>,
}

/// What a failure leaves to be told.
#[derive(Default)]
struct Owed {
    /// A sync failed: the file is not to be used again.
    abandon: bool,
    /// Requests whose line was written, but not made durable: they did not leave.
    refused: Vec<String>,
    /// How long to wait for the next try.
    patience: Duration,
}

type Source = Box<dyn Fn() -> Commitments + Send + Sync>;

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    /// Tells those who wait for their turn to sync that it may have come.
    turn: Condvar,
    lines: broadcast::Sender<Arc<str>>,
    path: PathBuf,
    settings: Settings,
    /// Tells what a checkpoint commits to beside the log.
    source: RwLock<Option<Source>>,
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

/// The present time as the log writes it.
#[must_use]
pub fn now() -> String {
    let now = jiff::Timestamp::now();
    format!("{now:.6}")
}

impl Audit {
    /// Opens `directory/audit.jsonl`, making both if need be, and continues its chain. A last
    /// line that was cut short is set aside as `*.torn` and an event says so.
    ///
    /// # Errors
    /// [`AuditError`]
    pub fn open(directory: &Path) -> Result<Self, AuditError> {
        Self::open_with(directory, Settings::default())
    }

    /// The same, with settings of one's own.
    ///
    /// # Errors
    /// [`AuditError`]
    pub fn open_with(directory: &Path, settings: Settings) -> Result<Self, AuditError> {
        let path = directory.join(FILE);
        let failed = |problem: std::io::Error| AuditError::Open {
            path: path.display().to_string(),
            problem: problem.to_string(),
        };
        writer::make_directory(directory).map_err(failed)?;
        let lock = lock(directory)
            .map_err(failed)?
            .ok_or_else(|| AuditError::Busy {
                path: path.display().to_string(),
            })?;
        let file = writer::open_file(directory).map_err(failed)?;
        // Of what is only in a file whose name is lost, nothing would be left.
        (settings.sync_directory)(&lock).map_err(failed)?;
        let found = recovery::recover(&file, &path)?;
        let names = Arc::clone(&settings.sync_directory);
        let log = Log::new(path.clone(), lock, names, file, found.at);
        let (lines, _) = broadcast::channel(BROADCAST_LINES);
        let state = State {
            checked: (log.seq(), Instant::now()),
            log,
            waiters: Vec::new(),
            failed: None,
            owed: Owed::default(),
            tally: Tally::default(),
            synced_in: Duration::ZERO,
            checkpoint: found.closing.map(Arc::from),
            stop: false,
            syncing: false,
            losses: 0,
            sleep: Sleep::Awake,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            work: Condvar::new(),
            turn: Condvar::new(),
            lines,
            path: path.clone(),
            settings,
            source: RwLock::new(None),
        });
        let worker = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("audit".to_owned())
            .stack_size(512 * 1024)
            .spawn(move || worker.run())
            .map_err(|problem| AuditError::Open {
                path: shared.path.display().to_string(),
                problem: problem.to_string(),
            })?;
        let (open, closing) = std::sync::mpsc::channel();
        let kept = Arc::downgrade(&shared);
        let shelf = std::thread::Builder::new()
            .name("audit-shelf".to_owned())
            .stack_size(512 * 1024)
            .spawn(move || shelf::keep(&kept, &closing))
            .map_err(failed)?;
        let audit = Self {
            shared,
            thread: Some(thread),
            shelf: Some((open, shelf)),
        };
        if let Some(torn) = found.torn {
            let what = format!(
                "the last line of the log was incomplete and was set aside as {}",
                torn.display()
            );
            let file = torn.file_name().unwrap_or_default().to_string_lossy();
            audit.note(&what, LogFact::Torn { file: file.into() });
        }
        if !found.clean {
            audit.note(
                "the log was not closed by the gate that wrote it",
                LogFact::Opened { clean: false },
            );
        }
        Ok(audit)
    }

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
        let (done, synced) = oneshot::channel();
        let seq = {
            let id = record.borrow().id.clone();
            let mut state = self.shared.lock();
            let seq = self.shared.number(&mut state, record)?;
            state.waiters.push(Waiter { id, done });
            self.shared.wake(&state);
            seq
        };
        match synced.await {
            Ok(Ok(())) => Ok(seq),
            Ok(Err(problem)) => Err(problem),
            Err(_) => Err(AuditError::Unavailable(
                "the audit thread has ended".to_owned(),
            )),
        }
    }

    /// Records the end of what another line announced. Nothing waits for it: it is written with the
    /// next line, or within [`WRITTEN_WITHIN`] and the sync under way, if there is one. A crash
    /// before that, or a write that fails, leaves the announcement in the log without its end.
    ///
    /// # Errors
    /// As [`Audit::append`], except for a write that fails later.
    pub fn append_end(&self, record: impl BorrowMut<Record>) -> Result<Seq, AuditError> {
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
        };
        (state.tally.clone(), lag)
    }

    /// The last checkpoint that is on the disk, as its line: of this process, or the one that its
    /// predecessor closed the log with.
    #[must_use]
    pub fn checkpoint(&self) -> Option<Arc<str>> {
        self.shared.lock().checkpoint.clone()
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

/// Locks the directory, with some patience.
fn lock(directory: &Path) -> std::io::Result<Option<std::fs::File>> {
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        let lock = writer::lock_directory(directory)?;
        if lock.is_some() || Instant::now() >= until {
            return Ok(lock);
        }
        std::thread::sleep(Duration::from_millis(20));
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

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // A panic while the lock was held cannot have left half a line unnoticed: the length that
        // counts as written only moves after a whole one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Numbers a record and makes its line, which is not written yet.
    fn number(
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
    fn write(&self, state: &mut State) -> Result<(), AuditError> {
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

    /// The file is not where it was: goes on in a new one.
    fn relocate<'s>(&'s self, state: Held<'s>) -> (Held<'s>, Result<(), AuditError>) {
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
    fn await_turn<'s>(&'s self, mut state: Held<'s>) -> Held<'s> {
        while state.syncing {
            state = self
                .turn
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// Syncs what was written while the state is held, in one's turn.
    fn sync_held(&self, state: &mut State) -> Result<(), AuditError> {
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
    fn lose(&self, state: &mut State, problem: &std::io::Error) -> AuditError {
        state.owed.abandon = true;
        state.losses += 1;
        self.fail(state, problem)
    }

    fn fail(&self, state: &mut State, problem: &std::io::Error) -> AuditError {
        let problem = problem.to_string();
        tracing::error!("the audit log cannot be written: {problem}; nothing passes meanwhile");
        state.failed = Some(problem.clone());
        self.work.notify_one();
        AuditError::Unavailable(problem)
    }
}

#[cfg(test)]
mod tests;
