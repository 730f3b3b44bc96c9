//! `policy diff`: what becomes possible with another policy.

use std::path::PathBuf;

use clap::Args;
use policy::Power;

use super::super::output::{Exit, say, say_pretty};
use super::parse_or_tell;

#[derive(Debug, Args)]
pub(in crate::cli) struct DiffArgs {
    /// The policy in force
    old: PathBuf,
    /// The one that shall take its place
    new: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// 0 when the two permit the same, 1 when not.
pub(super) fn diff(args: &DiffArgs) -> Exit {
    let (old, new) = match (parse_or_tell(&args.old), parse_or_tell(&args.new)) {
        (Some(old), Some(new)) => (old, new),
        (None, _) | (_, None) => return Exit::CouldNotTell,
    };
    let difference = old.difference(&new);
    if args.json {
        if let Err(exit) = say_pretty(&difference) {
            return exit;
        }
    } else {
        for (title, list) in [
            ("becomes possible", &difference.gained),
            ("no longer possible", &difference.lost),
            ("otherwise than before", &difference.changed),
        ] {
            if !list.is_empty() {
                say(title);
                list.iter().for_each(|power| {
                    say(&line(power));
                });
            }
        }
        if difference.is_empty() {
            say("the two permit the same");
        }
    }
    if difference.is_empty() {
        Exit::Yes
    } else {
        Exit::No
    }
}

fn line(power: &Power) -> String {
    let mut line = format!("  {} (rule `{}`", power.what, power.rule.as_str());
    if let Some(credential) = &power.credential {
        line.push_str(&format!(", credential `{credential}`"));
    }
    line.push(')');
    if let Some(note) = &power.note {
        line.push_str(&format!(": {note}"));
    }
    line
}
