//! The resolver for agents that share the gate's network namespace: it answers the names that the
//! asker's policy lists, and no other exists. Nothing is asked of anybody.
//!
//! A listed name has an address of a block that belongs to nobody (198.18.0.0/15), which the
//! boundary redirects to [`crate::redirected`]; there the client's own words say which host is
//! meant, so that the address means nothing. Who asks is what the kernel says of the socket that
//! the question came from.

mod addresses;
pub(crate) mod dns;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use policy::Code;
use policy::record::Entrance;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use self::addresses::Addresses;
use self::dns::{Asked, Found};
use crate::entrance::{self, client::Client};
use crate::gate::Gate;
use crate::identify::{self, IdentifyError};
use crate::names;

/// Clients that ask over TCP at once, and how long one may be silent.
const STREAMS: usize = 64;
const SILENCE: Duration = Duration::from_secs(10);
/// Questions of one uid within a second; what comes beyond is not answered.
const PACE: u32 = 1000;
/// Uids, and sockets, that are counted apart.
const MOST_ASKERS: usize = 1024;

/// Whose questions are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Asker {
    Socket(SocketAddr),
    Uid(u32),
    /// Whoever is not counted apart.
    Others,
}

/// What all entrances of the resolver share.
#[derive(Debug, Default)]
pub struct Resolver {
    addresses: Mutex<Addresses>,
    paces: Mutex<HashMap<Asker, (Instant, u32)>>,
    /// The same for sockets, of which one uid may have many.
    socket_paces: Mutex<HashMap<Asker, (Instant, u32)>>,
}

/// Both sockets of one address.
#[derive(Debug)]
pub struct Sockets {
    datagrams: UdpSocket,
    streams: TcpListener,
}

impl Sockets {
    /// Binds both.
    ///
    /// # Errors
    /// The address cannot be had.
    pub async fn bind(at: SocketAddr) -> io::Result<Self> {
        #[allow(
            clippy::disallowed_methods,
            reason = "answers look-ups on loopback, and asks nobody by datagram"
        )]
        let datagrams = UdpSocket::bind(at).await?;
        let streams = TcpListener::bind(at).await?;
        Ok(Self { datagrams, streams })
    }
}

/// Answers on one address until the task is dropped or one of its sockets is of no use any more.
pub async fn serve(gate: Arc<Gate>, resolver: Arc<Resolver>, sockets: Sockets) {
    tokio::select! {
        () = datagrams(&gate, &resolver, &sockets.datagrams) => {}
        () = streams(&gate, &resolver, &sockets.streams) => {}
    }
}

/// One question after the other: more than that is a flood, which the kernel drops.
async fn datagrams(gate: &Gate, resolver: &Resolver, socket: &UdpSocket) {
    let mut buffer = vec![0; 4096];
    loop {
        let (length, peer) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            // So the kernel tells of a client that is gone.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
            Err(error) if entrance::is_dead(&error) => return entrance::gone(&error),
            Err(error) => {
                entrance::pause(&error).await;
                continue;
            }
        };
        // Finding out who asks is the dearest part of an answer, so that sockets are counted first.
        if !resolver.has_patience(Asker::Socket(peer), Instant::now()) {
            continue;
        }
        let packet = buffer.get(..length).unwrap_or_default();
        let owner = identify::udp_peer(peer);
        if let Some(answer) = resolver.answer(gate, packet, owner, true) {
            // A client that is gone needs no answer.
            let _ = socket.try_send_to(&answer, peer);
        }
    }
}

async fn streams(gate: &Arc<Gate>, resolver: &Arc<Resolver>, listener: &TcpListener) {
    let places = Arc::new(Semaphore::new(STREAMS));
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                    continue;
                };
                let (gate, resolver) = (Arc::clone(gate), Arc::clone(resolver));
                let owner = owner(&stream, peer);
                tokio::spawn(async move {
                    // However it ends, the client asks again if it cares.
                    let _ = stream_of(&gate, &resolver, stream, owner).await;
                    drop(place);
                });
            }
            Err(error) if entrance::is_dead(&error) => return entrance::gone(&error),
            Err(error) => entrance::pause(&error).await,
        }
    }
}

/// Who asks over TCP, redirected or not.
fn owner(stream: &TcpStream, peer: SocketAddr) -> Result<u32, IdentifyError> {
    let own = stream.local_addr().map_err(IdentifyError::Kernel)?;
    let meant = identify::original_destination(stream)?.unwrap_or(own);
    identify::tcp_peer(peer, meant)
}

