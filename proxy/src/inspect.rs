//! Inspectors: they read the part of a body that a rule asks about, bounded, and state facts. They
//! never decide.

pub mod receive_pack;
