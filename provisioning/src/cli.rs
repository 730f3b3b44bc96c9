//! The command line: what we implement ourselves, and everything else to the siblings.
//!
//! Exit status: 0 yes, 1 no, 2 could not tell (usage, configuration, a step that failed).

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use nix::unistd::geteuid;

use crate::guest::command::GuestCommand;
use crate::instance::{Instance, Scope};
use crate::layout::Layout;
use crate::step::Mode;
use crate::{dispatch, doctor, down, guest, output, prove, service, status, supervise, up};

const EXAMPLES: &str = "\
Examples:
  portcullis up                                        make this host a Portcullis and prove it
  portcullis up --repo me/web --github-token-file F    the same against github.com
  portcullis status --json                             what runs, for a script
  portcullis doctor                                    what is wrong, and the command that repairs it
  portcullis prove                                     try everything that must fail
  portcullis guest create agents --image images:debian/12   an agent machine of its own: docs/guest.md
  portcullis exec --policy FILE -- git push            one command behind the gate
  portcullis ticket timeline T-1                       everything that happened for a ticket
  portcullis down --purge                              remove all of it";

/// A gate between agents and everything else: it opens only for what policy permits, holds the keys itself, and shuts
/// when anything fails
#[derive(Debug, Parser)]
#[command(name = "portcullis", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make this host a Portcullis, or repair one, and run the gate test
    Up(UpArgs),
    /// Show what runs: services, boundary, gate, orchestrator
    Status(StatusArgs),
    /// Look at everything: who is refused, what is wrong, and the command that repairs it
    Doctor(DoctorArgs),
    /// Stop the services and remove the boundary; with --purge remove everything
    Down(DownArgs),
    /// Try everything that must fail, and say whether the boundary holds
    Prove(prove::command::ProveArgs),
    /// Guests: make, provision, remake, remove, list, enter
    Guest(guest::command::GuestArgs),
    /// Keep one service running where systemd is not process 1 (used by `up`)
    Supervise(SuperviseArgs),
    /// Print the manual page
    Man,
    /// Print the completions of a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
    #[command(external_subcommand)]
    Sibling(Vec<OsString>),
}

#[derive(Debug, Args)]
struct Where {
    /// Directory everything is put below; the installed command knows its own
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
    /// Name of the instance: users, units, control groups and the ruleset table carry it [default: portcullis]
    #[arg(long)]
    name: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  portcullis up
  portcullis up --repo me/web --github-token-file ~/token
  portcullis up --prefix /srv/second --name second --no-gate-test")]
struct UpArgs {
    #[command(flatten)]
    place: Where,
    /// Use github.com and this repository instead of the local stand-in
    #[arg(long, value_name = "OWNER/NAME")]
    repo: Option<String>,
    /// File with the GitHub token, on one line; needed with the first --repo
    #[arg(long, value_name = "FILE", requires = "repo")]
    github_token_file: Option<PathBuf>,
    /// Leave out the gate test at the end
    #[arg(long)]
    no_gate_test: bool,
    /// Whom the boundary shuts in: the agents' accounts, or everything but the gate [default: agents]
    #[arg(long, value_name = "SCOPE")]
    scope: Option<Scope>,
    /// Where the built binaries are [default: beside this program]
    #[arg(long, value_name = "DIR")]
    binaries: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 when everything is up, 1 when something is not, 2 when it cannot be told"
)]
struct StatusArgs {
    #[command(flatten)]
    place: Where,
    /// One JSON object on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
It changes nothing. First it names whom the boundary refused; then come the services, the gate, the clock, the
certificate authority, each credential (its canary is sent now), the store, the audit log and what runs need of
the host. docs/doctor.md explains each line.

Examples:
  portcullis doctor
  portcullis doctor --json | jq '.checks[] | select(.verdict != \"ok\")'

Exit status: 0 nothing is wrong, 1 something is, 2 something could not be told")]
struct DoctorArgs {
    #[command(flatten)]
    place: Where,
    /// One JSON object on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  portcullis down            stop; tickets, audit log, configuration and accounts stay
  portcullis down --purge    remove those too; asks nothing, says each")]
struct DownArgs {
    #[command(flatten)]
    place: Where,
    /// Remove accounts, subordinate ids, files and control groups as well
    #[arg(long)]
    purge: bool,
}

#[derive(Debug, Args)]
struct SuperviseArgs {
    /// boundary, stand-in, proxy or orchestrator
    service: String,
    #[command(flatten)]
    place: Where,
    /// Noted in the record; tells `up` what the service was started with
    #[arg(long, default_value = "")]
    fingerprint: String,
    /// Take on the service's rights and become its program, instead of supervising it
    #[arg(long)]
    launch: bool,
}

/// Runs the command line.
#[must_use]
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let matches = match command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => {
            let _ = error.print();
            let told = matches!(
                error.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            );
            return if told {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(2)
            };
        }
    };
    let cli = match <Cli as clap::FromArgMatches>::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(2);
        }
    };
    if let Command::Prove(arguments) = cli.command {
        return match prove::command::execute(arguments, &default_prefix()) {
            Ok(code) => code,
            Err(error) => {
                output::error(&error);
                ExitCode::from(2)
            }
        };
    }
    if let Command::Doctor(arguments) = cli.command {
        return match examine(&arguments) {
            Ok(code) => code,
            Err(error) => {
                output::error(error.as_ref());
                ExitCode::from(2)
            }
        };
    }
    match execute(cli.command) {
        Ok(yes) => ExitCode::from(u8::from(!yes)),
        Err(error) => {
            output::error(error.as_ref());
            ExitCode::from(2)
        }
    }
}

