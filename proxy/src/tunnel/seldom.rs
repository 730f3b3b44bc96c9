//! A future that is polled only when something of its own has happened. What guards a connection
//! changes rarely, while the connection's task is woken for every packet.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Leaves its future alone until that future's own waker is used.
#[derive(Debug)]
pub(super) struct Seldom<F> {
    future: F,
    bell: Arc<Bell>,
}

#[derive(Debug)]
struct Bell {
    rung: AtomicBool,
    task: Mutex<Waker>,
}

impl<F> Seldom<F> {
    /// Wraps a future, which will be polled once to begin with.
    pub(super) fn new(future: F) -> Self {
        Self {
            future,
            bell: Arc::new(Bell {
                rung: AtomicBool::new(true),
                task: Mutex::new(Waker::noop().clone()),
            }),
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        task.wake_by_ref();
    }
}

impl<F: Future + Unpin> Future for Seldom<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        {
            let mut task = this
                .bell
                .task
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            task.clone_from(context.waker());
        }
        // Looked at after the waker is in place, so that no ring goes unheard.
        if !this.bell.rung.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        let waker = Waker::from(Arc::clone(&this.bell));
        Pin::new(&mut this.future).poll(&mut Context::from_waker(&waker))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::Notify;

    #[tokio::test]
    async fn it_is_polled_once_and_then_only_for_its_own_wakes() {
        let (own, other) = (Notify::new(), Notify::new());
        let polls = std::cell::Cell::new(0);
        let mut notified = Box::pin(own.notified());
        let inner = std::future::poll_fn(|context| {
            polls.set(polls.get() + 1);
            notified.as_mut().poll(context)
        });
        let mut seldom = Seldom::new(inner);
        for _ in 0..3 {
            other.notify_one();
            tokio::select! {
                biased;
                () = &mut seldom => panic!("nobody rang"),
                () = other.notified() => {}
            }
        }
        let ring = async {
            tokio::task::yield_now().await;
            own.notify_one();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = &mut seldom => {}
            () = ring => {}
        }
        drop(seldom);
        assert_eq!(polls.get(), 2);
    }
}