/// Messages behind their lengths, one after the other.
async fn stream_of(
    gate: &Gate,
    resolver: &Resolver,
    mut stream: TcpStream,
    owner: Result<u32, IdentifyError>,
) -> io::Result<()> {
    let owner = owner.map_err(|error| error.to_string());
    loop {
        let reading = async {
            let length = stream.read_u16().await?;
            let mut packet = vec![0; usize::from(length)];
            stream.read_exact(&mut packet).await?;
            Ok::<_, io::Error>(packet)
        };
        let packet = timeout(SILENCE, reading).await??;
        let owner = owner.clone().map_err(IdentifyError::Said);
        let Some(answer) = resolver.answer(gate, &packet, owner, false) else {
            return Ok(());
        };
        let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
        let mut message = length.to_be_bytes().to_vec();
        message.extend_from_slice(&answer);
        timeout(SILENCE, stream.write_all(&message)).await??;
    }
}

impl Resolver {
    /// The answer to one packet, if there is one.
    fn answer(
        &self,
        gate: &Gate,
        packet: &[u8],
        owner: Result<u32, IdentifyError>,
        datagram: bool,
    ) -> Option<Vec<u8>> {
        let asker = owner.as_ref().map_or(Asker::Others, |uid| Asker::Uid(*uid));
        if !self.has_patience(asker, Instant::now()) {
            return None;
        }
        match dns::read(packet) {
            Asked::Nothing => None,
            Asked::Answer(answer) => Some(answer),
            Asked::Question(question) => {
                let found = self.find(gate, &question.name(), owner);
                Some(question.answer(&found, datagram))
            }
        }
    }

    fn find(&self, gate: &Gate, name: &str, owner: Result<u32, IdentifyError>) -> Found {
        let client = match entrance::identity(gate, owner) {
            Ok((grant, uid)) => Client::of_resolver(grant, uid),
            Err((uid, reason)) => {
                let mut line = entrance::unknown(gate, Entrance::Resolver, uid, &reason);
                line.method = Some(names::METHOD.to_owned());
                gate.refused(line);
                return Found::Refused("portcullis: the gate does not know who is asking");
            }
        };
        match names::look_up(gate, &client, name) {
            Ok(_) => {
                let mut addresses = self
                    .addresses
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                addresses
                    .of(name, client.owner())
                    .map_or(Found::Failed(EXHAUSTED), Found::At)
            }
            Err(refused) => match refused.refusal.code {
                Code::DestinationNotListed | Code::MalformedAuthority => Found::Unlisted,
                Code::LimitReached => {
                    Found::Failed("portcullis: limit_reached: too many new names")
                }
                _ => Found::Failed("portcullis: the gate serves nothing at the moment"),
            },
        }
    }

    /// Counts one question; whether its asker may still ask within this second.
    fn has_patience(&self, asker: Asker, now: Instant) -> bool {
        let paces = match asker {
            Asker::Socket(_) => &self.socket_paces,
            Asker::Uid(_) | Asker::Others => &self.paces,
        };
        let mut paces = paces.lock().unwrap_or_else(PoisonError::into_inner);
        if paces.len() >= MOST_ASKERS {
            paces.retain(|_, (since, _)| now.duration_since(*since) < Duration::from_secs(1));
        }
        let crowded = paces.len() >= MOST_ASKERS && !paces.contains_key(&asker);
        let asker = if crowded { Asker::Others } else { asker };
        let (since, count) = paces.entry(asker).or_insert((now, 0));
        if now.duration_since(*since) >= Duration::from_secs(1) {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        *count <= PACE
    }
}

const EXHAUSTED: &str = "portcullis: limit_reached: this agent has used up its addresses";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_counted_by_asker_and_second() {
        let (resolver, now) = (Resolver::default(), Instant::now());
        let granted = |asker, at| {
            (0..2 * PACE)
                .filter(|_| resolver.has_patience(asker, at))
                .count()
        };
        assert_eq!(granted(Asker::Uid(1500), now), 1000);
        assert_eq!(granted(Asker::Others, now), 1000, "control: another asker");
        assert_eq!(
            granted(Asker::Uid(1500), now + Duration::from_secs(1)),
            1000
        );
        let socket = |port| Asker::Socket(SocketAddr::from(([127, 0, 0, 1], port)));
        assert_eq!(granted(socket(5000), now), 1000);
        assert_eq!(granted(socket(5001), now), 1000, "control: another socket");
        for uid in 0..5000 {
            resolver.has_patience(Asker::Uid(uid), now);
            resolver.has_patience(socket(u16::try_from(uid).unwrap()), now);
        }
        for paces in [&resolver.paces, &resolver.socket_paces] {
            assert!(paces.lock().unwrap().len() <= MOST_ASKERS + 1);
        }
        assert_eq!(granted(Asker::Uid(0), now), 999, "known ones stay apart");
    }
}
