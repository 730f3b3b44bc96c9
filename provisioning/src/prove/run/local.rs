//! Attempts that need no wire: files, sockets, programs and services of this machine, each beside somebody to whom it is
//! granted.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use nftables::accounts::UidRange;

use super::Run;
use crate::prove::case::Case;
use crate::prove::identity::{Identity, Keeps};
use crate::prove::kind::{Kind, Must};
use crate::prove::process::{self, Process};
use crate::prove::spawn;
use crate::prove::task::{Outcome, Report, Task};
use crate::prove::verdict::{self, Control, Judged, Status};
use crate::supervise::record::Moment;

/// The account that every machine has and nobody uses.
const NOBODY: u32 = 65_534;
pub(super) fn not_applicable(why: &str) -> Judged {
    (Status::NotApplicable, why.to_owned())
}

impl Run<'_> {
    /// By the user of the case, and by root as the control.
    pub(super) fn beside_root(&self, case: &Case, task: &Task, root: &Task) -> Judged {
        let report = spawn::attempt(case.identity, task);
        if report.outcome == Outcome::Unable {
            // No control makes a refusal of it.
            return verdict::granted(&report, case.proof.must, None);
        }
        let control = Control::by("root", &spawn::attempt(None, root));
        verdict::granted(&report, case.proof.must, Some(&control))
    }

    /// What is open to root is tried; who listens at a socket hears nothing but a connection.
    pub(super) fn paths(&self, case: &Case) -> Judged {
        let paths = self.subject.paths(&case.proof.paths);
        let present: Vec<PathBuf> = paths
            .into_iter()
            .filter(|path| match path.symlink_metadata() {
                // What the user listens at itself does nothing in another's name.
                Ok(found) => {
                    let own = case
                        .identity
                        .is_some_and(|identity| identity.uid == found.uid());
                    case.proof.kind != Kind::ConnectPath || !own
                }
                // A socket that has a name and no file.
                Err(_) => path.as_os_str().as_bytes().starts_with(b"@"),
            })
            .collect();
        if present.is_empty() {
            return not_applicable("there is nothing of the kind here");
        }
        let task = Task {
            paths: present,
            ..self.task(case)
        };
        let root = spawn::attempt(None, &task);
        if case.proof.kind == Kind::ConnectPath && root.outcome != Outcome::Granted {
            return match verdict::granted(&root, Must::Succeed, None) {
                (Status::Broken, saw) => not_applicable(&format!("nobody listens there: {saw}")),
                (_, saw) => (Status::CouldNotTell, saw),
            };
        }
        let report = spawn::attempt(case.identity, &task);
        let control = Control::new(
            root.outcome == Outcome::Granted,
            format!("root opened {} of {}", root.found.len(), task.paths.len()),
        );
        verdict::granted(&report, case.proof.must, Some(&control))
    }

    pub(super) fn control_socket(&self, case: &Case) -> Judged {
        let Some(instance) = &self.subject.instance else {
            return not_applicable("no instance of Portcullis is here");
        };
        let task = Task {
            paths: vec![instance.layout.control_socket()],
            ..self.task(case)
        };
        self.beside_root(case, &task, &task)
    }

    /// In a world of its own, with the rules that are configured here.
    pub(super) fn in_scratch(&self, case: &Case) -> Judged {
        let subject = self.subject;
        let task = Task {
            paths: vec![subject.file.clone()],
            names: vec![subject.gate.uid.to_string()],
            number: subject.agent.uid,
            ..self.task(case)
        };
        let report = spawn::attempt_without_rules(None, &task);
        if report.outcome == Outcome::Absent {
            return not_applicable(&report.detail);
        }
        let words = match case.proof.kind {
            Kind::Reload => "the same sender was heard once the rules were gone",
            _ => "the same was heard before the rules were loaded",
        };
        // Where it was not, the attempt says that it could not be made.
        verdict::granted(&report, case.proof.must, Some(&Control::new(true, words)))
    }

    pub(super) fn netlink(&self, case: &Case) -> Judged {
        let task = Task {
            names: vec![self.subject.table.clone()],
            ..self.task(case)
        };
        let root = Task {
            inside: None,
            ..task.clone()
        };
        self.beside_root(case, &task, &root)
    }

    pub(super) fn packet(&self, case: &Case) -> Judged {
        let task = self.task(case);
        self.beside_root(case, &task, &task)
    }

    pub(super) fn become_gate(&self, case: &Case) -> Judged {
        let task = Task {
            number: self.subject.gate.uid,
            ..self.task(case)
        };
        self.beside_root(case, &task, &task)
    }

    /// Root is given what it asks for by every one of those programs that is here.
    pub(super) fn elevate(&self, case: &Case) -> Judged {
        let task = self.task(case);
        self.beside_root(case, &task, &task)
    }

    /// Root's table of commands is one: it is tried once for all, and not while another attempt of root's has a line there.
    pub(super) fn later(&self, case: &Case) -> Judged {
        let task = self.task(case);
        let report = spawn::attempt(case.identity, &task);
        if report.outcome == Outcome::Unable {
            return verdict::granted(&report, case.proof.must, None);
        }
        let key = (Kind::Later, false, 0, false);
        let control = self.once(key, || Control::by("root", &spawn::attempt(None, &task)));
        verdict::granted(&report, case.proof.must, Some(&control))
    }

    pub(super) fn process_memory(&self, case: &Case) -> Judged {
        let targets: Vec<Process> = process::others()
            .into_iter()
            .filter(|process| process.uid == self.subject.gate.uid || self.is_ours(process))
            .collect();
        if targets.is_empty() {
            return not_applicable("neither the gate nor another part of Portcullis runs here");
        }
        let mut held = Vec::new();
        for target in &targets {
            let moment = i32::try_from(target.pid).ok().and_then(Moment::of);
            let task = Task {
                number: target.pid,
                ..self.task(case)
            };
            let report = spawn::attempt(case.identity, &task);
            // Each has a control of its own, made while it is still that process.
            let read = target.environment().is_some();
            let is_there = moment.is_some_and(|moment| moment.is_alive());
            if !is_there && !verdict::is_granted(&report) {
                continue;
            }
            let (status, saw) = of_target(&report, case.proof.must, read);
            if status != Status::Holds {
                return (status, format!("{}: {saw}", target.shown()));
            }
            held.push(target.shown());
        }
        if held.is_empty() {
            let text = "each of them was gone before it was tried";
            return (Status::CouldNotTell, text.to_owned());
        }
        let text = format!("{}; control: root reads each environment", held.join(", "));
        (Status::Holds, text)
    }

    /// The ids of others that a user would like to have. What it may have is its own: that is the control, or where it has
    /// no account, that of somebody who has one.
    pub(super) fn map(&self, case: &Case) -> Judged {
        let subject = self.subject;
        let Some(identity) = case.identity else {
            return not_applicable("root needs no helper");
        };
        let users = case.proof.kind == Kind::NewUidMap;
        let ranges = owned_ids(subject, identity.uid, users);
        let mut ids = vec![subject.gate.uid, subject.stranger.uid];
        ids.extend(ranges.iter().map(|range| range.first));
        let asked = |ids: &[u32]| Task {
            names: ids.iter().map(u32::to_string).collect(),
            ..self.task(case)
        };
        let report = spawn::attempt(Some(identity), &asked(&ids));
        let account = if has_account(identity.uid) {
            identity
        } else {
            Identity::of(NOBODY).keeping(Keeps::NewPrivileges)
        };
        let own = if users { account.uid } else { account.gid };
        let control = spawn::attempt(Some(account), &asked(&[own]));
        let who = format!("uid {} asks for its own", account.uid);
        let control = Control::by(&who, &control);
        verdict::granted(&report, case.proof.must, Some(&control))
    }

    pub(super) fn is_ours(&self, process: &Process) -> bool {
        let Some(instance) = &self.subject.instance else {
            return false;
        };
        let library = instance.layout.library();
        process
            .program()
            .is_some_and(|program| program.starts_with(library))
    }
}

