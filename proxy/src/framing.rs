//! A second pair of eyes on the raw heads of an HTTP/1 connection. hyper refuses most ambiguous
//! framing itself, but it silently drops `Content-Length` beside `Transfer-Encoding`, takes a bare
//! line feed for a line end, and answers what it cannot read with a bare 400 of its own. The watcher
//! lets hyper see whole and well-formed heads only. In the place of any other it puts one request of
//! its own, [`UNREADABLE`], and then the end; the exchange answers that with the [`Fault`], in the
//! gate's own words. It can only ever refuse more, never less.

pub mod frames;
mod grammar;
mod heads;
mod interim;

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use policy::{Code, Refusal};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use self::heads::Heads;
use self::interim::Interim;

/// The target of the request that stands for one which cannot be read.
pub const UNREADABLE: &str = "/.portcullis-unreadable";

const STAND_IN: &[u8] =
    b"GET /.portcullis-unreadable HTTP/1.1\r\nHost: unreadable.invalid\r\nConnection: close\r\n\r\n";

/// Read ahead of the answer that decides whether it is HTTP.
const READ_AHEAD: usize = 64 * 1024;

/// Thrown away behind a head that cannot be read, so that closing does not reset the answer away.
const THROWN_AWAY: usize = 256 * 1024;

/// What was wrong with a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Two readers could see the end of the request in different places.
    Ambiguous,
    /// It is not HTTP/1; the text says what is wrong.
    Malformed(&'static str),
    /// It has too many bytes or fields.
    TooLarge(&'static str),
    /// It was begun and not finished in time.
    Late,
}

impl Fault {
    /// How a client hears of it.
    pub fn refusal(self) -> Refusal {
        match self {
            Self::Ambiguous => Refusal::new(
                Code::MalformedRequest,
                "the request's framing is ambiguous",
                "send a well-formed HTTP/1.1 request",
            ),
            Self::Malformed(problem) => Refusal::new(
                Code::MalformedRequest,
                &format!("the request could not be read: {problem}"),
                "send a well-formed HTTP/1.1 request",
            ),
            Self::TooLarge(what) => Refusal::new(
                Code::HeadTooLarge,
                &format!("the request's head has too many {what}"),
                "send fewer and shorter fields, or a shorter target",
            ),
            Self::Late => Refusal::new(
                Code::ClientTimeout,
                "the request's head did not arrive in time",
                "send the request's head without a pause",
            ),
        }
    }
}

/// How much a head may hold.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Bytes, from the method to the empty line.
    pub bytes: usize,
    /// Fields.
    pub fields: usize,
}

/// What the watcher and the exchanges on its connection tell each other.
#[derive(Debug, Clone, Default)]
pub struct Flag(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    fault: OnceLock<Fault>,
    exchanges: AtomicUsize,
    /// Whether the reader waits for the exchanges to be over.
    waits: AtomicBool,
    /// Whether the gate has left HTTP on this connection.
    switched: AtomicBool,
    interim: Interim,
    reader: Mutex<Option<Waker>>,
}

/// While it lives, the end of the client's side is kept from hyper: whoever has sent a whole request
/// may stop writing and still read the answer.
#[derive(Debug)]
pub struct Exchanging(Arc<Shared>);

impl Drop for Exchanging {
    fn drop(&mut self) {
        let one_less = |exchanges: usize| exchanges.checked_sub(1);
        // Nothing is counted where no watcher is.
        let _ = self
            .0
            .exchanges
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less);
        if self.0.waits.load(Ordering::Acquire) {
            let mut reader = self.0.reader.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(reader) = reader.take() {
                reader.wake();
            }
        }
    }
}

impl Flag {
    /// Why no further head of this connection is read, if so; never taken back.
    pub fn fault(&self) -> Option<Fault> {
        self.0.fault.get().copied()
    }

    /// Whether no further head of this connection is read.
    pub fn is_raised(&self) -> bool {
        self.fault().is_some()
    }

    /// The exchange of a head that was passed, which is over when this is dropped.
    pub fn exchanging(&self) -> Exchanging {
        self.0.interim.begin();
        Exchanging(Arc::clone(&self.0))
    }

