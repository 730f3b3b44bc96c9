//! The board end to end, with a scripted engine and a stand-in gate: real sockets, real database,
//! real scheduler and supervisor; no container.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod api;
mod approvals;
mod described;
mod gates;
mod heartbeat;
mod hooks;
mod hostile;
mod interactions;
mod isolation;
mod limits;
mod may;
mod model;
mod outputs;
mod overview;
mod plan;
mod race;
mod recovery;
mod routines;
mod support;
