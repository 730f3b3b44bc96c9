//! The gate's custody, shown on the real program: what it refuses to start with, what is left of
//! its privileges, who may use the control socket, and what happens to runs, reloads and a full
//! disk. Needs root, like everything that changes uids and mounts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod custody {
    pub(crate) mod fixture;

    mod audit;
    mod boundary;
    mod control;
    mod descriptors;
    mod hardening;
    mod secrets;
    mod start;
    mod vouching;
}
