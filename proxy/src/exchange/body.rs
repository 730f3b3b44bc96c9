//! The two bodies that stream through the gate. A frame is counted and passed on; of an answer to a
//! request with a credential, an end is held back that may be the beginning of that credential.
//! Trailers cross only where the rule that permitted the request opens them.

mod meter;
mod request;

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderValue;
use hyper::body::{Body, Frame, Incoming, SizeHint};

pub use self::meter::{Cut, Meter, Part};
pub use self::request::RequestBody;
use super::ending::Ending;
use crate::framing::Exchanging;
use crate::scrub::{Reflected, Scrubber};
use crate::strip;
use crate::upstream::Lease;

/// Why a body ended early.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct BodyError {
    why: &'static str,
    /// What an HTTP/2 peer is told: that it is over, and not whose fault it was on the other side.
    #[source]
    told: h2::Error,
}

impl BodyError {
    fn new(why: &'static str) -> Self {
        Self {
            why,
            told: h2::Reason::CANCEL.into(),
        }
    }

    /// What it belongs to is no longer permitted, or does not move.
    fn cut() -> Self {
        Self::new("the exchange was cut")
    }
}

impl From<hyper::Error> for BodyError {
    fn from(error: hyper::Error) -> Self {
        tracing::debug!(%error, "a body broke off");
        Self::new("the body broke off")
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
    /// Whether trailers cross, and what must not come back in them.
    trailers: Option<Option<HeaderValue>>,
    /// Looks for what was injected.
    scrubber: Option<Box<Scrubber>>,
    /// What comes behind the bytes that were held back.
    behind: Option<Frame<Bytes>>,
    _exchanging: Option<Exchanging>,
}

impl ResponseBody {
    /// The gate's own words.
    pub fn own(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self::Own(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }

    /// Streams an upstream's body and ends the record with it. `trailers` is present where they
    /// cross, and holds the value that was injected.
    pub fn upstream(
        incoming: Incoming,
        lease: Lease,
        ending: Ending,
        trailers: Option<Option<HeaderValue>>,
        scrubber: Option<Box<Scrubber>>,
        exchanging: Option<Exchanging>,
    ) -> Self {
        let mut body = Streaming {
            incoming,
            lease: Some(lease),
            ending,
            trailers,
            scrubber,
            behind: None,
            _exchanging: exchanging,
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

    fn stop(
        &mut self,
        reason: &str,
        error: BodyError,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.lease = None;
        self.ending.broken(reason);
        Poll::Ready(Some(Err(error)))
    }

    /// The exchange was cut, and its record says why.
    fn was_cut(&mut self) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.lease = None;
        self.ending.cut();
        Poll::Ready(Some(Err(BodyError::cut())))
    }

    /// Every byte of an upstream's body passes here, in order, before the client gets it; an error
    /// cuts the stream.
    fn pass(&mut self, data: Bytes) -> Result<Bytes, Reflected> {
        let account = self.ending.account();
        match &mut self.scrubber {
            Some(scrubber) if account.reads() => {
                scrubber.push_heard(&data, &mut |text| account.read(text))
            }
            Some(scrubber) => scrubber.push(&data),
            None => {
                account.read_sent(&data);
                Ok(data)
            }
        }
    }

    /// What was held back and has become nothing.
    fn rest(&mut self) -> Bytes {
        self.scrubber
            .as_mut()
            .map_or_else(Bytes::new, |scrubber| scrubber.finish())
    }

    fn held(&self) -> usize {
        self.scrubber.as_ref().map_or(0, |scrubber| scrubber.held())
    }

    /// The trailers, as the client may have them; none where no rule opens them.
    fn pass_trailers(
        &self,
        mut fields: http::HeaderMap,
    ) -> Result<Option<http::HeaderMap>, Reflected> {
        let Some(injected) = &self.trailers else {
            return Ok(None);
        };
        strip::response_names(&mut fields, injected.is_some());
        if let Some(scrubber) = &self.scrubber {
            scrubber.fields(&fields)?;
        }
        strip::response(&mut fields, injected.as_ref());
        strip::framing(&mut fields);
        Ok(Some(fields))
    }

    /// Cuts the answer because of what stands in it.
    fn reflects(
        &mut self,
        how: Reflected,
        place: &str,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let refusal = self.ending.reflected(how, place);
        self.stop(&refusal.text, BodyError::cut())
    }

    /// Whether nothing more comes.
    fn is_over(&self) -> bool {
        self.incoming.is_end_stream() && self.behind.is_none() && self.held() == 0
    }

    /// How much comes yet.
    fn left(&self) -> SizeHint {
        let incoming = self.incoming.size_hint();
        let held = u64::try_from(self.held()).unwrap_or(u64::MAX);
        match incoming.exact() {
            Some(exact) => SizeHint::with_exact(exact + held),
            None => incoming,
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.ending.meter().is_cut() {
            return self.was_cut();
        }
        if let Some(behind) = self.behind.take() {
            return Poll::Ready(Some(Ok(behind)));
        }
        loop {
            let frame = match Pin::new(&mut self.incoming).poll_frame(context) {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    return match self.ending.meter().poll_cut(Part::Answer, context) {
                        Poll::Ready(()) => self.was_cut(),
                        Poll::Pending => Poll::Pending,
                    };
                }
            };
            let frame = match frame {
                None => {
                    let rest = self.rest();
                    self.finish();
                    let rest = Some(rest).filter(|rest| !rest.is_empty());
                    return Poll::Ready(rest.map(|rest| Ok(Frame::data(rest))));
                }
                Some(Err(error)) => {
                    return self.stop("the upstream broke off its answer", error.into());
                }
                Some(Ok(frame)) => frame,
            };
            let frame = match frame.into_data() {
                Ok(data) if !self.ending.meter().count_received(data.len()) => {
                    return self.was_cut();
                }
                Ok(data) => match self.pass(data) {
                    // Nothing may leave for now; the body's end brings the rest.
                    Ok(data) if data.is_empty() && self.scrubber.is_some() => continue,
                    Ok(data) => Frame::data(data),
                    Err(how) => return self.reflects(how, "body"),
                },
                Err(frame) => match frame.into_trailers().ok() {
                    Some(fields) => match self.pass_trailers(fields) {
                        Ok(Some(fields)) => {
                            let trailers = Frame::trailers(fields);
                            let rest = self.rest();
                            if rest.is_empty() {
                                trailers
                            } else {
                                self.behind = Some(trailers);
                                Frame::data(rest)
                            }
                        }
                        Ok(None) => continue,
                        Err(how) => return self.reflects(how, "trailers"),
                    },
                    None => continue,
                },
            };
            if self.is_over() {
                self.finish();
            }
            return Poll::Ready(Some(Ok(frame)));
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Own(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Upstream(body) => body.poll(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(bytes) => bytes.is_none(),
            Self::Upstream(body) => body.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, exact)),
            Self::Upstream(body) => body.left(),
        }
    }
}

fn exact(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
