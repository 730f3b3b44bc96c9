//! `portcullis-proxy`: see [`proxy::cli`].

use std::process::ExitCode;

/// What any library leaves on the heap is overwritten when it is given back.
#[global_allocator]
static ALLOCATOR: proxy::vault::Wiping = proxy::vault::Wiping;

fn main() -> ExitCode {
    proxy::cli::main()
}
