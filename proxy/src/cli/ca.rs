//! `ca`: make the certificate authority, print its certificate, replace it.

use std::time::Duration;

use clap::{Args, Subcommand};
use nix::unistd::{Uid, User};

use super::ConfigArg;
use super::output::{Exit, fail, say, say_json, tell};
use crate::ca::{self, AuthorityView, CaView, Created};
use crate::config::Config;

#[derive(Debug, Subcommand)]
pub(super) enum CaCommand {
    /// Make the authority unless there is one; never overwrites
    Init(InitArgs),
    /// Print what clients must trust: the certificate, and the successor's during a rotation
    Export(ExportArgs),
    /// Replace the authority: make a successor beside it, then let it take over
    Rotate(RotateArgs),
    /// Say who signs, who will, and until when
    Status(StatusArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  portcullis-proxy ca init --user portcullis-proxy   (as root: the files belong to that user)")]
pub(super) struct InitArgs {
    #[command(flatten)]
    config: ConfigArg,
    /// Whose files they shall be; the directory's owner unless given
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    #[command(flatten)]
    config: ConfigArg,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The successor signs after the overlap, or at once with --finish; the running gate takes either up
within seconds. Hand the new bundle to the clients before that (`portcullis up` does).

Examples:
  portcullis-proxy ca rotate                    (a successor that signs in seven days)
  portcullis-proxy ca rotate --overlap 12h
  portcullis-proxy ca rotate --finish           (the successor signs now; the old key is gone)")]
pub(super) struct RotateArgs {
    #[command(flatten)]
    config: ConfigArg,
    /// How long both are trusted before the successor signs: a number with d, h, m or s
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = overlap)]
    overlap: Duration,
    /// Let the successor take over now
    #[arg(long, conflicts_with = "overlap")]
    finish: bool,
}

#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    config: ConfigArg,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn ca(command: &CaCommand) -> Exit {
    match command {
        CaCommand::Rotate(args) => rotate(args),
        CaCommand::Status(args) => status(args),
        CaCommand::Init(args) => init(args),
        CaCommand::Export(args) => export(args),
    }
}

fn init(args: &InitArgs) -> Exit {
    let config = match Config::load(&args.config.config) {
        Ok(config) => config,
        Err(problem) => return fail(&problem),
    };
    let owner = match &args.user {
        None => None,
        Some(name) => match find(name) {
            Ok(owner) => Some(owner),
            Err(problem) => {
                tell(&format!("error: {problem}"));
                return Exit::CouldNotTell;
            }
        },
    };
    let directory = config.ca_directory.display();
    match ca::create(&config.ca_directory, owner) {
        Ok(Created::New) => {
            say(&format!("made a certificate authority in {directory}"));
            Exit::Yes
        }
        Ok(Created::Kept) => {
            say(&format!(
                "there is a certificate authority in {directory}; left as it is"
            ));
            Exit::Yes
        }
        Err(problem) => fail(&problem),
    }
}

fn export(args: &ExportArgs) -> Exit {
    let config = match Config::load(&args.config.config) {
        Ok(config) => config,
        Err(problem) => return fail(&problem),
    };
    match ca::export(&config.ca_directory) {
        Ok(text) => {
            say(text.trim_end());
            Exit::Yes
        }
        Err(problem) => fail(&problem),
    }
}

fn rotate(args: &RotateArgs) -> Exit {
    let config = match Config::load(&args.config.config) {
        Ok(config) => config,
        Err(problem) => return fail(&problem),
    };
    let done = if args.finish {
        ca::finish(&config.ca_directory)
    } else {
        ca::begin(&config.ca_directory, args.overlap)
    };
    match done {
        Ok(view) => {
            show(&view);
            tell(
                "hint: hand the bundle to the clients (portcullis up, or portcullis-proxy ca export)",
            );
            Exit::Yes
        }
        Err(problem) => {
            tell(&format!("error: {problem}"));
            Exit::No
        }
    }
}

fn status(args: &StatusArgs) -> Exit {
    let config = match Config::load(&args.config.config) {
        Ok(config) => config,
        Err(problem) => return fail(&problem),
    };
    let view = match ca::view(&config.ca_directory) {
        Ok(view) => view,
        Err(problem) => return fail(&problem),
    };
    if args.json {
        if let Err(exit) = say_json(&view) {
            return exit;
        }
    } else {
        show(&view);
    }
    if view.current.days_left < 0 {
        Exit::No
    } else {
        Exit::Yes
    }
}

fn show(view: &CaView) {
    let line = |what: &str, authority: &AuthorityView, more: &str| {
        say(&format!(
            "{what}  {}  sha256 {}  expires {} ({} days){more}",
            authority.name, authority.sha256, authority.expires, authority.days_left
        ));
    };
    line("signs", &view.current, "");
    if let Some(next) = &view.next {
        line(
            "next ",
            &next.authority,
            &format!("  signs from {}", next.from),
        );
    }
}

/// `7d`, `12h`, `30m`, `90s`.
fn overlap(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text} is not a number with d, h, m or s, such as 7d");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let number = text.strip_suffix(unit).ok_or_else(wrong)?;
    let seconds: u64 = match unit {
        'd' => 24 * 3600,
        'h' => 3600,
        'm' => 60,
        's' => 1,
        _ => return Err(wrong()),
    };
    let number: u32 = number.parse().map_err(|_| wrong())?;
    Ok(Duration::from_secs(u64::from(number) * seconds))
}

fn find(name: &str) -> Result<(u32, u32), String> {
    let found = match name.parse::<u32>() {
        Ok(uid) => User::from_uid(Uid::from_raw(uid)),
        Err(_) => User::from_name(name),
    };
    match found {
        Ok(Some(user)) => Ok((user.uid.as_raw(), user.gid.as_raw())),
        Ok(None) => Err(format!("there is no user {name}")),
        Err(problem) => Err(format!("cannot look up {name}: {problem}")),
    }
}
