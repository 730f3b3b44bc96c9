//! Agents that own subordinate ids without being there for it.
//!
//! `useradd` gives every ordinary account a range unasked. The rules shut such ranges as well when the
//! owner is listed by name, so nothing gets out by them; but an agent that is many users can keep
//! files and processes from those who look after it, and whoever is shut should be no more than the
//! configuration says. Only the users under `reserves` may own ranges: no agent runs as they
//! themselves, each run gets a slice of its own.

use crate::accounts::{Accounts, Ids, UidRange};
use crate::config::{Config, User};
use crate::verify::{Difference, Kind};

/// The users under `reserves` themselves.
pub(crate) fn uids(config: &Config, accounts: &Accounts) -> Vec<u32> {
    let reserves = config.reserves.iter();
    reserves
        .filter_map(|user| match &user.value {
            User::Uid(uid) => Some(*uid),
            User::Name(name) => accounts.uid_of(name),
        })
        .collect()
}

/// One difference per line of `/etc/subuid` and `/etc/subgid` that gives ids to an agent.
pub(crate) fn strays(config: &Config, accounts: &Accounts, agents: &[UidRange]) -> Vec<Difference> {
    let reserves = uids(config, accounts);
    accounts
        .owned()
        .filter(|(_, _, uid)| agents.iter().any(|shut| shut.contains(*uid)))
        .filter(|(_, _, uid)| !reserves.contains(uid))
        .map(|(ids, entry, uid)| {
            let (file, tool, option, what) = match ids {
                Ids::Users => ("/etc/subuid", "newuidmap", "--del-subuids", "uids"),
                Ids::Groups => ("/etc/subgid", "newgidmap", "--del-subgids", "gids"),
            };
            let (first, last) = (entry.range.first, entry.range.last);
            let count = last - first + 1;
            let owner = &entry.owner;
            Difference {
                kind: Kind::Able,
                what: format!("{file}:{}: \"{owner}:{first}:{count}\"", entry.line),
                detail: format!(
                    "uid {uid} is an agent and owns subordinate {what}: {tool} makes it any of them\n  \
                     hint: usermod {option} {first}-{last} {owner}; only a user under reserves, as \
                     whom no agent runs, may own ids for runs"
                ),
            }
        })
        .collect()
}
