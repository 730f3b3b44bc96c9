//! What cannot be tried with the rules of this machine, because it is about the moment they are loaded, or about a container
//! behind it: a small world of network namespaces, into which the configured rules are loaded by the same code and the same
//! kernel.
//!
//! ```text
//!   container (198.51.100.2) --veth-- this process's namespace (192.0.2.1) --veth-- outside (192.0.2.2)
//!                                     the rules are loaded here                     a packet socket records
//! ```
//! It begins in a namespace of its own, without rules, and all of it goes with the process. A socket is judged by the user who
//! made it, so those of the agent and of the gate's user are made by threads that are those users for that.

mod place;
mod world;

use nftables::accounts::Accounts;
use nftables::config::{Config, Forward, Scope};
use nftables::ruleset::Ruleset;

use crate::prove::kind::Kind;
use crate::prove::task::{Outcome, Report, Task};
use world::World;

/// One of the three, by root in a namespace of its own. `paths[0]` is the boundary's configuration, `number` the agent's uid,
/// `names[0]` that of the gate's user. Granted: so much passed. Refused: nothing did, and it would have.
pub(super) fn run(task: &Task) -> Report {
    match attempt(task) {
        Ok(report) => report,
        Err(why) => Report::new(Outcome::Unable, why),
    }
}

fn attempt(task: &Task) -> Result<Report, String> {
    let (Some(file), Some(gate)) = (task.paths.first(), task.names.first()) else {
        return Err("the attempt names no configuration".to_owned());
    };
    let gate = gate.parse().map_err(|_| format!("{gate:?} is no uid"))?;
    let config = Config::load(file).map_err(|error| error.to_string())?;
    let accounts = Accounts::load().map_err(|error| error.to_string())?;
    let ruleset = Ruleset::build(&config, &accounts, jiff::Timestamp::now())
        .map_err(|error| error.to_string())?;
    let hosts = config.scope == Scope::Agents && config.forward == Some(Forward::Host);
    if task.kind == Kind::Forwarded && hosts {
        let why = "the configuration leaves to the host what it forwards";
        return Ok(Report::new(Outcome::Absent, why));
    }
    let world = World::make(ruleset, task.number, gate)?;
    let passed = match task.kind {
        Kind::OlderFlow => world.older_flow(),
        Kind::Reload => world.reload(),
        _ => world.forwarded(),
    }?;
    let over = if world.families == 1 {
        "over IPv4, and there is no IPv6 here"
    } else {
        "over IPv4 and IPv6"
    };
    Ok(match passed {
        0 => Report::new(
            Outcome::Refused,
            format!("nothing of the agent's passed {over}"),
        ),
        some => Report::new(
            Outcome::Granted,
            format!("{some} packets of the agent's passed {over}"),
        ),
    })
}

#[cfg(test)]
mod tests;
