//! Whether a client's connection still moves. Every byte in either direction is a beat; a
//! connection without one for the idle time is cut, except while it waits for an upstream, which
//! has a deadline of its own.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::delegate::delegate_ends;

/// The beat of one connection.
#[derive(Debug, Clone, Default)]
pub struct Pulse(Arc<Beats>);

#[derive(Debug, Default)]
struct Beats {
    count: AtomicU64,
    waiting: AtomicUsize,
}

/// While it lives, silence is not held against the client.
#[derive(Debug)]
pub struct Waiting(Arc<Beats>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
        self.0.count.fetch_add(1, Ordering::Relaxed);
    }
}

impl Pulse {
    /// The gate is waiting for somebody else now.
    pub fn wait(&self) -> Waiting {
        self.0.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(Arc::clone(&self.0))
    }

    /// Ends once the connection has been silent for `idle`, or up to half as long again.
    pub async fn stopped(&self, idle: Duration) {
        let mut quiet = 0;
        let mut last = self.0.count.load(Ordering::Relaxed);
        loop {
            tokio::time::sleep(idle / 2).await;
            let now = self.0.count.load(Ordering::Relaxed);
            if now != last || self.0.waiting.load(Ordering::Relaxed) > 0 {
                quiet = 0;
                last = now;
                continue;
            }
            quiet += 1;
            if quiet >= 2 {
                return;
            }
        }
    }

    fn beat(&self) {
        self.0.count.fetch_add(1, Ordering::Relaxed);
    }
}

/// A stream with a pulse, which may begin with bytes that were read before.
#[derive(Debug)]
pub struct Beating<IO> {
    io: IO,
    pulse: Pulse,
}

impl<IO> Beating<IO> {
    /// Wraps a stream.
    pub fn new(io: IO, pulse: Pulse) -> Self {
        Self { io, pulse }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Beating<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.io).poll_read(context, buffer))?;
        this.pulse.beat();
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Beating<IO> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.io).poll_write(context, bytes))?;
        this.pulse.beat();
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.io).poll_write_vectored(context, slices))?;
        this.pulse.beat();
        Poll::Ready(Ok(written))
    }

    delegate_ends!(io);
}
