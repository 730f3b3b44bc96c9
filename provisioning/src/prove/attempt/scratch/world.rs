//! The small world: this namespace, an outside and a container, and what an agent does there.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nftables::boundary;
use nftables::netlink;
use nftables::ruleset::Ruleset;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt,
};
use socket2::{Domain, Socket, Type};

use super::place::{Place, ip, lay, made_by};
use crate::prove::attempt::WORD;
use crate::prove::peer::frames::{self, Seen};
use crate::prove::six;

/// Addresses by protocol, with the length of their networks.
static HERE: [&str; 2] = ["192.0.2.1/24", "2001:db8:0:5c::1/64"];
static OUTSIDE: [&str; 2] = ["192.0.2.2/24", "2001:db8:0:5c::2/64"];
static INNER: [&str; 2] = ["198.51.100.1/24", "2001:db8:0:5d::1/64"];
static CONTAINER: [&str; 2] = ["198.51.100.2/24", "2001:db8:0:5d::2/64"];
/// Where the agent aims.
const PORT: u16 = 4243;
/// Where the gate's user sends what shows that all that was ahead of it has arrived.
const GATE_PORT: u16 = 4244;
/// How often the rules are replaced under a sending agent.
const ROUNDS: usize = 25;
/// Far more than any step takes.
const PATIENCE: Duration = Duration::from_secs(10);
/// After that long nothing of what was sent is still on its way.
const QUIET: Duration = Duration::from_millis(100);
const BUFFER: usize = 8 << 20;

pub(super) struct World {
    ruleset: Ruleset,
    agent: u32,
    gate: u32,
    /// One, or two where this machine has IPv6.
    pub(super) families: usize,
    outside: Place,
    record: OwnedFd,
    /// Whoever is dialled outside.
    _listeners: Vec<Socket>,
}

impl World {
    pub(super) fn make(ruleset: Ruleset, agent: u32, gate: u32) -> Result<Self, String> {
        let families = if six::is_off().is_ok() { 1 } else { 2 };
        let outside = Place::new()?;
        lay(&outside, "out", &HERE[..families], &OUTSIDE[..families])?;
        let made = outside.run(move || Ok((record()?, listeners(families)?)))?;
        let (record, listeners) =
            made.map_err(|error: io::Error| format!("the outside end: {error}"))?;
        Ok(Self {
            ruleset,
            agent,
            gate,
            families,
            outside,
            record,
            _listeners: listeners,
        })
    }

    fn load(&self) -> Result<(), String> {
        let loaded = boundary::load(&self.ruleset);
        loaded
            .map(drop)
            .map_err(|error| format!("the rules could not be loaded: {error}"))
    }

    fn targets(&self) -> Vec<SocketAddr> {
        let targets = OUTSIDE.iter().take(self.families);
        targets
            .map(|address| SocketAddr::new(bare(address), PORT))
            .collect()
    }

    /// Packets that arrived outside since this was asked last: how many, and whether one of the gate's user was among them.
    fn arrived(&self) -> (usize, bool) {
        let mut packet = [0; 2048];
        let (mut agents, mut gates) = (0, false);
        // It ends with the error that there is no more.
        while let Ok(length) = recv(self.record.as_raw_fd(), &mut packet, MsgFlags::MSG_DONTWAIT) {
            if let Some(Seen::Arrival(arrival)) = frames::read(&packet[..length])
                && OUTSIDE.iter().any(|own| bare(own) == arrival.to)
            {
                if arrival.port == GATE_PORT {
                    gates = true;
                } else {
                    agents += 1;
                }
            }
        }
        (agents, gates)
    }

