//! Heads of HTTP/1 requests, as the watcher passes them on.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, ReadBuf};

use crate::framing::{Bounds, Fault, UNREADABLE, Watched};

const BOUNDS: Bounds = Bounds {
    bytes: 4096,
    fields: 32,
};

/// What passes does not depend on how it is cut into pieces, and hyper's parser reads heads there
/// of which the bodies end in one place and which have no fragment.
pub(crate) fn check(bytes: &[u8]) {
    let (whole, fault) = passed(bytes, bytes.len().max(1));
    for step in [1, 3] {
        // Of two faults in one head, the one that is met first is told.
        let (seen, told) = passed(bytes, step);
        assert_eq!(seen, whole, "in pieces of {step}");
        assert_eq!(told.is_some(), fault.is_some(), "in pieces of {step}");
    }
    follow(&whole, fault.is_some());
}

/// Goes from request to request.
fn follow(mut rest: &[u8], faulty: bool) {
    while !rest.is_empty() {
        let mut fields = [httparse::EMPTY_HEADER; 32];
        let mut request = httparse::Request::new(&mut fields);
        let head = match request.parse(rest) {
            Ok(httparse::Status::Complete(head)) => head,
            other => panic!(
                "{other:?} of what was passed: {:?}",
                rest.escape_ascii().to_string()
            ),
        };
        if request.path == Some(UNREADABLE) && faulty {
            assert_eq!(rest.len(), head, "something follows the end");
            return;
        }
        assert!(request.path.is_some_and(|path| !path.contains('#')));
        let named = |name: &str| {
            let fields = request.headers.iter();
            let found = fields.filter(|field| field.name.eq_ignore_ascii_case(name));
            found.map(|field| field.value).collect::<Vec<_>>()
        };
        let (lengths, codings) = (named("content-length"), named("transfer-encoding"));
        assert!(lengths.len() + codings.len() <= 1, "two framings");
        // Behind a request to leave HTTP too: nobody has left it here.
        rest = &rest[head..];
        if let Some(length) = lengths.first() {
            let text = std::str::from_utf8(length).unwrap_or_default();
            let length: usize = text
                .parse()
                .unwrap_or_else(|_| panic!("the length {text:?}"));
            rest = rest.get(length..).unwrap_or_default();
        } else if let Some(coding) = codings.first() {
            assert!(coding.eq_ignore_ascii_case(b"chunked"));
            match chunks(rest) {
                Some(after) => rest = after,
                None => return,
            }
        }
    }
}

/// What follows a chunked body; `None` where it does not end, or is one that hyper refuses.
fn chunks(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        let Ok(httparse::Status::Complete((start, size))) = httparse::parse_chunk_size(rest) else {
            return None;
        };
        rest = rest.get(start..)?;
        if size == 0 {
            loop {
                let end = rest.windows(2).position(|two| two == b"\r\n")?;
                let (line, after) = rest.split_at_checked(end + 2)?;
                rest = after;
                if line.len() == 2 {
                    return Some(rest);
                }
            }
        }
        let size = usize::try_from(size).ok()?;
        rest = rest.get(size..)?.strip_prefix(b"\r\n")?;
    }
}

/// All that passes of `bytes`, which come in pieces of `step`, and what was wrong.
fn passed(bytes: &[u8], step: usize) -> (Vec<u8>, Option<Fault>) {
    let (watched, flag) = Watched::new(Pieces { bytes, step }, BOUNDS);
    let mut watched = pin!(watched);
    let mut context = Context::from_waker(Waker::noop());
    let mut seen = Vec::new();
    let mut space = [0; 512];
    loop {
        let mut buffer = ReadBuf::new(&mut space);
        match watched.as_mut().poll_read(&mut context, &mut buffer) {
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                seen.extend_from_slice(buffer.filled());
                assert!(seen.len() <= bytes.len() + 4096, "it never ends");
            }
            Poll::Ready(Ok(()) | Err(_)) => return (seen, flag.fault()),
            // Nobody answers here: the exchanges are over at once.
            Poll::Pending => drop(flag.exchanging()),
        }
    }
}

/// A stream that gives so many bytes at a time, and then its end.
struct Pieces<'b> {
    bytes: &'b [u8],
    step: usize,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let length = self.step.min(self.bytes.len()).min(buffer.remaining());
        let (now, later) = self.bytes.split_at(length);
        buffer.put_slice(now);
        self.bytes = later;
        Poll::Ready(Ok(()))
    }
}
