//! Attempts by a process that is nobody but itself: an agent, in a run or in a container of somebody else's.
//!
//! Without root there is no outside peer, and so no control; a refusal alone tells nothing. What does tell: a machine
//! whose only interface is loopback, a kernel that refuses a datagram before it is sent, and what is granted or denied
//! here. Whoever hears a neighbour answer has shown that the way out is open.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::Instant;

use super::attempt;
use super::case::{self, Case};
use super::kind::{Kind, Must, OnlyIn, Service};
use super::list::List;
use super::spawn;
use super::subject;
use super::task::{Outcome, Report, Task};
use super::verdict::{self, Control, Judged, Status, Verdict};
use crate::instance::Instance;

/// How long an answer from nowhere is waited for.
const PATIENCE_MS: u64 = 1000;

/// What an unprivileged process sees of where it is.
#[derive(Debug)]
pub struct Alone<'a> {
    instance: Option<&'a Instance>,
    /// Interfaces other than loopback; `None` when the kernel does not show them.
    interfaces: Option<Vec<String>>,
    gateway: Option<IpAddr>,
    /// `HOST:PORT` on loopback where the gate is reached from here.
    gate: Option<u16>,
}

impl<'a> Alone<'a> {
    /// Looks around.
    #[must_use]
    pub fn look(instance: Option<&'a Instance>, gate: Option<u16>) -> Self {
        Self {
            instance,
            interfaces: fs::read_to_string("/proc/net/dev")
                .ok()
                .map(|text| interfaces(&text)),
            gateway: fs::read_to_string("/proc/net/route")
                .ok()
                .and_then(|text| gateway(&text)),
            gate,
        }
    }

    /// Where we are, in a sentence.
    #[must_use]
    pub fn place(&self) -> String {
        match &self.interfaces {
            None => "the kernel does not show its interfaces".to_owned(),
            Some(none) if none.is_empty() => "there is no interface but loopback".to_owned(),
            Some(some) => format!("interfaces: {}", some.join(", ")),
        }
    }

    fn is_cut_off(&self) -> bool {
        self.interfaces.as_ref().is_some_and(Vec::is_empty)
    }

    /// Every proof that an agent can try by itself.
    #[must_use]
    pub fn round(&self, list: &List, scope: Option<OnlyIn>) -> Vec<Verdict> {
        let mut cases = case::unfold_alone(&list.proofs, scope);
        // A datagram is what a kernel refuses before it is sent, so that a refusal tells something here.
        cases.extend(case::missing(&cases, &[Kind::Udp, Kind::Tcp], None));
        let (sentinel, control) = sentinel();
        let proofs = cases.iter().map(|case| self.verdict(case, &control));
        let mut verdicts: Vec<Verdict> = proofs.chain(self.neighbour()).collect();
        if !control.works {
            // Whoever cannot do what nobody forbids has proven nothing by what it could not do either.
            let held = |verdict: &&mut Verdict| {
                verdict.status == Status::Holds && verdict.must == Must::Fail
            };
            for verdict in verdicts.iter_mut().filter(held) {
                verdict.status = Status::CouldNotTell;
                verdict.saw.push_str(&format!("; but {}", control.words));
            }
        }
        verdicts.insert(0, sentinel);
        verdicts
    }

