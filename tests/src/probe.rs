//! The hostile client: everything an agent could try to get a byte past the gate.
//!
//! Each attempt ends in one [`Report`], printed as one JSON line. `outcome` is what the kernel or
//! the peer said; `escaped` is whether the attempt reached something it should not have.

mod local;
mod network;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub use local::{abstract_sockets, inherited_descriptors, user_namespace};
pub use network::{dns, icmp, packet, raw, resolver, send, tcp, udp};

/// How one attempt ended.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Report {
    /// What was tried, e.g. `tcp4`, `userns-tcp4`, `inherited-fd`.
    pub attempt: String,
    /// Whom it was aimed at.
    pub target: String,
    /// How it ended.
    pub outcome: Outcome,
    /// The symbolic error, e.g. `ECONNREFUSED`, where the kernel gave one.
    pub errno: Option<String>,
    /// Duration in milliseconds.
    pub ms: u64,
    /// Whether something was reached.
    pub escaped: bool,
}

/// What the kernel or the peer said.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// A connection was established.
    Connected,
    /// The kernel gave an error.
    Failed,
    /// Nothing to try: no such descriptor, no such socket.
    Nothing,
    /// A socket or a namespace was granted.
    Opened,
    /// A peer answered.
    Replied,
    /// The kernel took the packet; no peer answered. The peer's own record tells whether it left.
    Sent,
    /// No answer in time.
    TimedOut,
}

impl Outcome {
    fn escaped(self) -> bool {
        match self {
            Self::Connected | Self::Opened | Self::Replied => true,
            Self::Failed | Self::Nothing | Self::Sent | Self::TimedOut => false,
        }
    }
}

/// What [`all`] aims at.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    /// Addresses of peers outside, v4 and v6.
    pub peers: Vec<IpAddr>,
    /// TCP port the peers listen on.
    pub tcp_port: u16,
    /// UDP port the peers echo on.
    pub udp_port: u16,
    /// Loopback ports other than the gate's.
    pub loopback: Vec<u16>,
    /// Patience for each attempt.
    pub patience: Duration,
}

/// Tries everything, in an order that leaves the process itself unchanged.
pub fn all(targets: &Targets) -> Vec<Report> {
    let mut reports = Vec::new();
    for &peer in &targets.peers {
        let at = |port| SocketAddr::new(peer, port);
        reports.push(tcp(at(targets.tcp_port), targets.patience));
        reports.push(udp(at(targets.udp_port), targets.patience));
        reports.push(dns(at(53), targets.patience));
        reports.push(icmp(peer, targets.patience));
        reports.push(raw(peer));
        reports.extend(user_namespace(at(targets.tcp_port), targets.patience));
    }
    reports.push(packet());
    for &port in &targets.loopback {
        for address in ["127.0.0.1", "::1"] {
            let Ok(address) = address.parse() else {
                continue;
            };
            let mut report = tcp(SocketAddr::new(address, port), targets.patience);
            report.attempt = format!("loopback-{}", report.attempt);
            reports.push(report);
        }
    }
    reports.extend(inherited_descriptors());
    reports.extend(abstract_sockets());
    reports
}

/// Runs one attempt and times it.
fn attempt(name: &str, target: String, run: impl FnOnce() -> io::Result<Outcome>) -> Report {
    let start = Instant::now();
    let (outcome, errno) = match run() {
        Ok(outcome) => (outcome, None),
        Err(error) => match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => (Outcome::TimedOut, None),
            _ => (Outcome::Failed, Some(symbol(&error))),
        },
    };
    let ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    Report {
        attempt: name.to_owned(),
        target,
        outcome,
        errno,
        ms,
        escaped: outcome.escaped(),
    }
}

fn symbol(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(code) => format!("{:?}", nix::errno::Errno::from_raw(code)),
        None => error.to_string(),
    }
}

fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { 4 } else { 6 }
}
