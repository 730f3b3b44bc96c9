//! Attempts that use the wire to the outside peer.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use super::{HEARS, Run};
use crate::prove::case::{self, Case};
use crate::prove::identity::Identity;
use crate::prove::kind::{Kind, Must, Who};
use crate::prove::peer::PeerError;
use crate::prove::spawn::{self, Listener};
use crate::prove::task::{Outcome, Report, Task};
use crate::prove::verdict::{self, Control, Judged, Status};

/// How long the end of a connection may take to arrive.
const FINISHES: Duration = Duration::from_secs(4);

impl Run<'_> {
    pub(super) fn at_peer(&self, case: &Case) -> Judged {
        let (address, source) = match self.target(case) {
            Ok(target) => target,
            Err(error) => return (Status::CouldNotTell, error.to_string()),
        };
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
        if case.proof.kind == Kind::Ping && super::nothing(&report) {
            return (
                Status::NotApplicable,
                "there is no such program here".to_owned(),
            );
        }
        // The control goes the same way behind it: when it has arrived, so has all that was ahead of it.
        let control = self.control(case);
        verdict::at_peer(
            &report,
            seen(self) - before,
            Some(&control),
            case.proof.answer,
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
        let key = (case.proof.kind, case.six, case.port);
        let mut controls = self
            .controls
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let cell = std::sync::Arc::clone(controls.entry(key).or_default());
        drop(controls);
        cell.get_or_init(|| self.make_control(case)).clone()
    }

    fn make_control(&self, case: &Case) -> Control {
        if let Some(why) = &self.dead[usize::from(case.six)] {
            return Control {
                works: false,
                words: why.clone(),
            };
        }
        let kind = case.proof.kind;
        // Echo sockets may be closed to everybody; a raw one shows that echo requests arrive.
        let tried = if kind == Kind::Icmp { Kind::Raw } else { kind };
        let (address, source) = match self.fresh(case) {
            Ok(target) => target,
            Err(error) => {
                return Control {
                    works: false,
                    words: error.to_string(),
                };
            }
        };
        let task = Task {
            address: Some(address),
            source,
            interface: self.peer.interface(),
            port: case.port,
            ..Task::new(
                tried,
                if source.is_some() {
                    super::SPOOFED_MS
                } else {
                    super::PATIENCE_MS
                },
            )
        };
        let gate = case::keeping(self.subject.gate, tried);
        let report = spawn::attempt(Some(gate), &task);
        let works = self.peer.wait_for(address, HEARS);
        let heard = if works {
            "reached it"
        } else {
            "did not reach it"
        };
        Control {
            works,
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
                let guest = self.subject.scope == crate::prove::kind::OnlyIn::Guest;
                if guest {
                    let text =
                        format!("{saw}; control: the wire carries the gate's flows both ways");
                    return (Status::Holds, text);
                }
                // Nobody shuts a stranger in: one that listens is the control.
                match self.listens(Some(self.subject.stranger), case.six) {
                    Ok(true) => (
                        Status::Holds,
                        format!("{saw}; control: uid {} was", self.subject.stranger.uid),
                    ),
                    Ok(false) => (
                        Status::CouldNotTell,
                        format!("{saw}, but neither was the control"),
                    ),
                    Err(report) => (Status::CouldNotTell, report.words()),
                }
            }
        }
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
