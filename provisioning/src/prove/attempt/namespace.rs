//! Namespaces of the user's own, and the helpers that would give such a user other ids.

use std::fs;
use std::io::{self, Read as _};
use std::process::{Child, Command, Stdio};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getgid, getuid};

use crate::process::SEARCH_PATH;
use crate::prove::identity::SELF;
use crate::prove::kind::Inside;
use crate::prove::task::{Outcome, Report, Task};

/// Goes where the attempt is made from, as root of it.
pub(super) fn enter(inside: Option<Inside>) -> io::Result<()> {
    let flags = match inside {
        None => return Ok(()),
        Some(Inside::UserNamespace) => CloneFlags::CLONE_NEWUSER,
        Some(Inside::NetworkNamespace) => CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET,
    };
    let (uid, gid) = (getuid(), getgid());
    unshare(flags)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// Waits in a fresh user namespace without a map until standard input ends.
#[must_use]
pub fn wait_inside() -> Report {
    if let Err(error) = unshare(CloneFlags::CLONE_NEWUSER) {
        return Report::of_error(&error.into());
    }
    crate::output::data("inside");
    let mut rest = Vec::new();
    match io::stdin().read_to_end(&mut rest) {
        Ok(_) => Report::new(Outcome::Granted, ""),
        Err(error) => Report::of_error(&error),
    }
}

/// Asks the set-user-id helper for each of the ids in `names`, and reads the map back: what counts is what the kernel took.
pub(super) fn map(task: &Task, tool: &str, file: &str) -> Report {
    if !crate::process::is_installed(tool) {
        return Report::new(Outcome::Absent, format!("no {tool} on this machine"));
    }
    let mut report = Report::new(Outcome::Refused, "");
    for id in &task.names {
        match try_one(tool, file, id) {
            Ok(None) => report.found.push(id.clone()),
            Ok(Some(said)) => report.detail = said,
            Err(error) => {
                return Report {
                    outcome: Outcome::Absent,
                    detail: super::NO_NAMESPACE.to_owned(),
                    ..Report::of_error(&error)
                };
            }
        }
    }
    if !report.found.is_empty() {
        report.outcome = Outcome::Granted;
        report.detail = format!("{tool} gave the ids");
    }
    report
}

/// `None` when the map holds the id afterwards, else what the helper said.
fn try_one(tool: &str, file: &str, id: &str) -> io::Result<Option<String>> {
    let mut holder = Holder::start()?;
    let pid = holder.child.id();
    let output = Command::new(tool)
        .args([&pid.to_string(), "0", id, "1"])
        .env_clear()
        .env("PATH", SEARCH_PATH)
        .stdin(Stdio::null())
        .output()?;
    let map = fs::read_to_string(format!("/proc/{pid}/{file}"))?;
    holder.end();
    let mapped = map.split_whitespace().nth(1) == Some(id);
    let said = String::from_utf8_lossy(&output.stderr);
    Ok((!mapped).then(|| said.lines().next().unwrap_or("it said nothing").to_owned()))
}

/// A process in a user namespace that has no map yet.
struct Holder {
    child: Child,
}

impl Holder {
    fn start() -> io::Result<Self> {
        let mut child = Command::new(SELF)
            .args(["prove", "attempt", "--wait-inside"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut first = [0; 6];
        let mut output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let ready = output.read_exact(&mut first);
        let holder = Self { child };
        match ready {
            Ok(()) if &first == b"inside" => Ok(holder),
            _ => Err(io::Error::from_raw_os_error(1)),
        }
    }

    fn end(&mut self) {
        // It waits for nothing else.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.end();
    }
}
