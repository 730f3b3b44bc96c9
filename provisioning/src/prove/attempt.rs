//! The attempts themselves: what a process does that wants past the boundary. Each runs in a process of its own.

mod able;
mod bus;
mod local;
mod name_service;
mod namespace;
mod network;
mod processes;

use std::time::Instant;

use super::kind::Kind;
use super::task::{Outcome, Report, Task};

pub use local::{connects, groups_as_good_as_root, telling};
pub use name_service::task as ask_service;
pub use namespace::wait_inside;

/// What is sent, so that a peer that keeps what it gets shows whose it was.
pub const WORD: &[u8] = b"portcullis prove\n";

/// What is said where the kernel gives a user no namespace.
const NO_NAMESPACE: &str = "no such namespace could be made";

/// Makes one attempt, as whoever we are.
#[must_use]
pub fn run(task: &Task) -> Report {
    let began = Instant::now();
    let mut report = match namespace::enter(task.inside) {
        Ok(()) => attempt(task),
        // Where there is none to be had, there is nothing to try.
        Err(error) => Report {
            outcome: Outcome::Absent,
            detail: NO_NAMESPACE.to_owned(),
            ..Report::of_error(&error)
        },
    };
    report.ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    report
}

fn attempt(task: &Task) -> Report {
    match task.kind {
        Kind::Tcp
        | Kind::LinkLocal
        | Kind::SpoofedTcp
        | Kind::Finish
        | Kind::LoopbackTcp
        | Kind::FromGatePort
        | Kind::GatePort
        | Kind::GateAway => network::tcp(task),
        Kind::FastOpen => network::fast_open(task),
        Kind::Udp | Kind::SpoofedUdp | Kind::LoopbackUdp => network::udp(task),
        Kind::UdpLite => network::udp_lite(task),
        Kind::Dns => network::dns(task),
        Kind::Icmp | Kind::Raw => network::echo(task),
        Kind::Packet => network::packet(),
        Kind::Ping => local::ping(task),
        Kind::Inbound | Kind::Squat | Kind::SquatFull => network::listen(task),
        Kind::Netlink => local::netlink(task),
        Kind::ConnectPath => local::connect_paths(task),
        Kind::ControlSocket => local::control_socket(task),
        Kind::FileReadable => local::files(task, false),
        Kind::FileWritable => local::files(task, true),
        Kind::ProcessMemory => processes::inspect(task.number),
        Kind::Environment => local::environment(task),
        Kind::NewUidMap => namespace::map(task, "newuidmap", "uid_map"),
        Kind::NewGidMap => namespace::map(task, "newgidmap", "gid_map"),
        Kind::BecomeGate => local::become_user(task.number),
        Kind::Groups => local::groups(),
        Kind::Elevate => local::elevate(task),
        Kind::NameService => name_service::ask(task),
        Kind::Able => able::able(task),
        Kind::GateListed | Kind::GateUnlisted | Kind::GateHeaders => local::gate_request(task),
        Kind::Neighbour
        | Kind::Counted
        | Kind::ProcessEnvironment
        | Kind::SubordinateIds
        | Kind::NewPrivileges
        | Kind::CoreDump
        | Kind::InheritedSocket
        | Kind::GateNeighbour => Report::new(Outcome::Unable, "this is not for a process to try"),
    }
}
