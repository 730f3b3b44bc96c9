//! For programs that know nothing of proxies: names resolve to loopback addresses, and connections
//! to those addresses are carried to the gate under the name that was asked for.
//!
//! One thread serves all of it. The gate says which names resolve and on which ports they are
//! listed ([`super::ask`]), [`super::addresses`] remembers which address stands for which name, and
//! [`super::carry`] opens `CONNECT name:port` for each connection. 80 and 443 are listened on for
//! every address at once, any other port on the addresses of the names that are listed on it, so
//! that the container's own programs keep theirs.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::timeout;

use super::addresses::Addresses;
use super::ask::{Asker, Said};
use super::carry;
use super::dns::{self, Asked, Found};

/// Ports on which every name's address is listened on.
const USUAL: [u16; 2] = [80, 443];
/// Listeners for other ports, at most.
const LISTENERS: usize = 64;
/// Connections carried at once; more are closed.
pub(super) const CONNECTIONS: usize = 160;
/// Look-ups under way at once; datagrams beyond are dropped, and their clients ask again.
const LOOK_UPS: usize = 64;
/// Clients that ask over TCP at once, and how long one may be silent.
const STREAMS: usize = 16;
const SILENCE: Duration = Duration::from_secs(10);
/// How long to wait for something to end when descriptors have run out.
const BREATH: Duration = Duration::from_millis(10);

/// Everything bound, before anything is served.
#[derive(Debug)]
pub struct Direct {
    datagrams: Vec<UdpSocket>,
    streams: Vec<TcpListener>,
    usual: Vec<TcpListener>,
}

struct Shared {
    gate: PathBuf,
    asker: Asker,
    addresses: RefCell<Addresses>,
    bound: RefCell<HashSet<SocketAddr>>,
    connections: Arc<Semaphore>,
}

impl Direct {
    /// Binds port 53 of loopback for names, and ports 80 and 443.
    ///
    /// # Errors
    /// The first address that cannot be bound, by name: a relay that serves half of them would make
    /// a client hang.
    pub fn bind() -> io::Result<Self> {
        let mut this = Self {
            datagrams: Vec::new(),
            streams: Vec::new(),
            usual: Vec::new(),
        };
        let resolver = SocketAddr::from((Ipv4Addr::LOCALHOST, 53));
        this.datagrams.push(named(resolver, datagrams(resolver))?);
        this.streams
            .push(named(resolver, TcpListener::bind(resolver))?);
        // A container without IPv6 is asked over IPv4 alone.
        let sixth = SocketAddr::from((Ipv6Addr::LOCALHOST, 53));
        if let (Ok(socket), Ok(listener)) = (datagrams(sixth), TcpListener::bind(sixth)) {
            this.datagrams.push(socket);
            this.streams.push(listener);
        }
        for port in USUAL {
            let every = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
            this.usual.push(named(every, TcpListener::bind(every))?);
        }
        Ok(this)
    }

    /// Serves in a thread of its own, as long as the process lives.
    ///
    /// # Errors
    /// The thread or its runtime could not be had.
    pub fn serve(self, gate: &Path) -> io::Result<()> {
        let gate = gate.to_owned();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        for socket in &self.datagrams {
            socket.set_nonblocking(true)?;
        }
        for listener in self.streams.iter().chain(&self.usual) {
            listener.set_nonblocking(true)?;
        }
        std::thread::Builder::new()
            .name("direct".to_owned())
            .spawn(move || {
                let local = LocalSet::new();
                let failed = local.block_on(&runtime, self.run(gate)).err();
                // Only registering the sockets can fail, and nothing can be served without it; the
                // clients then see closed ports.
                drop(failed);
            })?;
        Ok(())
    }

    async fn run(self, gate: PathBuf) -> io::Result<()> {
        let shared = Rc::new(Shared {
            asker: Asker::start(&gate),
            gate,
            addresses: RefCell::default(),
            bound: RefCell::default(),
            connections: Arc::new(Semaphore::new(CONNECTIONS)),
        });
        let look_ups = Arc::new(Semaphore::new(LOOK_UPS));
        for socket in self.datagrams {
            let socket = Rc::new(tokio::net::UdpSocket::from_std(socket)?);
            spawn_local(answer_datagrams(
                Rc::clone(&shared),
                socket,
                Arc::clone(&look_ups),
            ));
        }
        let streams = Arc::new(Semaphore::new(STREAMS));
        for listener in self.streams {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            spawn_local(answer_streams(
                Rc::clone(&shared),
                listener,
                Arc::clone(&streams),
            ));
        }
        for listener in self.usual {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            spawn_local(accept(Rc::clone(&shared), listener));
        }
        std::future::pending().await
    }
}

