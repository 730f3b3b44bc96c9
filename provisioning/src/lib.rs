//! How a host becomes a Portcullis: idempotent steps, services, units, and the `portcullis` command.
//!
//! This room holds nothing at rest and decides nothing at run time: it never reads a secret it does not put in its place,
//! never judges a request and is never part of an agent's container. Accounts, files, services and the gate test are all
//! it knows; everything else it asks of the sibling binaries.
//!
//! Read [`up`], then [`step`], then whichever step you came for.

#![forbid(unsafe_code)]

pub mod cgroup;
pub mod cli;
pub mod control;
pub mod dispatch;
pub mod doctor;
pub mod down;
pub mod file;
pub mod gate_test;
pub mod guest;
pub mod instance;
pub mod layout;
pub mod manifest;
pub mod output;
pub mod process;
pub mod prove;
pub mod ready;
pub mod service;
pub mod site;
pub mod status;
pub mod step;
pub mod subid;
pub mod supervise;
pub mod systemd;
pub mod up;
