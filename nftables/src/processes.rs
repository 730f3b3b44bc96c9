//! Agents' processes that could still become somebody else.
//!
//! Rules judge a uid, and a set-user-id file gives its caller another one, which may be let out. So every
//! process of an agent's uid has `no_new_privs` (`NoNewPrivileges=yes` of a unit, `setpriv
//! --no-new-privs`; runs have it). Looked at are the processes of this network namespace: what these rules
//! see nothing of, they do not let out. Nor is whatever runs in a user namespace of its own: there a set-user-id file
//! gives no uid but one of that namespace's, which are the agent's. In scope `guest` nobody is listed as an agent.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::accounts::Accounts;
use crate::config::Config;
use crate::reserves;
use crate::ruleset::Ruleset;
use crate::verify::{Difference, Kind};

/// Whoever starts an agent becomes its user first and gives up the rest a moment later.
const SECOND_LOOK: Duration = Duration::from_millis(150);

/// One difference per process of an agent that can gain rights by executing a file.
pub(crate) fn able(config: &Config, accounts: &Accounts, ruleset: &Ruleset) -> Vec<Difference> {
    // As themselves these run what gives agents their ids, with the set-user-id `newuidmap`; no agent does.
    let reserves = reserves::uids(config, accounts);
    let agents = ruleset.agents();
    let agent = |uid: u32| agents.iter().any(|shut| shut.contains(uid)) && !reserves.contains(&uid);
    if agents.is_empty() {
        return Vec::new();
    }
    let first = look(Path::new("/proc"), &agent);
    if first.is_empty() {
        return Vec::new();
    }
    thread::sleep(SECOND_LOOK);
    look(Path::new("/proc"), &agent)
        .into_iter()
        .filter(|process| first.contains(process))
        .map(|process| process.difference(accounts))
        .collect()
}

/// A process, recognised again by when it started.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
    pid: u32,
    started: String,
    uid: u32,
    /// At most 15 characters.
    name: String,
}

impl Process {
    fn difference(&self, accounts: &Accounts) -> Difference {
        let Self { pid, uid, name, .. } = self;
        let user = accounts.describe(*uid);
        let user = user.as_deref().unwrap_or("no such user");
        Difference {
            kind: Kind::Able,
            what: format!("process {pid} ({name}) of uid {uid} ({user})"),
            detail: format!(
                "no_new_privs is not set: a set-user-id file would make it another user, whom the rules may let \
                 out\n  hint: start agents with it (NoNewPrivileges=yes in a unit, setpriv --no-new-privs, \
                 portcullis exec), and end this one: kill {pid}"
            ),
        }
    }
}

fn look(proc: &Path, agent: &impl Fn(u32) -> bool) -> Vec<Process> {
    let here = namespaces(&proc.join("self"));
    let numbers = |directory: &Path| -> Vec<u32> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect()
    };
    let mut found = Vec::new();
    for pid in numbers(proc) {
        let directory = proc.join(pid.to_string());
        // Each thread has the flag for itself. One that ended in between is none.
        let able = numbers(&directory.join("task"))
            .into_iter()
            .find_map(|thread| {
                let thread: PathBuf = directory.join("task").join(thread.to_string());
                let status = fs::read_to_string(thread.join("status")).ok()?;
                judge(&status, agent)
            });
        let Some((uid, name)) = able else { continue };
        // Where it is cannot be told without privilege: then it counts.
        let elsewhere = here.iter().zip(namespaces(&directory)).any(
            |(here, there)| matches!((here, there), (Some(here), Some(there)) if *here != there),
        );
        if elsewhere {
            continue;
        }
        let stat = fs::read_to_string(directory.join("stat")).unwrap_or_default();
        found.push(Process {
            pid,
            started: started(&stat).unwrap_or_default().to_owned(),
            uid,
            name,
        });
    }
    found
}

/// Its network namespace, and its user namespace.
fn namespaces(directory: &Path) -> [Option<u64>; 2] {
    ["ns/net", "ns/user"].map(|name| {
        let found = fs::metadata(directory.join(name)).ok();
        found.map(|found| found.ino())
    })
}

/// The agent's uid and the program's name, when this status of a thread says that it can gain rights. Any of its four
/// uids counts: a set-user-id program that an agent runs has the agent's as the first.
fn judge(status: &str, agent: &impl Fn(u32) -> bool) -> Option<(u32, String)> {
    let field = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.map(str::trim)
    };
    if field("NoNewPrivs:")? != "0" || field("State:")?.starts_with(['Z', 'X']) {
        return None;
    }
    let uid = field("Uid:")?
        .split_whitespace()
        .filter_map(|uid| uid.parse().ok())
        .find(|uid| agent(*uid))?;
    Some((uid, field("Name:")?.to_owned()))
}

/// The 22nd field of `/proc/PID/stat`; the second may hold anything and ends with the last bracket.
fn started(stat: &str) -> Option<&str> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(19)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(flag: &str, uids: &str, state: &str) -> String {
        format!("Name:\tbash\nState:\t{state}\nUid:\t{uids}\nNoNewPrivs:\t{flag}\n")
    }

    #[test]
    fn any_uid_of_an_agent_without_the_flag_counts() {
        let agent = |uid: u32| uid == 1500;
        let judged = |flag, uids, state| judge(&status(flag, uids, state), &agent);
        let found = Some((1500, "bash".to_owned()));
        assert_eq!(judged("0", "1500\t1500\t1500\t1500", "S (sleeping)"), found);
        assert_eq!(
            judged("0", "1500\t0\t0\t0", "R (running)"),
            found,
            "set-user-id"
        );
        assert_eq!(judged("0", "0\t1500\t0\t1500", "R (running)"), found);
        assert_eq!(judged("1", "1500\t1500\t1500\t1500", "S (sleeping)"), None);
        assert_eq!(judged("0", "1501\t1501\t1501\t1501", "S (sleeping)"), None);
        assert_eq!(judged("0", "1500\t1500\t1500\t1500", "Z (zombie)"), None);
        assert_eq!(judge("", &agent), None);
    }

    #[test]
    fn a_program_may_be_called_anything() {
        let mut stat = "7 (a) b (c) R".to_owned();
        for field in 4..=24 {
            stat.push_str(&format!(" {field}"));
        }
        assert_eq!(started(&stat), Some("22"));
        assert_eq!(started(""), None);
    }

    #[test]
    fn our_own_process_is_found_by_its_uid() {
        let me = nix::unistd::getuid().as_raw();
        let own = || look(Path::new("/proc"), &|uid| uid == me);
        let ours = |found: Vec<Process>| {
            found
                .iter()
                .any(|process| process.pid == std::process::id())
        };
        let flagged = nix::sys::prctl::get_no_new_privs().unwrap();
        assert_eq!(ours(own()), !flagged);
        assert!(look(Path::new("/proc"), &|_| false).is_empty());
    }
}
