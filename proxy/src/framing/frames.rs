//! The same second pair of eyes for HTTP/2. The library behind hyper refuses malformed frames and
//! requests itself; what it does not do is count. This follows the frames of a connection by their
//! nine-byte heads, and raises an alarm when a client resets streams, or sends frames that carry
//! nothing, faster than any client has reason to. It also sees which requests the library has
//! refused on its own, so that they can be put on record.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use crate::delegate::delegate_ends;

const PREFACE: usize = 24;
const HEAD: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A window opened by less than this is a frame that carries nothing.
const TINY_WINDOW: u32 = 1024;
/// A SETTINGS frame costs as much as this many others: it is rare, and must be applied and answered.
const SETTINGS_WEIGHT: u32 = 20;
/// Interim answers to one request taken before the final one.
const MOST_INTERIM: u32 = 16;
/// Codes with which the library refuses one request.
const PROTOCOL_ERROR: u32 = 1;
const REFUSED_STREAM: u32 = 7;
/// Streams on which something is counted at once; more are not open.
const MOST_COUNTED: usize = 4096;

/// What one second may bring.
#[derive(Debug, Clone, Copy)]
pub struct Rates {
    /// Streams reset by the peer.
    pub resets: u32,
    /// PING, PRIORITY, empty DATA and tiny WINDOW_UPDATE frames; a SETTINGS frame counts as twenty.
    pub idle_frames: u32,
    /// Bytes of one header block, as sent.
    pub block: usize,
    /// How long one header block may take.
    pub block_time: Duration,
}

/// What is wrong with a connection, or was with a request on it.
#[derive(Debug, Default)]
pub struct Alarm {
    flood: OnceLock<&'static str>,
    refused: AtomicU32,
    crowded: AtomicU32,
    /// Since when a frame or header block is not finished; a frame of DATA may take its time.
    unfinished: Mutex<Option<Instant>>,
    bell: Notify,
}

impl Alarm {
    /// Waits until there is something to see.
    pub async fn rung(&self) {
        self.bell.notified().await;
    }

    /// What the peer floods the connection with; nothing more is read from it then.
    pub fn flood(&self) -> Option<&'static str> {
        self.flood.get().copied()
    }

    /// How many requests the library has refused since this was last asked.
    pub fn take_refused(&self) -> u32 {
        self.refused.swap(0, Ordering::AcqRel)
    }

    /// How many requests were turned away because too many were open, since this was last asked.
    pub fn take_crowded(&self) -> u32 {
        self.crowded.swap(0, Ordering::AcqRel)
    }

    /// Since when the peer has not finished what it began to send, if so.
    pub fn unfinished(&self) -> Option<Instant> {
        *self
            .unfinished
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn raise(&self, flood: &'static str) {
        // The first is the one that is told.
        let _ = self.flood.set(flood);
        self.bell.notify_one();
    }
}

/// Which side of the connection the gate is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The peer is a client, and its first bytes are the preface.
    Server,
    /// The peer is an upstream.
    Client,
}

/// An HTTP/2 connection whose frames are followed.
#[derive(Debug)]
pub struct Framed<IO> {
    io: IO,
    incoming: Walker,
    outgoing: Walker,
    counts: Counts,
    /// What the alarm says of it.
    since: Option<Instant>,
    alarm: Arc<Alarm>,
}

impl<IO> Framed<IO> {
    /// Wraps a connection before its first byte.
    pub fn new(io: IO, side: Side, rates: Rates) -> (Self, Arc<Alarm>) {
        let alarm = Arc::<Alarm>::default();
        let (theirs, ours) = match side {
            Side::Server => (PREFACE, 0),
            Side::Client => (0, PREFACE),
        };
        let framed = Self {
            io,
            incoming: Walker::new(theirs),
            outgoing: Walker::new(ours),
            counts: Counts::new(side, rates),
            since: None,
            alarm: Arc::clone(&alarm),
        };
        (framed, alarm)
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Framed<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(flood) = this.alarm.flood() {
            return this.counts.stop(flood);
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(context, buffer))?;
        let (counts, alarm) = (&mut this.counts, &this.alarm);
        let new = buffer.filled().get(before..).unwrap_or_default();
        let mut finished = false;
        this.incoming.walk(new, |frame| {
            if let Some(flood) = counts.count(&frame) {
                alarm.raise(flood);
            }
            finished |= !counts.block_open;
        });
        if let Some(flood) = alarm.flood() {
            // Nor does what came with it pass.
            buffer.set_filled(before);
            return counts.stop(flood);
        }
        let unfinished = counts.block_open || this.incoming.is_amid();
        if finished || !unfinished || this.since.is_none() {
            let since = unfinished.then(Instant::now);
            if since != this.since {
                this.since = since;
                *alarm
                    .unfinished
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner) = since;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite + Unpin> Framed<IO> {
    fn sent(&mut self, bytes: &[u8]) {
        let (alarm, counts) = (&self.alarm, &mut self.counts);
        self.outgoing.walk(bytes, |frame| {
            if frame.kind != RST_STREAM {
                return;
            }
            counts.interim.remove(&frame.stream);
            let told = match frame.word(0) {
                PROTOCOL_ERROR => &alarm.refused,
                REFUSED_STREAM => &alarm.crowded,
                _ => return,
            };
            told.fetch_add(1, Ordering::AcqRel);
            alarm.bell.notify_one();
        });
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Framed<IO> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.io).poll_write(context, bytes))?;
        this.sent(bytes.get(..written).unwrap_or_default());
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let mut left = ready!(Pin::new(&mut this.io).poll_write_vectored(context, slices))?;
        let written = left;
        for slice in slices {
            let here = left.min(slice.len());
            this.sent(slice.get(..here).unwrap_or_default());
            left -= here;
        }
        Poll::Ready(Ok(written))
    }

    delegate_ends!(io);
}

/// A frame, as far as it matters here.
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    length: usize,
    /// The first bytes of its payload.
    first: [u8; 8],
}

