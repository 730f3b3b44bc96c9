//! Who may reach the network: the kernel boundary.
//!
//! This room turns `boundary.toml` into one nftables table, loads it in a single transaction, reads
//! it back and says what differs. It never holds a secret, never listens on the network, and never
//! runs another program: everything goes through netlink.
//!
//! Reading path: [`config::Config`] (what was asked) -> [`accounts::Accounts`] (which uids that
//! means) -> [`ruleset::Ruleset`] (the boundary as a value) -> [`render`] (as text for people) and
//! [`encode`] (as kernel expressions) -> [`netlink`] (the only module that touches the rules, and
//! the only one with `unsafe`) and [`detour`] (the route behind it) -> [`verify`] (what the kernel holds against what it should).
//! [`boundary`] joins these into `apply` and `verify`; [`watch`] repeats them every second;
//! [`status`] is the file by which the gate knows that the boundary stands.

pub mod accounts;
pub mod boundary;
pub mod capabilities;
pub mod config;
pub mod counters;
pub mod detour;
pub mod diagnostics;
pub mod encode;
pub mod foreign;
mod forwarding;
pub mod history;
pub mod lock;
pub mod monitor;
pub mod netlink;
mod ports;
pub mod privilege;
pub mod proc;
mod processes;
pub mod reader;
pub mod render;
mod reserves;
pub mod ruleset;
pub mod sockets;
pub mod status;
pub mod verify;
pub mod warning;
pub mod watch;
