//! Patterns of hosts, requests and refs. Compiled at load; matching allocates nothing.

mod entry;
mod glob;
mod host;
mod method;
mod refs;

pub(crate) use entry::Entry;
pub(crate) use glob::{Case, text_matches};
pub use host::HostPattern;
pub(crate) use method::{Method, text as methods_text};
pub(crate) use refs::{RefGlob, is_ref_name};

#[cfg(test)]
mod tests;
