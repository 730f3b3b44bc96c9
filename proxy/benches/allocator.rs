//! What it costs that memory is overwritten before it is given back, as in the gate: compare with
//! `cargo bench -p proxy --bench allocator_off`.

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

#[global_allocator]
static ALLOCATOR: proxy::vault::Wiping = proxy::vault::Wiping;

fn main() {
    cost::print("overwritten");
}