    fn verdict(&self, case: &Case, control: &Control) -> Verdict {
        let began = Instant::now();
        let (status, saw) = self.judge(case, control);
        Verdict {
            id: case.id.clone(),
            must: case.proof.must,
            status,
            tried: case.tried(),
            reason: case.proof.reason.clone(),
            saw,
            gate_down: false,
            ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// `control`: that we can do what nobody forbids. It stands beside what is denied here and now; what left this machine
    /// nobody saw.
    fn judge(&self, case: &Case, control: &Control) -> Judged {
        let kind = case.proof.kind;
        let must = case.proof.must;
        let attempt = |task: &Task| spawn::attempt(None, task);
        let denied = |report: &Report| match report.outcome {
            Outcome::Absent => (Status::NotApplicable, report.words()),
            _ => verdict::granted(report, must, Some(control)),
        };
        let task = Task {
            port: case.port,
            inside: case.proof.inside,
            names: case.proof.names.clone(),
            ..Task::new(kind, PATIENCE_MS)
        };
        match kind {
            Kind::SpoofedTcp | Kind::SpoofedUdp | Kind::LinkLocal if !self.is_cut_off() => {
                untold("where a refusal went only an outside peer can see")
            }
            _ if kind.aims_at_peer() => {
                let task = Task {
                    address: Some(nowhere(case.six)),
                    ..task
                };
                self.at_nowhere(&attempt(&task))
            }
            Kind::Packet | Kind::Elevate => denied(&attempt(&task)),
            Kind::Netlink => match attempt(&task) {
                // In a network namespace of one's own the packet filter may be one's own as well.
                report if report.outcome == Outcome::Granted && self.is_cut_off() => (
                    Status::Holds,
                    format!("{}, and nothing leads out of here", report.words()),
                ),
                report => denied(&report),
            },
            Kind::ConnectPath | Kind::FileReadable | Kind::FileWritable => {
                let paths = subject::expand(&case.proof.paths, self.instance);
                denied(&attempt(&Task { paths, ..task }))
            }
            Kind::NameService => self.name_service(case, &attempt, &denied),
            Kind::ControlSocket => {
                let path = self.instance.map_or_else(
                    || Path::new("/run/portcullis/proxy/control.sock").to_owned(),
                    |instance| instance.layout.control_socket(),
                );
                denied(&attempt(&Task {
                    paths: vec![path],
                    ..task
                }))
            }
            Kind::Environment => looked(&attempt(&task), "no such variable is set", "there is"),
            Kind::Groups => looked(&attempt(&task), "we are in no such group", "we are in"),
            Kind::NewUidMap | Kind::NewGidMap => {
                let names = vec!["0".to_owned(), "100000".to_owned(), "2000000000".to_owned()];
                denied(&attempt(&Task { names, ..task }))
            }
            Kind::NewPrivileges => own_no_new_privileges(),
            Kind::SubordinateIds => own_subordinate_ids(),
            Kind::GatePort => match self.gate {
                None => (
                    Status::NotApplicable,
                    "no gate's port was named (--gate)".to_owned(),
                ),
                Some(port) => {
                    let address = if case.six {
                        Ipv6Addr::LOCALHOST.into()
                    } else {
                        Ipv4Addr::LOCALHOST.into()
                    };
                    let task = Task {
                        address: Some(address),
                        port,
                        ..task
                    };
                    verdict::granted(&attempt(&task), must, None)
                }
            },
            Kind::BecomeGate => denied(&attempt(&Task { number: 0, ..task })),
            _ => (
                Status::NotApplicable,
                "this needs root, or sight of the whole machine".to_owned(),
            ),
        }
    }

    /// A service that answers us at all does so for us; a resolver on loopback may be the gate's own, which knows its names.
    fn name_service(
        &self,
        case: &Case,
        attempt: &dyn Fn(&Task) -> Report,
        denied: &dyn Fn(&Report) -> Judged,
    ) -> Judged {
        let Some(service) = case.service else {
            return untold("it names no service");
        };
        if service == Service::Stub {
            return (
                Status::NotApplicable,
                "who answers on loopback only root can see".to_owned(),
            );
        }
        let mut found = (
            Status::NotApplicable,
            "there is no such service here".to_owned(),
        );
        for path in service.sockets() {
            let paths = vec![Path::new(path).to_owned()];
            let task = Task {
                paths,
                ..attempt::ask_service(service, PATIENCE_MS)
            };
            let judged = denied(&attempt(&task));
            if judged.0 != Status::NotApplicable {
                found = judged;
            }
        }
        found
    }

    /// An attempt at an address that is nobody's.
    fn at_nowhere(&self, report: &Report) -> Judged {
        let words = report.words();
        if report.outcome == Outcome::Unable {
            return untold(&words);
        }
        if self.is_cut_off() {
            return (
                Status::Holds,
                format!("{words}; there is no interface but loopback"),
            );
        }
        match (report.outcome, report.errno.as_deref()) {
            (Outcome::Refused, Some("EPERM" | "EACCES")) => (
                Status::Holds,
                format!("{words}: this kernel refused it before it was sent"),
            ),
            (Outcome::Refused, Some("ENETUNREACH")) => untold(&format!(
                "{words}: there is no way to that address, but there may be to others"
            )),
            _ => untold(&format!(
                "{words}; without an outside peer nobody knows what left"
            )),
        }
    }

    /// The next machine on the wire is the one outside whose answer can be told from ours.
    fn neighbour(&self) -> Vec<Verdict> {
        let Some(gateway) = self.gateway.filter(|_| !self.is_cut_off()) else {
            return Vec::new();
        };
        let began = Instant::now();
        let task = Task {
            address: Some(gateway),
            port: 33_434,
            ..Task::new(Kind::Udp, PATIENCE_MS)
        };
        let report = spawn::attempt(None, &task);
        let words = report.words();
        let (status, saw) = match (report.outcome, report.errno.as_deref()) {
            (Outcome::Refused, Some("EPERM")) => (
                Status::Holds,
                format!("{words}: this kernel refused it before it was sent"),
            ),
            (Outcome::Answered, _) | (Outcome::Refused, Some("ECONNREFUSED")) => (
                Status::Broken,
                format!("{words}: {gateway} heard the datagram and said so"),
            ),
            _ => untold(&format!("{words}; {gateway} may have heard it")),
        };
        vec![Verdict {
            id: "ALN-gateway".to_owned(),
            must: Must::Fail,
            status,
            tried: format!(
                "uid {} tries udp to the next machine, {gateway}",
                nix::unistd::geteuid()
            ),
            reason: "the way to every other machine leads through it".to_owned(),
            saw,
            gate_down: false,
            ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        }]
    }
}

/// That we can do what nobody forbids, as a proof and as a control.
fn sentinel() -> (Verdict, Control) {
    let began = Instant::now();
    let uid = nix::unistd::geteuid();
    let task = Task {
        number: uid.as_raw(),
        ..Task::new(Kind::Able, PATIENCE_MS)
    };
    let report = spawn::attempt(None, &task);
    let control = Control::by("what nobody forbids", &report);
    let verdict = Verdict {
        id: "SEN-self".to_owned(),
        must: Must::Succeed,
        status: if control.works {
            Status::Holds
        } else {
            Status::CouldNotTell
        },
        tried: format!("uid {uid} does what nobody forbids"),
        reason: "whoever cannot do even that is not kept by the boundary".to_owned(),
        saw: report.words(),
        gate_down: false,
        ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
    };
    (verdict, control)
}

/// What an attempt found of what should not be there.
fn looked(report: &Report, good: &str, bad: &str) -> Judged {
    if report.outcome == Outcome::Unable {
        return untold(&report.words());
    }
    verdict::none_of(&report.found, good, bad)
}

fn untold(why: &str) -> Judged {
    (Status::CouldNotTell, why.to_owned())
}

/// Addresses for documentation: nobody has them (RFC 5737, RFC 3849).
fn nowhere(six: bool) -> IpAddr {
    if six {
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()
    } else {
        Ipv4Addr::new(192, 0, 2, 1).into()
    }
}

fn own_no_new_privileges() -> Judged {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NoNewPrivs:"));
    match line.map(str::trim) {
        Some("1") => (Status::Holds, "no_new_privs is set".to_owned()),
        Some(_) => (
            Status::Broken,
            "no_new_privs is not set: a set-user-id file would raise us".to_owned(),
        ),
        None => untold("the kernel does not say"),
    }
}

fn own_subordinate_ids() -> Judged {
    match nftables::accounts::Accounts::load() {
        Err(error) => untold(&crate::output::chain(&error)),
        Ok(accounts) => {
            let uid = nix::unistd::geteuid().as_raw();
            let owned = accounts.subordinate_uids(uid).len() + accounts.subordinate_gids(uid).len();
            if owned == 0 {
                (Status::Holds, format!("uid {uid} owns none"))
            } else {
                (Status::Broken, format!("uid {uid} owns {owned} ranges"))
            }
        }
    }
}

/// The names of `/proc/net/dev` but for loopback, and but for the tunnels that a kernel makes by itself and leaves down.
fn interfaces(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()))
        .filter(|name| {
            !matches!(
                name.as_str(),
                "lo" | "tunl0"
                    | "sit0"
                    | "ip6tnl0"
                    | "gre0"
                    | "gretap0"
                    | "erspan0"
                    | "ip_vti0"
                    | "ip6_vti0"
                    | "ip6gre0"
            )
        })
        .collect()
}

