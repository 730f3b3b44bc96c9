//! What runs need of the host: subordinate ids of their own, and user namespaces that ordinary accounts may make.

use std::path::Path;

use super::{Finding, PATIENCE, Verdict, first_line};
use crate::instance::Instance;
use crate::process::Call;
use crate::subid::{self, Range, SubidFiles};

/// Settings that keep ordinary accounts from user namespaces, and the value that does so.
const SWITCHES: [(&str, &str, &str); 3] = [
    (
        "user/max_user_namespaces",
        "0",
        "user.max_user_namespaces=65536",
    ),
    (
        "kernel/unprivileged_userns_clone",
        "0",
        "kernel.unprivileged_userns_clone=1",
    ),
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "kernel.apparmor_restrict_unprivileged_userns=0",
    ),
];

pub(super) fn checks(instance: &Instance) -> Vec<Finding> {
    let mut found = ranges(instance);
    found.push(namespaces(instance));
    found
}

fn ranges(instance: &Instance) -> Vec<Finding> {
    let repair = "portcullis up";
    match SubidFiles::default().ranges() {
        Err(problem) => {
            let fact = crate::output::chain(&problem);
            vec![Finding::new(
                "subuid",
                Verdict::Unknown,
                first_line(&fact),
                repair,
            )]
        }
        Ok((uids, gids)) => instance
            .range_owners()
            .into_iter()
            .map(|owner| {
                let (verdict, fact) = judge_range(&owner, &uids, &gids);
                Finding::new("subuid", verdict, fact, repair).of(owner)
            })
            .collect(),
    }
}

/// One range of the right size, the same in both files, that meets nobody else's.
fn judge_range(owner: &str, uids: &[Range], gids: &[Range]) -> (Verdict, String) {
    let Some(own) = subid::held(owner, uids, gids) else {
        let fact = "it has no range of its own, or not the same in /etc/subuid and /etc/subgid";
        return (Verdict::Bad, fact.to_owned());
    };
    let other = uids
        .iter()
        .chain(gids)
        .find(|other| other.owner != owner && other.meets(own));
    match other {
        Some(other) => {
            let fact = format!("its ids are {}'s too: runs would share them", other.owner);
            (Verdict::Bad, fact)
        }
        None => (Verdict::Ok, format!("{} ids from {}", own.count, own.first)),
    }
}

/// A namespace like that of a run, made by the account that makes them: ids from its range, a `/proc` of its own.
fn namespaces(instance: &Instance) -> Finding {
    let user = instance.layout.user("orchestrator");
    let found =
        |verdict, fact: String, repair: &str| Finding::new("nesting", verdict, fact, repair);
    for (switch, shut, set) in SWITCHES {
        let path = Path::new("/proc/sys").join(switch);
        let value = std::fs::read_to_string(&path).unwrap_or_default();
        if value.trim() == shut {
            let fact = format!("{switch} is {shut}: ordinary accounts make no user namespaces");
            return found(Verdict::Bad, fact, &format!("sysctl -w {set}"));
        }
    }
    let repair =
        "in the host of this guest: lxc config set GUEST security.nesting true; apt install uidmap";
    let probe = Call::bounded(PATIENCE)
        .args([
            "unshare",
            "--map-root-user",
            "--map-auto",
            "--mount",
            "--pid",
            "--fork",
        ])
        .args(["--mount-proc", "true"])
        .as_user(&user);
    match probe.and_then(super::ended) {
        Ok((code, _, err)) => {
            let (verdict, fact) = judge_namespace(&user, code, &err);
            found(verdict, fact, repair)
        }
        Err(problem) => {
            let fact = crate::output::chain(&problem);
            found(Verdict::Unknown, fact, "portcullis up")
        }
    }
}

/// Of the probe's exit status, and what it said.
fn judge_namespace(user: &str, code: Option<i32>, err: &str) -> (Verdict, String) {
    match code {
        Some(0) => (
            Verdict::Ok,
            format!("{user} can make a user namespace with a /proc of its own"),
        ),
        Some(_) => (Verdict::Bad, format!("{user}: {}", first_line(err))),
        None => (
            Verdict::Unknown,
            format!("{user}: whether it can make a user namespace could not be told in time"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_that_had_to_be_ended_is_no_refusal() {
        let of = |script: &str| {
            let call = Call::bounded(1).args(["sh", "-c", script]);
            let (code, _, err) = super::super::ended(call).unwrap();
            judge_namespace("p", code, &err)
        };
        assert_eq!(of("true").0, Verdict::Ok);
        let (verdict, fact) = of("echo Operation not permitted >&2; exit 1");
        assert_eq!(
            (verdict, fact.as_str()),
            (Verdict::Bad, "p: Operation not permitted")
        );
        for hangs in ["exec sleep 600", "kill -KILL $$"] {
            assert_eq!(of(hangs).0, Verdict::Unknown, "{hangs}");
        }
    }

    #[test]
    fn a_range_is_whole_alike_in_both_files_and_nobody_else_s() {
        let range = |owner: &str, first: u32, count: u32| Range {
            owner: owner.to_owned(),
            first,
            count,
        };
        let own = [range("p-exec", 200_000, 65_536)];
        let of = |uids: &[Range], gids: &[Range]| judge_range("p-exec", uids, gids).0;
        assert_eq!(of(&own, &own), Verdict::Ok);
        assert_eq!(of(&own, &[]), Verdict::Bad);
        assert_eq!(of(&[], &[]), Verdict::Bad);
        let small = [range("p-exec", 200_000, 1_000)];
        assert_eq!(of(&small, &small), Verdict::Bad);
        let beside = [own[0].clone(), range("ann", 265_536, 65_536)];
        assert_eq!(of(&beside, &own), Verdict::Ok);
        let over = [own[0].clone(), range("ann", 265_535, 65_536)];
        assert_eq!(of(&over, &own), Verdict::Bad);
        assert_eq!(of(&own, &over), Verdict::Bad);
    }
}
