//! The database: one file, one writer, everything that happened in one hash-chained journal.
//!
//! A change and its journal entry are one transaction (`synchronous = FULL`, so it is on disk when
//! [`Store::write`] returns). Constraints, not code, keep one live run per ticket and per agent.
//! A damaged, newer or locked database is an error at [`Store::open`]; nothing starts then.

pub mod agents;
pub mod comments;
pub mod documents;
pub mod journal;
pub mod runs;
pub mod schema;
pub mod snapshot;
pub mod tickets;
pub mod wakes;
mod worker;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
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
    /// The database thread ended.
    #[error("the database thread has ended")]
    Gone,
}

impl From<Refusal> for StoreError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// A transaction that changes something, with what it must say in the journal.
#[derive(Debug)]
pub struct Writer<'c> {
    tx: Transaction<'c>,
    /// The time of everything in this transaction.
    pub now: Millis,
    /// Who changes.
    pub actor: Actor,
    pub(crate) kick: bool,
}

impl std::ops::Deref for Writer<'_> {
    type Target = Connection;
    fn deref(&self) -> &Connection {
        &self.tx
    }
}

/// A handle on the database; cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    writer: Arc<Worker>,
    reader: Arc<Worker>,
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
        let mut connection = Connection::open_with_flags(path, flags).map_err(explain)?;
        schema::configure(&connection).map_err(explain)?;
        schema::migrate(&mut connection, path)?;
        schema::check(&connection, path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let reading = Connection::open_with_flags(path, flags).map_err(explain)?;
        schema::configure_reader(&reading).map_err(explain)?;
        Ok(Self {
            writer: Arc::new(Worker::start("store-writer", connection)?),
            reader: Arc::new(Worker::start("store-reader", reading)?),
            kick: Arc::new(Notify::new()),
            clock,
            path: Arc::new(path.to_owned()),
        })
    }

    /// Runs `change` in one transaction on the writer's thread. An error rolls everything back.
    ///
    /// # Errors
    /// What `change` returns, or why the transaction failed.
    pub async fn write<T: Send + 'static>(
        &self,
        actor: Actor,
        change: impl FnOnce(&mut Writer<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let clock = self.clock;
        let (value, kick) = self
            .writer
            .call(move |connection| {
                let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                let mut writer = Writer {
                    tx,
                    now: clock(),
                    actor,
                    kick: false,
                };
                runs::fence(&writer)?;
                let value = change(&mut writer)?;
                let kick = writer.kick;
                writer.tx.commit()?;
                Ok((value, kick))
            })
            .await?;
        if kick {
            self.kick.notify_one();
        }
        Ok(value)
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
            .call(move |connection| {
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

/// A fresh id; sorts by time of creation.
#[must_use]
pub fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
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