    /// Waits until nothing arrives any more.
    fn settle(&self) {
        let mut last = Instant::now();
        while last.elapsed() < QUIET {
            if self.arrived().0 > 0 {
                last = Instant::now();
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// What an agent does arrives: the control, before there are rules or when they are gone.
    fn reaches(&self, what: &str, again: impl Fn() -> io::Result<()>) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        let failed = |error: io::Error| format!("{what} failed without rules: {error}");
        while Instant::now() < deadline {
            again().map_err(failed)?;
            let sent = Instant::now();
            while sent.elapsed() < QUIET {
                if self.arrived().0 > 0 {
                    return Ok(());
                }
                thread::sleep(Duration::from_millis(1));
            }
        }
        Err(format!("{what} did not arrive without rules"))
    }

    /// How many packets of the agent's arrived, once what the gate's user sends behind them has.
    fn passed(&self) -> Result<usize, String> {
        let mut passed = 0;
        for target in self.targets() {
            let to = SocketAddr::new(target.ip(), GATE_PORT);
            let socket = made_by(self.gate, || datagrams(to)).map_err(|error| error.to_string())?;
            let deadline = Instant::now() + PATIENCE;
            loop {
                // Whether it was let out shows where it arrives.
                let sent = socket.send_to(WORD, &to.into());
                thread::sleep(Duration::from_millis(20));
                let (agents, gates) = self.arrived();
                passed += agents;
                if gates {
                    break;
                }
                if Instant::now() > deadline {
                    return Err(format!("the gate's user did not reach {to}: {sent:?}"));
                }
            }
        }
        Ok(passed)
    }

    /// Flows that were opened without rules, and are used when there are some.
    pub(super) fn older_flow(&self) -> Result<usize, String> {
        let mut flows = Vec::new();
        for target in self.targets() {
            for kind in [Type::STREAM, Type::DGRAM] {
                let what = format!("a flow to {target}");
                let failed = |error: io::Error| format!("{what}: {error}");
                let flow = made_by(self.agent, || {
                    Socket::new(Domain::for_address(target), kind, None)
                });
                let flow = flow.map_err(failed)?;
                flow.connect_timeout(&target.into(), PATIENCE)
                    .map_err(failed)?;
                self.settle();
                self.reaches(&what, || flow.send(WORD).map(drop))?;
                flows.push(flow);
            }
        }
        self.settle();
        self.load()?;
        for flow in &flows {
            // That it is refused, or cut, is what has to come of it.
            let _ = flow.send(WORD);
        }
        self.passed()
    }

    /// An agent that sends and dials as fast as it can, while the rules are replaced.
    pub(super) fn reload(&self) -> Result<usize, String> {
        let targets = self.targets();
        self.load()?;
        let (ended, count) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            let sender = scope.spawn(|| {
                made_by(self.agent, || {
                    while !ended.load(Ordering::SeqCst) {
                        targets.iter().try_for_each(|to| spin(*to))?;
                        count.fetch_add(1, Ordering::SeqCst);
                        thread::yield_now();
                    }
                    Ok(())
                })
            });
            let replaced = (0..ROUNDS).try_for_each(|_| self.load());
            let passed = replaced.and_then(|()| self.passed());
            let rounds = count.load(Ordering::SeqCst);
            // The same sender: without rules all of it arrives.
            let control = netlink::remove(&self.ruleset.table)
                .map_err(|error| error.to_string())
                .and_then(|_| self.reaches("what it sends", || Ok(())));
            ended.store(true, Ordering::SeqCst);
            let sent = sender.join().map_err(|_| "the sender broke off")?;
            sent.map_err(|error| format!("the sender: {error}"))?;
            control?;
            let passed = passed?;
            if passed == 0 && rounds < ROUNDS {
                return Err(format!(
                    "the agent sent {rounds} times in {ROUNDS} replacements"
                ));
            }
            Ok(passed)
        })
    }

    /// A container of the agent's behind this machine, which passes its packets on.
    pub(super) fn forwarded(&self) -> Result<usize, String> {
        let container = Place::new()?;
        let families = self.families;
        lay(&container, "in", &INNER[..families], &CONTAINER[..families])?;
        for (there, ways) in [
            (&container, [("default", INNER[0]), ("default", INNER[1])]),
            (
                &self.outside,
                [
                    ("198.51.100.0/24", HERE[0]),
                    ("2001:db8:0:5d::/64", HERE[1]),
                ],
            ),
        ] {
            for (net, via) in ways.into_iter().take(families) {
                let via = bare(via).to_string();
                there.run(move || ip(&["route", "add", net, "via", &via]))??;
            }
        }
        for setting in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"]
            .iter()
            .take(families)
        {
            fs::write(format!("/proc/sys/net/{setting}"), "1")
                .map_err(|error| format!("{setting}: {error}"))?;
        }
        let agent = self.agent;
        let send = |to: SocketAddr| {
            let sent = container.run(move || made_by(agent, || spin(to)));
            sent.map_err(io::Error::other)?
        };
        for to in self.targets() {
            self.reaches("what a container sends", || send(to))?;
        }
        self.settle();
        self.load()?;
        // What was on its way when the rules came, as the answer to an answer is, has arrived by then.
        self.settle();
        for to in self.targets() {
            send(to).map_err(|error| error.to_string())?;
        }
        self.passed()
    }
}

/// A datagram and a dial, whatever becomes of them.
fn spin(to: SocketAddr) -> io::Result<()> {
    let _ = datagrams(to)?.send_to(WORD, &to.into());
    let dial = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    dial.set_nonblocking(true)?;
    let _ = dial.connect(&to.into());
    Ok(())
}

fn datagrams(to: SocketAddr) -> io::Result<Socket> {
    Socket::new(Domain::for_address(to), Type::DGRAM, None)
}

/// The address without the length of its network.
fn bare(address: &str) -> IpAddr {
    let text = address.split('/').next().unwrap_or_default();
    text.parse().unwrap_or(IpAddr::from([0, 0, 0, 0]))
}

fn record() -> io::Result<OwnedFd> {
    let socket = socket(
        AddressFamily::Packet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::EthAll,
    )?;
    // More room than the default is not needed to be right.
    let _ = setsockopt(&socket, sockopt::RcvBufForce, &BUFFER);
    Ok(socket)
}

/// Nobody reads what they get: that it came is recorded.
fn listeners(families: usize) -> io::Result<Vec<Socket>> {
    let mut all = Vec::new();
    for address in OUTSIDE.iter().take(families) {
        for port in [PORT, GATE_PORT] {
            let at = SocketAddr::new(bare(address), port);
            for kind in [Type::STREAM, Type::DGRAM] {
                let socket = Socket::new(Domain::for_address(at), kind, None)?;
                socket.bind(&at.into())?;
                if kind == Type::STREAM {
                    socket.listen(128)?;
                }
                all.push(socket);
            }
        }
    }
    Ok(all)
}
