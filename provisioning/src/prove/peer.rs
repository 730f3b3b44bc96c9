//! The outside peer: a network namespace at the other end of a wire, with listeners, and a record of every packet that
//! reached it.
//!
//! ```text
//! this namespace   (P.1,  2001:db8:X::1) --veth-- (P.2, 2001:db8:X::2)   the peer's namespace
//!   routes P.128/25 and 2001:db8:X:1::/64 to it       every address of both is its own
//! ```
//! Each attempt aims at an address of its own, so that what arrives names the attempt it came from. The namespace belongs
//! to the peer's process and goes with it, wire and routes included; that process ends when its standard input does, so
//! that nothing is left however this program ends.

pub(super) mod frames;
mod serve;
mod wire;

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, Ipv6Addr};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::identity::SELF;
use crate::process::ProcessError;

pub use serve::serve;
pub use wire::Beyond;
use wire::Wire;

/// How long the peer may take for anything it is told to do.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Error)]
pub enum PeerError {
    #[error("cannot start the outside peer")]
    Start(#[source] std::io::Error),
    #[error("the outside peer did not {0} in time; it said: {1}")]
    Silent(&'static str, String),
    #[error(
        "cannot lay the wire to the outside peer\n  hint: `ip` from iproute2 and CAP_NET_ADMIN are needed"
    )]
    Wire(#[source] ProcessError),
    #[error(
        "no unused IPv4 documentation or benchmark network is left here\n  hint: `ip route` shows who has them"
    )]
    NoNetwork,
    #[error(
        "all addresses of the outside peer are used up\n  hint: a shorter list of proofs, or fewer ports in it"
    )]
    NoAddress,
}

/// One thing that reached the peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    pub to: IpAddr,
    pub from: IpAddr,
    /// IP protocol number.
    pub protocol: u8,
    /// Destination port, 0 where there is none.
    pub port: u16,
}

/// What the peer tells, one JSON object per line.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Told {
    Ready,
    /// Addresses are up.
    Wired,
    /// A listener stands.
    Listening(IpAddr),
    Arrived(Arrival),
    /// The head of an HTTP request.
    Head {
        to: IpAddr,
        text: String,
    },
    /// Neighbour advertisement of this machine.
    Advertised,
    /// Connections of that address that wait for their last acknowledgement.
    Unfinished(IpAddr, usize),
    /// The second wire is up.
    Joined,
    /// Whether a connection that the peer made was answered.
    Dialled(IpAddr, u16, bool),
    Trouble(String),
}

/// What the peer is told, likewise.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    Wire {
        link: String,
        commands: Vec<Vec<String>>,
    },
    Listen {
        address: IpAddr,
        tcp: Vec<u16>,
        udp: Vec<u16>,
        http: Vec<u16>,
        interface: u32,
    },
    /// Forget this machine's link address and ask for it.
    Resolve {
        host: IpAddr,
    },
    Finish {
        address: IpAddr,
    },
    Dial {
        host: IpAddr,
        port: u16,
    },
    /// A second wire, to a namespace without rules.
    Join {
        commands: Vec<Vec<String>>,
    },
}

#[derive(Debug, Default)]
struct Record {
    arrivals: HashMap<IpAddr, Vec<Arrival>>,
    rest: Vec<Told>,
    ended: bool,
}

#[derive(Debug, Default)]
struct Shared {
    record: Mutex<Record>,
    changed: Condvar,
}

/// A running peer. Dropping it removes everything.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    input: Mutex<Option<ChildStdin>>,
    shared: Arc<Shared>,
    wire: Wire,
    next: Mutex<(u8, u16, u8)>,
    beyond: AtomicU8,
}