impl Frame {
    /// The big-endian word that begins at byte `at` of the payload.
    fn word(&self, at: usize) -> u32 {
        let bytes = self.first.get(at..at + 4).unwrap_or(&[0; 4]);
        bytes
            .iter()
            .fold(0, |word, byte| word << 8 | u32::from(*byte))
    }
}

/// Goes from frame to frame through bytes in any slicing.
#[derive(Debug)]
struct Walker {
    preface: usize,
    /// The head, then the first bytes of the payload.
    start: [u8; HEAD + 8],
    have: usize,
    /// Payload to pass over.
    left: usize,
}

impl Walker {
    fn new(preface: usize) -> Self {
        Self {
            preface,
            start: [0; HEAD + 8],
            have: 0,
            left: 0,
        }
    }

    fn walk(&mut self, mut bytes: &[u8], mut on: impl FnMut(Frame)) {
        let skip = self.preface.min(bytes.len());
        self.preface -= skip;
        bytes = bytes.get(skip..).unwrap_or_default();
        while !bytes.is_empty() {
            if self.left > 0 {
                let step = self.left.min(bytes.len());
                self.left -= step;
                bytes = bytes.get(step..).unwrap_or_default();
                continue;
            }
            let wanted = HEAD
                + if self.have < HEAD {
                    0
                } else {
                    self.length().min(8)
                };
            let step = (wanted - self.have).min(bytes.len());
            let (taken, rest) = bytes.split_at(step);
            if let Some(place) = self.start.get_mut(self.have..self.have + step) {
                place.copy_from_slice(taken);
            }
            self.have += step;
            bytes = rest;
            if self.have >= HEAD && self.have == HEAD + self.length().min(8) {
                on(self.frame());
                self.left = self.length().saturating_sub(8);
                self.have = 0;
            }
        }
    }

    /// Whether a frame has begun and not ended. One of DATA carries what its sender may take its time
    /// for.
    fn is_amid(&self) -> bool {
        let [_, _, _, kind, ..] = self.start;
        let known = self.left > 0 || self.have > 3;
        (self.left > 0 || self.have > 0) && !(known && kind == DATA)
    }

    fn length(&self) -> usize {
        let [a, b, c, ..] = self.start;
        usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c)
    }

    fn frame(&self) -> Frame {
        let mut first = [0; 8];
        let have = self.length().min(8);
        if let (Some(to), Some(from)) = (first.get_mut(..have), self.start.get(HEAD..HEAD + have)) {
            to.copy_from_slice(from);
        }
        let [_, _, _, kind, flags, a, b, c, d, ..] = self.start;
        Frame {
            kind,
            flags,
            stream: u32::from_be_bytes([a & 0x7f, b, c, d]),
            length: self.length(),
            first,
        }
    }
}

/// What the peer has sent within the second.
#[derive(Debug)]
struct Counts {
    side: Side,
    rates: Rates,
    since: Instant,
    resets: u32,
    idle: u32,
    block: usize,
    block_since: Instant,
    /// Whether the last header block has not ended.
    block_open: bool,
    /// Header blocks without END_STREAM, by stream: the answer's head, and interim answers before it.
    interim: HashMap<u32, u32>,
}

impl Counts {
    fn new(side: Side, rates: Rates) -> Self {
        let now = Instant::now();
        Self {
            side,
            rates,
            since: now,
            resets: 0,
            idle: 0,
            block: 0,
            block_since: now,
            block_open: false,
            interim: HashMap::new(),
        }
    }

