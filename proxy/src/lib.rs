//! The only way out: intercept, identify, decide, record, inject, forward.
//!
//! This room holds the credentials and the certificate authority, and it is the one process whose
//! traffic the kernel boundary lets through. It never judges by itself (that is `policy`), never
//! starts another program, never resolves or dials without a `policy::Route` and never sends
//! without a `policy::Permit`.
//!
//! Read [`cli::run`] for how the process comes up: configuration, policies, privileges dropped,
//! then credentials, certificate authority, audit log, control socket and entrances.

pub mod audit;
pub mod boundary;
pub mod ca;
pub mod config;
pub mod credential;
pub mod harden;
pub mod policies;
pub mod runs;
pub mod vault;
