//! Who works on what, when: tickets, wakes, runs, containers.

pub mod container;
