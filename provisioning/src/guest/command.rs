//! `portcullis guest …`: the words a person types, and which part answers them.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use clap::{Args, Subcommand};
use serde_json::json;

use super::driver::{Driver, Source, Wanted};
use super::error::GuestError;
use super::lxd::Lxd;
use super::name::Name;
use super::{install, keeper};
use crate::output;

/// What is done to guests.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  portcullis guest create agents --image images:debian/12 --network lxdbr0
  portcullis guest provision agents          the programs, the boundary, the gate; again: 0 changed
  portcullis guest shell agents -- portcullis prove
  portcullis guest recreate agents           a new system on the same data, compared by content
  portcullis guest destroy agents            the data volume stays
  portcullis guest list --json

docs/guest.md explains what a guest is and keeps.")]
pub struct GuestArgs {
    #[command(subcommand)]
    pub command: GuestCommand,
}

/// The words.
#[derive(Debug, Subcommand)]
pub enum GuestCommand {
    /// Make an unprivileged container with nesting and a data volume of its own, and start it
    Create(CreateArgs),
    /// Make a guest a sealed agent machine; without NAME, this machine (which is what runs inside)
    Provision(ProvisionArgs),
    /// Make a guest anew on the data it had, and compare the data before and after by content
    Recreate(RecreateArgs),
    /// Take the data volume off, then remove the guest; the volume stays
    Destroy(DestroyArgs),
    /// List the guests
    List(ListArgs),
    /// Open a shell in a guest as root, or run one command there
    Shell(ShellArgs),
}

/// Who runs the guests.
#[derive(Debug, Args)]
pub struct Host {
    /// The unix socket of Incus or LXD [default: the first that is here]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The storage pool of guests and volumes
    #[arg(long, value_name = "NAME", default_value = "default")]
    pool: String,
}

#[derive(Debug, Args)]
pub struct CreateArgs {
    /// A lower-case letter, then letters, digits and dashes; the host name inside
    name: Name,
    #[command(flatten)]
    host: Host,
    #[command(flatten)]
    of: Of,
    /// The data volume, taken as it is when it is there [default: NAME-data]
    #[arg(long, value_name = "VOLUME")]
    data: Option<Name>,
    /// A bridge of the host's [default: an interface that leads to the host alone]
    #[arg(long, value_name = "BRIDGE")]
    network: Option<String>,
}

