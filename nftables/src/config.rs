//! `boundary.toml`: what the boundary should be, before names are uids.
//!
//! ```toml
//! scope     = "agents"                # or "guest"
//! table     = "portcullis"
//! gate_port = 3128
//! proxy     = "portcullis-proxy"      # a user name or a uid
//! agents    = ["portcullis-orchestrator", "1500-1599"]
//! reserves  = ["portcullis-orchestrator"]   # of these, who may own subordinate ids
//! status    = "/run/portcullis/boundary/status.json"
//! forward   = "refuse"                # the default; or "host": what is forwarded is the host's own affair
//!
//! [[exception]]
//! user        = "_apt"
//! destination = "192.0.2.10:443"      # IP or CIDR, and a port; "[2001:db8::/32]:443"
//! protocol    = "tcp"                 # the default
//! reason      = "package downloads while provisioning"
//! expires     = "2027-01-01T00:00:00Z"
//!
//! [redirect]                          # programs that know no proxy are led to the gate
//! port  = 3129                        # where the gate takes them
//! ports = [80, 443]                   # only these; every TCP port when absent
//!
//! [resolver]                          # agents' DNS questions are led to the gate's resolver
//! port = 3153
//!
//! [guest.dhcp]                        # scope "guest" alone, each with its reason
//! user    = "root"                    # who renews the lease
//! servers = ["192.0.2.1"]
//! reason  = "the address is leased"
//!
//! [guest.resolver]                    # who may ask servers outside
//! user    = "systemd-resolve"
//! servers = ["192.0.2.53:53"]
//! reason  = "the gate resolves through it"
//!
//! [[guest.administration]]            # who may come in
//! sources = ["192.0.2.0/28"]
//! ports   = [22]
//! user    = "root"                    # whose socket listens; the default
//! reason  = "maintenance from the office"
//! ```

mod destination;
mod guest;
mod named;
mod read;
mod resolve;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

pub(crate) use guest::{Administration, Dhcp, Guest, Resolver};
pub use guest::{AdministrationName, DhcpName, GuestNames, ResolverName};

use crate::accounts::UidRange;
use crate::diagnostics::Diagnostics;
use crate::ruleset::{Opening, Ports};

/// A boundary file that is right in itself; names are looked up by `Ruleset::build`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The file as it was named, for messages.
    pub file: String,
    pub scope: Scope,
    pub table: String,
    pub gate_port: u16,
    pub redirect: Option<Redirect>,
    /// The port of the gate's policy resolver on loopback, UDP and TCP.
    pub resolver: Option<u16>,
    pub proxy: At<User>,
    /// Who is shut in scope `agents`. In scope `guest` everybody is; who stands here is held to having no way to become
    /// somebody else.
    pub agents: Vec<At<Agents>>,
    /// Those of `agents` whose subordinate ranges are there for runs to be given a slice of. Every other
    /// agent owns none, or `verify` says so.
    pub reserves: Vec<At<User>>,
    /// Where the status file is written.
    pub status: PathBuf,
    pub exceptions: Vec<At<Exception>>,
    /// What becomes of packets that this machine only passes on; `None` when the file does not say, which refuses them.
    pub forward: Option<Forward>,
    /// Nothing in scope `agents`.
    pub guest: GuestNames,
}

/// Agents' TCP flows that are led to the gate although they were meant for others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// Where on loopback the gate takes them.
    pub port: u16,
    /// Only flows to these ports, sorted; every port when empty.
    pub ports: Vec<u16>,
}

/// A value and the 1-based line it stands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At<T> {
    pub line: usize,
    pub value: T,
}

/// Who is shut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Everything but the gate: a machine that exists only for agents.
    Guest,
    /// Only the listed users: a host that does other things.
    Agents,
}

impl Scope {
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Guest => "guest",
            Scope::Agents => "agents",
        }
    }
}

/// What becomes of packets that this machine passes on for others. They carry no uid: whose container sent them, the kernel
/// does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forward {
    /// None passes, whoever sent it.
    Refuse,
    /// The host's own rules decide (scope `agents` alone).
    Host,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum User {
    Name(String),
    Uid(u32),
}

/// One entry of `agents`: a user stands for its uid and all its subordinate ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Agents {
    User(User),
    Range(UidRange),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    pub fn as_str(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        }
    }
}

/// One user may reach one place until a date.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exception {
    pub user: User,
    pub address: IpAddr,
    pub prefix: u8,
    pub port: u16,
    pub protocol: Protocol,
    pub reason: String,
    pub expires: jiff::Timestamp,
}

impl Config {
    /// Reads and checks one file; every problem is reported at once.
    pub fn load(path: &Path) -> Result<Self, Diagnostics> {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, &file),
            Err(error) => {
                let mut diagnostics = Diagnostics::new(file);
                diagnostics.add(
                    0,
                    "",
                    format!("cannot be read: {error}"),
                    "name the file with --config FILE",
                );
                Err(diagnostics)
            }
        }
    }

    /// The same from text; `file` is used in messages only.
    pub fn parse(text: &str, file: &str) -> Result<Self, Diagnostics> {
        read::config(text, file)
    }
}

/// The configuration with every name turned into uids. Exceptions that expired are gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) gate: u32,
    pub(crate) ports: Ports,
    /// Sorted and disjoint.
    pub(crate) agents: Vec<UidRange>,
    pub(crate) openings: Vec<Opening>,
    /// Whether nothing is passed on for others.
    pub(crate) shuts_forwarding: bool,
    pub(crate) guest: Guest,
}

#[cfg(test)]
mod tests;
