//! Only the gate's user leaves.
//!
//! Every attempt is made twice by the same program on the same wire: with the boundary away the
//! peer must *receive* it, with the boundary up the peer must receive nothing, the caller must hear
//! of it (not hang), and the counters must name the user.

mod attempts;
mod cookies;
mod drift;
mod flows;
mod lab;
mod lifecycle;
mod loopback;
mod named;
mod openings;
mod privileges;
mod proof;
mod redirection;
mod sources;
mod verification;
mod watching;