/// What came of one process that is there. Nothing to be seen of it is no refusal.
fn of_target(report: &Report, must: Must, root_reads: bool) -> Judged {
    if report.outcome == Outcome::Absent {
        return (Status::CouldNotTell, report.words());
    }
    let control = Control::new(root_reads, "root reads its environment");
    verdict::granted(report, must, Some(&control))
}

fn has_account(uid: u32) -> bool {
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid));
    user.is_ok_and(|user| user.is_some())
}

/// Subordinate ids of a user, of the files and of whatever else the helpers ask.
pub(super) fn owned_ids(
    subject: &crate::prove::subject::Subject,
    uid: u32,
    users: bool,
) -> Vec<UidRange> {
    let accounts = &subject.accounts;
    let mut owned = if users {
        accounts.subordinate_uids(uid)
    } else {
        accounts.subordinate_gids(uid)
    };
    owned.extend(process::subordinate_ids(uid, users));
    owned.sort_unstable();
    owned.dedup();
    owned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_stands_beside_its_own_control() {
        let of = |outcome, read| of_target(&Report::new(outcome, ""), Must::Fail, read).0;
        assert_eq!(of(Outcome::Refused, true), Status::Holds);
        assert_eq!(of(Outcome::Refused, false), Status::CouldNotTell);
        for read in [true, false] {
            assert_eq!(of(Outcome::Granted, read), Status::Broken);
            assert_eq!(of(Outcome::Unable, read), Status::CouldNotTell);
            assert_eq!(of(Outcome::Absent, read), Status::CouldNotTell);
        }
    }
}