    /// Counts a frame; what the peer floods the connection with, if it does.
    fn count(&mut self, frame: &Frame) -> Option<&'static str> {
        let ends = frame.kind == RST_STREAM
            || (matches!(frame.kind, DATA | HEADERS) && frame.flags & END_STREAM != 0);
        if ends {
            self.interim.remove(&frame.stream);
        }
        let (resets, idle) = match frame.kind {
            RST_STREAM => (1, 0),
            PING | PRIORITY => (0, 1),
            SETTINGS => (0, SETTINGS_WEIGHT),
            DATA if frame.length == 0 && frame.flags & END_STREAM == 0 => (0, 1),
            WINDOW_UPDATE if frame.word(0) & 0x7fff_ffff < TINY_WINDOW => (0, 1),
            HEADERS | CONTINUATION => return self.block(frame),
            GOAWAY => (0, 1),
            _ => return None,
        };
        let now = Instant::now();
        if now.duration_since(self.since) >= Duration::from_secs(1) {
            self.since = now;
            self.resets = 0;
            self.idle = 0;
        }
        self.resets += resets;
        self.idle += idle;
        if self.resets > self.rates.resets {
            Some("it resets streams too fast")
        } else if self.idle > self.rates.idle_frames {
            Some("it sends too many frames that carry nothing")
        } else {
            None
        }
    }

    /// How reading ends: whoever drives a client's connection has been told, and says goodbye; what
    /// waits on an upstream's is told by an error alone.
    fn stop(&self, flood: &'static str) -> Poll<io::Result<()>> {
        match self.side {
            Side::Server => Poll::Pending,
            Side::Client => Poll::Ready(Err(io::Error::other(flood))),
        }
    }

    fn block(&mut self, frame: &Frame) -> Option<&'static str> {
        let now = Instant::now();
        if frame.kind == HEADERS {
            self.block = 0;
            self.block_since = now;
        }
        self.block_open = frame.flags & END_HEADERS == 0;
        let heads = match frame.kind {
            HEADERS if self.side == Side::Client && frame.flags & END_STREAM == 0 => {
                let heads = self.interim.entry(frame.stream).or_default();
                *heads += 1;
                *heads
            }
            _ => 0,
        };
        // An empty CONTINUATION is work as well.
        self.block += frame.length.max(64);
        if self.block > self.rates.block {
            Some("a header block is too long")
        } else if frame.flags & END_HEADERS == 0
            && now.duration_since(self.block_since) > self.rates.block_time
        {
            Some("a header block takes too long")
        } else if heads > MOST_INTERIM + 1 || self.interim.len() > MOST_COUNTED {
            Some("it sends interim answers without end")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const RATES: Rates = Rates {
        resets: 10,
        idle_frames: 100,
        block: 4096,
        block_time: Duration::from_secs(30),
    };

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut bytes = length[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    async fn flood(frames: &[Vec<u8>], step: usize) -> Option<&'static str> {
        let (mut theirs, ours) = tokio::io::duplex(1 << 20);
        let (mut framed, alarm) = Framed::new(ours, Side::Server, RATES);
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frames.concat());
        theirs.write_all(&bytes).await.unwrap();
        let mut buffer = vec![0; step];
        let mut read = 0;
        while read < bytes.len() && alarm.flood().is_none() {
            tokio::select! {
                got = framed.read(&mut buffer) => read += got.unwrap(),
                () = alarm.rung() => {}
            }
        }
        alarm.flood()
    }

    /// Attack: RES-07, RES-10
    #[tokio::test]
    async fn floods_are_told_apart_from_work_in_any_slicing() {
        let reset = frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes());
        let ping = frame(PING, 0, 0, &[0; 8]);
        let settings = frame(SETTINGS, 0, 0, &[]);
        let nothing = frame(DATA, 0, 1, &[]);
        let tiny = frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes());
        let wide = frame(WINDOW_UPDATE, 0, 0, &65_535_u32.to_be_bytes());
        let data = frame(DATA, 0, 1, &[1; 100]);
        let headers = frame(HEADERS, 0, 1, &[0; 10]);
        let more = frame(CONTINUATION, 0, 1, &[]);
        let cases: [(Vec<Vec<u8>>, Option<&str>); 10] = [
            (vec![reset.clone(); 10], None),
            (vec![reset; 11], Some("resets")),
            (vec![ping.clone(); 100], None),
            (vec![ping; 101], Some("nothing")),
            (vec![settings; 6], Some("nothing")),
            (vec![nothing; 101], Some("nothing")),
            (vec![tiny; 101], Some("nothing")),
            (vec![wide; 1000], None),
            (vec![data; 1000], None),
            ([vec![headers], vec![more; 100]].concat(), Some("block")),
        ];
        for (frames, expected) in cases {
            for step in [1, 7, 100_000] {
                let found = flood(&frames, step).await;
                let fits = match (found, expected) {
                    (Some(found), Some(expected)) => found.contains(expected),
                    (found, expected) => found == expected,
                };
                assert!(fits, "{found:?} instead of {expected:?} at step {step}");
            }
        }
    }

    #[tokio::test]
    async fn what_the_library_refuses_is_counted() {
        let (ours, _theirs) = tokio::io::duplex(1 << 20);
        let (mut framed, alarm) = Framed::new(ours, Side::Server, RATES);
        let refused = frame(RST_STREAM, 0, 1, &PROTOCOL_ERROR.to_be_bytes());
        let done = frame(RST_STREAM, 0, 3, &[0; 4]);
        for byte in [refused, done].concat() {
            framed.write_all(&[byte]).await.unwrap();
        }
        assert_eq!(alarm.take_refused(), 1);
        assert_eq!(alarm.take_refused(), 0);
    }
}
