//! The parsers that read a peer's bytes, compiled alone from the rooms they live in, and what must
//! hold of them.

#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "a parser is taken whole, and only a part of it is asked here"
)]

#[path = "../../src"]
mod gate {
    pub(crate) mod delegate;
    pub(crate) mod framing;
    pub(crate) mod scrub;
    pub(crate) mod strip;
}
use gate::{delegate, framing, scrub, strip};

#[path = "../../src/audit"]
mod audit {
    pub(crate) type Seq = u64;
    const FILE: &str = "audit.jsonl";
    pub(crate) mod chain;
    pub(crate) mod checkpoint;
    mod index;
    pub(crate) mod query;
    mod segment;
    mod snapshot;
}

#[path = "../../src/control"]
mod control {
    pub(crate) mod command;
}

#[path = "../../src/history"]
mod history {
    pub(crate) mod graph;
    pub(crate) mod pack;
}

#[path = "../../src/inspect"]
mod inspect {
    mod form;
    pub(crate) mod graphql;
    mod json;
    pub(crate) mod parameters;
    pub(crate) mod receive_pack;
    pub(crate) mod usage;
}

#[path = "../../src/redirected"]
mod redirected {
    pub(crate) mod peek;
}

#[path = "../../src/resolver"]
mod resolver {
    pub(crate) mod dns;
}

#[path = "../../../orchestrator/src/relay"]
mod relay {
    pub(crate) mod dns;
}

#[path = "../../src/store"]
mod store {
    pub(crate) mod entry;
}

#[path = "../../src/token"]
mod token {
    pub(crate) mod reading;
}

#[path = "../../src/tunnel"]
mod tunnel {
    pub(crate) mod hello;
}

#[macro_use]
mod checks;

/// One function for each target, of the target's name.
macro_rules! targets {
    ($($name:ident)*) => {
        $(
            /// Panics where something does not hold.
            pub fn $name(bytes: &[u8]) {
                checks::$name(bytes);
            }
        )*
    };
}

targets! {
    audit authority control dns frames graphql head hello history path peek policy proxmox receive_pack scrub store strip
    token usage
}

/// The relay's end of DNS holds what the gate's does.
pub fn relay_dns(packet: &[u8]) {
    holds_of_dns!(crate::relay::dns, packet);
}
