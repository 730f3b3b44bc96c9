//! `portcullis-proxy`: see [`proxy::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    proxy::cli::main()
}
