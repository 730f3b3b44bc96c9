//! `orchestrator.toml`: read whole, checked whole, before any socket or database is touched.
//!
//! ```toml
//! state          = "/var/lib/portcullis/orchestrator"
//! board_socket   = "/run/portcullis/orchestrator/board.sock"
//! api_socket     = "/run/portcullis/orchestrator/api.sock"
//! control_socket = "/run/portcullis/proxy/control.sock"
//! trust          = "/var/lib/portcullis/trust"
//! relay          = "/usr/local/lib/portcullis/portcullis-relay"
//! proxy_user     = "portcullis-proxy"     # who may bring agents' requests to the board
//! operators      = ["alice", 1000]        # beside root
//! [hooks]                                 # none unless stated
//! socket         = "/run/portcullis/orchestrator/hooks.sock"
//! [limits]
//! memory_mib     = 2048
//! pids           = 512
//! [profile.deploy]
//! agent_wakes    = "approve"              # a wake that another agent writes waits for a person
//! concurrent     = 2
//! quiet          = "22:00-06:00 Europe/Berlin"
//! ```
//!
//! Every problem is reported in one pass as `FILE:LINE: KEY: problem` with a `hint:` line below. An
//! unknown key is an error that names the nearest known one. No environment variable is looked at.

mod document;
mod hooks;
mod parse;
mod profile;

use std::path::PathBuf;

pub use document::{Problem, Problems};
pub use hooks::Hooks;

use crate::container::Limits;
use crate::model::Profile;

/// Where the configuration lies unless `--config` says otherwise.
pub const DEFAULT_PATH: &str = "/etc/portcullis/orchestrator.toml";

/// The whole configuration, resolved: user names are uids, every path is absolute.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file this was read from.
    pub path: PathBuf,
    /// `state`: holds `state.db` and everything the orchestrator owns.
    pub state: PathBuf,
    /// `runs`: one directory per run with its output; `STATE/runs`.
    pub runs: PathBuf,
    /// `workspaces`: one directory per run; `STATE/workspaces`.
    pub workspaces: PathBuf,
    /// `rootfs`: the read-only system of run containers; `STATE/rootfs`.
    pub rootfs: PathBuf,
    /// `relay`: the first program of a run container.
    pub relay: PathBuf,
    /// `board_socket`: the API of agents; only the gate may connect.
    pub board_socket: PathBuf,
    /// `api_socket`: the API of people.
    pub api_socket: PathBuf,
    /// `control_socket`: the gate's.
    pub control_socket: PathBuf,
    /// `trust`: the CA files that run containers get.
    pub trust: PathBuf,
    /// `proxy_user`: the gate's uid, `portcullis-proxy` unless named.
    pub proxy_uid: u32,
    /// `operators`: uids that may use the API socket beside root and the orchestrator's own.
    pub operators: Vec<u32>,
    /// `ids`: the account whose subordinate range is cut into slices; the one we run as unless named.
    pub ids: Option<String>,
    /// `[hooks]`: the entrance of webhooks; none unless stated.
    pub hooks: Option<Hooks>,
    /// `[limits]` of one run.
    pub limits: Limits,
    /// `[profile.NAME]`: what holds for agents with this policy profile.
    pub profiles: Vec<Profile>,
    /// `concurrent`: how many runs may be live at once; as many as there are slices unless stated.
    pub concurrent: Option<u32>,
}

impl Config {
    /// The database file.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.state.join("state.db")
    }
}
