//! One thread that owns one connection and runs what it is handed, in order.

use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::StoreError;

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// The thread's handle. Dropping it ends the thread and closes the connection before it returns.
#[derive(Debug)]
pub(super) struct Worker {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub(super) fn start(name: &str, mut connection: Connection) -> Result<Self, StoreError> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                while let Ok(job) = queue.recv() {
                    job(&mut connection);
                }
            })
            .map_err(|_error| StoreError::Gone)?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Runs `work` on the thread. A panic in it is contained: the transaction rolls back when it
    /// unwinds, the caller gets [`StoreError::Gone`], the thread goes on.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, receiver) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            let work = std::panic::AssertUnwindSafe(|| work(connection));
            if let Ok(result) = std::panic::catch_unwind(work) {
                // A caller that went away does not undo what was committed.
                let _unheard = answer.send(result);
            }
        });
        let jobs = self.jobs.as_ref().ok_or(StoreError::Gone)?;
        jobs.send(job).map_err(|_closed| StoreError::Gone)?;
        receiver.await.map_err(|_closed| StoreError::Gone)?
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // It cannot panic: every job's panic is contained.
            let _ended = thread.join();
        }
    }
}
