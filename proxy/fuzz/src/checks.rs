//! What must hold of every parser, whatever bytes a peer sends. Each check takes one input and
//! panics where something does not hold; the fuzzer feeds them, and `cargo test` replays what is in
//! `corpus/` through them.

mod audit;
mod authority;
mod control;
#[macro_use]
pub(crate) mod dns;
mod frames;
mod graphql;
mod head;
mod hello;
mod history;
mod path;
mod peek;
mod policy;
mod proxmox;
mod receive_pack;
mod scrub;
mod store;
mod strip;
mod token;
mod usage;

pub(crate) use self::audit::check as audit;
pub(crate) use self::authority::check as authority;
pub(crate) use self::control::check as control;
pub(crate) use self::dns::check as dns;
pub(crate) use self::frames::check as frames;
pub(crate) use self::graphql::check as graphql;
pub(crate) use self::head::check as head;
pub(crate) use self::hello::check as hello;
pub(crate) use self::history::check as history;
pub(crate) use self::path::check as path;
pub(crate) use self::peek::check as peek;
pub(crate) use self::policy::check as policy;
pub(crate) use self::proxmox::check as proxmox;
pub(crate) use self::receive_pack::check as receive_pack;
pub(crate) use self::scrub::check as scrub;
pub(crate) use self::store::check as store;
pub(crate) use self::strip::check as strip;
pub(crate) use self::token::check as token;
pub(crate) use self::usage::check as usage;

#[cfg(test)]
mod tests;
