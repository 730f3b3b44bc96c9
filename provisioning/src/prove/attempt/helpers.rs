//! Programs of this machine that act in another user's name.

use std::io::{self, Read as _};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::Uid;

use crate::process::SEARCH_PATH;
use crate::prove::task::{Outcome, Report, Task};
use crate::prove::verdict;

/// Programs that run another one as root; each is asked for its uid.
const RAISING: [&[&str]; 6] = [
    &["sudo", "-n", "id", "-u"],
    &["doas", "-n", "id", "-u"],
    &["pkexec", "--disable-internal-agent", "id", "-u"],
    &["su", "root", "-c", "id -u"],
    &["runuser", "-u", "root", "--", "id", "-u"],
    &[
        "systemd-run",
        "--quiet",
        "--wait",
        "--pipe",
        "--no-ask-password",
        "id",
        "-u",
    ],
];
/// How long a program may take: some pause before they refuse, or ask others first.
const PROGRAM_PATIENCE: Duration = Duration::from_secs(20);

/// The set-user-id `ping`.
pub(super) fn ping(task: &Task) -> Report {
    let Some(address) = task.address else {
        return Report::new(Outcome::Unable, "the attempt names no address");
    };
    let seconds = task.patience_ms.div_ceil(1000).max(1).to_string();
    let address = address.to_string();
    let words = [
        "ping", "-n", "-q", "-c", "2", "-i", "0.3", "-w", &seconds, &address,
    ];
    match program(&words, PROGRAM_PATIENCE) {
        Ok(Ended::Said(_)) => Report::new(Outcome::Answered, ""),
        Ok(Ended::Failed) => Report::new(Outcome::Sent, ""),
        Ok(Ended::Late) => Report::new(Outcome::Unable, "ping did not end in time"),
        Err(error) => Report::of_error(&error),
    }
}

/// Programs that run another one as root, without a password.
pub(super) fn elevate(_: &Task) -> Report {
    raised(&RAISING, PROGRAM_PATIENCE)
}

/// Each is tried. Granted when one of them did it; refused only when each that is here said so.
fn raised(ways: &[&[&str]], patience: Duration) -> Report {
    let ended: Vec<(&str, io::Result<Ended>)> = thread::scope(|scope| {
        let started: Vec<_> = ways
            .iter()
            .map(|words| (words[0], scope.spawn(|| program(words, patience))))
            .collect();
        let ended = started.into_iter().map(|(name, thread)| {
            let died = |_| Err(io::Error::other("it could not be watched"));
            (name, thread.join().unwrap_or_else(died))
        });
        ended.collect()
    });
    let (mut found, mut refused, mut untold) = (Vec::new(), Vec::new(), None);
    for (name, ended) in ended {
        match ended {
            Ok(Ended::Said(said)) if said.trim() == "0" => found.push(name.to_owned()),
            Ok(Ended::Said(_) | Ended::Failed) => refused.push(name),
            Ok(Ended::Late) => untold = Some(format!("{name} did not end in time")),
            Err(error) => {
                let report = Report::of_error(&error);
                if verdict::is_refused(&report) {
                    refused.push(name);
                } else if report.outcome != Outcome::Absent {
                    untold = Some(format!("{name} did not start: {error}"));
                }
            }
        }
    }
    if !found.is_empty() {
        return Report {
            found,
            ..Report::new(Outcome::Granted, "ran a program as root")
        };
    }
    match untold {
        Some(why) => Report::new(Outcome::Unable, why),
        None if refused.is_empty() => Report::new(Outcome::Absent, "none of them is here"),
        None => Report::new(Outcome::Refused, refused.join(", ")),
    }
}

/// How a program ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It succeeded, and wrote this.
    Said(String),
    /// It said that it failed.
    Failed,
    /// Not in time: nobody knows what it would have done.
    Late,
}

pub(super) fn program(words: &[&str], patience: Duration) -> io::Result<Ended> {
    // Where a manager of the user's own would be.
    let runtime = format!("/run/user/{}", Uid::current());
    let mut child = Command::new(words[0])
        .args(&words[1..])
        .env_clear()
        .env("PATH", SEARCH_PATH)
        .env("XDG_RUNTIME_DIR", runtime)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let deadline = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait()? {
            let mut said = String::new();
            if let Some(mut output) = child.stdout.take() {
                output.read_to_string(&mut said)?;
            }
            return Ok(if status.success() {
                Ended::Said(said)
            } else {
                Ended::Failed
            });
        }
        if Instant::now() > deadline {
            // A program that runs as somebody else may not be ours to kill.
            if child.kill().is_ok() {
                child.wait()?;
            }
            return Ok(Ended::Late);
        }
        thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_late_has_not_refused() {
        const MISSING: &[&str] = &["no-such-program-as-this"];
        const REFUSES: &[&str] = &["false"];
        const RAISES: &[&str] = &["echo", "0"];
        const HANGS: &[&str] = &["sleep", "60"];
        const CANNOT_START: &[&str] = &["/etc/passwd/none"];
        let long = Duration::from_secs(60);
        let of = |ways: &[&[&str]], patience| raised(ways, patience).outcome;
        assert_eq!(of(&[MISSING], long), Outcome::Absent);
        assert_eq!(of(&[MISSING, REFUSES], long), Outcome::Refused);
        // It may be executed by others, or by nobody: that is said at once.
        assert_eq!(of(&[&["/etc/passwd"]], long), Outcome::Refused);
        assert_eq!(of(&[REFUSES, CANNOT_START], long), Outcome::Unable);
        let short = Duration::from_millis(200);
        assert_eq!(of(&[HANGS, REFUSES], short), Outcome::Unable);
        assert_eq!(of(&[RAISES, REFUSES], long), Outcome::Granted);
    }
}
