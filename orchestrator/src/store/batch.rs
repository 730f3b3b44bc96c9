//! The writer's thread: changes that wait at the same moment are committed together.
//!
//! Each change has a savepoint of its own, so that a refused one undoes itself alone; all of them
//! share one transaction and one wait for the disk. Nobody is answered before that transaction is
//! on disk, and if it cannot be committed, everybody in it hears so.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};

use rusqlite::{Connection, Transaction, TransactionBehavior, ffi};
use tokio::sync::{Notify, oneshot};

use super::{StoreError, Writer, runs};
use crate::model::Actor;
use crate::model::time::Millis;

/// The most changes of one transaction.
const MOST: usize = 64;

/// A change in the queue.
pub(super) trait Change: Send {
    /// Makes the change. `false`: it must be undone.
    fn apply(&mut self, connection: &Connection) -> bool;

    /// Answers whoever waits; `lost` says why the transaction is not on disk.
    fn settle(self: Box<Self>, lost: Option<&rusqlite::Error>);
}

pub(super) type Job = Box<dyn Change>;

/// A closure that waits for its turn, then for its commit.
pub(super) struct Pending<T, F> {
    change: Option<(F, Actor)>,
    clock: fn() -> Millis,
    result: Option<Result<T, StoreError>>,
    kicks: bool,
    kick: Arc<Notify>,
    answer: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Pending<T, F> {
    pub(super) fn new(
        change: F,
        actor: Actor,
        clock: fn() -> Millis,
        kick: Arc<Notify>,
    ) -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (answer, receiver) = oneshot::channel();
        let pending = Self {
            change: Some((change, actor)),
            clock,
            result: None,
            kicks: false,
            kick,
            answer,
        };
        (pending, receiver)
    }
}

impl<T, F> Change for Pending<T, F>
where
    T: Send,
    F: FnOnce(&mut Writer<'_>) -> Result<T, StoreError> + Send,
{
    fn apply(&mut self, connection: &Connection) -> bool {
        let Some((change, actor)) = self.change.take() else {
            return false;
        };
        let mut writer = Writer::new(connection, (self.clock)(), actor);
        let work = AssertUnwindSafe(|| {
            runs::fence(&writer)?;
            let before = connection.total_changes();
            let value = change(&mut writer)?;
            writer.must_be_in_the_journal(before)?;
            runs::charge(&writer)?;
            Ok(value)
        });
        // After a panic there is no result: the caller finds its channel closed.
        self.result = catch_unwind(work).ok();
        self.kicks = writer.kick;
        matches!(self.result, Some(Ok(_)))
    }

    fn settle(self: Box<Self>, lost: Option<&rusqlite::Error>) {
        let result = match (self.result, lost) {
            // Its own error says more than that of the transaction.
            (Some(Err(own)), _) => Some(Err(own)),
            (Some(Ok(_)), Some(error)) => Some(Err(StoreError::Sqlite(again(error)))),
            // Never begun.
            (None, Some(error)) if self.change.is_some() => {
                Some(Err(StoreError::Sqlite(again(error))))
            }
            (result, _) => result,
        };
        if let Some(result) = result {
            if result.is_ok() && self.kicks {
                self.kick.notify_one();
            }
            // A caller that went away does not undo what was committed.
            let _unheard = self.answer.send(result);
        }
    }
}

/// The thread: takes what waits, commits it, answers.
pub(super) fn serve(connection: &mut Connection, queue: &mpsc::Receiver<Job>) {
    while let Ok(first) = queue.recv() {
        let mut waiting: Vec<Job> = vec![first];
        waiting.extend(queue.try_iter().take(MOST - 1));
        let mut waiting = waiting.into_iter();
        while waiting.len() > 0 {
            together(connection, &mut waiting);
        }
    }
}

/// One transaction. Ends early, with what is left still waiting, when SQLite gives it up (a full
/// disk does that).
fn together(connection: &mut Connection, waiting: &mut std::vec::IntoIter<Job>) {
    let mut done: Vec<Job> = Vec::new();
    let committed = match connection.transaction_with_behavior(TransactionBehavior::Immediate) {
        Ok(tx) => apply_all(tx, waiting, &mut done),
        Err(error) => {
            done.extend(waiting);
            Err(error)
        }
    };
    for job in done {
        job.settle(committed.as_ref().err());
    }
}

fn apply_all(
    tx: Transaction<'_>,
    waiting: &mut std::vec::IntoIter<Job>,
    done: &mut Vec<Job>,
) -> rusqlite::Result<()> {
    for mut job in waiting {
        let applied = one(&tx, job.as_mut());
        done.push(job);
        applied?;
        if tx.is_autocommit() {
            let text = "the transaction was given up by another change in it";
            let code = ffi::Error::new(ffi::SQLITE_FULL);
            return Err(rusqlite::Error::SqliteFailure(code, Some(text.to_owned())));
        }
    }
    tx.commit()
}

fn one(tx: &Transaction<'_>, job: &mut dyn Change) -> rusqlite::Result<()> {
    tx.prepare_cached("SAVEPOINT change")?.execute([])?;
    let keep = job.apply(tx);
    if tx.is_autocommit() {
        return Ok(());
    }
    if !keep {
        tx.prepare_cached("ROLLBACK TO change")?.execute([])?;
    }
    tx.prepare_cached("RELEASE change")?.execute([])?;
    Ok(())
}

/// The same error for one more caller.
fn again(error: &rusqlite::Error) -> rusqlite::Error {
    match error {
        rusqlite::Error::SqliteFailure(code, text) => {
            rusqlite::Error::SqliteFailure(*code, text.clone())
        }
        other => rusqlite::Error::SqliteFailure(
            ffi::Error::new(ffi::SQLITE_ERROR),
            Some(other.to_string()),
        ),
    }
}

#[cfg(test)]
mod tests;
