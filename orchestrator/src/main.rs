//! `portcullis-orchestrator`: who works on what, when.

use std::process::ExitCode;

fn main() -> ExitCode {
    orchestrator::cli::main()
}