impl Peer {
    /// Makes the namespace, the wire and the routes.
    ///
    /// # Errors
    /// When a tool or a right is missing, or no unused network is left.
    pub fn start() -> Result<Self, PeerError> {
        let mut child = Command::new(SELF)
            .args(["prove", "peer"])
            .env_clear()
            .env("PATH", crate::process::SEARCH_PATH)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(PeerError::Start)?;
        let shared = Arc::new(Shared::default());
        if let Some(output) = child.stdout.take() {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    shared.note(&line);
                }
                shared.lock().ended = true;
                shared.changed.notify_all();
            });
        }
        let input = Mutex::new(child.stdin.take());
        let pid = child.id();
        // From here on dropping it ends the process, and with it all that was made.
        let mut peer = Self {
            child,
            input,
            shared,
            wire: Wire::default(),
            next: Mutex::new((128, 1, 16)),
            beyond: AtomicU8::new(0),
        };
        peer.until("start", |told| matches!(told, Told::Ready).then_some(()))?;
        peer.wire = Wire::lay(pid)?;
        let (link, commands) = peer.wire.other_end();
        peer.order(&Order::Wire { link, commands });
        peer.until("raise its end of the wire", |told| {
            matches!(told, Told::Wired).then_some(())
        })?;
        Ok(peer)
    }

    /// Our own address on the wire.
    #[must_use]
    pub fn host(&self, six: bool) -> Option<IpAddr> {
        if six {
            self.wire.host6
        } else {
            self.wire.host4
        }
    }

    /// Why there is no IPv6 on the wire, if there is none.
    #[must_use]
    pub fn without_six(&self) -> Option<&str> {
        self.wire.without_six.as_deref()
    }

    /// The index of our end of the wire.
    #[must_use]
    pub fn interface(&self) -> u32 {
        self.wire.index
    }

    /// An address of the peer that nobody has aimed at yet.
    ///
    /// # Errors
    /// When there are no more.
    pub fn address(&self, six: bool) -> Result<IpAddr, PeerError> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if six {
            next.1 = next.1.checked_add(1).ok_or(PeerError::NoAddress)?;
            return Ok(self.wire.target6(next.1).into());
        }
        let last = next.0;
        next.0 = last.checked_add(1).ok_or(PeerError::NoAddress)?;
        Ok(self.wire.target4(last).into())
    }

    /// A link-local address of the peer that nobody has aimed at yet.
    ///
    /// # Errors
    /// When there are no more.
    pub fn link_local(&self) -> Result<IpAddr, PeerError> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let index = next.2;
        if index >= 16 + wire::LINK_LOCALS {
            return Err(PeerError::NoAddress);
        }
        next.2 = index + 1;
        Ok(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, u16::from(index)).into())
    }

    /// Listens at one of its addresses, and returns when the listeners stand.
    ///
    /// # Errors
    /// When it does not.
    pub fn listen(
        &self,
        address: IpAddr,
        tcp: &[u16],
        udp: &[u16],
        http: &[u16],
    ) -> Result<(), PeerError> {
        self.order(&Order::Listen {
            address,
            tcp: tcp.to_vec(),
            udp: udp.to_vec(),
            http: http.to_vec(),
            interface: 0,
        });
        self.until("listen", |told| {
            matches!(told, Told::Listening(at) if *at == address).then_some(())
        })
    }

    /// How many packets reached that address so far.
    #[must_use]
    pub fn arrived(&self, address: IpAddr) -> usize {
        self.shared
            .lock()
            .arrivals
            .get(&address)
            .map_or(0, Vec::len)
    }

    /// Waits until a packet reached that address; false when none came in time.
    #[must_use]
    pub fn wait_for(&self, address: IpAddr, patience: Duration) -> bool {
        self.shared
            .wait(patience, |record| {
                record.arrivals.contains_key(&address).then_some(())
            })
            .is_some()
    }

    /// The head of the HTTP request to that address that contains those words, once it is there.
    #[must_use]
    pub fn head(&self, address: IpAddr, words: &str, patience: Duration) -> Option<String> {
        self.shared.wait(patience, |record| {
            record.find(|told| match told {
                Told::Head { to, text } if *to == address && text.contains(words) => {
                    Some(text.clone())
                }
                _ => None,
            })
        })
    }

    /// Makes the peer forget our link address and ask for it; whether we answered.
    #[must_use]
    pub fn resolves(&self, host: IpAddr, patience: Duration) -> bool {
        self.forget(|told| matches!(told, Told::Advertised));
        self.order(&Order::Resolve { host });
        self.shared
            .wait(patience, |record| {
                record.find(|told| matches!(told, Told::Advertised).then_some(()))
            })
            .is_some()
    }

    /// How many connections of that address wait for their last acknowledgement.
    #[must_use]
    pub fn unfinished(&self, address: IpAddr) -> Option<usize> {
        self.forget(|told| matches!(told, Told::Unfinished(at, _) if *at == address));
        self.order(&Order::Finish { address });
        self.shared.wait(PATIENCE, |record| {
            record.find(|told| match told {
                Told::Unfinished(at, count) if *at == address => Some(*count),
                _ => None,
            })
        })
    }

    /// Connects to a port of ours; whether it was answered.
    #[must_use]
    pub fn dials(&self, host: IpAddr, port: u16) -> Option<bool> {
        self.forget(|told| matches!(told, Told::Dialled(to, at, _) if (*to, *at) == (host, port)));
        self.order(&Order::Dial { host, port });
        self.shared.wait(PATIENCE, |record| {
            record.find(|told| match told {
                Told::Dialled(to, at, answered) if (*to, *at) == (host, port) => Some(*answered),
                _ => None,
            })
        })
    }

    /// The process whose network namespace is the peer's.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// An address for whoever listens in a namespace without rules.
    #[must_use]
    pub fn beyond_rules(&self, six: bool) -> Beyond {
        Beyond {
            number: self.beyond.fetch_add(1, Ordering::SeqCst),
            six,
        }
    }

    /// Lays a wire from the network namespace of a process to the peer's, and says what `ip` has to be told there. Neither
    /// end is ever in this namespace.
    ///
    /// # Errors
    /// When there can be none.
    pub fn lay_beyond_rules(&self, pid: u32, to: Beyond) -> Result<Vec<Vec<String>>, PeerError> {
        let commands = to.lay(self.pid(), pid)?;
        self.forget(|told| matches!(told, Told::Joined));
        self.order(&Order::Join {
            commands: commands.there,
        });
        self.until("raise its second wire", |told| {
            matches!(told, Told::Joined).then_some(())
        })?;
        Ok(commands.here)
    }

    fn order(&self, order: &Order) {
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(input), Ok(mut line)) = (input.as_mut(), serde_json::to_string(order)) {
            line.push('\n');
            // A peer that is gone is noticed by what it does not say.
            let _ = input.write_all(line.as_bytes());
        }
    }

    fn forget(&self, which: impl Fn(&Told) -> bool) {
        self.shared.lock().rest.retain(|told| !which(told));
    }

    fn until(
        &self,
        what: &'static str,
        found: impl Fn(&Told) -> Option<()>,
    ) -> Result<(), PeerError> {
        let done = self.shared.wait(PATIENCE, |record| record.find(&found));
        done.ok_or_else(|| {
            let record = self.shared.lock();
            let said = record.find(|told| match told {
                Told::Trouble(text) => Some(text.clone()),
                _ => None,
            });
            PeerError::Silent(what, said.unwrap_or_else(|| "nothing".to_owned()))
        })
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, line: &str) {
        let told = serde_json::from_str(line).unwrap_or_else(|_| Told::Trouble(line.to_owned()));
        let mut record = self.lock();
        match told {
            Told::Arrived(arrival) => record.arrivals.entry(arrival.to).or_default().push(arrival),
            other => record.rest.push(other),
        }
        drop(record);
        self.changed.notify_all();
    }

    fn wait<T>(&self, patience: Duration, found: impl Fn(&Record) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + patience;
        let mut record = self.lock();
        loop {
            if let Some(value) = found(&record) {
                return Some(value);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || record.ended {
                return None;
            }
            let waited = self.changed.wait_timeout(record, left);
            record = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Record {
    fn find<T>(&self, found: impl Fn(&Told) -> Option<T>) -> Option<T> {
        self.rest.iter().rev().find_map(found)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.input
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The kernel takes a dead namespace apart in its own time; the wire is not to outlive this call.
        self.wire.cut();
    }
}
