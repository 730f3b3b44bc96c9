//! The acceptance suite: a module per promise, real programs only.
//!
//! Each test owns its namespace and its folders. A refusal is always tested beside the same request
//! in its permitted form, so that a dead gate cannot pass. A missing prerequisite is a failure.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod allowances;
mod architecture;
mod audit;
mod authority;
mod boot;
mod boundary;
mod clients;
mod containers;
mod credentials;
mod destinations;
mod doctor;
mod exec;
mod forward;
mod framing;
mod guest;
mod harness;
mod heartbeat;
mod held;
mod interfaces;
mod log;
mod outage;
mod policy;
mod prove;
mod provisioning;
mod pushes;
mod redirected;
mod runs;
mod secrets;
mod sidecar;
mod soak;
mod tokens;
mod unproven;
