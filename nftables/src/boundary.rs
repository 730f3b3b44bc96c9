//! `apply`, `verify` and `remove` as one operation each, for the command, the watcher and
//! provisioning.

use crate::accounts::{Accounts, AccountsError};
use crate::config::{Config, Scope};
use crate::detour;
use crate::diagnostics::Diagnostics;
use crate::foreign;
use crate::forwarding;
use crate::lock;
use crate::netlink::{self, NetlinkError};
use crate::ports;
use crate::processes;
use crate::reserves;
use crate::ruleset::{Ruleset, routing_table};
use crate::sockets::{self, Cut};
use crate::status::{Status, StatusError};
use crate::verify::{self, Difference};
use crate::warning::{About, Warning};

#[derive(Debug, thiserror::Error)]
pub enum BoundaryError {
    #[error(transparent)]
    Config(#[from] Diagnostics),
    #[error(transparent)]
    Accounts(#[from] AccountsError),
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    #[error(transparent)]
    Status(#[from] StatusError),
    #[error("reading the system's state")]
    System(#[from] std::io::Error),
    #[error(
        "the accounts changed, and {0}; the watcher only shuts, so the former rules are kept until somebody applies the new ones, and shut whoever is an agent by now"
    )]
    WouldOpen(String),
    #[error("the rules were loaded but do not read back as written:\n{}", list(.0))]
    NotAsWritten(Vec<Difference>),
    #[error("another table can undo what this one judges:\n{}", list(.0))]
    Undone(Vec<Difference>),
}

/// What `apply` did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    pub ruleset: Ruleset,
    /// What was different before; empty when nothing had to change.
    pub before: Vec<Difference>,
    /// Sockets of shut users that were older than the rules.
    pub cut: Cut,
    /// What else a person should know.
    pub warnings: Vec<Warning>,
}

impl Applied {
    pub fn changed(&self) -> bool {
        !self.before.is_empty()
    }
}

/// The ruleset that this configuration means on this host now.
pub fn ruleset(config: &Config) -> Result<Ruleset, BoundaryError> {
    let accounts = Accounts::load()?;
    Ok(Ruleset::build(config, &accounts, jiff::Timestamp::now())?)
}

/// Makes the kernel hold exactly this boundary, proves it by reading it back, and writes the
/// status file. Changes nothing when it already stands.
pub fn apply(config: &Config) -> Result<Applied, BoundaryError> {
    netlink::permitted()?;
    let _turn = lock::take(&config.status)?;
    let ruleset = ruleset(config)?;
    let before = verify::verify(&ruleset)?;
    let mut cut = Cut::default();
    if !before.is_empty() {
        cut = load(&ruleset)?;
    }
    let breaches = foreign::look(&ruleset)?.breaches;
    let problem =
        (!breaches.is_empty()).then(|| BoundaryError::Undone(breaches.clone()).to_string());
    Status::now(
        Some(&ruleset),
        config.scope.as_str(),
        &config.table,
        problem,
    )?
    .with_events_of(&config.status)
    .write(&config.status)?;
    if !breaches.is_empty() {
        return Err(BoundaryError::Undone(breaches));
    }
    Ok(Applied {
        ruleset,
        before,
        cut,
        warnings: forwarding::warning(config).into_iter().collect(),
    })
}

/// Loads, reads back, and then closes sockets of shut users that were opened before. In scope
/// `guest` nothing is left to close: what has no uid passes only on the gate's own flows.
pub fn load(ruleset: &Ruleset) -> Result<Cut, BoundaryError> {
    netlink::replace(ruleset)?;
    settle(ruleset)
}

/// What follows once the rules are in force: the routes, the proof by reading back, the cut.
pub(crate) fn settle(ruleset: &Ruleset) -> Result<Cut, BoundaryError> {
    detour::apply(routing_table(&ruleset.table), ruleset.detour.as_ref())?;
    let after = verify::verify(ruleset)?;
    if !after.is_empty() {
        return Err(BoundaryError::NotAsWritten(after));
    }
    Ok(match ruleset.scope {
        Scope::Guest => Cut::default(),
        Scope::Agents => sockets::cut(ruleset.agents(), ruleset.detour.is_some())?,
    })
}

const NOBODY_NAMED: &str = "no agents are named, so nobody was looked at who could become somebody else (subordinate ids, \
                            processes without no_new_privs or with capabilities)\n  hint: agents = [\"coder\"] in \
                            boundary.toml; in scope \"guest\" that changes no rule";

/// What `verify` found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    pub ruleset: Ruleset,
    /// Empty means that the boundary stands as configured, and that nothing undoes it and nobody gets round it.
    pub differences: Vec<Difference>,
    /// What other tables do that opens nothing.
    pub warnings: Vec<Warning>,
}

/// Compares the kernel with the configuration, and looks at what else is in the namespace.
pub fn verify(config: &Config) -> Result<Verified, BoundaryError> {
    let accounts = Accounts::load()?;
    let wanted = Ruleset::build(config, &accounts, jiff::Timestamp::now())?;
    let observed = netlink::observe(&wanted.table)?;
    let ruleset = ports::as_low_as_held(wanted, observed.as_ref());
    let mut differences = verify::compare(&ruleset, observed.as_ref())?;
    let agents = match config.scope {
        Scope::Agents => ruleset.agents().to_vec(),
        Scope::Guest => config.shut(&accounts),
    };
    differences.extend(reserves::strays(config, &accounts, &agents));
    differences.extend(processes::able(config, &accounts, &agents));
    let neighbours = foreign::look(&ruleset)?;
    differences.extend(neighbours.breaches);
    let mut warnings = neighbours.warnings;
    warnings.extend(forwarding::warning(config));
    if agents.is_empty() {
        warnings.push(Warning {
            about: About::Unnamed,
            text: NOBODY_NAMED.to_owned(),
        });
    }
    Ok(Verified {
        ruleset,
        differences,
        warnings,
    })
}

/// Deletes the table and says so in the status file. `false` when there was no table.
pub fn remove(config: &Config) -> Result<bool, BoundaryError> {
    netlink::permitted()?;
    let _turn = lock::take(&config.status)?;
    let removed = netlink::remove(&config.table)?;
    detour::apply(routing_table(&config.table), None)?;
    let problem = Some("the boundary was removed".to_owned());
    Status::now(None, config.scope.as_str(), &config.table, problem)?
        .with_events_of(&config.status)
        .write(&config.status)?;
    Ok(removed)
}

fn list(differences: &[Difference]) -> String {
    let lines: Vec<String> = differences
        .iter()
        .map(|difference| format!("  {difference}"))
        .collect();
    lines.join("\n")
}
