//! `portcullis`: the one command a person types.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    provisioning::cli::run(std::env::args_os())
}
