//! A second pair of eyes on the raw heads of a connection. hyper refuses most ambiguous framing
//! itself, but it silently drops `Content-Length` beside `Transfer-Encoding` and takes a bare line
//! feed for a line end; both are ways to make two parsers disagree about where a request ends. The
//! watcher follows the bytes that hyper reads and raises a flag, upon which the exchange answers
//! 400 and closes. It can only ever refuse more, never less.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Raised once a head on this connection was ambiguous; never lowered.
#[derive(Debug, Clone, Default)]
pub struct Flag(Arc<AtomicBool>);

impl Flag {
    /// Whether an ambiguous head has been seen.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn raise(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A stream whose incoming bytes are followed.
#[derive(Debug)]
pub struct Watched<IO> {
    io: IO,
    heads: Heads,
}

impl<IO> Watched<IO> {
    /// Wraps a stream at the beginning of its first head; also gives the flag to consult per
    /// request.
    pub fn new(io: IO) -> (Self, Flag) {
        let flag = Flag::default();
        (
            Self {
                io,
                heads: Heads::new(flag.clone()),
            },
            flag,
        )
    }

    /// The stream itself, once its heads no longer matter.
    pub fn into_inner(self) -> IO {
        self.io
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Watched<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(context, buffer))?;
        this.heads
            .follow(buffer.filled().get(before..).unwrap_or_default());
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Watched<IO> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

/// Longest line kept; hyper's own bound on a head is lower, so a longer one is refused there.
const LONGEST_LINE: usize = 512 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Head,
    Body(u64),
    ChunkSize,
    ChunkData(u64),
    Trailers,
    /// Not followed any further: hyper will refuse, or the flag is raised already.
    Lost,
}

#[derive(Debug)]
struct Heads {
    flag: Flag,
    place: Place,
    line: Vec<u8>,
    request_line_seen: bool,
    connect: bool,
    length: Option<u64>,
    chunked: bool,
}

impl Heads {
    fn new(flag: Flag) -> Self {
        Self {
            flag,
            place: Place::Head,
            line: Vec::new(),
            request_line_seen: false,
            connect: false,
            length: None,
            chunked: false,
        }
    }

    fn follow(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = match self.place {
                Place::Lost => return,
                Place::Body(left) => self.skip(bytes, left, Place::Head),
                Place::ChunkData(left) => self.skip(bytes, left, Place::ChunkSize),
                Place::Head | Place::ChunkSize | Place::Trailers => self.take_line(bytes),
            };
        }
    }

    /// Passes over up to `left` bytes; what follows them is `then`.
    fn skip<'a>(&mut self, bytes: &'a [u8], left: u64, then: Place) -> &'a [u8] {
        let here = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let step = left.min(here);
        let after = left - step;
        self.place = match (after, then) {
            (0, then) => then,
            (after, Place::ChunkSize) => Place::ChunkData(after),
            (after, _) => Place::Body(after),
        };
        bytes
            .get(usize::try_from(step).unwrap_or(usize::MAX)..)
            .unwrap_or_default()
    }

    fn take_line<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            self.line.extend_from_slice(bytes);
            if self.line.len() > LONGEST_LINE {
                self.lose();
            }
            return &[];
        };
        let (piece, rest) = bytes.split_at(end + 1);
        let mut line = std::mem::take(&mut self.line);
        if line.is_empty() {
            self.whole_line(piece);
        } else {
            line.extend_from_slice(piece);
            self.whole_line(&line);
        }
        line.clear();
        self.line = line;
        rest
    }

    /// Judges one line, its line end included.
    fn whole_line(&mut self, line: &[u8]) {
        let Some(line) = line.strip_suffix(b"\r\n") else {
            return self.lose();
        };
        match self.place {
            Place::Head => self.head_line(line),
            Place::ChunkSize => self.chunk_line(line),
            Place::Trailers => {
                if line.is_empty() {
                    self.place = Place::Head;
                }
            }
            Place::Body(_) | Place::ChunkData(_) | Place::Lost => {}
        }
    }

    fn head_line(&mut self, line: &[u8]) {
        if !self.request_line_seen {
            self.request_line_seen = !line.is_empty();
            self.connect = line.starts_with(b"CONNECT ");
            return;
        }
        if line.is_empty() {
            return self.head_end();
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return;
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = std::str::from_utf8(value)
                .ok()
                .and_then(|text| text.parse().ok());
            if self.length.is_some() || length.is_none() || value.starts_with(b"+") {
                return self.lose();
            }
            self.length = length;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return self.lose();
            }
            self.chunked = true;
        }
    }

    fn head_end(&mut self) {
        let (length, chunked) = (self.length.take(), std::mem::take(&mut self.chunked));
        self.request_line_seen = false;
        self.place = match (length, chunked) {
            // What follows a CONNECT belongs to the tunnel; if it is refused, the connection is
            // closed.
            _ if self.connect => Place::Lost,
            (Some(_), true) => return self.lose(),
            (_, true) => Place::ChunkSize,
            (Some(length), false) if length > 0 => Place::Body(length),
            (_, false) => Place::Head,
        };
    }

    fn chunk_line(&mut self, line: &[u8]) {
        let digits = line
            .split(|byte| *byte == b';')
            .next()
            .unwrap_or_default()
            .trim_ascii();
        let size = std::str::from_utf8(digits)
            .ok()
            .and_then(|text| u64::from_str_radix(text, 16).ok());
        self.place = match size {
            Some(0) => Place::Trailers,
            // The chunk is followed by its own line end.
            Some(size) => match size.checked_add(2) {
                Some(with_end) => Place::ChunkData(with_end),
                None => return self.lose(),
            },
            None => return self.lose(),
        };
    }

    fn lose(&mut self) {
        self.flag.raise();
        self.place = Place::Lost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the flag rises over `bytes`, fed in pieces of `step`.
    fn raised(bytes: &[u8], step: usize) -> bool {
        let flag = Flag::default();
        let mut heads = Heads::new(flag.clone());
        for piece in bytes.chunks(step) {
            heads.follow(piece);
        }
        flag.is_raised()
    }

    #[test]
    fn well_framed_requests_pass_in_any_slicing() {
        let bytes = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n\
            POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n\n\n\n\n\n\
            POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\na\nb\r\n0\r\nT: 1\r\n\r\n\
            GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        for step in [1, 2, 7, 1000] {
            assert!(!raised(bytes, step), "step {step}");
        }
    }

    #[test]
    fn what_follows_a_connect_is_not_followed() {
        assert!(!raised(
            b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n\x16\x03\x01\n\n",
            1000
        ));
    }

    #[test]
    fn ambiguous_heads_raise_the_flag_wherever_they_stand() {
        let bad: &[&[u8]] = &[
            b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: +5\r\n\r\n",
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked, identity\r\n\r\n",
            b"GET / HTTP/1.1\nHost: a\n\n",
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2;a\nxx\r\n0\r\n\r\n",
        ];
        let good = b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc";
        for case in bad {
            let mut second = good.to_vec();
            second.extend_from_slice(case);
            for step in [1, 1000] {
                assert!(raised(case, step), "{}", String::from_utf8_lossy(case));
                assert!(
                    raised(&second, step),
                    "behind a good one: {}",
                    String::from_utf8_lossy(case)
                );
            }
        }
    }
}
