//! `audit verify`: is this the log that was written?

use std::path::PathBuf;

use clap::Args;

use super::super::output::{Exit, fail, say, say_pretty, tell};
use super::{SourceArg, anchors, unreadable};
use crate::audit::signing::judge;
use crate::audit::verify::{Check, Judge, verify_at};
use crate::config::Config;
use crate::openpgp::{KeyError, PublicKey};

#[derive(Debug, Args)]
pub(in crate::cli) struct VerifyArgs {
    #[command(flatten)]
    source: SourceArg,
    /// The public key that signed it; without it the one beside [audit] signing_key, if there is one
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Checkpoints that were kept elsewhere: JSON lines, or a socket to ask for them
    #[arg(long, value_name = "FILE|SOCKET")]
    anchors: Option<PathBuf>,
    /// Of anchors of several logs, only those of this one: the earlier one was moved away by somebody who
    /// may, or an earlier one is looked at
    #[arg(long, value_name = "NUMBER", requires = "anchors")]
    log: Option<u64>,
    /// The log is still being written: expect no closing record
    #[arg(long)]
    live: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// 0 when the log is intact, 1 when it is not, 2 when that could not be told.
pub(super) fn verify(args: &VerifyArgs) -> Exit {
    let path = match args.source.path() {
        Ok(path) => path,
        Err(exit) => return exit,
    };
    let key = match key(args) {
        Ok(key) => key,
        Err(problem) => return fail(&problem),
    };
    let read = |path| anchors::read(path, args.log);
    let anchors = match args.anchors.as_deref().map(read).transpose() {
        Ok(anchors) => anchors.unwrap_or_default(),
        Err(problem) => return fail(&problem),
    };
    if key.is_none() {
        tell(
            "no public key is known: signatures are not checked, and whoever could write the files could have written them anew",
        );
        tell("  hint: say --key FILE");
    }
    let judge = key.map(|key| move |text: &str, signature: &str| judge(&key, text, signature));
    let arguments = Check {
        key: judge.as_ref().map(|judge| judge as &Judge<'_>),
        anchors,
        live: args.live,
    };
    let report = match verify_at(&path, &arguments) {
        Ok(report) => report,
        Err(problem) => return unreadable(&path, &problem),
    };
    if args.json {
        if let Err(exit) = say_pretty(&report) {
            return exit;
        }
    } else {
        say(&report.to_string());
    }
    if report.intact { Exit::Yes } else { Exit::No }
}

/// The key that was named, or the one that lies beside the gate's own.
fn key(args: &VerifyArgs) -> Result<Option<PublicKey>, KeyError> {
    if let Some(path) = &args.key {
        return PublicKey::load(path).map(Some);
    }
    if args.source.file.is_some() {
        return Ok(None);
    }
    let configured = Config::load(&args.source.config.config).ok();
    let Some(secret) = configured.and_then(|config| config.audit.signing_key) else {
        return Ok(None);
    };
    let mut beside = secret.into_os_string();
    beside.push(".pub");
    PublicKey::load(&PathBuf::from(beside)).map(Some)
}
