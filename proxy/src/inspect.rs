//! Inspectors: they read the part of a request that a rule asks about, bounded, and state facts. They
//! never decide.

pub mod content;
pub mod form;
pub mod graphql;
pub mod json;
mod packed;
pub mod parameters;
pub mod receive_pack;
pub mod spool;
pub mod usage;
