//! The audit log: JSON lines that are written before what they describe happens.
//!
//! [`Audit::append`] returns when the line is in the kernel's hands, [`Audit::append_durable`] when
//! it is on the disk. [`Audit::append_end`] is for the end of what a line already announced: such
//! lines are written with the next one, or within [`WRITTEN_WITHIN`]. Order is that of `seq`. A
//! thread of its own writes and syncs for all who wait at that moment. After a failed write or sync
//! nothing is accepted until a probe has succeeded: no record, no action.
//! The format is described in `docs/audit-log.md`.

mod keeper;
pub mod query;
mod recovery;
pub mod tail;
mod writer;

use std::borrow::BorrowMut;
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use policy::record::{Record, RecordKind};
use serde::Serialize;
use tokio::sync::{broadcast, oneshot};

use keeper::Sleep;
use writer::Log;

/// The file inside the audit directory.
pub const FILE: &str = "audit.jsonl";
/// Lines that a slow subscriber may lag behind before it loses some.
const BROADCAST_LINES: usize = 1024;
/// The end of a request may be written this much later.
pub const WRITTEN_WITHIN: Duration = Duration::from_millis(5);
/// Lines of so many bytes do not wait for others.
const PENDING_BYTES: usize = 32 * 1024;

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
}

struct State {
    log: Log,
    waiters: Vec<oneshot::Sender<Result<(), AuditError>>>,
    failed: Option<String>,
    stop: bool,
    /// What the thread is doing, so that it is only woken when it must be.
    sleep: Sleep,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    lines: broadcast::Sender<Arc<str>>,
    path: PathBuf,
}

/// The open log. Dropping it syncs what is there and stops the thread.
#[allow(
    missing_debug_implementations,
    reason = "status shows it through view()"
)]
pub struct Audit {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The present time as the log writes it.
#[must_use]
pub fn now() -> String {
    let now = jiff::Timestamp::now();
    format!("{now:.6}")
}

impl Audit {
    /// Opens `directory/audit.jsonl`, making both if need be, and continues its sequence. A last
    /// line that was cut short is set aside as `*.torn` and an event says so.
    ///
    /// # Errors
    /// [`AuditError`]
    pub fn open(directory: &Path) -> Result<Self, AuditError> {
        let path = directory.join(FILE);
        let failed = |problem: std::io::Error| AuditError::Open {
            path: path.display().to_string(),
            problem: problem.to_string(),
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(failed)?;
        let file = open_file(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(AuditError::Busy {
                    path: path.display().to_string(),
                });
            }
            Err(std::fs::TryLockError::Error(problem)) => return Err(failed(problem)),
        }
        let found = recovery::recover(&file, &path)?;
        let log = Log::new(file, found.len, found.seq);
        let (lines, _) = broadcast::channel(BROADCAST_LINES);
        let state = State {
            log,
            waiters: Vec::new(),
            failed: None,
            stop: false,
            sleep: Sleep::Awake,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            work: Condvar::new(),
            lines,
            path,
        });
        let worker = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("audit".to_owned())
            .stack_size(128 * 1024)
            .spawn(move || worker.run())
            .map_err(|problem| AuditError::Open {
                path: shared.path.display().to_string(),
                problem: problem.to_string(),
            })?;
        let audit = Self {
            shared,
            thread: Some(thread),
        };
        if let Some(torn) = found.torn {
            audit.event(&format!(
                "the last line of the log was incomplete and was set aside as {}",
                torn.display()
            ));
        }
        Ok(audit)
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
            let mut state = self.shared.lock();
            let seq = self.shared.number(&mut state, record)?;
            state.waiters.push(done);
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
    /// before that leaves the announcement in the log without its end.
    ///
    /// # Errors
    /// As [`Audit::append`], except for a write that fails later: the log then shows a gap.
    pub fn append_end(&self, record: impl BorrowMut<Record>) -> Result<Seq, AuditError> {
        let mut state = self.shared.lock();
        let seq = self.shared.number(&mut state, record)?;
        state.log.owe();
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
        let mut record = Record::new(RecordKind::Event, &new_id(), "");
        record.reason = Some(what.to_owned());
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
        let state = self.shared.lock();
        AuditView {
            ok: state.failed.is_none(),
            seq: state.log.seq(),
            problem: state.failed.clone(),
            path: self.shared.path.clone(),
        }
    }

    /// Follows a rotation: if the path no longer names the open file, a new one is begun there. The
    /// sequence goes on.
    ///
    /// # Errors
    /// [`AuditError::Open`]; the old file stays in use.
    pub fn reopen(&self) -> Result<(), AuditError> {
        let failed = |problem: std::io::Error| AuditError::Open {
            path: self.shared.path.display().to_string(),
            problem: problem.to_string(),
        };
        let mut state = self.shared.lock();
        if state.log.is_at(&self.shared.path) {
            return Ok(());
        }
        let file = open_file(&self.shared.path).map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len();
        if len > 0 {
            return Err(failed(std::io::Error::other(
                "a file that is not empty has taken its place",
            )));
        }
        file.try_lock().map_err(|problem| failed(problem.into()))?;
        self.shared.write(&mut state)?;
        state.log.sync().map_err(failed)?;
        state.log.replace(file);
        Ok(())
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.work.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by the panic hook; there is nobody left to tell.
            let _ = thread.join();
        }
    }
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
            Ok(()) => Ok(record.seq),
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

    fn fail(&self, state: &mut State, problem: &std::io::Error) -> AuditError {
        let problem = problem.to_string();
        tracing::error!("the audit log cannot be written: {problem}; nothing passes meanwhile");
        state.failed = Some(problem.clone());
        self.work.notify_one();
        AuditError::Unavailable(problem)
    }
}

fn open_file(path: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path)
}

#[cfg(test)]
mod tests;
