//! A whole run by root: attempts side by side, each beside its control, judged by what the outside peer saw.

mod boot;
mod gate;
mod local;
mod look;
mod loopback;
mod names;
mod seen;
mod sentinel;
mod wired;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use nftables::counters::Counters;

use super::case::{self, Case};
use super::gate_run::GateRun;
use super::kind::{Kind, Must, Who};
use super::list::List;
use super::peer::{Peer, PeerError};
use super::six;
use super::spawn;
use super::subject::Subject;
use super::task::{Outcome, Task};
use super::verdict::{Control, Judged, Status, Verdict};

use sentinel::Unable;

/// How long an attempt is given that silence may refuse: the outside peer's record judges it.
const PATIENCE_MS: u64 = 1500;
/// The same where no answer can come to us at all.
const SPOOFED_MS: u64 = 300;
/// How long what is answered in any case may take on a busy machine: what must succeed, and what is refused aloud.
const LONG_PATIENCE_MS: u64 = 10_000;
/// Attempts side by side.
const WORKERS: usize = 8;

/// Which control stands for an attempt: its kind, protocol and port, and whether it comes from a user namespace.
pub(super) type ControlKey = (Kind, bool, u16, bool);

/// One run.
#[derive(Debug)]
pub struct Run<'a> {
    subject: &'a Subject,
    peer: Peer,
    cases: Vec<Case>,
    gate_run: Result<GateRun, String>,
    /// Each is made once in a round, by whoever needs it first; the others wait for it.
    controls: Mutex<HashMap<ControlKey, Arc<OnceLock<Control>>>>,
    /// Where each case aims, so that a second round aims there again: target, and the source it claims.
    targets: Mutex<HashMap<String, (IpAddr, Option<IpAddr>)>>,
    before: Option<Counters>,
    /// Why the wire carries nothing, per protocol, if it does not.
    dead: [Option<String>; 2],
}

impl<'a> Run<'a> {
    /// Makes the outside peer and opens a run at the gate, if there is one.
    ///
    /// # Errors
    /// When there can be no outside peer.
    pub fn prepare(subject: &'a Subject, list: &List) -> Result<Self, PeerError> {
        let peer = Peer::start()?;
        let mut cases = case::unfold(&list.proofs, subject);
        cases.extend(case::missing(&cases, &[Kind::Tcp], Some(subject.agent)));
        let wants_gate = cases.iter().any(|case| {
            matches!(
                case.proof.kind,
                Kind::GateListed
                    | Kind::GateUnlisted
                    | Kind::GateHeaders
                    | Kind::GateMethod
                    | Kind::GateError
                    | Kind::GatePlain
            )
        });
        let gate_run = match &subject.instance {
            Some(instance) if wants_gate => {
                let at = peer.address(false)?;
                peer.listen(at, &[], &[], &[super::gate_run::PORT])?;
                GateRun::open(instance, subject.agent.uid, at)
            }
            _ => Err("no instance of Portcullis is here".to_owned()),
        };
        let mut run = Self {
            subject,
            peer,
            cases,
            gate_run,
            controls: Mutex::default(),
            targets: Mutex::default(),
            before: None,
            dead: [None, None],
        };
        run.warm_up()?;
        run.before = run.counters();
        Ok(run)
    }

