//! A WebSocket: one judged request, and bytes both ways behind it. Frames are neither read nor cut
//! anew, so that extensions and fragments stay what the two ends agreed on. Where a credential was
//! injected, the upstream's bytes are searched for it as they are: what stands whole in one frame
//! that is not compressed is found, what frames divide or pack is not.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use policy::{Code, Refusal};
use tokio::io::{AsyncRead, ReadBuf, copy_bidirectional};

use super::body::{Meter, ResponseBody};
use super::ending::Ending;
use super::{Channel, Sought};
use crate::delegate::delegate_write;
use crate::scrub::{Reflected, Scrubber};
use crate::upstream::Answer;

/// Of the upstream's bytes, this much is looked through at a time.
const CHUNK: usize = 16 * 1024;

/// Where an exchange leaves the WebSocket that its connection becomes, for whoever drives the
/// connection.
#[derive(Debug, Clone, Default)]
pub struct Handover(Arc<Mutex<Option<Socket>>>);

impl Handover {
    /// What the connection has become, once HTTP is over on it.
    pub fn take(&self) -> Option<Socket> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Both ends of a WebSocket, agreed on and not yet moving.
#[derive(Debug)]
pub struct Socket {
    client: OnUpgrade,
    upstream: OnUpgrade,
    ending: Ending,
    scrubber: Option<Box<Scrubber>>,
}

/// Passes an upstream's 101 on, if it agrees to what was asked for.
pub(super) fn switch(
    channel: &Channel,
    answer: Answer,
    client: Option<OnUpgrade>,
    sought: Sought,
    mut ending: Ending,
) -> Result<Response<ResponseBody>, Refusal> {
    let mut response = answer.response;
    let agreed = response
        .headers()
        .get(header::UPGRADE)
        .is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let Some(client) = client.filter(|_| agreed) else {
        let refusal = Refusal::new(
            Code::UpstreamProtocol,
            &format!(
                "{} switched to something else than a WebSocket",
                channel.authority
            ),
            "this is not a policy decision: try again later",
        );
        ending.refused(&refusal);
        return Err(refusal);
    };
    let upstream = hyper::upgrade::on(&mut response);
    let (mut head, _) = response.into_parts();
    sought.strip(&mut head.headers, &mut ending)?;
    let websocket = HeaderValue::from_static("websocket");
    head.headers.insert(header::UPGRADE, websocket);
    head.headers
        .insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    channel.framing.switch();
    ending.answered(StatusCode::SWITCHING_PROTOCOLS, answer.lease.address());
    let socket = Socket {
        client,
        upstream,
        ending,
        scrubber: sought.scrubber,
    };
    let mut place = channel
        .upgrade
        .0
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    *place = Some(socket);
    let mut switched = Response::new(ResponseBody::own(Bytes::new()));
    *switched.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *switched.headers_mut() = head.headers;
    Ok(switched)
}

impl Socket {
    /// Moves bytes until both ends have closed, one breaks off, or the exchange is cut. One end that
    /// stops writing may still read.
    pub async fn run(mut self) {
        let meter = Arc::clone(self.ending.meter());
        let moving = async {
            let (client, upstream) =
                tokio::try_join!(self.client, self.upstream).map_err(io::Error::other)?;
            let mut client = Counted::new(client, &meter, Meter::count_sent);
            let upstream = Counted::new(upstream, &meter, Meter::count_received);
            let mut upstream = Scrubbed::new(upstream, self.scrubber);
            copy_bidirectional(&mut client, &mut upstream).await
        };
        tokio::select! {
            biased;
            () = meter.until_cut() => {
                self.ending.cut();
            }
            moved = moving => match moved {
                Ok(_) => self.ending.complete(),
                Err(error) if let Some(how) = reflected(&error) => {
                    let refusal = self.ending.reflected(how, "WebSocket");
                    self.ending.broken(&refusal.text);
                }
                Err(_) if meter.is_cut() => {
                    self.ending.cut();
                }
                Err(error) => {
                    tracing::debug!(%error, "a WebSocket broke off");
                    self.ending.broken("one end broke off");
                }
            },
        }
    }
}

/// One end, whose bytes are counted as they come.
struct Counted<IO> {
    io: IO,
    meter: Arc<Meter>,
    count: fn(&Meter, usize) -> bool,
}

impl Counted<TokioIo<Upgraded>> {
    fn new(end: Upgraded, meter: &Arc<Meter>, count: fn(&Meter, usize) -> bool) -> Self {
        Self {
            io: TokioIo::new(end),
            meter: Arc::clone(meter),
            count,
        }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Counted<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(context, buffer))?;
        if (this.count)(&this.meter, buffer.filled().len() - before) {
            return Poll::Ready(Ok(()));
        }
        buffer.set_filled(before);
        Poll::Ready(Err(io::Error::other("a bound of the rule cut it")))
    }
}

delegate_write!(Counted, io);

fn reflected(error: &io::Error) -> Option<Reflected> {
    error.get_ref()?.downcast_ref().copied()
}

/// The upstream's end, whose bytes are looked through before they are given out.
struct Scrubbed<IO> {
    io: IO,
    scrubber: Option<Box<Scrubber>>,
    ready: Bytes,
    buffer: Box<[u8]>,
}

impl<IO> Scrubbed<IO> {
    fn new(io: IO, scrubber: Option<Box<Scrubber>>) -> Self {
        let size = if scrubber.is_some() { CHUNK } else { 0 };
        Self {
            io,
            scrubber,
            ready: Bytes::new(),
            buffer: vec![0; size].into_boxed_slice(),
        }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Scrubbed<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(scrubber) = &mut this.scrubber else {
            return Pin::new(&mut this.io).poll_read(context, buffer);
        };
        while this.ready.is_empty() {
            let mut read = ReadBuf::new(&mut this.buffer);
            ready!(Pin::new(&mut this.io).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                this.ready = scrubber.finish();
                if this.ready.is_empty() {
                    return Poll::Ready(Ok(()));
                }
            } else {
                let bytes = Bytes::copy_from_slice(read.filled());
                this.ready = scrubber.push(&bytes).map_err(io::Error::other)?;
            }
        }
        let most = this.ready.len().min(buffer.remaining());
        buffer.put_slice(&this.ready.split_to(most));
        Poll::Ready(Ok(()))
    }
}

delegate_write!(Scrubbed, io);
