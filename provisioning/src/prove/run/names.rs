//! Services of this machine that resolve names for whoever asks.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use super::Run;
use super::local::not_applicable;
use crate::prove::attempt;
use crate::prove::case::Case;
use crate::prove::kind::Service;
use crate::prove::spawn;
use crate::prove::task::{Outcome, Task};
use crate::prove::verdict::{self, Control, Judged, Status};

/// How long a service may take over a question.
const SERVICE_MS: u64 = 6000;

impl Run<'_> {
    /// Somebody else's question is asked in somebody else's name.
    pub(super) fn name_service(&self, case: &Case) -> Judged {
        let Some(service) = case.service else {
            return (Status::CouldNotTell, "it names no service".to_owned());
        };
        if service == Service::Stub {
            return self.stub(case);
        }
        let uid = case.identity.map_or(0, |identity| identity.uid);
        if self.subject.is_only_in_runs(uid) {
            return not_applicable(
                "this uid is only in runs, which have none of this machine's sockets: prove there",
            );
        }
        let sockets = service.sockets().iter().map(PathBuf::from);
        let Some(path) = sockets.into_iter().find(|path| path.exists()) else {
            return not_applicable("there is no such service here");
        };
        let task = Task {
            paths: vec![path],
            ..attempt::ask_service(service, SERVICE_MS)
        };
        let root = spawn::attempt(None, &task);
        if root.outcome == Outcome::Absent || root.errno.as_deref() == Some("ECONNREFUSED") {
            return not_applicable(&format!("nobody answers there: {}", root.words()));
        }
        let report = spawn::attempt(case.identity, &task);
        let control = Control::by("root", &root);
        verdict::granted(&report, case.proof.must, Some(&control))
    }

    /// Resolvers on loopback, which the gate's user may ask.
    fn stub(&self, case: &Case) -> Judged {
        if self.subject.led.names {
            return not_applicable("whoever is asked, questions are led to the policy resolver");
        }
        let mut found = not_applicable("no resolver answers on loopback");
        for address in stubs() {
            let task = Task {
                address: Some(address),
                port: 53,
                ..attempt::ask_service(Service::Stub, SERVICE_MS)
            };
            let gate = spawn::attempt(Some(self.subject.gate), &task);
            if !verdict::is_granted(&gate) {
                continue;
            }
            let report = spawn::attempt(case.identity, &task);
            let who = format!("uid {} at {address}", self.subject.gate.uid);
            let control = Control::by(&who, &gate);
            found = verdict::granted(&report, case.proof.must, Some(&control));
            if found.0 != Status::Holds {
                break;
            }
        }
        found
    }
}

/// Where resolvers listen on loopback: systemd's two, and those that this machine uses.
fn stubs() -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = vec![
        Ipv4Addr::new(127, 0, 0, 53).into(),
        Ipv4Addr::new(127, 0, 0, 54).into(),
    ];
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let named = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver")?.trim().parse().ok())
        .filter(IpAddr::is_loopback);
    for address in named {
        if !found.contains(&address) {
            found.push(address);
        }
    }
    found
}
