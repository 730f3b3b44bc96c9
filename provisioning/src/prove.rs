//! `portcullis prove`: tries everything that must fail, beside what must succeed, and says whether the boundary holds.
//!
//! Run by root it takes on the agent's user for each attempt and makes an outside peer of its own, whose record of what
//! arrived is the judge; each refusal stands beside a control, the same attempt by the gate's user. Run by anybody else it
//! attempts only, and says of what lacks a control that it could not tell.
//!
//! Reading path: [`list`] (what is tried) -> [`case`] (unfolded for this machine) -> [`run`] or [`alone`] -> [`attempt`]
//! (in a process of its own, [`identity`]) -> [`verdict`] -> [`report`].

pub mod alone;
pub mod attempt;
pub mod bare;
pub mod case;
pub mod command;
pub mod gate_run;
pub mod identity;
pub mod kind;
pub mod list;
pub mod needles;
pub mod outage;
pub mod peer;
pub mod process;
pub mod programs;
pub mod report;
pub mod run;
pub mod six;
pub mod sockets;
pub mod spawn;
pub mod subject;
pub mod task;
pub mod verdict;