    /// Every proof once. With the gate down, those that are meant for it.
    #[must_use]
    pub fn round(&self, gate_down: bool) -> Vec<Verdict> {
        let chosen: Vec<&Case> = self
            .cases
            .iter()
            .filter(|case| !gate_down || case.proof.without_gate && !needs_gate(case.proof.kind))
            .collect();
        // What worked before may not work any more.
        self.controls
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clear();
        let (sentinels, unable) = self.sentinels(&chosen, gate_down);
        let slots: Vec<Mutex<Option<Verdict>>> = chosen.iter().map(|_| Mutex::new(None)).collect();
        // What shares the gate's port, or counts what the others did, comes after them, one by one.
        let (late, early): (Vec<usize>, Vec<usize>) =
            (0..chosen.len()).partition(|index| is_late(chosen[*index].proof.kind));
        let work = |index: usize| {
            let verdict = self.verdict(chosen[index], &unable, gate_down);
            if let Ok(mut slot) = slots[index].lock() {
                *slot = Some(verdict);
            }
        };
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..WORKERS.min(early.len()) {
                scope.spawn(|| {
                    while let Some(index) = early.get(next.fetch_add(1, Ordering::SeqCst)) {
                        work(*index);
                    }
                });
            }
        });
        // Each protocol has a port of its own.
        let (six, four): (Vec<usize>, Vec<usize>) =
            late.into_iter().partition(|index| chosen[*index].six);
        thread::scope(|scope| {
            scope.spawn(|| six.into_iter().for_each(work));
            four.into_iter().for_each(work);
        });
        let verdict = |slot: Mutex<Option<Verdict>>| slot.into_inner().ok().flatten();
        let proofs = slots.into_iter().filter_map(verdict);
        sentinels.into_iter().chain(proofs).collect()
    }

    fn verdict(&self, case: &Case, unable: &Unable, gate_down: bool) -> Verdict {
        let began = Instant::now();
        let (mut status, mut saw) = self.judge(case);
        if let (Status::Holds, Must::Fail, Some(why)) =
            (status, case.proof.must, unable.get(&case.identity))
        {
            (status, saw) = (Status::CouldNotTell, format!("{saw}; but {why}"));
        }
        Verdict {
            id: if gate_down {
                format!("{}/gate-down", case.id)
            } else {
                case.id.clone()
            },
            must: case.proof.must,
            status,
            tried: case.tried(),
            reason: case.proof.reason.clone(),
            saw,
            gate_down,
            ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    }

    fn judge(&self, case: &Case) -> Judged {
        let kind = case.proof.kind;
        if kind.has_family()
            && case.six
            && let Some(why) = self.peer.without_six()
        {
            return without_six(why);
        }
        if case.proof.who == Who::Excepted && self.subject.excepted.is_empty() {
            return local::not_applicable("no exception is configured");
        }
        match kind {
            Kind::Tcp
            | Kind::FastOpen
            | Kind::LinkLocal
            | Kind::SpoofedTcp
            | Kind::Udp
            | Kind::UdpLite
            | Kind::SpoofedUdp
            | Kind::Dns
            | Kind::Icmp
            | Kind::Raw
            | Kind::Ping => self.at_peer(case),
            Kind::Inbound => self.inbound(case),
            Kind::Neighbour => self.neighbour(case),
            Kind::Finish => self.finish(case),
            Kind::LoopbackTcp | Kind::LoopbackUdp | Kind::FromGatePort => self.loopback(case),
            Kind::GatePort => self.gate_port(case),
            Kind::GateAway => self.gate_away(case),
            Kind::Squat | Kind::SquatFull => self.squat(case),
            Kind::Counted => self.counted(case),
            Kind::GateListed => self.listed(case),
            Kind::GateUnlisted => self.unlisted(case),
            Kind::GateHeaders => self.headers(case),
            Kind::GateMethod => self.methods(case),
            Kind::GateError => self.error_page(case),
            Kind::GatePlain => self.plain_credential(),
            Kind::OlderFlow | Kind::Reload | Kind::Forwarded => self.in_scratch(case),
            Kind::BootOrder => self.boot_order(),
            Kind::ConnectPath | Kind::FileReadable | Kind::FileWritable => self.paths(case),
            Kind::ControlSocket => self.control_socket(case),
            Kind::Netlink => self.netlink(case),
            Kind::Packet => self.packet(case),
            Kind::ProcessMemory => self.process_memory(case),
            Kind::NewUidMap | Kind::NewGidMap => self.map(case),
            Kind::BecomeGate => self.become_gate(case),
            Kind::Elevate => self.elevate(case),
            Kind::Later => self.later(case),
            Kind::NameService => self.name_service(case),
            Kind::ProcessEnvironment
            | Kind::Environment
            | Kind::SubordinateIds
            | Kind::NewPrivileges
            | Kind::Capabilities
            | Kind::SetUserId
            | Kind::GateNeighbour
            | Kind::CoreDump
            | Kind::InheritedSocket
            | Kind::Groups => self.seen(case),
            Kind::Able => (
                Status::NotApplicable,
                "every user that tries anything does that first".to_owned(),
            ),
        }
    }

    fn task(&self, case: &Case) -> Task {
        let patience = match case.proof.must {
            Must::Fail if matches!(case.proof.kind, Kind::SpoofedTcp | Kind::SpoofedUdp) => {
                SPOOFED_MS
            }
            Must::Fail if !case.proof.kind.is_answered_aloud() => PATIENCE_MS,
            Must::Fail | Must::Succeed => LONG_PATIENCE_MS,
        };
        Task {
            port: case.port,
            inside: case.proof.inside,
            ..Task::new(case.proof.kind, patience)
        }
    }

    /// The gate's user reaches the peer over both protocols: neighbours are known from here on, and what does not work is
    /// said once instead of for every attempt.
    fn warm_up(&mut self) -> Result<(), PeerError> {
        for six in [false, true] {
            if six && self.peer.without_six().is_some() {
                continue;
            }
            let address = self.peer.address(six)?;
            self.peer.listen(address, &[], &[7], &[])?;
            let task = Task {
                address: Some(address),
                port: 7,
                ..Task::new(Kind::Udp, LONG_PATIENCE_MS)
            };
            let report = spawn::attempt(Some(self.subject.gate), &task);
            if report.outcome != Outcome::Answered {
                let text = format!(
                    "uid {} did not reach the outside peer: {}",
                    self.subject.gate.uid,
                    report.words()
                );
                self.dead[usize::from(six)] = Some(text);
            }
        }
        Ok(())
    }

    fn counters(&self) -> Option<Counters> {
        nftables::counters::read(&self.subject.table, &self.subject.accounts)
            .ok()
            .flatten()
    }

    fn counted(&self, case: &Case) -> Judged {
        let Some(now) = self.counters() else {
            let text = format!(
                "there is no table {} whose counters could be read",
                self.subject.table
            );
            return (Status::Broken, text);
        };
        let uid = case.identity.map_or(0, |identity| identity.uid);
        let packets = |counters: &Counters| {
            let user = counters.users.iter().find(|user| user.uid == uid);
            let total = counters.totals.iter().find(|total| total.name == "refused");
            (
                user.map_or(0, |user| user.packets),
                total.map_or(0, |total| total.packets),
            )
        };
        let before = self.before.as_ref().map_or((0, 0), packets);
        let after = packets(&now);
        let text = format!(
            "refusals of uid {uid} rose from {} to {}, of all from {} to {}",
            before.0, after.0, before.1, after.1
        );
        let grew = after.0 > before.0 && after.1 > before.1;
        (if grew { Status::Holds } else { Status::Broken }, text)
    }
}

fn needs_gate(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::GateListed
            | Kind::GateUnlisted
            | Kind::GateHeaders
            | Kind::GateMethod
            | Kind::GateError
            | Kind::GatePlain
            | Kind::ControlSocket
            | Kind::ProcessMemory
            | Kind::GateNeighbour
            | Kind::CoreDump
    )
}

fn is_late(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::GatePort
            | Kind::GateAway
            | Kind::FromGatePort
            | Kind::Squat
            | Kind::SquatFull
            | Kind::Counted
            | Kind::Neighbour
            | Kind::Finish
    )
}

/// There is no IPv6 on the wire. That is the end of it only where this machine has none at all.
fn without_six(why: &str) -> Judged {
    match six::is_off() {
        Ok(()) => (Status::NotApplicable, "this machine has no IPv6".to_owned()),
        Err(has) => (
            Status::CouldNotTell,
            format!("{has}, but there is none to the outside peer: {why}"),
        ),
    }
}

/// A deadline for what the peer hears.
const HEARS: Duration = Duration::from_secs(10);
