//! Harness of the acceptance suite: what a test needs to start the real programs on a throw-away
//! host and to watch what leaves.
//!
//! It never calls into a room's code to decide anything: the programs are judged as executables,
//! through the protocols they speak. Start reading at [`stand_in`] for the upstreams.

pub mod pki;
pub mod probe;
pub mod stand_in;
