//! Agents' processes that could still become somebody else.
//!
//! Rules judge a uid, and a process with a capability can go past them: CAP_NET_RAW writes frames below every rule. So no
//! process of an agent's uid holds any (permitted, effective, inheritable or ambient; what the bounding set keeps is nobody's
//! yet, and needs a file that `no_new_privs` makes worthless). And a set-user-id file gives its caller another uid, which may be
//! let out. So every process of an agent's uid has `no_new_privs` (`NoNewPrivileges=yes` of a unit, `setpriv
//! --no-new-privs`; runs have it). Looked at are the processes of this network namespace: what these rules
//! see nothing of, they do not let out. Nor is whatever runs in a user namespace of its own: there a set-user-id file
//! gives no uid but one of that namespace's, which are the agent's, and its capabilities rule nothing outside. In scope
//! `guest` the list of agents has no other meaning than this.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread;
use std::time::Duration;
use std::{fs, io};

use crate::accounts::{Accounts, UidRange};
use crate::config::Config;
use crate::proc::{self, Status};
use crate::reserves;
use crate::verify::{Difference, Kind};

/// Whoever starts an agent becomes its user first and gives up the rest a moment later.
const SECOND_LOOK: Duration = Duration::from_millis(150);
/// How often a look asks for processes that came while it looked: one that only starts the next and ends is otherwise over
/// whenever its turn comes.
const PASSES: u32 = 16;

/// One difference per process of an agent that can gain rights by executing a file, and one per agent of whom each look
/// found another such process.
pub(crate) fn able(config: &Config, accounts: &Accounts, agents: &[UidRange]) -> Vec<Difference> {
    // As themselves these run what gives agents their ids, with the set-user-id `newuidmap`; no agent does.
    let reserves = reserves::uids(config, accounts);
    let agent = |uid: u32| agents.iter().any(|shut| shut.contains(uid)) && !reserves.contains(&uid);
    if agents.is_empty() {
        return Vec::new();
    }
    let first = look(Path::new("/proc"), &agent);
    if first.is_empty() {
        return Vec::new();
    }
    thread::sleep(SECOND_LOOK);
    let second = look(Path::new("/proc"), &agent);
    let (stayed, followed) = seen_twice(&first, second);
    let stayed = stayed.iter().map(|process| process.difference(accounts));
    let followed = followed.iter().map(|process| process.of_many(accounts));
    stayed.chain(followed).collect()
}

/// The processes of the second look that were there in the first; and, of each uid that both looks found and none of
/// these has, one. A process is told by its number and its start: what it is called, and as whom it runs, it chooses.
fn seen_twice(first: &[Process], second: Vec<Process>) -> (Vec<Process>, Vec<Process>) {
    let (stayed, came): (Vec<_>, Vec<_>) = second.into_iter().partition(|process| {
        let mut before = first.iter();
        before.any(|before| (before.pid, &before.started) == (process.pid, &process.started))
    });
    let mut followed: Vec<Process> = Vec::new();
    for process in came {
        let known = stayed.iter().chain(&followed);
        let told = known.into_iter().any(|known| known.uid == process.uid);
        if !told && first.iter().any(|before| before.uid == process.uid) {
            followed.push(process);
        }
    }
    (stayed, followed)
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
    pid: u32,
    /// In ticks since the machine started.
    started: String,
    uid: u32,
    /// At most 15 characters.
    name: String,
    rights: Rights,
    /// Whether its namespaces could not be read, for want of a privilege.
    unread: bool,
}

/// What a thread has that no agent should.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Rights {
    /// It lacks `no_new_privs`.
    may_gain: bool,
    /// `CAP_NET_RAW (effective, permitted)`, one for each that it holds.
    held: Vec<String>,
}

const DANGER: &str = "no_new_privs is not set: a set-user-id file would make it another user, whom the rules may let out";
const BARE: &str = "start agents without any (no AmbientCapabilities= in a unit, setpriv --inh-caps=-all \
                    --ambient-caps=-all, portcullis exec)";
const START: &str =
    "start agents with it (NoNewPrivileges=yes in a unit, setpriv --no-new-privs, portcullis exec)";

impl Process {
    fn difference(&self, accounts: &Accounts) -> Difference {
        let pid = self.pid;
        Difference {
            kind: Kind::Able,
            what: self.named(accounts),
            detail: format!(
                "{}{}\n  hint: {}, and end this one: kill {pid}",
                self.danger(),
                self.doubt(),
                self.remedy()
            ),
        }
    }

