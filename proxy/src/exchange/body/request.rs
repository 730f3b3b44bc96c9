//! A request's body on its way out.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::meter::{Meter, Part};
use super::{BodyError, exact};
use crate::exchange::drain;
use crate::strip;

/// The body of a request on its way out: what inspection has read already, then the rest as it
/// comes. It is never held in memory: a frame is counted and passed on.
#[derive(Debug)]
pub struct RequestBody {
    prefix: Option<Bytes>,
    rest: Option<Incoming>,
    trailers: bool,
    meter: Arc<Meter>,
    /// What is left of it when it is dropped is read and thrown away.
    lingers: bool,
}

impl RequestBody {
    /// `prefix` is what inspection consumed of the same body; `trailers` says whether they cross.
    pub fn new(prefix: Option<Bytes>, rest: Incoming, trailers: bool, meter: &Arc<Meter>) -> Self {
        let body = Self {
            prefix: prefix.filter(|bytes| !bytes.is_empty()),
            rest: Some(rest),
            trailers,
            meter: Arc::clone(meter),
            lingers: false,
        };
        if body.is_end_stream() {
            body.meter.finish();
        }
        body
    }

    /// Reads on, within bounds, when not all of it is wanted: on HTTP/1 its sender would see a reset
    /// instead of the answer. One that waits for the word to go on is not given it.
    #[must_use]
    pub fn lingering(mut self, lingers: bool) -> Self {
        self.lingers = lingers;
        self
    }

    /// A body of the gate's own.
    pub fn whole(bytes: Bytes) -> Self {
        let meter = Arc::default();
        if bytes.is_empty() {
            return Self::empty(&meter);
        }
        Self {
            prefix: Some(bytes),
            rest: None,
            trailers: false,
            meter,
            lingers: false,
        }
    }

    /// No body at all.
    pub fn empty(meter: &Arc<Meter>) -> Self {
        meter.finish();
        Self {
            prefix: None,
            rest: None,
            trailers: false,
            meter: Arc::clone(meter),
            lingers: false,
        }
    }

    /// What has been sent of it.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if !self.lingers || self.meter.is_held() {
            return;
        }
        let rest = self.rest.take().filter(|rest| !rest.is_end_stream());
        // Without a runtime there is no connection either.
        let runtime = tokio::runtime::Handle::try_current();
        if let (Some(mut rest), Ok(runtime)) = (rest, runtime) {
            runtime.spawn(async move { drain(&mut rest).await });
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if this.meter.is_cut() {
            return Poll::Ready(Some(Err(BodyError::cut())));
        }
        if this.meter.is_held() {
            if this.meter.poll_cut(Part::Request, context).is_ready() {
                return Poll::Ready(Some(Err(BodyError::cut())));
            }
            // Looked at again behind the waker, so that no release goes unheard.
            if this.meter.is_held() {
                return Poll::Pending;
            }
        }
        if let Some(prefix) = this.prefix.take() {
            if !this.meter.count_sent(prefix.len()) {
                return Poll::Ready(Some(Err(BodyError::cut())));
            }
            if this.is_end_stream() {
                this.meter.finish();
            }
            return Poll::Ready(Some(Ok(Frame::data(prefix))));
        }
        let Some(rest) = &mut this.rest else {
            return Poll::Ready(None);
        };
        loop {
            let polled = Pin::new(&mut *rest).poll_frame(context);
            this.meter.set_starved(polled.is_pending());
            let frame = match polled {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    return match this.meter.poll_cut(Part::Request, context) {
                        Poll::Ready(()) => Poll::Ready(Some(Err(BodyError::cut()))),
                        Poll::Pending => Poll::Pending,
                    };
                }
            };
            let frame = match frame {
                None => {
                    this.rest = None;
                    this.meter.finish();
                    return Poll::Ready(None);
                }
                Some(Err(error)) => {
                    this.rest = None;
                    return Poll::Ready(Some(Err(error.into())));
                }
                Some(Ok(frame)) => frame,
            };
            let frame = match frame.into_data() {
                Ok(data) => {
                    if !this.meter.count_sent(data.len()) {
                        return Poll::Ready(Some(Err(BodyError::cut())));
                    }
                    Frame::data(data)
                }
                Err(frame) => match frame.into_trailers() {
                    Ok(mut fields) if this.trailers => {
                        strip::request_trailers(&mut fields);
                        Frame::trailers(fields)
                    }
                    Ok(_) | Err(_) => continue,
                },
            };
            if rest.is_end_stream() {
                this.meter.finish();
            }
            return Poll::Ready(Some(Ok(frame)));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.prefix.is_none() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let prefix = self.prefix.as_ref().map_or(0, exact);
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