#[derive(Debug, Args)]
#[group(multiple = false)]
struct Of {
    /// A container image here by alias or fingerprint, or `images:debian/12`, which the server fetches
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// A root file system of yours: a tar file or a directory, with systemd in it
    #[arg(long, value_name = "PATH")]
    rootfs: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ProvisionArgs {
    /// The guest; without it the steps are taken on this machine
    pub name: Option<Name>,
    #[command(flatten)]
    host: Host,
    #[command(flatten)]
    pub steps: StepArgs,
}

/// Which steps are taken, and how far.
#[derive(Debug, Args)]
pub struct StepArgs {
    /// Only say what would be done; exit status 1 when something would be
    #[arg(long, conflicts_with_all = ["verify", "until"])]
    pub plan: bool,
    /// Only prove that every step holds; exit status 1 when one does not
    #[arg(long, conflicts_with = "until")]
    pub verify: bool,
    /// Stop after this step; the next run goes on from there
    #[arg(long, value_name = "STEP")]
    pub until: Option<String>,
    /// Where the built binaries are [default: beside this program]
    #[arg(long, value_name = "DIR")]
    pub binaries: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct RecreateArgs {
    name: Name,
    #[command(flatten)]
    host: Host,
    #[command(flatten)]
    of: Of,
}

#[derive(Debug, Args)]
pub struct DestroyArgs {
    name: Name,
    #[command(flatten)]
    host: Host,
    /// Remove a guest that has no data volume, with what it keeps
    #[arg(long)]
    without_data: bool,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    host: Host,
    /// A JSON array on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct ShellArgs {
    name: Name,
    #[command(flatten)]
    host: Host,
    /// One command instead of a shell
    #[arg(last = true)]
    command: Vec<String>,
}

impl Of {
    fn source(self) -> Result<Option<Source>, GuestError> {
        Ok(match (self.image, self.rootfs) {
            (Some(image), _) => Some(Source::Image(image)),
            (None, Some(path)) => {
                let whole = path
                    .canonicalize()
                    .map_err(|source| GuestError::Read { path, source })?;
                Some(Source::Rootfs(whole))
            }
            (None, None) => None,
        })
    }
}

impl Host {
    fn driver(self) -> Result<Box<dyn Driver>, GuestError> {
        Ok(Box::new(Lxd::find(self.socket, &self.pool)?))
    }
}

/// Carries out everything but the steps on this machine, which are `up`'s. True for yes.
///
/// # Errors
/// [`GuestError`]
pub fn execute(command: GuestCommand) -> Result<bool, GuestError> {
    match command {
        GuestCommand::Create(arguments) => {
            let source = arguments.of.source()?.ok_or_else(|| {
                GuestError::Said(
                    "a guest is made of something\n  hint: --image images:debian/12, or --rootfs FILE"
                        .to_owned(),
                )
            })?;
            let wanted = Wanted {
                volume: arguments.data.unwrap_or_else(|| arguments.name.volume()),
                name: arguments.name,
                source,
                network: arguments.network,
            };
            let driver = arguments.host.driver()?;
            keeper::create(driver.as_ref(), &wanted)?;
            output::say(&format!(
                "hint: `portcullis guest provision {}` makes it a sealed agent machine",
                wanted.name
            ));
            Ok(true)
        }
        GuestCommand::Provision(arguments) => provision(arguments),
        GuestCommand::Recreate(arguments) => {
            let source = arguments.of.source()?;
            let driver = arguments.host.driver()?;
            keeper::recreate(driver.as_ref(), &arguments.name, source)?;
            output::say(&format!(
                "hint: `portcullis guest provision {}` puts the programs there and starts everything",
                arguments.name
            ));
            Ok(true)
        }
        GuestCommand::Destroy(arguments) => {
            let driver = arguments.host.driver()?;
            keeper::destroy(driver.as_ref(), &arguments.name, arguments.without_data)?;
            Ok(true)
        }
        GuestCommand::List(arguments) => {
            list(arguments.host.driver()?.as_ref(), arguments.json)?;
            Ok(true)
        }
        GuestCommand::Shell(arguments) => shell(arguments),
    }
}

fn provision(arguments: ProvisionArgs) -> Result<bool, GuestError> {
    let Some(name) = arguments.name else {
        return Ok(false);
    };
    let driver = arguments.host.driver()?;
    let steps = arguments.steps;
    let from = match steps.binaries {
        Some(from) => from,
        None => std::env::current_exe()
            .and_then(|own| own.canonicalize())
            .ok()
            .and_then(|own| own.parent().map(PathBuf::from))
            .unwrap_or_default(),
    };
    let mut words = Vec::new();
    for (given, word) in [(steps.plan, "--plan"), (steps.verify, "--verify")] {
        if given {
            words.push(word.to_owned());
        }
    }
    if let Some(until) = steps.until {
        words.extend(["--until".to_owned(), until]);
    }
    install::packages(driver.as_ref(), &name)?;
    install::programs(driver.as_ref(), &name, &from)?;
    install::provision(driver.as_ref(), &name, &words)
}

fn list(driver: &dyn Driver, as_json: bool) -> Result<(), GuestError> {
    let guests = driver.list()?.into_iter().filter(|guest| guest.is_ours);
    if as_json {
        let guests: Vec<_> = guests
            .map(|guest| {
                json!({
                    "name": guest.name,
                    "running": guest.is_running,
                    "unprivileged": guest.is_unprivileged,
                    "data": guest.volume,
                })
            })
            .collect();
        output::data(&serde_json::to_string_pretty(&guests).unwrap_or_default());
        return Ok(());
    }
    let mut any = false;
    for guest in guests {
        any = true;
        output::data(&format!(
            "{:<20} {:<8} data {}",
            guest.name,
            if guest.is_running {
                "running"
            } else {
                "stopped"
            },
            guest.volume.as_deref().unwrap_or("none"),
        ));
    }
    if !any {
        output::say(&format!("{} has no guest of ours", driver.shown()));
    }
    Ok(())
}

fn shell(arguments: ShellArgs) -> Result<bool, GuestError> {
    let driver = arguments.host.driver()?;
    let guest = keeper::ours(driver.as_ref(), arguments.name.as_str())?.name;
    if !arguments.command.is_empty() {
        let words: Vec<&str> = arguments.command.iter().map(String::as_str).collect();
        let ended = driver.run(&guest, &words)?;
        output::data_part(&ended.output);
        output::say_part(&ended.error);
        return Ok(ended.code == 0);
    }
    let words = driver.shell(&guest)?;
    let (program, rest) = words
        .split_first()
        .ok_or_else(|| GuestError::Said(format!("{} opens no shells", driver.shown())))?;
    let failed = Command::new(program).args(rest).exec();
    Err(GuestError::Said(format!(
        "cannot start {program}: {failed}"
    )))
}
