//! The attempts themselves: what a process does that wants past the boundary. Each runs in a process of its own.

mod able;
mod account;
mod bus;
mod gate;
mod helpers;
mod later;
mod name_service;
mod namespace;
mod network;
mod paths;
mod processes;
mod scratch;

use std::time::Instant;

use super::kind::Kind;
use super::task::{Outcome, Report, Task};

pub use account::{groups_as_good_as_root, telling};
pub use name_service::task as ask_service;
pub use namespace::wait_inside;
pub use paths::connects;

/// What is sent, so that a peer that keeps what it gets shows whose it was.
pub const WORD: &[u8] = b"portcullis prove\n";

/// What is said where the kernel gives a user no namespace.
const NO_NAMESPACE: &str = "no such namespace could be made";

/// Makes one attempt, as whoever we are.
#[must_use]
pub fn run(task: &Task) -> Report {
    let began = Instant::now();
    let mut report = match namespace::enter(task.inside) {
        Ok(()) => told_aloud(task.kind, attempt(task)),
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

/// Whoever was let in and heard nothing was not told no: the answer
/// may come later, or the deed be done.
fn told_aloud(kind: Kind, report: Report) -> Report {
    match report.outcome {
        Outcome::TimedOut | Outcome::Sent if kind.is_answered_aloud() => Report {
            found: report.found,
            ..Report::new(Outcome::Unable, "asked, and no answer in time")
        },
        _ => report,
    }
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
        Kind::Ping => helpers::ping(task),
        Kind::Inbound | Kind::Squat | Kind::SquatFull => network::listen(task),
        Kind::Netlink => account::netlink(task),
        Kind::ConnectPath => paths::connect_paths(task),
        Kind::ControlSocket => gate::control_socket(task),
        Kind::FileReadable => paths::files(task, false),
        Kind::FileWritable => paths::files(task, true),
        Kind::ProcessMemory => processes::inspect(task.number),
        Kind::Environment => account::environment(task),
        Kind::NewUidMap => namespace::map(task, "newuidmap", "uid_map"),
        Kind::NewGidMap => namespace::map(task, "newgidmap", "gid_map"),
        Kind::BecomeGate => account::become_user(task.number),
        Kind::Groups => account::groups(),
        Kind::Elevate => helpers::elevate(task),
        Kind::Later => later::later(),
        Kind::NameService => name_service::ask(task),
        Kind::Able => able::able(task),
        Kind::OlderFlow | Kind::Reload | Kind::Forwarded => scratch::run(task),
        Kind::GateListed
        | Kind::GateUnlisted
        | Kind::GateHeaders
        | Kind::GateMethod
        | Kind::GateError => gate::gate_request(task),
        Kind::Neighbour
        | Kind::Counted
        | Kind::ProcessEnvironment
        | Kind::SubordinateIds
        | Kind::NewPrivileges
        | Kind::Capabilities
        | Kind::SetUserId
        | Kind::CoreDump
        | Kind::InheritedSocket
        | Kind::BootOrder
        | Kind::GatePlain
        | Kind::GateNeighbour => Report::new(Outcome::Unable, "this is not for a process to try"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixListener;

    use crate::prove::kind::Service;

    /// What comes of a question to somebody who takes it, and answers at once or too late.
    fn asked(
        task: impl FnOnce(std::path::PathBuf) -> Task,
        answer: Option<&'static [u8]>,
    ) -> Report {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            assert!(stream.read(&mut [0; 512]).unwrap() > 8);
            if let Some(answer) = answer {
                stream.write_all(answer).unwrap();
            }
            // Until whoever asked is gone.
            let _ = stream.read(&mut [0]);
        });
        let report = run(&task(path));
        served.join().unwrap();
        report
    }

    #[test]
    fn who_takes_a_question_and_is_late_has_not_refused_it() {
        let service = |service, patience| {
            move |path| Task {
                paths: vec![path],
                ..ask_service(service, patience)
            }
        };
        let gate = |kind, patience| {
            move |path| Task {
                paths: vec![path],
                names: vec!["GET http://a.test/".to_owned()],
                ..Task::new(kind, patience)
            }
        };
        for which in [
            Service::Varlink,
            Service::Nscd,
            Service::Avahi,
            Service::Bus,
        ] {
            let report = asked(service(which, 50), None);
            assert_eq!(report.outcome, Outcome::Unable, "{which:?} {report:?}");
        }
        for kind in [Kind::ControlSocket, Kind::GateListed, Kind::GateUnlisted] {
            let report = asked(gate(kind, 50), None);
            assert_eq!(report.outcome, Outcome::Unable, "{kind:?} {report:?}");
        }
        // Controls: an answer in time is one, of either kind.
        let answer = Some(&b"-15 Timeout reached\n"[..]);
        let report = asked(service(Service::Avahi, 60_000), answer);
        assert_eq!(report.outcome, Outcome::Granted, "{report:?}");
        let denied = Some(&b"{\"error\":\"org.varlink.service.PermissionDenied\"}\0"[..]);
        let report = asked(service(Service::Varlink, 60_000), denied);
        assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
    }

    #[test]
    fn silence_is_a_refusal_on_a_wire_alone() {
        for outcome in [Outcome::TimedOut, Outcome::Sent] {
            let silent = Report::new(outcome, "");
            assert_eq!(told_aloud(Kind::Udp, silent.clone()), silent);
            let local = told_aloud(Kind::NameService, silent);
            assert_eq!(local.outcome, Outcome::Unable);
        }
        let refused = Report::new(Outcome::Refused, "no");
        assert_eq!(told_aloud(Kind::NameService, refused.clone()), refused);
    }
}