    /// The exchange that is on leaves HTTP; to be said before it is over. What comes next on the
    /// connection is followed no more.
    pub fn switch(&self) {
        self.0.switched.store(true, Ordering::Release);
    }

    /// The head of an interim answer to the exchange that is on, for an HTTP/1.1 client; to be said
    /// before that exchange answers.
    pub fn interim(&self, head: &[u8]) {
        self.0.interim.add(head);
    }

    fn is_switched(&self) -> bool {
        self.0.switched.load(Ordering::Acquire)
    }

    fn begin(&self, exchanges: usize) {
        self.0.exchanges.fetch_add(exchanges, Ordering::AcqRel);
    }

    fn raise(&self, fault: Fault) {
        // The first fault is the one that is told.
        let _ = self.0.fault.set(fault);
    }

    /// Whether an exchange is on.
    fn is_busy(&self) -> bool {
        self.0.exchanges.load(Ordering::Acquire) != 0
    }

    /// Whether the reader must wait for an exchange, in which case it is woken when one is over.
    fn keeps_waiting(&self, context: &Context<'_>) -> bool {
        self.0.waits.store(true, Ordering::Release);
        let mut reader = self.0.reader.lock().unwrap_or_else(PoisonError::into_inner);
        // Looked at with the lock held, so that an exchange which ends now finds the waker.
        if !self.is_busy() {
            return false;
        }
        *reader = Some(context.waker().clone());
        true
    }
}

/// The first head of a connection, looked for before anything is done with it.
#[derive(Debug)]
pub struct Opening(Heads);

impl Opening {
    /// Nothing has been seen.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self(Heads::new(bounds))
    }

    /// Where the head that `bytes` begin with ends, and whether a body follows it; `None` while it is
    /// not whole. To be called again with the same bytes and what came behind them.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn whole(&mut self, bytes: &[u8]) -> Result<Option<(usize, bool)>, Fault> {
        let end = self.0.head(bytes);
        match self.0.fault() {
            Some(fault) => Err(fault),
            None => Ok(end.map(|end| (end, self.0.is_in_body()))),
        }
    }
}

/// A stream whose incoming bytes are followed.
#[derive(Debug)]
pub struct Watched<IO> {
    io: IO,
    heads: Heads,
    flag: Flag,
    /// The beginning of a head of which the end has not come.
    held: BytesMut,
    /// What may pass and has not been asked for.
    out: BytesMut,
    /// Whether the stream has ended while an answer was waited for.
    ended: bool,
    over: bool,
    clock: Option<Clock>,
    /// What of interim answers is being written.
    interim: Bytes,
}

/// How long a head may take.
#[derive(Debug)]
struct Clock {
    patience: Duration,
    runs: bool,
    alarm: Pin<Box<Sleep>>,
}

impl<IO> Watched<IO> {
    /// Wraps a stream at the beginning of its first head; also gives the flag to consult per
    /// request.
    pub fn new(io: IO, bounds: Bounds) -> (Self, Flag) {
        let flag = Flag::default();
        let watched = Self {
            io,
            heads: Heads::new(bounds),
            flag: flag.clone(),
            held: BytesMut::new(),
            out: BytesMut::new(),
            ended: false,
            over: false,
            clock: None,
            interim: Bytes::new(),
        };
        (watched, flag)
    }

    /// Gives a head so long, from the last answer or the beginning to its end.
    #[must_use]
    pub fn patient(mut self, patience: Duration) -> Self {
        self.clock = Some(Clock {
            patience,
            runs: false,
            alarm: Box::pin(sleep(patience)),
        });
        self
    }

    /// The stream itself, once its heads no longer matter, and what was read of it and not passed.
    pub fn into_parts(self) -> (Bytes, IO) {
        let mut rest = self.out;
        rest.extend_from_slice(&self.held);
        (rest.freeze(), self.io)
    }
}