/// The command line with the siblings' commands in its help.
fn command() -> clap::Command {
    let mut text = String::from("Commands of the parts (each has its own --help):\n");
    for entry in dispatch::TABLE {
        let _ = writeln!(text, "  {:<11}  {}", entry.word, entry.about);
    }
    Cli::command().after_help(format!("{text}\n{EXAMPLES}"))
}

type Outcome = Result<bool, Box<dyn std::error::Error>>;

fn execute(command: Command) -> Outcome {
    match command {
        Command::Up(arguments) => {
            need_root("up")?;
            let prefix = arguments.place.prefix();
            up::up(&up::Wanted {
                prefix,
                name: arguments.place.name,
                repo: arguments.repo,
                token_file: arguments.github_token_file,
                gate_test: !arguments.no_gate_test,
                binaries: arguments.binaries,
                scope: arguments.scope,
                mode: Mode::Apply { until: None },
            })
        }
        Command::Guest(arguments) => steer(arguments.command),
        Command::Status(arguments) => {
            let instance = arguments.place.open()?;
            let report = status::Report::gather(&instance);
            output::data(&if arguments.json {
                report.json()
            } else {
                report.text()
            });
            Ok(report.ok)
        }
        Command::Down(arguments) => {
            need_root("down")?;
            down::down(
                &arguments.place.prefix(),
                arguments.place.name.as_deref(),
                arguments.purge,
            )?;
            Ok(true)
        }
        // Its three answers are given before.
        Command::Prove(_) | Command::Doctor(_) => Ok(false),
        Command::Supervise(arguments) => {
            need_root("supervise")?;
            let instance = arguments.place.open()?;
            let service = service::service(&instance, &arguments.service)
                .ok_or_else(|| supervise::SuperviseError::NoService(arguments.service.clone()))?;
            if arguments.launch {
                supervise::launch::launch(&instance, &service)?;
            } else {
                supervise::supervise(&instance, &service, &arguments.fingerprint)?;
            }
            Ok(true)
        }
        Command::Man => {
            let mut page = Vec::new();
            clap_mangen::Man::new(self::command()).render(&mut page)?;
            output::data(&String::from_utf8_lossy(&page));
            Ok(true)
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            let mut full = self::command();
            for entry in dispatch::TABLE {
                full = full.subcommand(clap::Command::new(entry.word).about(entry.about));
            }
            clap_complete::generate(shell, &mut full, "portcullis", &mut script);
            output::data(&String::from_utf8_lossy(&script));
            Ok(true)
        }
        Command::Sibling(typed) => Err(sibling(&typed).into()),
    }
}

/// A guest from outside, or, without a name, the steps on this machine.
fn steer(command: GuestCommand) -> Outcome {
    let steps = match command {
        GuestCommand::Provision(arguments) if arguments.name.is_none() => arguments.steps,
        command => return Ok(guest::command::execute(command)?),
    };
    need_root("guest provision")?;
    let mode = match steps.until {
        _ if steps.plan => Mode::Plan,
        _ if steps.verify => Mode::Verify,
        until => Mode::Apply { until },
    };
    up::up(&up::Wanted {
        prefix: default_prefix(),
        name: None,
        repo: None,
        token_file: None,
        gate_test: false,
        binaries: steps.binaries,
        scope: Some(Scope::Guest),
        mode,
    })
}

fn examine(arguments: &DoctorArgs) -> Result<ExitCode, Box<dyn std::error::Error>> {
    if !geteuid().is_root() {
        return Err(
            "`portcullis doctor` reads rules, keys and logs\n  hint: run it as root".into(),
        );
    }
    let report = doctor::Report::gather(&arguments.place.open()?);
    output::data(&if arguments.json {
        report.json()
    } else {
        report.text()
    });
    Ok(ExitCode::from(report.verdict.code()))
}

fn sibling(typed: &[OsString]) -> dispatch::DispatchError {
    let word = typed
        .first()
        .map(|word| word.to_string_lossy().into_owned())
        .unwrap_or_default();
    let Some(entry) = dispatch::find(&word) else {
        let own: Vec<String> = Cli::command()
            .get_subcommands()
            .map(|own| own.get_name().to_owned())
            .collect();
        return dispatch::unknown(&word, &own.iter().map(String::as_str).collect::<Vec<_>>());
    };
    let layout = Instance::find(&default_prefix())
        .ok()
        .flatten()
        .map(|instance| instance.layout);
    dispatch::execute(entry, &typed[1..], layout.as_ref())
}

impl Where {
    fn prefix(&self) -> PathBuf {
        self.prefix.clone().unwrap_or_else(default_prefix)
    }

    fn open(&self) -> Result<Instance, crate::instance::InstanceError> {
        Instance::open(&self.prefix(), self.name.as_deref())
    }
}

/// Where this very program is installed, else the root directory.
fn default_prefix() -> PathBuf {
    std::env::current_exe()
        .and_then(|own| own.canonicalize())
        .ok()
        .and_then(|own| Layout::prefix_of_binary(&own))
        .unwrap_or_else(|| Path::new("/").to_path_buf())
}

fn need_root(command: &str) -> Result<(), String> {
    if geteuid().is_root() {
        return Ok(());
    }
    Err(format!(
        "`portcullis {command}` makes accounts and kernel rules\n  hint: run it as root"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_lists_every_command() {
        command().debug_assert();
        let help = command().render_help().to_string();
        for word in [
            "up",
            "status",
            "doctor",
            "down",
            "prove",
            "guest",
            "supervise",
            "man",
            "completions",
        ] {
            assert!(help.contains(&format!("\n  {word} ")), "{word}: {help}");
        }
        for entry in dispatch::TABLE {
            assert!(help.contains(entry.about), "{}", entry.word);
        }
    }
}
