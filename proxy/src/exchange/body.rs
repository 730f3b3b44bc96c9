//! The two bodies that stream through the gate. Neither is ever held: a frame is counted and passed
//! on. Trailers are not passed, since no rule opens them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::ending::Ending;
use crate::upstream::Lease;

/// Bytes that have gone by, readable from elsewhere while they do.
#[derive(Debug, Default)]
pub struct Meter {
    bytes: AtomicU64,
    complete: AtomicBool,
}

impl Meter {
    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether the body has been read to its end.
    pub fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    fn count(&self, frame: &Bytes) {
        let more = u64::try_from(frame.len()).unwrap_or(u64::MAX);
        self.bytes.fetch_add(more, Ordering::Relaxed);
    }

    fn finish(&self) {
        self.complete.store(true, Ordering::Release);
    }
}

/// The body of a request on its way out: what inspection has read already, then the rest as it
/// comes.
#[derive(Debug)]
pub struct RequestBody {
    prefix: Option<Bytes>,
    rest: Option<Incoming>,
    meter: Arc<Meter>,
}

impl RequestBody {
    /// `prefix` is what inspection consumed of the same body.
    pub fn new(prefix: Option<Bytes>, rest: Incoming) -> Self {
        let body = Self {
            prefix: prefix.filter(|bytes| !bytes.is_empty()),
            rest: Some(rest),
            meter: Arc::default(),
        };
        if body.is_end_stream() {
            body.meter.finish();
        }
        body
    }

    /// No body at all.
    pub fn empty() -> Self {
        let body = Self {
            prefix: None,
            rest: None,
            meter: Arc::default(),
        };
        body.meter.finish();
        body
    }

    /// What has been sent of it.
    pub fn meter(&self) -> Arc<Meter> {
        Arc::clone(&self.meter)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        if let Some(prefix) = this.prefix.take() {
            this.meter.count(&prefix);
            if this.is_end_stream() {
                this.meter.finish();
            }
            return Poll::Ready(Some(Ok(Frame::data(prefix))));
        }
        let Some(rest) = &mut this.rest else {
            return Poll::Ready(None);
        };
        loop {
            match ready!(Pin::new(&mut *rest).poll_frame(context)) {
                None => {
                    this.meter.finish();
                    return Poll::Ready(None);
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else {
                        continue;
                    };
                    this.meter.count(&data);
                    if rest.is_end_stream() {
                        this.meter.finish();
                    }
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.prefix.is_none() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let prefix = self
            .prefix
            .as_ref()
            .map_or(0, |bytes| u64::try_from(bytes.len()).unwrap_or(0));
        let rest = self
            .rest
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(prefix));
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(prefix)) {
            hint.set_upper(upper);
        }
        hint
    }
}

/// The body of an answer to the client.
#[derive(Debug)]
pub enum ResponseBody {
    /// The gate's own words.
    Own(Option<Bytes>),
    /// The upstream's, as it comes.
    Upstream(Box<Streaming>),
}

/// An upstream body in flight. At its end the connection is given back and the record closed;
/// dropped before that, the connection is closed and the record says so.
#[derive(Debug)]
pub struct Streaming {
    incoming: Incoming,
    lease: Option<Lease>,
    ending: Ending,
}

impl ResponseBody {
    /// The gate's own words.
    pub fn own(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self::Own(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }

    /// Streams an upstream's body and ends the record with it.
    pub fn upstream(incoming: Incoming, lease: Lease, ending: Ending) -> Self {
        let mut body = Streaming {
            incoming,
            lease: Some(lease),
            ending,
        };
        if body.incoming.is_end_stream() {
            body.finish();
            return Self::Own(None);
        }
        Self::Upstream(Box::new(body))
    }
}

impl Streaming {
    fn finish(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.give_back();
        }
        self.ending.complete();
    }

    fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        loop {
            match ready!(Pin::new(&mut self.incoming).poll_frame(context)) {
                None => {
                    self.finish();
                    return Poll::Ready(None);
                }
                Some(Err(error)) => {
                    self.lease = None;
                    self.ending.broken("the upstream broke off its answer");
                    return Poll::Ready(Some(Err(error)));
                }
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else {
                        continue;
                    };
                    self.ending.count(data.len());
                    if self.incoming.is_end_stream() {
                        self.finish();
                    }
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
            }
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Own(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Upstream(body) => body.poll(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(bytes) => bytes.is_none(),
            Self::Upstream(body) => body.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(bytes) => SizeHint::with_exact(
                bytes
                    .as_ref()
                    .map_or(0, |bytes| u64::try_from(bytes.len()).unwrap_or(0)),
            ),
            Self::Upstream(body) => body.incoming.size_hint(),
        }
    }
}
