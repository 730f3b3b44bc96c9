//! Commands that somebody else starts later, or elsewhere: out of what shuts an agent in, and without its `no_new_privs`.

use std::io;
use std::thread;
use std::time::Duration;

use super::helpers::{Ended, program};
use crate::prove::task::{Outcome, Report};
use crate::prove::verdict;

/// What closes them. An account that cannot log in has them nonetheless: cron and at ask for its name alone. A uid without an
/// account, as runs have, is refused by both.
const REMEDY: &str = "to close it: a /etc/cron.allow without the agents' accounts (it may be empty), these accounts in \
                      /etc/at.deny, and `loginctl disable-linger` for them";
/// Each takes a command, and gives it up again; `sh` prints `taken` when it was. A table that is there already was taken before
/// us, and is left as it is.
const WAYS: [(&str, &str); 3] = [
    (
        "crontab",
        "command -v crontab >/dev/null || exit 127\n\
         if crontab -l >/dev/null 2>&1; then echo taken; exit 0; fi\n\
         printf '# portcullis prove\\n' | crontab - >/dev/null 2>&1 || exit 1\n\
         crontab -l 2>/dev/null | grep -q 'portcullis prove' || exit 1\n\
         crontab -r >/dev/null 2>&1; echo taken",
    ),
    (
        "at",
        "command -v at >/dev/null || exit 127\n\
         job=$(echo : | at now + 1 year 2>&1 | sed -n 's/^job \\([0-9][0-9]*\\) .*/\\1/p')\n\
         test -n \"$job\" || exit 1\n\
         atrm \"$job\" >/dev/null 2>&1; echo taken",
    ),
    (
        "systemd-run --user",
        "command -v systemd-run >/dev/null || exit 127\n\
         export XDG_RUNTIME_DIR=\"/run/user/$(id -u)\"\n\
         test -S \"$XDG_RUNTIME_DIR/systemd/private\" || exit 127\n\
         systemd-run --user --quiet --wait --collect true >/dev/null 2>&1 || exit 1\n\
         echo taken",
    ),
];

/// How long they may take, side by side. Each is a dozen programs one after the other, which a machine that is at work starts
/// slowly; nothing of what they ask takes time by itself.
const LATER_PATIENCE: Duration = Duration::from_secs(90);

/// Granted when one of them took it; refused only when each that is here said no.
pub(super) fn later() -> Report {
    let ways = thread::scope(|scope| {
        let started = WAYS.map(|(name, script)| (name, scope.spawn(move || way(script))));
        started.map(|(name, thread)| {
            let died = |_| Err(io::Error::other("it could not be watched"));
            (name, thread.join().unwrap_or_else(died))
        })
    });
    told(ways)
}

fn way(script: &str) -> io::Result<Ended> {
    // Twice: whether it is here at all says its own exit code, which `program` does not tell.
    let here =
        format!("if ({script}); then :; elif test $? = 127; then echo absent; else exit 1; fi");
    program(&["sh", "-c", &here], LATER_PATIENCE)
}

fn told(ways: impl IntoIterator<Item = (&'static str, io::Result<Ended>)>) -> Report {
    let (mut found, mut refused, mut untold) = (Vec::new(), Vec::new(), None);
    for (name, ended) in ways {
        match ended {
            Ok(Ended::Said(said)) if said.trim() == "taken" => found.push(name.to_owned()),
            Ok(Ended::Said(said)) if said.trim() == "absent" => {}
            Ok(Ended::Said(_) | Ended::Failed) => refused.push(name),
            Ok(Ended::Late) => untold = Some(format!("{name} did not end in time")),
            Err(error) if verdict::is_refused(&Report::of_error(&error)) => refused.push(name),
            Err(error) => untold = Some(format!("{name}: {error}")),
        }
    }
    if !found.is_empty() {
        return Report {
            found,
            ..Report::new(Outcome::Granted, format!("took a command ({REMEDY})"))
        };
    }
    match untold {
        Some(why) => Report::new(Outcome::Unable, why),
        None if refused.is_empty() => Report::new(Outcome::Absent, "none of them is here"),
        None => Report {
            errno: Some("EPERM".to_owned()),
            ..Report::new(Outcome::Refused, refused.join(", "))
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_takes_a_command_has_granted_it() {
        let said = |text: &str| Ok(Ended::Said(text.to_owned()));
        let of = |ways: Vec<io::Result<Ended>>| {
            told(ways.into_iter().map(|ended| ("cron", ended))).outcome
        };
        assert_eq!(
            of(vec![said("absent\n"), said("taken\n")]),
            Outcome::Granted
        );
        assert_eq!(
            of(vec![Ok(Ended::Failed), said("absent\n")]),
            Outcome::Refused
        );
        assert_eq!(of(vec![said("absent\n")]), Outcome::Absent);
        assert_eq!(
            of(vec![Ok(Ended::Late), Ok(Ended::Failed)]),
            Outcome::Unable
        );
        assert_eq!(of(vec![Ok(Ended::Late), said("taken\n")]), Outcome::Granted);
    }
}
