//! `policy test`: the tests that stand in a policy file.

use std::path::{Path, PathBuf};

use clap::Args;
use policy::{Case, Policy};

use super::super::output::{Exit, say, tell};
use crate::policies::{self, PolicyError};

#[derive(Debug, Args)]
pub(in crate::cli) struct TestArgs {
    /// Policy files with `[[test]]` tables
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// 0 when every test of every file holds, 1 when one does not, 2 when there is none or a file cannot be read.
pub(super) fn test(args: &TestArgs) -> Exit {
    let mut exit = Exit::Yes;
    for file in &args.files {
        match one(file) {
            Ok(0) => {
                tell(&format!("error: {} has no test", file.display()));
                tell("  hint: add a `[[test]]` with request and expect; see docs/policy.md");
                exit = Exit::CouldNotTell;
            }
            Ok(failed) if failed < 0 => {
                if exit == Exit::Yes {
                    exit = Exit::No;
                }
            }
            Ok(_) => {}
            Err(problem) => {
                tell(&problem.to_string());
                exit = Exit::CouldNotTell;
            }
        }
    }
    exit
}

/// How many tests held; less than nothing where one did not.
fn one(file: &Path) -> Result<i64, PolicyError> {
    let text = policies::read_text(file)?;
    let shown = file.display().to_string();
    let policy = Policy::parse(&text, &shown).map_err(PolicyError::Invalid)?;
    let cases = Case::all(&text, &shown).map_err(PolicyError::Invalid)?;
    let (mut held, mut failed) = (0, 0);
    for case in &cases {
        match case.run(&policy) {
            Ok(()) => held += 1,
            Err(problem) => {
                failed -= 1;
                say(&format!(
                    "{shown}:{}: `{}`: {problem}",
                    case.line, case.name
                ));
            }
        }
    }
    if !cases.is_empty() {
        say(&format!("{shown}: {held} hold, {} do not", -failed));
    }
    Ok(if failed < 0 { failed } else { held })
}
