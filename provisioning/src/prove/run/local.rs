//! Attempts that need no wire: files, sockets, processes, programs, and requests through the gate.

use std::path::PathBuf;
use std::time::Duration;

use nftables::accounts::UidRange;

use super::Run;
use crate::prove::attempt;
use crate::prove::case::Case;
use crate::prove::identity::Keeps;
use crate::prove::kind::{Kind, Must};
use crate::prove::process::{self, Process};
use crate::prove::spawn;
use crate::prove::task::{Outcome, Report, Task};
use crate::prove::verdict::{self, Control, Judged, Status};

fn not_applicable(why: &str) -> Judged {
    (Status::NotApplicable, why.to_owned())
}

impl Run<'_> {
    pub(super) fn local(&self, case: &Case) -> Judged {
        match case.proof.kind {
            Kind::ConnectPath | Kind::FileReadable | Kind::FileWritable => self.paths(case),
            Kind::ControlSocket => self.control_socket(case),
            Kind::Netlink => self.netlink(case),
            Kind::Packet => self.packet(case),
            Kind::ProcessMemory => self.process_memory(case),
            Kind::ProcessEnvironment => self.credentials_in_processes(),
            Kind::Environment => self.environments(case),
            Kind::NewUidMap | Kind::NewGidMap => self.map(case),
            Kind::SubordinateIds => self.subordinate_ids(case),
            Kind::NewPrivileges => self.new_privileges(),
            Kind::BecomeGate => {
                let task = Task {
                    number: self.subject.gate.uid,
                    ..self.task(case)
                };
                verdict::granted(&spawn::attempt(case.identity, &task), case.proof.must, None)
            }
            Kind::GateNeighbour => self.gate_neighbour(),
            Kind::CoreDump => self.core_dump(),
            Kind::InheritedSocket => self.inherited_socket(),
            Kind::Groups => {
                let uid = case.identity.map_or(0, |identity| identity.uid);
                verdict::granted(&attempt::groups_as_good_as_root(uid), case.proof.must, None)
            }
            Kind::Elevate => {
                let identity = case
                    .identity
                    .map(|identity| identity.keeping(Keeps::NewPrivileges));
                verdict::granted(
                    &spawn::attempt(identity, &self.task(case)),
                    case.proof.must,
                    None,
                )
            }
            Kind::GateListed | Kind::GateUnlisted | Kind::GateHeaders => self.through_gate(case),
            _ => (Status::CouldNotTell, "this attempt has no judge".to_owned()),
        }
    }

    fn paths(&self, case: &Case) -> Judged {
        let kind = case.proof.kind;
        let paths: Vec<PathBuf> = self.subject.paths(&case.proof.paths);
        let present: Vec<PathBuf> = paths
            .iter()
            .filter(|path| path.symlink_metadata().is_ok())
            .cloned()
            .collect();
        if present.is_empty() {
            return not_applicable("there is nothing of the kind here");
        }
        let task = Task {
            paths: present,
            ..self.task(case)
        };
        let report = spawn::attempt(case.identity, &task);
        // Files: root opens them by the same code. A socket is only looked at: who listens is not ours to trouble.
        let control = (kind == Kind::FileReadable).then(|| {
            let report = spawn::attempt(None, &task);
            Control {
                works: report.outcome == Outcome::Granted,
                words: format!("root opened {} of {}", report.found.len(), task.paths.len()),
            }
        });
        verdict::granted(&report, case.proof.must, control.as_ref())
    }

    fn control_socket(&self, case: &Case) -> Judged {
        let Some(instance) = &self.subject.instance else {
            return not_applicable("no instance of Portcullis is here");
        };
        let task = Task {
            paths: vec![instance.layout.control_socket()],
            ..self.task(case)
        };
        let report = spawn::attempt(case.identity, &task);
        let root = spawn::attempt(None, &task);
        let control = Control {
            works: root.outcome == Outcome::Granted,
            words: format!("root: {}", root.words()),
        };
        verdict::granted(&report, case.proof.must, Some(&control))
    }

    fn netlink(&self, case: &Case) -> Judged {
        let task = Task {
            names: vec![self.subject.table.clone()],
            ..self.task(case)
        };
        let report = spawn::attempt(case.identity, &task);
        let root = spawn::attempt(
            None,
            &Task {
                inside: None,
                ..task
            },
        );
        let control = Control {
            works: root.outcome == Outcome::Granted,
            words: format!("root: {}", root.words()),
        };
        verdict::granted(&report, case.proof.must, Some(&control))
    }

    fn packet(&self, case: &Case) -> Judged {
        let report = spawn::attempt(case.identity, &self.task(case));
        let root = spawn::attempt(None, &self.task(case));
        let control = Control {
            works: root.outcome == Outcome::Granted,
            words: format!("root: {}", root.words()),
        };
        verdict::granted(&report, case.proof.must, Some(&control))
    }

    fn process_memory(&self, case: &Case) -> Judged {
        let targets: Vec<Process> = process::others()
            .into_iter()
            .filter(|process| process.uid == self.subject.gate.uid || self.is_ours(process))
            .collect();
        if targets.is_empty() {
            return not_applicable("neither the gate nor another part of Portcullis runs here");
        }
        for target in &targets {
            let task = Task {
                number: target.pid,
                ..self.task(case)
            };
            let report = spawn::attempt(case.identity, &task);
            if report.outcome != Outcome::Refused {
                let (status, saw) = verdict::granted(&report, case.proof.must, None);
                return (status, format!("{}: {saw}", target.shown()));
            }
        }
        let names: Vec<String> = targets.iter().map(Process::shown).collect();
        // A process of the agent's own is open to the same code, or nothing would follow from a refusal.
        let works = targets.iter().any(|target| target.environment().is_some());
        let control = Control {
            works,
            words: "root reads their environment".to_owned(),
        };
        verdict::granted(
            &Report::new(Outcome::Refused, names.join(", ")),
            case.proof.must,
            Some(&control),
        )
    }

    fn is_ours(&self, process: &Process) -> bool {
        let Some(instance) = &self.subject.instance else {
            return false;
        };
        let library = instance.layout.library();
        process
            .program()
            .is_some_and(|program| program.starts_with(library))
    }

    /// No credential stands in the environment or the arguments of any process, not even for root to see.
    fn credentials_in_processes(&self) -> Judged {
        let Some(instance) = &self.subject.instance else {
            return not_applicable(
                "no instance of Portcullis is here, and so no credential of its is known",
            );
        };
        let needles = process::Needles::read(&instance.layout.credentials());
        if needles.is_empty() {
            return not_applicable("no credential file is here");
        }
        match needles.find() {
            Err(why) => (Status::CouldNotTell, why),
            Ok(found) if found.is_empty() => {
                let text = format!(
                    "{} credentials, in no environment and no argument; control: a word of ours was found",
                    needles.len()
                );
                (Status::Holds, text)
            }
            Ok(found) => (
                Status::Broken,
                format!("a credential stands in {}", found.join(", ")),
            ),
        }
    }

    fn environments(&self, case: &Case) -> Judged {
        let agents: Vec<Process> = process::others()
            .into_iter()
            .filter(|process| self.subject.is_agent(process.uid) && !self.is_ours(process))
            .collect();
        if agents.is_empty() {
            return not_applicable("no agent runs now");
        }
        let mut found = Vec::new();
        for agent in &agents {
            let Some(variables) = agent.environment() else {
                continue;
            };
            let telling = attempt::telling(&variables, &case.proof.names);
            found.extend(
                telling
                    .into_iter()
                    .map(|name| format!("{name} of {}", agent.shown())),
            );
        }
        if found.is_empty() {
            return (
                Status::Holds,
                format!("looked at {} processes of agents", agents.len()),
            );
        }
        (Status::Broken, found.join(", "))
    }

    fn map(&self, case: &Case) -> Judged {
        let subject = self.subject;
        let uid = case.identity.map_or(0, |identity| identity.uid);
        let ranges = if case.proof.kind == Kind::NewUidMap {
            subject.accounts.subordinate_uids(uid)
        } else {
            subject.accounts.subordinate_gids(uid)
        };
        let mut ids = vec![subject.gate.uid, subject.stranger.uid];
        ids.extend(ranges.iter().map(|range: &UidRange| range.first));
        let task = Task {
            names: ids.iter().map(u32::to_string).collect(),
            ..self.task(case)
        };
        let identity = case
            .identity
            .map(|identity| identity.keeping(Keeps::NewPrivileges));
        let report = spawn::attempt(identity, &task);
        verdict::granted(&report, case.proof.must, None)
    }

    fn subordinate_ids(&self, case: &Case) -> Judged {
        let uid = case.identity.map_or(0, |identity| identity.uid);
        let accounts = &self.subject.accounts;
        let mut owned = accounts.subordinate_uids(uid);
        owned.extend(accounts.subordinate_gids(uid));
        if owned.is_empty() {
            return (Status::Holds, format!("uid {uid} owns none"));
        }
        let list: Vec<String> = owned.iter().map(ToString::to_string).collect();
        (
            Status::Broken,
            format!("uid {uid} owns {}", list.join(", ")),
        )
    }

    /// What runs as an agent can never gain rights by executing a file. The service that starts runs needs that itself.
    fn new_privileges(&self) -> Judged {
        let agents: Vec<Process> = process::others()
            .into_iter()
            .filter(|process| self.subject.is_agent(process.uid) && !self.is_ours(process))
            .collect();
        if agents.is_empty() {
            return not_applicable("no agent runs now");
        }
        let able: Vec<String> = agents
            .iter()
            .filter(|process| process.no_new_privileges() == Some(false))
            .map(Process::shown)
            .collect();
        if able.is_empty() {
            return (
                Status::Holds,
                format!("{} processes of agents have no_new_privs", agents.len()),
            );
        }
        (
            Status::Broken,
            format!("no_new_privs is not set for {}", able.join(", ")),
        )
    }

    fn gate_neighbour(&self) -> Judged {
        let all: Vec<Process> = process::others()
            .into_iter()
            .filter(|process| process.uid == self.subject.gate.uid)
            .collect();
        if all.is_empty() {
            return not_applicable("nothing runs as the gate's user now");
        }
        let strange: Vec<String> = all
            .iter()
            .filter(|process| {
                let program = process.program();
                let name = program.as_deref().and_then(|path| path.file_name());
                // A program that was replaced on disk by an upgrade runs on until it is restarted.
                !name.is_some_and(|name| {
                    name.to_string_lossy().trim_end_matches(" (deleted)") == "portcullis-proxy"
                })
            })
            .map(Process::shown)
            .collect();
        if strange.is_empty() {
            return (
                Status::Holds,
                "only the gate runs as the gate's user".to_owned(),
            );
        }
        (
            Status::Broken,
            format!("as the gate's user there run {}", strange.join(", ")),
        )
    }

    fn core_dump(&self) -> Judged {
        let gates: Vec<Process> = process::others()
            .into_iter()
            .filter(|process| process.uid == self.subject.gate.uid)
            .collect();
        if gates.is_empty() {
            return not_applicable("nothing runs as the gate's user now");
        }
        let dumping: Vec<String> = gates
            .iter()
            .filter(|gate| gate.dumps_core() != Some(false))
            .map(Process::shown)
            .collect();
        if dumping.is_empty() {
            return (
                Status::Holds,
                "the gate's limit for core files is 0".to_owned(),
            );
        }
        (
            Status::Broken,
            format!(
                "the limit for core files is not 0 for {}",
                dumping.join(", ")
            ),
        )
    }

    /// A socket keeps the user who made it, whoever uses it.
    fn inherited_socket(&self) -> Judged {
        let agents: Vec<Process> = process::others()
            .into_iter()
            .filter(|process| self.subject.is_agent(process.uid) && !self.is_ours(process))
            .collect();
        if agents.is_empty() {
            return not_applicable("no agent runs now");
        }
        let found: Vec<String> = agents
            .iter()
            .flat_map(|agent| {
                let sockets = agent.sockets_of(|uid| !self.subject.is_agent(uid));
                sockets
                    .into_iter()
                    .map(|socket| format!("{socket} held by {}", agent.shown()))
            })
            .collect();
        if found.is_empty() {
            return (
                Status::Holds,
                format!("looked at {} processes of agents", agents.len()),
            );
        }
        (Status::Broken, found.join(", "))
    }

    fn through_gate(&self, case: &Case) -> Judged {
        let run = match &self.gate_run {
            Ok(run) => run,
            Err(why) if self.subject.instance.is_none() => return not_applicable(why),
            Err(why) => return (Status::CouldNotTell, why.clone()),
        };
        // What was answered has arrived, and is told in its own time; what was refused will not come.
        let head = |report: &Report, words: &str| {
            let patience = if report.outcome == Outcome::Answered {
                super::HEARS
            } else {
                Duration::ZERO
            };
            self.peer.head(run.at, words, patience)
        };
        match case.proof.kind {
            Kind::GateUnlisted => {
                let Ok(address) = self.peer.address(false) else {
                    return (Status::CouldNotTell, "no address is left".to_owned());
                };
                if let Err(error) =
                    self.peer
                        .listen(address, &[], &[], &[super::super::gate_run::PORT])
                {
                    return (Status::CouldNotTell, error.to_string());
                }
                let report = spawn::attempt(
                    case.identity,
                    &run.request(&format!("http://{address}/"), &[]),
                );
                let arrived = self.peer.arrived(address);
                let listed = spawn::attempt(case.identity, &run.request(&run.url("control"), &[]));
                let control = Control {
                    works: listed.outcome == Outcome::Answered,
                    words: format!("a listed place: {}", listed.words()),
                };
                verdict::at_peer(&report, arrived, Some(&control), None)
            }
            Kind::GateHeaders => {
                let mark = format!("/{}", case.id.replace('/', "-"));
                let report = spawn::attempt(
                    case.identity,
                    &run.request(&run.url(&mark[1..]), &case.proof.headers),
                );
                let Some(head) = head(&report, &mark) else {
                    // A request that is refused for what it carries takes nothing along either.
                    return match report.found.first().map(String::as_str) {
                        Some("400" | "403") => (
                            Status::Holds,
                            format!("the gate refused it: {}", report.words()),
                        ),
                        _ => (
                            Status::CouldNotTell,
                            format!("the request did not arrive: {}", report.words()),
                        ),
                    };
                };
                let head = head.to_ascii_lowercase();
                let leaked: Vec<&String> = case
                    .proof
                    .headers
                    .iter()
                    .filter(|header| {
                        let (_, value) = header.split_once(':').unwrap_or(("", header));
                        head.contains(value.trim().to_ascii_lowercase().as_str())
                    })
                    .collect();
                if leaked.is_empty() {
                    let text = format!(
                        "the request arrived without any of {}",
                        case.proof.headers.len()
                    );
                    return (Status::Holds, text);
                }
                (Status::Broken, format!("there arrived {leaked:?}"))
            }
            _ => {
                let report = spawn::attempt(case.identity, &run.request(&run.url("listed"), &[]));
                let arrived = head(&report, "/listed").is_some();
                let (status, saw) = verdict::granted(&report, case.proof.must, None);
                let status = if case.proof.must == Must::Succeed && !arrived {
                    Status::Broken
                } else {
                    status
                };
                (
                    status,
                    format!(
                        "{saw}; the outside peer {} it",
                        if arrived { "got" } else { "did not get" }
                    ),
                )
            }
        }
    }
}
