//! Who works on what, when: tickets, wakes, runs, containers.
//!
//! This room decides which agent works on which ticket, starts each run in a container of its own
//! behind the gate, and keeps everything that happened. It never holds an upstream secret, never
//! dials out, and never believes what an agent says about itself.
//!
//! Follow one wake: [`store::wakes`] admits it, [`scheduler::decide`] says when it becomes a run,
//! [`supervise`] carries the run out through [`container::Engine`] and [`gate_client`], the agent
//! works through [`api`], and [`timeline`] shows what came of it.

pub mod anchor;
pub mod api;
pub mod cli;
pub mod config;
pub mod container;
pub mod environment;
pub mod exec;
pub mod gate_client;
pub mod model;
pub mod operator_client;
pub mod proof;
pub mod relay;
pub mod routines;
pub mod scheduler;
pub mod sidecar;
pub mod socket_client;
pub mod spawn;
pub mod store;
pub mod supervise;
pub mod timeline;
pub mod workspace;
