//! Names to uids, and the checks that need the host's accounts.

use super::{Agents, Config, Forward, Resolved, Scope, User};
use crate::accounts::{Accounts, UidRange};
use crate::diagnostics::Diagnostics;
use crate::ruleset::Opening;

impl Config {
    /// Turns names into uids; every problem is reported at once.
    pub(crate) fn resolve(
        &self,
        accounts: &Accounts,
        now: jiff::Timestamp,
    ) -> Result<Resolved, Diagnostics> {
        let mut problems = Diagnostics::new(&self.file);
        let gate = uid(&self.proxy.value, accounts);
        match gate {
            None => problems.add(
                self.proxy.line,
                "proxy",
                format!("user {} does not exist", name(&self.proxy.value)),
                "create the user first, or name the uid",
            ),
            Some(0 | 65_534 | u32::MAX) => problems.add(
                self.proxy.line,
                "proxy",
                "root and nobody cannot be the gate",
                "give the proxy a system user of its own",
            ),
            Some(_) => {}
        }
        let agents = self.agent_ranges(accounts, &mut problems);
        if let Some(gate) = gate {
            self.keep_apart(gate, &agents, accounts, &mut problems);
        }
        let openings = self.openings(gate, accounts, now, &mut problems);
        let guest = self.guest_users(gate, accounts, &mut problems);
        let resolved = gate.map(|gate| Resolved {
            gate,
            ports: self.ports(),
            agents,
            openings,
            shuts_forwarding: self.forward != Some(Forward::Host),
            guest,
        });
        problems.finish(resolved)
    }

    /// The uids that `agents` means on this host as far as it can be told: what is wrong with the list is `resolve`'s to say.
    pub(crate) fn shut(&self, accounts: &Accounts) -> Vec<UidRange> {
        let ranges = self.agent_ranges(accounts, &mut Diagnostics::new(&self.file));
        let is_no_agent = |range: &UidRange| range.contains(0) || range.last == u32::MAX;
        ranges
            .into_iter()
            .filter(|range| !is_no_agent(range))
            .collect()
    }

    fn agent_ranges(&self, accounts: &Accounts, problems: &mut Diagnostics) -> Vec<UidRange> {
        let mut ranges = Vec::new();
        let mut groups = Vec::new();
        for (index, entry) in self.agents.iter().enumerate() {
            let key = format!("agents[{index}]");
            let mine = match &entry.value {
                Agents::Range(range) => vec![*range],
                Agents::User(user) => match uid(user, accounts) {
                    Some(uid) => {
                        groups.extend(accounts.subordinate_gids(uid));
                        let mut mine = accounts.subordinate_uids(uid);
                        mine.push(UidRange::one(uid));
                        mine
                    }
                    None => {
                        problems.add(
                            entry.line,
                            key,
                            format!("user {} does not exist", name(user)),
                            "create the user first, or remove the entry",
                        );
                        continue;
                    }
                },
            };
            if mine.iter().any(|range| range.contains(0)) {
                problems.add(
                    entry.line,
                    key.as_str(),
                    "uid 0 cannot be an agent",
                    "root can remove any rule; run agents as users of their own",
                );
            }
            if mine.iter().any(|range| range.last == u32::MAX) {
                problems.add(
                    entry.line,
                    key,
                    "uid 4294967295 is not a user",
                    "end the range at 4294967294 or below",
                );
            }
            ranges.extend(mine);
        }
        let ranges = UidRange::merge(ranges);
        if self.scope == Scope::Guest {
            // The rules shut everybody; who is named here is looked at by `verify`.
            return ranges;
        }
        let groups = UidRange::merge([groups, ranges.clone()].concat());
        let uncovered = |entry: &(&str, u32, UidRange), covered: &[UidRange]| {
            let (_, uid, range) = entry;
            ranges.iter().any(|shut| shut.contains(*uid)) && !range.covered_by(covered)
        };
        let line = self.agents.first().map_or(0, |entry| entry.line);
        for entry in accounts.subuid_owners() {
            let (owner, uid, range) = entry;
            if uncovered(&entry, &ranges) {
                problems.add(
                    line,
                    "agents",
                    format!(
                        "uid {uid} is shut but owns subordinate uids {range} (as {owner:?} in \
                         /etc/subuid), which no entry covers: newuidmap would be a way out"
                    ),
                    format!(
                        "take the range away (usermod --del-subuids {range} {owner}), or list \
                         the user by name or the range itself"
                    ),
                );
            }
        }
        for entry in accounts.subgid_owners() {
            let (owner, uid, range) = entry;
            if uncovered(&entry, &groups) {
                problems.add(
                    line,
                    "agents",
                    format!(
                        "uid {uid} is shut but owns subordinate gids {range} (as {owner:?} in \
                         /etc/subgid), which no entry covers: newgidmap would lead into groups \
                         that nobody looked at"
                    ),
                    format!(
                        "take the range away (usermod --del-subgids {range} {owner}), or list \
                         the user by name or the range itself"
                    ),
                );
            }
        }
        ranges
    }

    fn keep_apart(
        &self,
        gate: u32,
        agents: &[UidRange],
        accounts: &Accounts,
        problems: &mut Diagnostics,
    ) {
        if agents.iter().any(|range| range.contains(gate)) {
            problems.add(
                self.proxy.line,
                "proxy",
                format!("uid {gate} is also listed under agents (or in a range they own)"),
                "the gate and the agents must be different users",
            );
        }
        for (owner, uid, range) in accounts.subuid_owners() {
            if range.contains(gate) && uid != 0 {
                problems.add(
                    self.proxy.line,
                    "proxy",
                    format!("uid {gate} lies in subordinate range {range} of {owner:?}"),
                    "that user could become the gate: move the range or the proxy's uid",
                );
            }
        }
    }

    fn openings(
        &self,
        gate: Option<u32>,
        accounts: &Accounts,
        now: jiff::Timestamp,
        problems: &mut Diagnostics,
    ) -> Vec<Opening> {
        let mut openings = Vec::new();
        for (index, entry) in self.exceptions.iter().enumerate() {
            let exception = &entry.value;
            // An exception that lapsed is no problem any more, even if its user is gone.
            if exception.expires <= now {
                continue;
            }
            let key = format!("exception[{index}].user");
            let Some(uid) = uid(&exception.user, accounts) else {
                problems.add(
                    entry.line,
                    key,
                    format!("user {} does not exist", name(&exception.user)),
                    "remove the exception, or correct the name",
                );
                continue;
            };
            if Some(uid) == gate {
                problems.add(
                    entry.line,
                    key,
                    "the gate needs no exception",
                    "remove the exception",
                );
                continue;
            }
            openings.push(Opening {
                number: index + 1,
                expires: exception.expires,
                uid,
                address: exception.address,
                prefix: exception.prefix,
                protocol: exception.protocol,
                port: exception.port,
                reason: exception.reason.clone(),
            });
        }
        openings
    }
}

pub(super) fn uid(user: &User, accounts: &Accounts) -> Option<u32> {
    match user {
        User::Uid(uid) => Some(*uid),
        User::Name(name) => accounts.uid_of(name),
    }
}

pub(super) fn name(user: &User) -> String {
    match user {
        User::Uid(uid) => uid.to_string(),
        User::Name(name) => format!("{name:?}"),
    }
}
