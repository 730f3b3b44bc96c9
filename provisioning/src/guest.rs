//! Guests: unprivileged system containers that host agents, made and remade without losing what they keep.
//!
//! What a guest keeps lies on a **data volume** of its own (database, authority, store, audit log, run logs). The guest is
//! expendable, the volume is not: [`keeper`] takes it off before anything is removed and refuses where it cannot. Who runs
//! the containers is a [`driver::Driver`]: Incus or LXD over its unix socket ([`lxd`]), or Proxmox VE over its API. A
//! virtual machine is never made.

pub mod command;
pub mod driver;
pub mod error;
pub mod http;
pub mod install;
pub mod keeper;
pub mod lxd;
pub mod name;

/// Where the data volume is mounted in a guest: the state of an instance at `/`.
pub const DATA: &str = "/var/lib/portcullis";
