//! A body that is read whole before anything of it leaves: within its bound, its time, and the room
//! that the gate keeps for all of them. What is read is what is sent.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use policy::{Code, Refusal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// What one permit of the room stands for, in bytes.
const UNIT: usize = 1024;

/// The room for bodies that are read whole, shared by all requests.
#[derive(Debug, Clone)]
pub struct Room(Arc<Semaphore>);

/// A part of the room, given back when it is dropped.
#[derive(Debug, Default)]
pub struct Taken(Option<OwnedSemaphorePermit>);

/// What came of reading a body.
#[derive(Debug)]
pub enum Spooled {
    /// All of it.
    Whole(Bytes, Taken),
    /// It is longer; what has been read of it is thrown away.
    Beyond,
}

impl Room {
    /// Room for so many bytes.
    pub fn new(bytes: usize) -> Self {
        let units = (bytes / UNIT).clamp(1, Semaphore::MAX_PERMITS);
        Self(Arc::new(Semaphore::new(units)))
    }
}

impl Taken {
    /// Takes what is missing for so many bytes.
    fn grow(&mut self, room: &Room, bytes: usize) -> Result<(), Refusal> {
        let have = self.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = bytes.div_ceil(UNIT).saturating_sub(have);
        if missing == 0 {
            return Ok(());
        }
        let missing = u32::try_from(missing).unwrap_or(u32::MAX);
        let more = Arc::clone(&room.0).try_acquire_many_owned(missing);
        let more = more.map_err(|_| {
            Refusal::new(
                Code::LimitReached,
                "the gate has no room left for bodies that it must read first",
                "wait for other requests to end, and ask again",
            )
        })?;
        match &mut self.0 {
            Some(taken) => taken.merge(more),
            None => self.0 = Some(more),
        }
        Ok(())
    }
}

/// Reads a body of at most `most` bytes whole.
///
/// # Errors
/// The refusal of a body that does not arrive in time, breaks off, has fields behind it, or for which
/// there is no room.
pub async fn whole(
    body: &mut Incoming,
    most: u64,
    room: &Room,
    within: Duration,
) -> Result<Spooled, Refusal> {
    rest(body, &Bytes::new(), most, room, within).await
}

/// Reads what follows the beginning of a body, and gives both in one.
///
/// # Errors
/// As of one that is read [`whole`].
pub async fn rest(
    body: &mut Incoming,
    begun: &Bytes,
    most: u64,
    room: &Room,
    within: Duration,
) -> Result<Spooled, Refusal> {
    let before = u64::try_from(begun.len()).unwrap_or(u64::MAX);
    if before.saturating_add(body.size_hint().lower()) > most {
        return Ok(Spooled::Beyond);
    }
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    timeout(within, read(body, begun, most, room))
        .await
        .unwrap_or_else(|_| {
            Err(Refusal::new(
                Code::ClientTimeout,
                "the body did not arrive in time to be inspected",
                "send the request without a pause",
            ))
        })
}

async fn read(
    body: &mut Incoming,
    begun: &Bytes,
    most: usize,
    room: &Room,
) -> Result<Spooled, Refusal> {
    let mut taken = Taken::default();
    taken.grow(room, begun.len())?;
    let mut bytes = BytesMut::from(&begun[..]);
    loop {
        let frame = match body.frame().await {
            None => return Ok(Spooled::Whole(bytes.freeze(), taken)),
            Some(Ok(frame)) => frame,
            Some(Err(_)) => {
                return Err(Refusal::new(
                    Code::MalformedRequest,
                    "the body broke off before it could be inspected",
                    "send the whole body",
                ));
            }
        };
        match frame.into_data() {
            Ok(data) if bytes.len() + data.len() > most => return Ok(Spooled::Beyond),
            Ok(data) => {
                taken.grow(room, bytes.len() + data.len())?;
                bytes.extend_from_slice(&data);
            }
            Err(frame) if frame.is_trailers() => {
                return Err(Refusal::new(
                    Code::CouldNotInspect,
                    "the request could not be inspected: it has fields behind its body",
                    "send the request without trailers",
                ));
            }
            Err(_) => {}
        }
    }
}
