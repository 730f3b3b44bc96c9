//! The database: one file, one writer, everything that happened in one hash-chained journal.
//!
//! A change and its journal entry are one transaction (`synchronous = FULL`, so it is on disk when
//! [`Store::write`] returns); changes that wait at the same moment share one. Constraints, not code, keep one live run per ticket and per agent.
//! A damaged, newer or locked database is an error at [`Store::open`]; nothing starts then.

pub mod agents;
pub mod approvals;
pub mod attachments;
mod batch;
pub mod comments;
pub mod costs;
pub mod documents;
pub mod files;
pub mod goals;
pub mod interactions;
pub mod journal;
pub mod labels;
pub mod profiles;
pub mod projects;
pub mod routines;
pub mod runs;
pub mod schema;
pub mod snapshot;
pub mod tickets;
pub mod wakes;
pub mod work_products;
mod worker;

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, OpenFlags};
use tokio::sync::Notify;

use crate::model::time::{self, Millis};
use crate::model::{Actor, Refusal};
use worker::Worker;

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The board's rules say no; nothing was changed.
    #[error("{0}")]
    Refused(Refusal),
    /// SQLite says no; nothing was changed.
    #[error("the database could not be used")]
    Sqlite(#[from] rusqlite::Error),
    /// A value in the database cannot be read.
    #[error("the database holds a value that cannot be read")]
    Value(#[from] serde_json::Error),
    /// The file is not usable.
    #[error("{path}: {problem}\n  hint: {hint}")]
    Unusable {
        /// The database file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// What to do.
        hint: String,
    },
    /// Rows were changed without an entry in the journal.
    #[error("{0} rows were changed without an entry in the journal")]
    Unsaid(u64),
    /// The database thread ended.
    #[error("the database thread has ended")]
    Gone,
}

impl From<Refusal> for StoreError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// A change under way, with what it must say in the journal.
#[derive(Debug)]
pub struct Writer<'c> {
    connection: &'c Connection,
    /// The time of everything in this change.
    pub now: Millis,
    /// Who changes.
    pub actor: Actor,
    /// The run whose act this follows from, where the orchestrator acts itself.
    pub(crate) because_of: Option<String>,
    pub(crate) kick: bool,
    entries: i64,
    /// Bytes of what was written.
    bytes: i64,
    /// Rows changed that are no news: leases.
    unsaid: u64,
}

impl<'c> Writer<'c> {
    fn new(connection: &'c Connection, now: Millis, actor: Actor) -> Self {
        Self {
            connection,
            now,
            actor,
            because_of: None,
            kick: false,
            entries: 0,
            bytes: 0,
            unsaid: 0,
        }
    }

    /// Changes rows that the journal leaves out.
    fn without_entry(
        &mut self,
        sql: &str,
        parameters: impl rusqlite::Params,
    ) -> Result<usize, StoreError> {
        let changed = self.connection.prepare_cached(sql)?.execute(parameters)?;
        self.unsaid += changed as u64;
        Ok(changed)
    }

    /// A change that says nothing in the journal is a mistake of this program, and is not made.
    fn must_be_in_the_journal(&self, changes_before: u64) -> Result<(), StoreError> {
        let changed = self.connection.total_changes() - changes_before;
        if self.entries == 0 && changed > self.unsaid {
            return Err(StoreError::Unsaid(changed));
        }
        Ok(())
    }
}

impl std::ops::Deref for Writer<'_> {
    type Target = Connection;
    fn deref(&self) -> &Connection {
        self.connection
    }
}

/// A handle on the database; cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    writer: Arc<Worker<batch::Job>>,
    reader: Arc<Worker<worker::Query>>,
    kick: Arc<Notify>,
    clock: fn() -> Millis,
    path: Arc<PathBuf>,
}