impl<IO: AsyncRead + Unpin> Watched<IO> {
    /// Judges what was just read into `buffer` behind `before`, and leaves there what may pass.
    fn judge(&mut self, buffer: &mut ReadBuf<'_>, before: usize) {
        let new = buffer.filled().get(before..).unwrap_or_default();
        if self.held.is_empty() {
            let pass = self.heads.walk(new);
            let rest = new.get(pass..).unwrap_or_default();
            if !rest.is_empty() {
                self.held.extend_from_slice(rest);
                buffer.set_filled(before + pass);
            }
        } else {
            self.held.extend_from_slice(new);
            buffer.set_filled(before);
            let pass = self.heads.walk(&self.held);
            self.out = self.held.split_to(pass.min(self.held.len()));
        }
        self.flag.begin(self.heads.take_passed());
        if let Some(fault) = self.heads.fault() {
            self.flag.raise(fault);
            self.held = BytesMut::new();
        }
    }

    /// Whether the head that is waited for does not come in time.
    fn is_late(&mut self, context: &mut Context<'_>) -> bool {
        let waits = self.heads.is_in_head() && !self.flag.is_busy();
        let Some(clock) = &mut self.clock else {
            return false;
        };
        if waits && !clock.runs {
            let end = Instant::now() + clock.patience;
            clock.alarm.as_mut().reset(end);
        }
        clock.runs = waits;
        waits && clock.alarm.as_mut().poll(context).is_ready()
    }

    /// Waits for the answer to a request to leave HTTP, and reads ahead meanwhile: who sends bytes
    /// behind such a request decides nothing by it.
    fn wait_at_fork(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let waits = !self.flag.is_switched() && self.flag.keeps_waiting(context);
            // Looked at again: the exchange may have switched and ended in between.
            if self.flag.is_switched() || !waits {
                self.heads.leave_fork(self.flag.is_switched());
                let before = buffer.filled().len();
                self.judge(buffer, before);
                return Poll::Ready(Ok(()));
            }
            if self.ended || self.held.len() >= READ_AHEAD {
                return Poll::Pending;
            }
            let before = buffer.filled().len();
            ready!(Pin::new(&mut self.io).poll_read(context, buffer))?;
            let new = buffer.filled().get(before..).unwrap_or_default();
            self.ended = new.is_empty();
            self.held.extend_from_slice(new);
            buffer.set_filled(before);
        }
    }

    /// What stands behind a fault: the request in its place, and some of the rest thrown away.
    fn close(&mut self, context: &mut Context<'_>) {
        self.over = true;
        if self.heads.is_in_head() {
            self.out.extend_from_slice(STAND_IN);
            self.flag.begin(1);
        }
        let mut waste = vec![0; 16 * 1024];
        let mut thrown = 0;
        while thrown < THROWN_AWAY {
            let mut buffer = ReadBuf::new(&mut waste);
            match Pin::new(&mut self.io).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    thrown += buffer.filled().len();
                }
                Poll::Ready(_) | Poll::Pending => return,
            }
        }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Watched<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if !this.out.is_empty() {
                let length = this.out.len().min(buffer.remaining());
                buffer.put_slice(&this.out[..length]);
                this.out.advance(length);
                return Poll::Ready(Ok(()));
            }
            if this.over {
                return if !this.heads.is_in_head() {
                    let broken = "the framing of the body is ambiguous";
                    Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, broken)))
                } else if this.flag.keeps_waiting(context) {
                    Poll::Pending
                } else {
                    Poll::Ready(Ok(()))
                };
            }
            if this.flag.is_raised() {
                this.close(context);
                continue;
            }
            if this.heads.is_at_fork() {
                ready!(this.wait_at_fork(context, buffer))?;
                continue;
            }
            if this.is_late(context) {
                if this.held.is_empty() {
                    return Poll::Ready(Ok(()));
                }
                this.heads.give_up(Fault::Late);
                this.flag.raise(Fault::Late);
                this.held = BytesMut::new();
                continue;
            }
            let before = buffer.filled().len();
            if !this.ended {
                ready!(Pin::new(&mut this.io).poll_read(context, buffer))?;
            }
            if buffer.filled().len() == before {
                let between = this.held.is_empty() && this.heads.is_in_head();
                if between && this.flag.keeps_waiting(context) {
                    return Poll::Pending;
                }
                return Poll::Ready(Ok(()));
            }
            this.judge(buffer, before);
            if buffer.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

#[cfg(test)]
mod tests;
