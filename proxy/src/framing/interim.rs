//! Interim answers (103 and the like) for a client of HTTP/1.1. The library that speaks with clients
//! writes one answer to a request, so that their heads are put between its bytes here: where all that
//! it has said before the exchange has been written, and nothing of this exchange's answer.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncWrite;

use super::Watched;

/// What waits to be written before the answer to the exchange that is on.
#[derive(Debug, Default)]
pub(super) struct Interim {
    waits: AtomicBool,
    heads: Mutex<BytesMut>,
    /// Whether the library has had nothing left to write since the exchange began.
    rested: AtomicBool,
}

impl Interim {
    /// An exchange begins; the end of the answer before it may not have been written.
    pub(super) fn begin(&self) {
        self.rested.store(false, Ordering::Release);
    }

    pub(super) fn add(&self, head: &[u8]) {
        let mut heads = self.heads.lock().unwrap_or_else(PoisonError::into_inner);
        heads.extend_from_slice(head);
        self.waits.store(true, Ordering::Release);
    }

    /// The library has written everything.
    fn rest(&self) {
        if !self.rested.load(Ordering::Acquire) {
            self.rested.store(true, Ordering::Release);
        }
    }

    /// What is to be written now. Where nobody can tell what the next bytes belong to, it is lost.
    fn take(&self) -> Option<Bytes> {
        if !self.waits.load(Ordering::Acquire) {
            return None;
        }
        let mut heads = self.heads.lock().unwrap_or_else(PoisonError::into_inner);
        self.waits.store(false, Ordering::Release);
        let heads = std::mem::take(&mut *heads).freeze();
        Some(heads).filter(|_| self.rested.load(Ordering::Acquire))
    }
}

impl<IO: AsyncWrite + Unpin> Watched<IO> {
    /// Writes what stands before the library's next bytes.
    fn poll_interim(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.interim.is_empty() {
            match self.flag.0.interim.take() {
                Some(heads) => self.interim = heads,
                None => return Poll::Ready(Ok(())),
            }
        }
        while !self.interim.is_empty() {
            let written = ready!(Pin::new(&mut self.io).poll_write(context, &self.interim))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.interim.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Watched<IO> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_interim(context))?;
        Pin::new(&mut this.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_interim(context))?;
        Pin::new(&mut this.io).poll_write_vectored(context, slices)
    }

    /// The library flushes when it has nothing left to write.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.flag.0.interim.rest();
        ready!(this.poll_interim(context))?;
        Pin::new(&mut this.io).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_interim(context))?;
        Pin::new(&mut this.io).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