impl Store {
    /// Opens or creates the database and brings its schema up to date.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] when the file is damaged, locked, newer than this program or not
    /// ours.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with_clock(path, time::now)
    }

    /// As [`Store::open`], with a clock of the caller's.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_with_clock(path: &Path, clock: fn() -> Millis) -> Result<Self, StoreError> {
        let explain = |error: rusqlite::Error| unusable(path, &error);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        keep_private(path)?;
        let mut connection = Connection::open_with_flags(path, flags).map_err(explain)?;
        schema::configure(&connection).map_err(explain)?;
        schema::migrate(&mut connection, path)?;
        schema::check(&connection, path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let reading = Connection::open_with_flags(path, flags).map_err(explain)?;
        schema::configure_reader(&reading).map_err(explain)?;
        Ok(Self {
            writer: Arc::new(Worker::start("store-writer", connection, batch::serve)?),
            reader: Arc::new(Worker::start("store-reader", reading, worker::answer)?),
            kick: Arc::new(Notify::new()),
            clock,
            path: Arc::new(path.to_owned()),
        })
    }

    /// Runs `change` on the writer's thread, whole or not at all, and returns once it is on disk.
    /// What is queued meanwhile shares the next transaction. A caller that stops waiting does not
    /// stop the change.
    ///
    /// # Errors
    /// What `change` returns, or why the transaction failed; nothing is changed then.
    pub async fn write<T: Send + 'static>(
        &self,
        actor: Actor,
        change: impl FnOnce(&mut Writer<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let kick = Arc::clone(&self.kick);
        let (pending, answer) = batch::Pending::new(change, actor, self.clock, kick);
        self.writer.hand(Box::new(pending))?;
        answer.await.map_err(|_closed| StoreError::Gone)?
    }

    /// Runs `query` on the reader's thread, in one consistent view.
    ///
    /// # Errors
    /// What `query` returns, or why it could not run.
    pub async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.reader
            .ask(move |connection| {
                let tx = connection.transaction()?;
                query(&tx)
            })
            .await
    }

    /// Resolves after a change that may let a run start.
    pub async fn kicked(&self) {
        self.kick.notified().await;
    }

    /// Makes [`Store::kicked`] resolve once.
    pub fn kick(&self) {
        self.kick.notify_one();
    }

    /// The store's clock.
    #[must_use]
    pub fn now(&self) -> Millis {
        (self.clock)()
    }

    /// The database file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Verifies the journal of a database file that may be in use; see [`journal::verify`].
///
/// # Errors
/// The file cannot be read.
pub fn verify_file(path: &Path) -> Result<Result<i64, journal::Broken>, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection =
        Connection::open_with_flags(path, flags).map_err(|error| unusable(path, &error))?;
    schema::configure_reader(&connection).map_err(|error| unusable(path, &error))?;
    let tx = connection.transaction()?;
    journal::verify(&tx)
}

/// The most bytes of text that one list carries.
const PAGE: usize = 8 * 1024 * 1024;

/// Rows until there are [`PAGE`] bytes of them, one at least: a list of long texts must not fill
/// the memory. The caller asks for the rest as for any next page.
fn page<T>(
    rows: impl Iterator<Item = rusqlite::Result<T>>,
    size: impl Fn(&T) -> usize,
) -> Result<Vec<T>, StoreError> {
    let mut list = Vec::new();
    let mut bytes = 0;
    for row in rows {
        let row = row?;
        bytes += size(&row);
        if bytes > PAGE && !list.is_empty() {
            break;
        }
        list.push(row);
    }
    Ok(list)
}

/// A fresh id; sorts by time of creation.
#[must_use]
pub fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// Only this account reads the state: it holds what agents say to each other, and the runs' tokens. What SQLite makes
/// beside the file has the file's mode.
fn keep_private(path: &Path) -> Result<(), StoreError> {
    let mut options = OpenOptions::new();
    // What cannot be opened here is explained by SQLite, which opens it next.
    let _ = options.create(true).append(true).mode(0o600).open(path);
    for end in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        match std::fs::set_permissions(&name, Permissions::from_mode(0o600)) {
            Ok(()) => {}
            // The two are there only if an earlier process left them; without the first SQLite says why.
            Err(problem) if problem.kind() == std::io::ErrorKind::NotFound => {}
            Err(problem) => {
                let name = Path::new(&name);
                return Err(StoreError::Unusable {
                    path: name.to_owned(),
                    problem: format!(
                        "it may be open to others and cannot be closed to them: {problem}"
                    ),
                    hint: format!(
                        "it must belong to the orchestrator's user: chown it and chmod 600 {}",
                        name.display()
                    ),
                });
            }
        }
    }
    Ok(())
}

fn unusable(path: &Path, error: &rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode;
    let (problem, hint) = match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => (
            "the database is damaged".to_owned(),
            "keep the file for inspection, restore the last good copy, then start again",
        ),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
            "the database is locked by another process".to_owned(),
            "stop the other process that has it open, then start again",
        ),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => (
            "the database is read-only".to_owned(),
            "the file and its directory must belong to the orchestrator's user",
        ),
        Some(ErrorCode::DiskFull) => ("the disk is full".to_owned(), "make room, then start again"),
        _ => (
            error.to_string(),
            "the directory must exist and belong to the orchestrator's user",
        ),
    };
    StoreError::Unusable {
        path: path.to_owned(),
        problem,
        hint: hint.to_owned(),
    }
}

#[cfg(test)]
mod tests;
