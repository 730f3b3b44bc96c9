//! One open connection to an upstream: HTTP/1.1, which carries one request at a time, or HTTP/2,
//! which carries many.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::{Settings, UpstreamError};
use crate::exchange::body::RequestBody;
use crate::framing::frames::{Alarm, Framed, Rates, Side};

/// How requests are put on a connection.
#[derive(Debug)]
pub(super) enum Sender {
    Http1(http1::SendRequest<RequestBody>),
    Http2(http2::SendRequest<RequestBody>, Arc<Streams>),
}

/// A connection that a request may be sent on.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) sender: Sender,
    /// Where it leads; absent for the board's unix socket.
    pub(super) address: Option<SocketAddr>,
    /// The place of one request among those of an HTTP/2 connection.
    pub(super) stream: Option<Stream>,
}

/// What is open on an HTTP/2 connection.
#[derive(Debug)]
pub(super) struct Streams {
    open: AtomicUsize,
    most: AtomicUsize,
    last: Mutex<Instant>,
}

/// One request's place on it.
#[derive(Debug)]
pub(super) struct Stream(Arc<Streams>);

impl Drop for Stream {
    fn drop(&mut self) {
        *self.0.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Streams {
    /// A place for one more request, if the upstream takes one more at once.
    pub(super) fn place(self: &Arc<Self>) -> Option<Stream> {
        let most = self.most.load(Ordering::Relaxed);
        let more = |open| (open < most).then_some(open + 1);
        self.open
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .ok()
            .map(|_| Stream(Arc::clone(self)))
    }

    /// Since when nothing is open; absent while something is.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let idle = self.open.load(Ordering::Acquire) == 0;
        idle.then(|| *self.last.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Connection {
    /// Starts HTTP/1.1 on a stream; the connection is driven by a task of its own that ends with
    /// it.
    pub(super) async fn http1<IO>(
        settings: &Settings,
        stream: IO,
        address: Option<SocketAddr>,
    ) -> Result<Self, UpstreamError>
    where
        IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, connection) = http1::Builder::new()
            .max_headers(settings.head_headers)
            .max_header_size(settings.head_bytes)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(UpstreamError::Http)?;
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "an upstream connection ended");
            }
        });
        Ok(Self {
            sender: Sender::Http1(sender),
            address,
            stream: None,
        })
    }

    /// Starts HTTP/2 on a stream. No request is sent by that.
    pub(super) async fn http2<IO>(
        settings: &Settings,
        stream: IO,
        address: Option<SocketAddr>,
    ) -> Result<Self, UpstreamError>
    where
        IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (framed, alarm) = Framed::new(stream, Side::Client, settings.rates);
        let list = u32::try_from(settings.head_bytes).unwrap_or(u32::MAX);
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(settings.stream_window)
            .initial_connection_window_size(settings.connection_window)
            .max_header_list_size(list)
            .handshake(TokioIo::new(framed))
            .await
            .map_err(UpstreamError::Http)?;
        let streams = Arc::new(Streams {
            open: AtomicUsize::new(0),
            most: AtomicUsize::new(connection.current_max_send_streams()),
            last: Mutex::new(Instant::now()),
        });
        tokio::spawn(drive(connection, Arc::clone(&streams), alarm));
        Ok(Self {
            sender: Sender::Http2(sender, streams),
            address,
            stream: None,
        })
    }

    pub(super) fn is_http2(&self) -> bool {
        matches!(self.sender, Sender::Http2(..))
    }

    pub(super) fn is_closed(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => sender.is_closed(),
            Sender::Http2(sender, _) => sender.is_closed(),
        }
    }

    /// Another handle on an HTTP/2 connection, with a place for one request; `None` if there is no
    /// such place, or if it is HTTP/1.1.
    pub(super) fn share(&self) -> Option<Self> {
        let Sender::Http2(sender, streams) = &self.sender else {
            return None;
        };
        Some(Self {
            stream: Some(streams.place()?),
            sender: Sender::Http2(sender.clone(), Arc::clone(streams)),
            address: self.address,
        })
    }
}

/// Drives an HTTP/2 connection, and ends it when the upstream floods it.
async fn drive<IO>(
    connection: http2::Connection<TokioIo<Framed<IO>>, RequestBody, TokioExecutor>,
    streams: Arc<Streams>,
    alarm: Arc<Alarm>,
) where
    IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut connection = pin!(connection);
    let driven = poll_fn(|context| {
        let done = connection.as_mut().poll(context);
        let most = connection.current_max_send_streams();
        streams.most.store(most, Ordering::Relaxed);
        done
    });
    let flooded = async {
        while alarm.flood().is_none() {
            alarm.rung().await;
        }
    };
    tokio::select! {
        done = driven => {
            if let Err(error) = done {
                tracing::debug!(%error, "an upstream connection ended");
            }
        }
        () = flooded => {
            tracing::warn!(reason = alarm.flood(), "an upstream floods its connection, which is closed");
        }
    }
}

/// What a second may bring of an upstream, by what it may bring of a client.
pub(super) fn rates(settings: &crate::config::Limits) -> Rates {
    Rates {
        resets: settings.resets_per_second,
        idle_frames: settings.idle_frames_per_second,
        block: settings.head_bytes,
        block_time: settings.head_timeout,
    }
}