    /// Of those that start one another faster than anybody could be told of one.
    fn of_many(&self, accounts: &Accounts) -> Difference {
        let uid = self.uid;
        Difference {
            kind: Kind::Able,
            what: format!("{}, and another before it", self.named(accounts)),
            detail: format!(
                "{}{}\n  hint: {}, and end those of this uid at once: setpriv --reuid={uid} \
                 --clear-groups --no-new-privs sh -c 'kill -9 -1'",
                self.danger(),
                self.doubt(),
                self.remedy()
            ),
        }
    }

    fn danger(&self) -> String {
        let flag = self.rights.may_gain.then(|| DANGER.to_owned());
        let held = (!self.rights.held.is_empty()).then(|| {
            let list = self.rights.held.join(", ");
            format!("it holds {list}: with a capability a process can go past these rules")
        });
        let both: Vec<String> = flag.into_iter().chain(held).collect();
        both.join("; ")
    }

    fn remedy(&self) -> &'static str {
        if self.rights.may_gain { START } else { BARE }
    }

    fn named(&self, accounts: &Accounts) -> String {
        let Self { pid, uid, name, .. } = self;
        let user = accounts.describe(*uid);
        let user = user.as_deref().unwrap_or("no such user");
        format!("process {pid} ({name}) of uid {uid} ({user})")
    }

    fn doubt(&self) -> &'static str {
        if self.unread {
            " (whether it is in another network or user namespace cannot be read without CAP_SYS_PTRACE, so it counts)"
        } else {
            ""
        }
    }
}

fn look(root: &Path, agent: &impl Fn(u32) -> bool) -> Vec<Process> {
    let here = namespaces(&root.join("self"));
    let mut looked_at = BTreeSet::new();
    let mut found = Vec::new();
    for _ in 0..PASSES {
        let mut fresh = proc::numbers(root);
        fresh.retain(|pid| looked_at.insert(*pid));
        if fresh.is_empty() {
            break;
        }
        // The latest is the first to be gone.
        fresh.sort_unstable_by(|one, other| other.cmp(one));
        let able = fresh
            .into_iter()
            .filter_map(|pid| able_one(root, pid, &here, agent));
        found.extend(able);
    }
    found
}

/// This process, when one of its threads can gain rights where these rules judge.
fn able_one(
    root: &Path,
    pid: u32,
    here: &[io::Result<u64>; 2],
    agent: &impl Fn(u32) -> bool,
) -> Option<Process> {
    let directory = root.join(pid.to_string());
    let tasks = directory.join("task");
    // Each thread has the flag and the namespaces for itself. One that ended in between is none.
    let (uid, name, rights, unread) = proc::numbers(&tasks).into_iter().find_map(|thread| {
        let thread = tasks.join(thread.to_string());
        let status = Status::read(&thread).ok()?;
        let (uid, name, rights) = judge(&status, agent)?;
        let unread = shared(here, &namespaces(&thread))?;
        Some((uid, name, rights, unread))
    })?;
    let stat = fs::read_to_string(directory.join("stat")).unwrap_or_default();
    Some(Process {
        pid,
        started: started(&stat).unwrap_or_default().to_owned(),
        uid,
        name,
        rights,
        unread,
    })
}

/// `None` when the thread is in another namespace than we, or gone; else whether that could not be read. Then it counts.
fn shared(here: &[io::Result<u64>; 2], there: &[io::Result<u64>; 2]) -> Option<bool> {
    let mut unread = false;
    for pair in here.iter().zip(there) {
        match pair {
            (Ok(here), Ok(there)) if here == there => {}
            (Ok(_), Ok(_)) => return None,
            (_, Err(error)) if gone(error) => return None,
            (_, Err(_)) | (Err(_), _) => unread = true,
        }
    }
    Some(unread)
}

fn gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// A thread's network namespace, and its user namespace. Of other users' processes only CAP_SYS_PTRACE may read them.
fn namespaces(directory: &Path) -> [io::Result<u64>; 2] {
    ["net", "user"].map(|kind| proc::namespace(directory, kind))
}

/// The agent's uid, the program's name and what it may do, when this status of a thread says that it may do more than an agent
/// should. Any of its four uids counts: a set-user-id program that an agent runs has the agent's as the first.
fn judge(status: &Status, agent: &impl Fn(u32) -> bool) -> Option<(u32, String, Rights)> {
    if status.has_ended()? {
        return None;
    }
    let uid = status.uids().find(|uid| agent(*uid))?;
    let rights = Rights {
        may_gain: !status.no_new_privileges()?,
        held: status.capabilities(),
    };
    let any = rights.may_gain || !rights.held.is_empty();
    any.then(|| Some((uid, status.name()?.to_owned(), rights)))?
}

/// The 22nd field of `/proc/PID/stat`; the second may hold anything and ends with the last bracket.
fn started(stat: &str) -> Option<&str> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(19)
}

#[cfg(test)]
mod tests;
