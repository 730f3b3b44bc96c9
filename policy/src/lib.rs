//! What may be done: the vocabulary and the judgement of the gate.
//!
//! This room is for turning a policy text and a request into an answer: a [`Permit`], a
//! [`Refusal`], or the wish to know more ([`Inspection`]). It never does I/O, never reads a clock,
//! an environment variable or a random number, never sees a secret (credentials are names here),
//! and never blocks.
//!
//! The one path to follow: [`Policy::parse`] reads a text, [`Policy::route`] says whether an
//! authority may be reached at all, [`Policy::decide`] judges one request on that route.

#![forbid(unsafe_code)]
#![deny(clippy::wildcard_enum_match_arm)]

pub mod address;
mod ask;
pub mod authority;
pub mod boundary;
mod caps;
mod case;
mod condition;
mod content;
pub mod credential;
mod diagnostics;
mod difference;
mod expand;
mod explain;
pub mod grant;
mod hold;
mod index;
mod metadata;
mod model;
pub mod money;
mod parameter;
pub mod path;
pub mod pattern;
mod permit;
mod policy;
mod provider;
mod push;
mod rate;
pub mod record;
mod refusal;
mod replay;
mod request;
mod schema;
mod service;
mod source;
mod suffix;
mod trial;
mod widening;

pub use ask::Asked;
pub use caps::Caps;
pub use case::Case;
pub use diagnostics::{Diagnostics, Problem};
pub use difference::{Difference, Power};
pub use hold::Held;
pub use model::ModelGlob;
pub use permit::{Permit, Route, RuleId, RuleIdError, SpkiPin, UpstreamTls};
pub use policy::{Decision, Policy, Routing};
pub use provider::Provider;
pub use rate::Rate;
pub use refusal::{Code, Refusal};
pub use replay::Replayed;
pub use request::{
    Body, Content, Facts, History, Inspection, Operation, OperationKind, Reading, RefUpdate,
    Request, Spool, Wanted,
};
pub use schema::schema;
pub use service::{Destination, ServiceView};
pub use trial::{Outcome, Trial, ref_update, split as split_url};
pub use widening::Widening;
