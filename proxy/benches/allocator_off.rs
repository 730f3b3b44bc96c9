//! The same as `allocator`, with memory given back as it is.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement prints its figures and has nobody to recover for"
)]

#[path = "allocator/cost.rs"]
mod cost;
#[path = "../tests/data_path/stand.rs"]
#[allow(dead_code, reason = "the tests use all of it")]
mod stand;
#[path = "../tests/data_path/upstream.rs"]
#[allow(dead_code, reason = "the tests use all of it")]
mod upstream;

fn main() {
    cost::print("as it is");
}
