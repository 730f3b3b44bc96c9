//! This machine's own loopback: other services, the gate's port, and who answers there.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::Run;
use crate::prove::case::Case;
use crate::prove::identity::Identity;
use crate::prove::kind::{Answer, Kind, Must};
use crate::prove::spawn::{self, Listener};
use crate::prove::task::{Outcome, Report, Task};
use crate::prove::verdict::{self, Control, Judged, Status};

/// Loopback of a protocol.
fn loopback(six: bool) -> IpAddr {
    if six {
        Ipv6Addr::LOCALHOST.into()
    } else {
        Ipv4Addr::LOCALHOST.into()
    }
}

/// A TCP port that nobody listens on at that address.
pub(super) fn free_port(address: IpAddr) -> io::Result<u16> {
    Ok(TcpListener::bind((address, 0))?.local_addr()?.port())
}

/// A service of root's on loopback that counts who reaches it.
struct Service {
    port: u16,
    reached: Arc<AtomicUsize>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    fn start(six: bool, datagrams: bool) -> io::Result<Self> {
        let domain = if six { Domain::IPV6 } else { Domain::IPV4 };
        let kind = if datagrams { Type::DGRAM } else { Type::STREAM };
        let socket = Socket::new(domain, kind, None)?;
        socket.bind(&std::net::SocketAddr::new(loopback(six), 0).into())?;
        // So that the thread sees when it is over.
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        if !datagrams {
            socket.listen(16)?;
        }
        let local = socket.local_addr()?.as_socket();
        let port = local.map_or(0, |address| address.port());
        let (reached, ended) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (count, over) = (Arc::clone(&reached), Arc::clone(&ended));
        let thread = thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                // Counted before it is answered: who was answered may look at the count at once.
                let came = || {
                    count.fetch_add(1, Ordering::SeqCst);
                };
                // Nobody came in the meantime, or whoever came is gone: on to the next.
                let _ = if datagrams {
                    echo_datagram(&socket, came)
                } else {
                    echo_stream(&socket, came)
                };
            }
        });
        Ok(Self {
            port,
            reached,
            ended,
            thread: Some(thread),
        })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn echo_datagram(socket: &Socket, came: impl Fn()) -> io::Result<()> {
    let mut buffer = [std::mem::MaybeUninit::uninit(); 512];
    let (_, from) = socket.recv_from(&mut buffer)?;
    came();
    // That it came is what counts; the answer tells a control so.
    let _ = socket.send_to(crate::prove::attempt::WORD, &from);
    Ok(())
}

fn echo_stream(socket: &Socket, came: impl Fn()) -> io::Result<()> {
    let (mut stream, _) = socket.accept()?;
    came();
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut buffer = [0; 64];
    if let Ok(length) = stream.read(&mut buffer) {
        // As above.
        let _ = stream.write_all(&buffer[..length]);
    }
    Ok(())
}