/// The default router of `/proc/net/route`, whose numbers are hexadecimal in this machine's order.
fn gateway(text: &str) -> Option<IpAddr> {
    text.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (destination, router) = (fields.next()?, fields.next()?);
        let router = u32::from_str_radix(router, 16)
            .ok()
            .filter(|router| *router != 0)?;
        (destination == "00000000").then(|| Ipv4Addr::from(router.to_ne_bytes()).into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_alone_is_cut_off_and_another_interface_is_not() {
        let head = "Inter-|   Receive\n face |bytes\n";
        assert_eq!(
            interfaces(&format!("{head}    lo: 0 0\n sit0: 0\n")),
            Vec::<String>::new()
        );
        assert_eq!(
            interfaces(&format!("{head}    lo: 0 0\n  eth0: 1 2\n")),
            ["eth0"]
        );
    }

    #[test]
    fn the_default_router_is_read() {
        let text =
            "Iface Destination Gateway\neth0 0000FEA9 00000000 1\neth0 00000000 010200C0 3\n";
        assert_eq!(gateway(text), Some(IpAddr::from([192, 0, 2, 1])));
        assert_eq!(gateway("Iface Destination Gateway\n"), None);
    }

    #[test]
    fn a_refusal_without_a_control_tells_nothing() {
        let wired = Alone {
            instance: None,
            interfaces: Some(vec!["eth0".into()]),
            gateway: None,
            gate: None,
        };
        let mut refused = Report::new(Outcome::Refused, "");
        refused.errno = Some("ECONNREFUSED".into());
        assert_eq!(wired.at_nowhere(&refused).0, Status::CouldNotTell);
        refused.errno = Some("EPERM".into());
        assert_eq!(wired.at_nowhere(&refused).0, Status::Holds);
        let cut_off = Alone {
            interfaces: Some(Vec::new()),
            ..wired
        };
        refused.errno = Some("ENETUNREACH".into());
        assert_eq!(cut_off.at_nowhere(&refused).0, Status::Holds);
        let blind = Alone {
            interfaces: None,
            ..cut_off
        };
        assert_eq!(blind.at_nowhere(&refused).0, Status::CouldNotTell);
    }
}
