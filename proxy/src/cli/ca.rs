//! `ca`: make the certificate authority, print its certificate.

use clap::{Args, Subcommand};
use nix::unistd::{Uid, User};

use super::ConfigArg;
use super::output::{Exit, fail, say, tell};
use crate::ca::{self, Created};
use crate::config::Config;

#[derive(Debug, Subcommand)]
pub(super) enum CaCommand {
    /// Make the authority unless there is one; never overwrites
    Init(InitArgs),
    /// Print the certificate, for clients to trust
    Export(ExportArgs),
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

pub(super) fn ca(command: &CaCommand) -> Exit {
    match command {
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
