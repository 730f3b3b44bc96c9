//! `portcullis-boundary`: the kernel boundary on the command line.

mod cli;
mod output;
mod talker;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
