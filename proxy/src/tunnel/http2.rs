//! Many requests at once on one connection of a client, each judged like any other. What the client
//! can make grow is bounded, and a flood ends the connection.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use policy::{Code, Refusal};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::note;
use crate::exchange::{self, Channel};
use crate::framing::frames::{Alarm, Framed, Rates, Side};
use crate::gate::Gate;

/// What the library buffers of one answer that its client does not read.
const SEND_BUFFER: usize = 64 * 1024;
/// How long a client that is sent away has to read that it is.
const FAREWELL: Duration = Duration::from_secs(1);

/// Serves a connection until it ends. Whether anything was asked on it.
pub(super) async fn serve<IO>(channel: Channel, io: IO) -> bool
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = &channel.gate.config.limits;
    let rates = Rates {
        resets: limits.resets_per_second,
        idle_frames: limits.idle_frames_per_second,
        block: limits.head_bytes,
        block_time: limits.head_timeout,
    };
    let (framed, alarm) = Framed::new(io, Side::Server, rates);
    let channel = Arc::new(channel);
    let asked = Arc::<AtomicBool>::default();
    let service = {
        let (channel, asked) = (Arc::clone(&channel), Arc::clone(&asked));
        service_fn(move |request| {
            asked.store(true, Ordering::Relaxed);
            let channel = Arc::clone(&channel);
            // In a place of its own, since the library hands it on several times.
            Box::pin(async move { Ok::<_, Infallible>(exchange::serve(&channel, request).await) })
        })
    };
    let connection = builder(&channel.gate).serve_connection(TokioIo::new(framed), service);
    let mut connection = pin!(connection);
    let limits = &channel.gate.config.limits;
    let mut stalled = interval(limits.idle_timeout);
    stalled.set_missed_tick_behavior(MissedTickBehavior::Delay);
    stalled.reset();
    let mut silent = pin!(sleep(limits.head_timeout));
    let mut quiet = true;
    let mut late = interval(limits.head_timeout / 2);
    late.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            done = connection.as_mut() => {
                refused(&channel, &alarm);
                if let Err(error) = done
                    && is_of_the_library(&error)
                {
                    tell(&channel, &malformed("the connection"));
                }
                break;
            }
            () = alarm.rung() => {
                refused(&channel, &alarm);
                let Some(flood) = alarm.flood() else { continue };
                tell(&channel, &Refusal::new(
                    Code::LimitReached,
                    &format!("the HTTP/2 connection was closed: {flood}"),
                    "send requests, and no more frames than they need",
                ));
                connection.as_mut().graceful_shutdown();
                // It is closed in any case.
                let _ = timeout(FAREWELL, connection.as_mut()).await;
                break;
            }
            _ = late.tick() => {
                let patience = channel.gate.config.limits.head_timeout;
                if alarm.unfinished().is_some_and(|since| since.elapsed() > patience) {
                    tell(&channel, &Refusal::new(
                        Code::ClientTimeout,
                        "the HTTP/2 connection was closed: a frame or a head on it was not finished in time",
                        "send frames, and the fields of a request, without a pause",
                    ));
                    connection.as_mut().graceful_shutdown();
                    // It is closed in any case.
                    let _ = timeout(FAREWELL, connection.as_mut()).await;
                    break;
                }
            }
            _ = stalled.tick() => channel.live.cut_stalled(),
            () = silent.as_mut(), if quiet => {
                // What it has begun is given its time, and told of.
                if !asked.load(Ordering::Relaxed) && alarm.unfinished().is_none() {
                    break;
                }
                quiet = false;
            }
        }
    }
    asked.load(Ordering::Relaxed)
}

fn builder(gate: &Gate) -> http2::Builder<TokioExecutor> {
    let limits = &gate.config.limits;
    // What is a little too long is refused by the gate, in its own words; the library refuses what
    // is far too long, without any.
    let list = u32::try_from(limits.head_bytes.saturating_mul(4)).unwrap_or(u32::MAX);
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(list)
        .initial_stream_window_size(limits.stream_window_bytes)
        .initial_connection_window_size(limits.connection_window_bytes)
        .max_send_buf_size(SEND_BUFFER);
    builder
}

/// Records requests that the library refused before anybody saw them.
fn refused(channel: &Channel, alarm: &Alarm) {
    for _ in 0..alarm.take_refused() {
        tell(channel, &malformed("a request"));
    }
    for _ in 0..alarm.take_crowded() {
        let crowded = Refusal::new(
            Code::LimitReached,
            "too many requests are open at once on one HTTP/2 connection",
            "wait for the answers to some of them, and ask again",
        );
        tell(channel, &crowded);
    }
}

fn malformed(what: &str) -> Refusal {
    Refusal::new(
        Code::MalformedRequest,
        &format!("{what} breaks the grammar of HTTP/2"),
        "send a well-formed HTTP/2 request",
    )
}

fn tell(channel: &Channel, refusal: &Refusal) {
    let target = channel.authority.to_string();
    let id = channel.gate.new_id();
    note(
        &channel.gate,
        &channel.client,
        &id,
        refusal,
        "CONNECT",
        Some(&target),
    );
}

/// Whether the connection ended because the client broke the protocol.
fn is_of_the_library(error: &hyper::Error) -> bool {
    std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<h2::Error>())
        .is_some_and(h2::Error::is_library)
}
