//! The only way out: intercept, identify, decide, record, inject, forward.
//!
//! This room holds the credentials and the certificate authority, and it is the one process whose
//! traffic the kernel boundary lets through. It never judges by itself (that is `policy`), never
//! starts another program, never resolves or dials without a `policy::Route` and never sends
//! without a `policy::Permit`.
//!
//! Read [`cli::run`] for how the process comes up: configuration, policies, privileges dropped,
//! then credentials, certificate authority, audit log, control socket and entrances.

// A decision that gains a case must be looked at wherever it is matched.
#![warn(clippy::wildcard_enum_match_arm)]

pub mod allowance;
pub mod audit;
pub mod boundary;
pub mod ca;
pub mod classify;
pub mod cli;
pub mod config;
pub mod control;
pub mod credential;
mod delegate;
pub mod descriptors;
mod digest;
pub mod entrance;
pub mod errand;
pub mod exchange;
mod flood;
pub mod framing;
pub mod gate;
pub mod guarded;
pub mod harden;
pub mod history;
pub mod holds;
#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "the kernel's message enum is open-ended; what is not the answer is an error"
)]
pub mod identify;
pub mod inject;
pub mod inspect;
pub mod metrics;
pub mod names;
pub mod openpgp;
pub mod policies;
pub mod prices;
pub mod rates;
pub mod redirected;
pub mod refusal;
#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "the codes that matter to a look-up are few; the rest shares one sentence"
)]
pub mod resolver;
pub mod runs;
pub mod scrub;
pub mod share;
pub mod store;
pub mod strip;
pub mod tasks;
pub mod token;
pub mod tunnel;
#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "rustls' error enum is open-ended; the rest shares one sentence"
)]
pub mod upstream;
pub mod vault;

#[cfg(test)]
use fuzz::checks;

/// What the fuzz targets hold of the parsers, replayed over their corpus.
#[cfg(test)]
#[path = "../fuzz/src"]
mod fuzz {
    pub(crate) mod checks;
}
