//! `audit verify`: is this the log that was written?

use clap::Args;

use super::super::output::{Exit, fail, say};
use super::SourceArg;
use crate::audit::segment::is_being_written;
use crate::audit::verify::{Anchors, Check, verify as check};

#[derive(Debug, Args)]
pub(in crate::cli) struct VerifyArgs {
    #[command(flatten)]
    source: SourceArg,
    /// The log is still being written: expect no closing record
    #[arg(long)]
    live: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// 0 when the log is intact, 1 when it is not, 2 when that could not be told.
pub(super) fn verify(args: &VerifyArgs) -> Exit {
    let segments = match args.source.segments() {
        Ok(segments) => segments,
        Err(exit) => return exit,
    };
    let arguments = Check {
        key: None,
        anchors: Anchors::default(),
        live: args.live || segments.last().is_some_and(is_being_written),
    };
    let report = match check(&segments, &arguments) {
        Ok(report) => report,
        Err(problem) => return fail(&problem),
    };
    if args.json {
        match serde_json::to_string_pretty(&report) {
            Ok(text) => say(&text),
            Err(problem) => return fail(&problem),
        };
    } else {
        say(&report.to_string());
    }
    if report.intact { Exit::Yes } else { Exit::No }
}
