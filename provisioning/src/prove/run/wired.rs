//! Attempts that use the wire to the outside peer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::thread;
use std::time::{Duration, Instant};

use super::{ControlKey, HEARS, Run};
use crate::prove::case::{self, Case};
use crate::prove::identity::Identity;
use crate::prove::kind::{Inside, Kind, Must, Who};
use crate::prove::peer::PeerError;
use crate::prove::spawn::{self, Listener};
use crate::prove::task::{Outcome, Report, Task};
use crate::prove::verdict::{self, Control, Judged, Status};

/// How long the end of a connection may take to arrive.
const FINISHES: Duration = Duration::from_secs(4);

/// A port of a namespace that nobody else is in.
const BARE_PORT: u16 = 4242;

impl Run<'_> {
    pub(super) fn at_peer(&self, case: &Case) -> Judged {
        let (address, source) = match self.target(case) {
            Ok(target) => target,
            Err(error) => return (Status::CouldNotTell, error.to_string()),
        };
        let uid = case.identity.map_or(0, |identity| identity.uid);
        let exceptions = &self.subject.excepted;
        if case.proof.who == Who::Excepted
            && exceptions
                .iter()
                .any(|exception| exception.opens(uid, address, case.port))
        {
            return (
                Status::NotApplicable,
                "an exception names this very place".to_owned(),
            );
        }
        let seen = |peer: &Self| {
            let of = |address: IpAddr| peer.peer.arrived(address);
            of(address) + source.map_or(0, of)
        };
        let before = seen(self);
        let task = Task {
            address: Some(address),
            source,
            interface: self.peer.interface(),
            ..self.task(case)
        };
        let report = spawn::attempt(case.identity, &task);
        if case.proof.must == Must::Succeed {
            return self.reached(case, &report, address);
        }
        // The control goes the same way behind it: when it has arrived, so has all that was ahead of it.
        let control = self.control(case);
        let kind = case.proof.kind;
        let tcp = matches!(
            kind,
            Kind::Tcp | Kind::FastOpen | Kind::LinkLocal | Kind::SpoofedTcp
        );
        verdict::at_peer(
            &report,
            seen(self) - before,
            Some(&control),
            case.proof.answer,
            self.subject.led.takes(tcp, case.port),
        )
    }

    fn reached(&self, case: &Case, report: &Report, address: IpAddr) -> Judged {
        let dead = self.dead[usize::from(case.six)].as_ref();
        if let Some(why) = dead.filter(|_| case.proof.who == Who::Gate) {
            return (Status::Broken, format!("at first {why}"));
        }
        let heard = self.peer.wait_for(address, HEARS);
        let silent = matches!(
            case.proof.kind,
            Kind::Raw | Kind::SpoofedTcp | Kind::SpoofedUdp
        );
        if heard && (report.outcome == Outcome::Answered || silent) {
            return (Status::Holds, report.words());
        }
        let heard = if heard {
            "the outside peer heard it"
        } else {
            "nothing reached the outside peer"
        };
        (Status::Broken, format!("{}; {heard}", report.words()))
    }

    /// Where a case aims, listeners and all.
    fn target(&self, case: &Case) -> Result<(IpAddr, Option<IpAddr>), PeerError> {
        let mut targets = self
            .targets
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(target) = targets.get(&case.id) {
            return Ok(*target);
        }
        let target = self.fresh(case)?;
        targets.insert(case.id.clone(), target);
        Ok(target)
    }

    fn fresh(&self, case: &Case) -> Result<(IpAddr, Option<IpAddr>), PeerError> {
        let kind = case.proof.kind;
        let address = if kind == Kind::LinkLocal {
            self.peer.link_local()?
        } else {
            self.peer.address(case.six)?
        };
        let spoofed = matches!(kind, Kind::SpoofedTcp | Kind::SpoofedUdp);
        let source = if spoofed {
            Some(self.peer.address(case.six)?)
        } else {
            None
        };
        match kind {
            Kind::Tcp | Kind::FastOpen | Kind::LinkLocal | Kind::SpoofedTcp | Kind::Finish => {
                self.peer.listen(address, &[case.port], &[], &[])?;
            }
            Kind::Udp | Kind::SpoofedUdp | Kind::Dns => {
                self.peer.listen(address, &[], &[case.port], &[])?;
            }
            // Judged by the record alone.
            _ => {}
        }
        Ok((address, source))
    }

    /// The same attempt by the gate's user, which the boundary lets out. One stands for all attempts of its kind.
    fn control(&self, case: &Case) -> Control {
        // A namespace without a way out has none for the gate's user either: the control of that is outside of it.
        let inside = case
            .proof
            .inside
            .filter(|inside| *inside == Inside::UserNamespace);
        let key = (case.proof.kind, case.six, case.port, inside.is_some());
        self.once(key, || self.make_control(case, inside))
    }

    /// The control of that key, made by whoever needs it first in a round.
    pub(super) fn once(&self, key: ControlKey, make: impl FnOnce() -> Control) -> Control {
        let mut controls = self
            .controls
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let cell = std::sync::Arc::clone(controls.entry(key).or_default());
        drop(controls);
        cell.get_or_init(make).clone()
    }

    fn make_control(&self, case: &Case, inside: Option<Inside>) -> Control {
        if let Some(why) = &self.dead[usize::from(case.six)] {
            return Control::new(false, why.clone());
        }
        let kind = case.proof.kind;
        if kind == Kind::Ping {
            return ping_without_rules(case);
        }
        let (address, source) = match self.fresh(case) {
            Ok(target) => target,
            Err(error) => return Control::new(false, error.to_string()),
        };
        let patience = if source.is_some() {
            super::SPOOFED_MS
        } else {
            super::PATIENCE_MS
        };
        let task = Task {
            address: Some(address),
            source,
            inside,
            interface: self.peer.interface(),
            port: case.port,
            ..Task::new(kind, patience)
        };
        let gate = case::keeping(self.subject.gate, kind);
        let report = spawn::attempt(Some(gate), &task);
        // What nobody can try: no such protocol or namespace, and echo sockets that are closed to everybody.
        let closed = kind == Kind::Icmp && report.errno.as_deref() == Some("EACCES");
        let lacks = closed || report.outcome == Outcome::Absent;
        let works = !lacks && self.peer.wait_for(address, HEARS);
        let heard = if works {
            "reached it"
        } else {
            "did not reach it"
        };
        Control {
            works,
            lacks,
            words: format!("uid {} {heard} ({})", gate.uid, report.words()),
        }
    }

    /// A user listens; the peer connects.
    pub(super) fn inbound(&self, case: &Case) -> Judged {
        let answered = match self.listens(case.identity, case.six) {
            Ok(answered) => answered,
            Err(report) => return (Status::CouldNotTell, report.words()),
        };
        let saw = if answered {
            "the outside peer was answered"
        } else {
            "the outside peer was not answered"
        };
        match (case.proof.must, answered) {
            (Must::Fail, true) | (Must::Succeed, false) => (Status::Broken, saw.to_owned()),
            (Must::Succeed, true) => (Status::Holds, saw.to_owned()),
            (Must::Fail, false) => {
                if let Some(why) = &self.dead[usize::from(case.six)] {
                    return (Status::CouldNotTell, format!("{saw}, but {why}"));
                }
                let control = self.listens_without_rules(case.identity, case.six);
                verdict::granted(
                    &Report::new(Outcome::TimedOut, saw),
                    Must::Fail,
                    Some(&control),
                )
            }
        }
    }

    /// The same user, the same listener and the same peer, where no rule stands: there the peer gets in.
    fn listens_without_rules(&self, identity: Option<Identity>, six: bool) -> Control {
        let beyond = self.peer.beyond_rules(six);
        let (host, port) = (beyond.host(), BARE_PORT);
        let task = Task {
            address: Some(host),
            port,
            ..Task::new(Kind::Inbound, super::LONG_PATIENCE_MS)
        };
        let who = "the same listener in a network namespace without rules";
        let lay = |pid| self.peer.lay_beyond_rules(pid, beyond);
        let listener = match Listener::start_without_rules(identity, &task, lay) {
            Ok(listener) => listener,
            Err(report) => return Control::new(false, format!("{who}: {}", report.words())),
        };
        let answered = self.peer.dials(host, port) == Some(true);
        drop(listener);
        let heard = if answered { "was" } else { "was not" };
        Control::new(answered, format!("{who} {heard} reached"))
    }

    fn listens(&self, identity: Option<Identity>, six: bool) -> Result<bool, Report> {
        let Some(host) = self.peer.host(six) else {
            return Err(Report::new(
                Outcome::Unable,
                "we have no address on the wire",
            ));
        };
        let port = super::loopback::free_port(host).map_err(|error| Report::of_error(&error))?;
        let task = Task {
            address: Some(host),
            port,
            ..Task::new(Kind::Inbound, super::LONG_PATIENCE_MS)
        };
        let _listener = Listener::start(identity, &task)?;
        self.peer
            .dials(host, port)
            .ok_or_else(|| Report::new(Outcome::Unable, "the outside peer did not say"))
    }

    /// The peer asks for our link address; what answers is the kernel itself.
    pub(super) fn neighbour(&self, case: &Case) -> Judged {
        let Some(host) = self.peer.host(case.six).filter(|_| case.six) else {
            return (
                Status::NotApplicable,
                "IPv4 finds neighbours below the packet filter".to_owned(),
            );
        };
        let found = self.peer.resolves(host, HEARS);
        let saw = if found {
            "this machine answered"
        } else {
            "this machine did not answer"
        };
        verdict::granted(
            &Report::new(
                if found {
                    Outcome::Answered
                } else {
                    Outcome::TimedOut
                },
                saw,
            ),
            case.proof.must,
            None,
        )
    }

    /// A connection, closed on both sides: the last acknowledgement is the kernel's own, without a user.
    pub(super) fn finish(&self, case: &Case) -> Judged {
        let address = match self.target(case) {
            Ok((address, _)) => address,
            Err(error) => return (Status::CouldNotTell, error.to_string()),
        };
        let task = Task {
            address: Some(address),
            ..self.task(case)
        };
        let report = spawn::attempt(case.identity, &task);
        if report.outcome != Outcome::Answered {
            return verdict::granted(&report, case.proof.must, None);
        }
        let deadline = Instant::now() + FINISHES;
        loop {
            match self.peer.unfinished(address) {
                Some(0) => {
                    return (
                        Status::Holds,
                        "the outside peer heard the end of it".to_owned(),
                    );
                }
                None => {
                    return (
                        Status::CouldNotTell,
                        "the outside peer did not say".to_owned(),
                    );
                }
                Some(_) if Instant::now() > deadline => {
                    let text = "the outside peer still waits for the last acknowledgement";
                    return (Status::Broken, text.to_owned());
                }
                Some(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

/// The same user and the same program where there are no rules: whose rights it has is its own matter, and in scope `guest`
/// nobody else's would get out.
fn ping_without_rules(case: &Case) -> Control {
    let address: IpAddr = if case.six {
        Ipv6Addr::LOCALHOST.into()
    } else {
        Ipv4Addr::LOCALHOST.into()
    };
    let task = Task {
        address: Some(address),
        ..Task::new(Kind::Ping, super::LONG_PATIENCE_MS)
    };
    let report = spawn::attempt_without_rules(case.identity, &task);
    Control::by("the same where there are no rules", &report)
}