impl Shared {
    /// What is known of a name, once the gate has been asked. A listed name is listened for before
    /// it is answered.
    async fn find(self: &Rc<Self>, name: String) -> Found {
        let ports = match self.asker.ask(name.clone()).await {
            Said::Listed(ports) => ports,
            Said::Unlisted => return Found::Unlisted,
            Said::Failed(why) => return Found::Failed(why),
        };
        let Some(address) = self.addresses.borrow_mut().of(&name) else {
            return Found::Failed("portcullis: limit_reached: this run has used up its addresses");
        };
        for port in ports {
            if !USUAL.contains(&port) && !self.listen((address, port).into()) {
                return Found::Failed("portcullis: limit_reached: too many ports are listened on");
            }
        }
        Found::At(address)
    }

    /// Whether `at` is listened on, by us or by a program of the container that was first.
    fn listen(self: &Rc<Self>, at: SocketAddr) -> bool {
        let mut bound = self.bound.borrow_mut();
        if bound.contains(&at) {
            return true;
        }
        if bound.len() >= LISTENERS {
            return false;
        }
        let listener = TcpListener::bind(at).and_then(|listener| {
            listener.set_nonblocking(true)?;
            tokio::net::TcpListener::from_std(listener)
        });
        match listener {
            Ok(listener) => {
                bound.insert(at);
                spawn_local(accept(Rc::clone(self), listener));
                true
            }
            Err(error) => error.kind() == io::ErrorKind::AddrInUse,
        }
    }
}

async fn answer_datagrams(
    shared: Rc<Shared>,
    socket: Rc<tokio::net::UdpSocket>,
    look_ups: Arc<Semaphore>,
) {
    let mut buffer = [0; 4096];
    loop {
        let Ok((length, peer)) = socket.recv_from(&mut buffer).await else {
            // The kernel tells of a client that is gone this way too.
            continue;
        };
        match dns::read(&buffer[..length]) {
            Asked::Nothing => {}
            Asked::Answer(answer) => {
                // A client that is gone needs none.
                let _gone = socket.try_send_to(&answer, peer);
            }
            Asked::Question(question) => {
                let Ok(place) = Arc::clone(&look_ups).try_acquire_owned() else {
                    continue;
                };
                let (shared, socket) = (Rc::clone(&shared), Rc::clone(&socket));
                spawn_local(async move {
                    let found = shared.find(question.name()).await;
                    let _gone = socket.send_to(&question.answer(&found, true), peer).await;
                    drop(place);
                });
            }
        }
    }
}

async fn answer_streams(
    shared: Rc<Shared>,
    listener: tokio::net::TcpListener,
    places: Arc<Semaphore>,
) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
                    let shared = Rc::clone(&shared);
                    spawn_local(async move {
                        // However it ends, the client asks again if it cares.
                        let _ended = answer_stream(&shared, stream).await;
                        drop(place);
                    });
                }
            }
            Err(_scarce) => tokio::time::sleep(BREATH).await,
        }
    }
}

/// Messages behind their lengths, one after the other.
async fn answer_stream(shared: &Rc<Shared>, mut stream: tokio::net::TcpStream) -> io::Result<()> {
    loop {
        let reading = async {
            let length = stream.read_u16().await?;
            let mut packet = vec![0; usize::from(length)];
            stream.read_exact(&mut packet).await?;
            Ok::<_, io::Error>(packet)
        };
        let packet = timeout(SILENCE, reading).await??;
        let answer = match dns::read(&packet) {
            Asked::Nothing => return Ok(()),
            Asked::Answer(answer) => answer,
            Asked::Question(question) => {
                let found = shared.find(question.name()).await;
                question.answer(&found, false)
            }
        };
        let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
        let mut message = length.to_be_bytes().to_vec();
        message.extend_from_slice(&answer);
        timeout(SILENCE, stream.write_all(&message)).await??;
    }
}

async fn accept(shared: Rc<Shared>, listener: tokio::net::TcpListener) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(BREATH).await;
            continue;
        };
        // What it was dialled at says what is meant; any other address of ours means nothing.
        let Ok(SocketAddr::V4(at)) = stream.local_addr() else {
            continue;
        };
        let name = shared.addresses.borrow().name(*at.ip()).map(str::to_owned);
        let Some(name) = name else { continue };
        // The semaphore is never closed: the only failure is that all places are taken, and then the
        // connection is answered with a refusal that says so, instead of being carried.
        let place = Arc::clone(&shared.connections).try_acquire_owned().ok();
        let gate = shared.gate.clone();
        spawn_local(async move {
            carry::carry(stream, &gate, &name, at.port(), place.is_some()).await;
            drop(place);
        });
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "answers look-ups on the container's own loopback, and asks nobody by datagram"
)]
fn datagrams(at: SocketAddr) -> io::Result<UdpSocket> {
    UdpSocket::bind(at)
}

fn named<T>(at: SocketAddr, result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| io::Error::new(error.kind(), format!("{at}: {error}")))
}