impl Run<'_> {
    pub(super) fn loopback(&self, case: &Case) -> Judged {
        let patience = self.task(case).patience_ms;
        let (report, reached) = match self.serve(case, case.identity, patience) {
            Ok(seen) => seen,
            Err(error) => {
                return (
                    Status::CouldNotTell,
                    format!("no service could be started: {error}"),
                );
            }
        };
        if case.proof.must == Must::Succeed {
            return verdict::granted(&report, Must::Succeed, None);
        }
        if report.errno.as_deref() == Some("EADDRINUSE") {
            return (
                Status::NotApplicable,
                "somebody listens at the gate's port".to_owned(),
            );
        }
        if reached > 0 {
            return (
                Status::Broken,
                format!("{}; the service was reached", report.words()),
            );
        }
        let control = match self.serve(case, Some(self.subject.gate), super::LONG_PATIENCE_MS) {
            Ok((report, reached)) => {
                let words = format!("uid {}: {}", self.subject.gate.uid, report.words());
                Control::new(reached > 0, words)
            }
            Err(error) => Control::new(false, error.to_string()),
        };
        verdict::granted(&report, Must::Fail, Some(&control))
    }

    fn serve(
        &self,
        case: &Case,
        identity: Option<Identity>,
        patience_ms: u64,
    ) -> io::Result<(Report, usize)> {
        let from_gate = case.proof.kind == Kind::FromGatePort;
        let service = Service::start(case.six, case.proof.kind == Kind::LoopbackUdp)?;
        let task = Task {
            address: Some(loopback(case.six)),
            port: service.port,
            source: from_gate.then(|| loopback(case.six)),
            source_port: if from_gate { self.subject.gate_port } else { 0 },
            patience_ms,
            ..self.task(case)
        };
        let report = spawn::attempt(identity, &task);
        Ok((report, service.reached.load(Ordering::SeqCst)))
    }

    fn to_gate(&self, case: &Case) -> Task {
        Task {
            kind: Kind::GatePort,
            address: Some(loopback(case.six)),
            port: self.subject.gate_port,
            ..self.task(case)
        }
    }

    /// Somebody listens at the gate's port; `Err` when the port is taken, by the gate or another.
    fn stand_in(
        &self,
        kind: Kind,
        identity: Option<Identity>,
        six: bool,
    ) -> Result<Listener, Report> {
        let task = Task {
            address: Some(loopback(six)),
            port: self.subject.gate_port,
            ..Task::new(kind, super::LONG_PATIENCE_MS)
        };
        Listener::start(identity, &task)
    }

    /// The gate's port is reached. Where the gate itself does not listen, its user does for the moment.
    pub(super) fn gate_port(&self, case: &Case) -> Judged {
        let listener = self.stand_in(Kind::Squat, Some(self.subject.gate), case.six);
        let report = spawn::attempt(case.identity, &self.to_gate(case));
        let (status, mut saw) = verdict::granted(&report, case.proof.must, None);
        if listener.is_ok() {
            saw.push_str(" by a listener of the gate's user");
        }
        (status, saw)
    }

    /// While nobody listens there, callers hear it at once.
    pub(super) fn gate_away(&self, case: &Case) -> Judged {
        match self.stand_in(Kind::Squat, Some(self.subject.gate), case.six) {
            // It was free; it is again once this is dropped.
            Ok(listener) => drop(listener),
            Err(_) => return (Status::NotApplicable, "somebody listens there".to_owned()),
        }
        let report = spawn::attempt(case.identity, &self.to_gate(case));
        let told = report.errno.as_deref() == Some("ECONNREFUSED");
        if case.proof.answer == Some(Answer::Reset) && !told {
            return (
                Status::Broken,
                format!("{}: the caller did not hear it at once", report.words()),
            );
        }
        let listener = self.stand_in(Kind::Squat, Some(self.subject.gate), case.six);
        let control = match listener {
            Ok(_listener) => {
                let report = spawn::attempt(case.identity, &self.to_gate(case));
                Control::by("while the gate's user listens", &report)
            }
            Err(report) => Control::new(false, report.words()),
        };
        verdict::granted(&report, case.proof.must, Some(&control))
    }

    /// Somebody who is not the gate listens at its port; an agent connects, and must not be answered.
    pub(super) fn squat(&self, case: &Case) -> Judged {
        let client = Case {
            identity: Some(self.subject.agent),
            ..case.clone()
        };
        let squatter = match self.stand_in(case.proof.kind, case.identity, case.six) {
            Ok(listener) => listener,
            Err(report) if report.outcome == Outcome::Refused => {
                return self.could_not_listen(&client, &report);
            }
            Err(report) => return (Status::CouldNotTell, report.words()),
        };
        let report = spawn::attempt(client.identity, &self.to_gate(&client));
        drop(squatter);
        let control = match self.stand_in(Kind::Squat, Some(self.subject.gate), case.six) {
            Ok(_listener) => {
                let report = spawn::attempt(client.identity, &self.to_gate(&client));
                Control::by("the gate's user in the same place", &report)
            }
            Err(report) => Control::new(false, report.words()),
        };
        verdict::granted(&report, case.proof.must, Some(&control))
    }

    /// The place is taken, and whoever has it answers; or it is closed to that user, and not to the gate's.
    fn could_not_listen(&self, client: &Case, refusal: &Report) -> Judged {
        let taken = refusal.errno.as_deref() == Some("EADDRINUSE");
        let listener = self.stand_in(Kind::Squat, Some(self.subject.gate), client.six);
        let report = spawn::attempt(client.identity, &self.to_gate(client));
        let who = match listener {
            Ok(_) if taken => {
                return (Status::CouldNotTell, "it was taken for a moment".to_owned());
            }
            Ok(_) => "the gate's user listens there",
            Err(_) => "somebody answers there already",
        };
        verdict::granted(refusal, Must::Fail, Some(&Control::by(who, &report)))
    }
}
