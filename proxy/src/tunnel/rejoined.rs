//! The stream behind a CONNECT: the head was read with whatever came behind it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

use crate::delegate::delegate_write;

/// Read at most when looking at the first byte.
const PEEKED: usize = 4096;

/// A stream of which the first bytes have been read already.
#[derive(Debug)]
pub(crate) struct Rejoined<IO> {
    pub(crate) first: Bytes,
    pub(crate) io: IO,
}

impl<IO: AsyncRead + Unpin> Rejoined<IO> {
    /// Reads ahead until as much is there as `wanted` says of what is there, at most `most`; no
    /// further than the end of the stream.
    pub(crate) async fn gather(
        &mut self,
        most: usize,
        wanted: impl Fn(&[u8]) -> usize,
    ) -> io::Result<()> {
        let mut bytes = BytesMut::from(self.first.as_ref());
        loop {
            let needed = wanted(&bytes);
            if needed <= bytes.len() || needed > most {
                break;
            }
            bytes.reserve(PEEKED);
            if self.io.read_buf(&mut bytes).await? == 0 {
                break;
            }
            while bytes.len() < needed && self.io.read_buf(&mut bytes).await? > 0 {}
        }
        self.first = bytes.freeze();
        Ok(())
    }

    /// The first byte that will be read, waiting for it; `None` at the end of the stream.
    pub(crate) async fn peek(&mut self) -> io::Result<Option<u8>> {
        if self.first.is_empty() {
            let mut buffer = BytesMut::with_capacity(PEEKED);
            self.io.read_buf(&mut buffer).await?;
            self.first = buffer.freeze();
        }
        Ok(self.first.first().copied())
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Rejoined<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.first.is_empty() {
            return Pin::new(&mut this.io).poll_read(context, buffer);
        }
        let length = this.first.len().min(buffer.remaining());
        buffer.put_slice(&this.first[..length]);
        this.first.advance(length);
        if this.first.is_empty() {
            // It would keep what it was cut from.
            this.first = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

delegate_write!(Rejoined, io);
