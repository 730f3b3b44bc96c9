//! One thread that owns one connection and runs what it is handed, in order.

use std::sync::mpsc;
use std::thread;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::StoreError;

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// The thread's handle. The thread ends when the last handle is dropped.
#[derive(Debug)]
pub(super) struct Worker {
    jobs: mpsc::Sender<Job>,
}

impl Worker {
    pub(super) fn start(name: &str, mut connection: Connection) -> Result<Self, StoreError> {
        let (jobs, queue) = mpsc::channel::<Job>();
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                while let Ok(job) = queue.recv() {
                    job(&mut connection);
                }
            })
            .map_err(|_error| StoreError::Gone)?;
        Ok(Self { jobs })
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
        self.jobs.send(job).map_err(|_closed| StoreError::Gone)?;
        receiver.await.map_err(|_closed| StoreError::Gone)?
    }
}
