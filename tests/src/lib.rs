//! Harness of the acceptance suite: what a test needs to start the real programs on a throw-away
//! host and to watch what leaves.
//!
//! It never calls into a room's code to decide anything: the programs are judged as executables,
//! through the protocols they speak. One path to read: [`world`] puts a network namespace, a
//! resolver, upstreams, a real gate and an agent together; the other modules are its parts.

pub mod binaries;
pub mod bridge;
pub mod call;
pub mod canary;
pub mod clients;
pub mod command;
pub mod control;
pub mod engine;
pub mod gate;
pub mod host;
pub mod instance;
pub mod lxd;
pub mod machine;
pub mod matrix;
pub mod names;
pub mod netns;
pub mod pki;
pub mod probe;
pub mod stand_in;
pub mod upstream;
pub mod wait;
pub mod wall;
pub mod world;
