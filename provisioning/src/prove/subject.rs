//! What is put to the proof: the boundary that is configured here, the users it names, and the instance around it.

mod places;
mod ways;

use std::path::{Path, PathBuf};

use nftables::accounts::{Accounts, AccountsError, UidRange};
use nftables::config::{Agents, Config, Scope, User};
use nftables::diagnostics::Diagnostics;
use nftables::ruleset::{Elements, Ruleset, SET_AGENTS};
use thiserror::Error;

use super::identity::Identity;
use super::kind::OnlyIn;
use crate::instance::Instance;
use crate::site::Site;

pub use places::expand;
pub use ways::{Excepted, Led};

#[derive(Debug, Error)]
pub enum SubjectError {
    #[error(transparent)]
    Config(#[from] Diagnostics),
    #[error(transparent)]
    Accounts(#[from] AccountsError),
    #[error("uid {0} is the gate's, and no agent's\n  hint: --agent names the uid of an agent")]
    AgentIsGate(u32),
    #[error("uid 0 is no agent's\n  hint: --agent names the uid of an agent")]
    AgentIsRoot,
}

/// Who and what there is.
#[derive(Debug)]
pub struct Subject {
    pub scope: OnlyIn,
    /// The boundary's table.
    pub table: String,
    pub gate: Identity,
    pub gate_port: u16,
    /// The uids that are shut; empty in scope `guest`, where all but the gate's are.
    pub ranges: Vec<UidRange>,
    pub agent: Identity,
    /// Accounts that are agents themselves: named in the configuration, or with a uid of a range in it. Not those under
    /// `reserves`, as whom no agent runs.
    pub named: Vec<Identity>,
    /// Subordinate ids of those under `reserves`: such uids are only in runs, which have a file system of their own.
    pub of_runs: Vec<UidRange>,
    /// Where agents' flows are led to the gate.
    pub led: Led,
    pub stranger: Identity,
    pub accounts: Accounts,
    pub instance: Option<Instance>,
    pub by_systemd: bool,
    /// The boundary's configuration.
    pub file: PathBuf,
    /// Exceptions that stand now.
    pub excepted: Vec<Excepted>,
}

impl Subject {
    /// Reads the boundary's configuration, of a file or of an instance, and chooses the users of the attempts.
    ///
    /// # Errors
    /// When the configuration is wrong, or the agent that was asked for cannot be one.
    pub fn open(
        file: &Path,
        instance: Option<Instance>,
        agent: Option<u32>,
    ) -> Result<Self, SubjectError> {
        let config = Config::load(file)?;
        let accounts = Accounts::load()?;
        let ruleset = Ruleset::build(&config, &accounts, jiff::Timestamp::now())?;
        let gate = match &config.proxy.value {
            User::Uid(uid) => Some(*uid),
            User::Name(name) => accounts.uid_of(name),
        };
        // `Ruleset::build` fails without the gate's user.
        let gate = gate.unwrap_or(u32::MAX);
        let ranges: Vec<UidRange> = ruleset
            .sets
            .iter()
            .filter(|set| set.name == SET_AGENTS)
            .find_map(|set| match &set.elements {
                Elements::Intervals(ranges) => Some(ranges.clone()),
                _ => None,
            })
            .unwrap_or_default();
        let agent = match agent {
            Some(0) => return Err(SubjectError::AgentIsRoot),
            Some(uid) if uid == gate => return Err(SubjectError::AgentIsGate(uid)),
            Some(uid) => uid,
            None => choose_agent(&ranges, gate),
        };
        let uid_of = |user: &User| match user {
            User::Uid(uid) => Some(*uid),
            User::Name(name) => accounts.uid_of(name),
        };
        let now = jiff::Timestamp::now();
        let standing = config.exceptions.iter().map(|exception| &exception.value);
        let excepted = standing
            .filter(|exception| exception.expires > now)
            .filter_map(|exception| {
                let uid = uid_of(&exception.user)?;
                // Whom nothing shuts an exception does not let out.
                let shut = ranges.is_empty() || ranges.iter().any(|range| range.contains(uid));
                (shut && uid != gate).then_some(Excepted {
                    uid,
                    address: exception.address,
                    prefix: exception.prefix,
                    port: exception.port,
                })
            })
            .collect();
        let reserves = config.reserves.iter();
        let reserves: Vec<u32> = reserves.filter_map(|user| uid_of(&user.value)).collect();
        let listed = config.agents.iter().filter_map(|entry| match &entry.value {
            Agents::User(user) => uid_of(user),
            Agents::Range(_) => None,
        });
        let owners = accounts.owned().map(|(_, _, uid)| uid);
        let shut_in = |uid: &u32| ranges.iter().any(|range| range.contains(*uid));
        let mut named: Vec<u32> = accounts_of_this_machine()
            .into_iter()
            .chain(owners)
            .filter(shut_in)
            .chain(listed)
            .filter(|uid| !reserves.contains(uid))
            .collect();
        named.sort_unstable();
        named.dedup();
        let of_runs = reserves
            .iter()
            .flat_map(|uid| accounts.subordinate_uids(*uid))
            .collect();
        let shut = |uid: u32| {
            uid == gate || uid == agent || ranges.iter().any(|range| range.contains(uid))
        };
        let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let stranger = stranger(&map, shut);
        Ok(Self {
            scope: match config.scope {
                Scope::Agents => OnlyIn::Agents,
                Scope::Guest => OnlyIn::Guest,
            },
            table: config.table,
            gate: Identity::of(gate),
            gate_port: config.gate_port,
            ranges,
            agent: Identity::of(agent),
            named: named.into_iter().map(Identity::of).collect(),
            of_runs,
            led: Led {
                ports: config.redirect.map(|redirect| redirect.ports),
                names: config.resolver.is_some(),
            },
            stranger: Identity::of(stranger),
            accounts,
            by_systemd: Site::host_has_systemd(),
            file: file.to_owned(),
            excepted,
            instance,
        })
    }

    /// The first and the last uid of every range that is shut.
    #[must_use]
    pub fn edges(&self) -> Vec<u32> {
        let mut edges: Vec<u32> = self
            .ranges
            .iter()
            .flat_map(|range| [range.first, range.last])
            .collect();
        edges.dedup();
        if edges.is_empty() {
            edges.push(self.agent.uid);
        }
        edges
    }

    /// The agent, and every account that is one.
    #[must_use]
    pub fn every_account(&self) -> Vec<Identity> {
        let others = self.named.iter().filter(|named| **named != self.agent);
        std::iter::once(&self.agent)
            .chain(others)
            .copied()
            .collect()
    }

    /// Each user of an exception once; `None` is root.
    #[must_use]
    pub fn excepted_users(&self) -> Vec<Option<Identity>> {
        let mut uids: Vec<u32> = self.excepted.iter().map(|excepted| excepted.uid).collect();
        uids.sort_unstable();
        uids.dedup();
        let identity = |uid| (uid != 0).then(|| Identity::of(uid));
        uids.into_iter().map(identity).collect()
    }

    /// Whether only a run's processes have this uid.
    #[must_use]
    pub fn is_only_in_runs(&self, uid: u32) -> bool {
        self.of_runs.iter().any(|range| range.contains(uid))
    }

    /// Whether an agent may have this uid.
    #[must_use]
    pub fn is_agent(&self, uid: u32) -> bool {
        if self.ranges.is_empty() {
            uid == self.agent.uid || self.named.iter().any(|named| named.uid == uid)
        } else {
            self.ranges.iter().any(|range| range.contains(uid))
        }
    }

    /// The paths of a proof, as they are here: `{etc}`, `{run}`, `{state}` and `{library}` are the instance's, and a `*`
    /// stands for every entry of a directory. Those of an instance are left out where there is none.
    #[must_use]
    pub fn paths(&self, written: &[String]) -> Vec<PathBuf> {
        expand(written, self.instance.as_ref())
    }
}

/// The middle of the longest range: with subordinate ids that is what a run gets. On a machine where all are shut, the
/// first ordinary account.
fn choose_agent(ranges: &[UidRange], gate: u32) -> u32 {
    let longest = ranges.iter().max_by_key(|range| range.last - range.first);
    if let Some(range) = longest {
        return range.first + (range.last - range.first) / 2;
    }
    let uids = accounts_of_this_machine().into_iter();
    uids.filter(|uid| (1000..60_000).contains(uid) && *uid != gate)
        .min()
        .unwrap_or(if gate == 1000 { 1001 } else { 1000 })
}

fn accounts_of_this_machine() -> Vec<u32> {
    let text = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let uids = text
        .lines()
        .filter_map(|line| line.split(':').nth(2)?.parse().ok());
    uids.collect()
}

/// A uid of nobody's whom nothing shuts in. A guest has only the ids of its own map, and the last of them is seldom taken.
fn stranger(map: &str, shut: impl Fn(u32) -> bool) -> u32 {
    const USUAL: u32 = 2_000_000_000;
    let ranges: Vec<(u64, u64)> = map
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let first: u64 = words.next()?.parse().ok()?;
            let count: u64 = words.nth(1)?.parse().ok()?;
            Some((first, first + count))
        })
        .collect();
    let mapped = |uid: u32| {
        let uid = u64::from(uid);
        ranges
            .iter()
            .any(|(first, end)| (*first..*end).contains(&uid))
    };
    if ranges.is_empty() || mapped(USUAL) {
        return (USUAL..).find(|uid| !shut(*uid)).unwrap_or(USUAL);
    }
    let last = ranges.iter().map(|(_, end)| end.saturating_sub(1)).max();
    let last = last
        .and_then(|last| u32::try_from(last).ok())
        .unwrap_or(USUAL);
    (1..=last)
        .rev()
        .find(|uid| mapped(*uid) && !shut(*uid))
        .unwrap_or(USUAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_chosen_from_the_middle_of_the_longest_range() {
        let range = |first, last| UidRange { first, last };
        assert_eq!(choose_agent(&[range(5, 5), range(1000, 2000)], 1), 1500);
        assert_eq!(choose_agent(&[range(7, 7)], 1), 7);
        assert_ne!(choose_agent(&[], 1000), 1000);
    }
}
