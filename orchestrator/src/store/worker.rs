//! A thread that owns one connection and does what it is handed, in order.

use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::StoreError;

/// What the reader's thread is handed.
pub(super) type Query = Box<dyn FnOnce(&mut Connection) + Send>;

/// The thread's handle. Dropping it ends the thread and closes the connection before it returns.
pub(super) struct Worker<J> {
    jobs: Option<mpsc::Sender<J>>,
    thread: Option<JoinHandle<()>>,
}

impl<J: Send + 'static> Worker<J> {
    /// Starts the thread. `serve` works until the queue is closed; it must not panic.
    pub(super) fn start(
        name: &str,
        mut connection: Connection,
        serve: fn(&mut Connection, &mpsc::Receiver<J>),
    ) -> Result<Self, StoreError> {
        let (jobs, queue) = mpsc::channel();
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || serve(&mut connection, &queue))
            .map_err(|_error| StoreError::Gone)?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    pub(super) fn hand(&self, job: J) -> Result<(), StoreError> {
        let jobs = self.jobs.as_ref().ok_or(StoreError::Gone)?;
        jobs.send(job).map_err(|_closed| StoreError::Gone)
    }
}

impl Worker<Query> {
    /// Runs `work` on the thread. A panic in it is contained: the transaction rolls back when it
    /// unwinds, the caller gets [`StoreError::Gone`], the thread goes on.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, receiver) = oneshot::channel();
        self.hand(Box::new(move |connection| {
            let work = std::panic::AssertUnwindSafe(|| work(connection));
            if let Ok(result) = std::panic::catch_unwind(work) {
                // Nobody may be waiting any more.
                let _unheard = answer.send(result);
            }
        }))?;
        receiver.await.map_err(|_closed| StoreError::Gone)?
    }
}

impl<J> std::fmt::Debug for Worker<J> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("thread", &self.thread)
            .finish_non_exhaustive()
    }
}

impl<J> Drop for Worker<J> {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // It cannot panic: every job's panic is contained.
            let _ended = thread.join();
        }
    }
}

/// The reader's thread: one query after the other.
pub(super) fn answer(connection: &mut Connection, queue: &mpsc::Receiver<Query>) {
    while let Ok(query) = queue.recv() {
        query(connection);
    }
}
