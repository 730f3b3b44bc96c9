//! The command line: what `portcullis-proxy` can be told to do.
//!
//! stdout is data, stderr is talk. Exit 0 is yes, 1 is no, 2 is "could not tell", usage and
//! configuration errors included.

mod allowance;
mod audit;
mod ca;
mod canary;
mod check;
mod control;
mod hold;
mod output;
mod policy;
pub mod run;
mod secret;
mod sidecar;
mod token;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::config::DEFAULT_PATH;
use output::{Exit, fail, say};

const EXAMPLES: &str = "\
Examples:
  portcullis-proxy check --config /etc/portcullis/proxy.toml
  portcullis-proxy policy check policies/*.toml
  portcullis-proxy policy explain GET https://api.example.com/v1/items --policy default.toml
  portcullis-proxy audit tail -f --agent coder
  portcullis-proxy status --json
  portcullis-proxy secret rotate agents/github < token
  portcullis-proxy run --user portcullis-proxy

Exit status: 0 yes, 1 no, 2 could not tell";

/// The gate between agents and everything else
#[derive(Debug, Parser)]
#[command(name = "portcullis-proxy", version, after_help = EXAMPLES, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gate in the foreground
    Run(run::RunArgs),
    /// Run the gate as a container beside agents' containers, and give them what they need
    Sidecar(sidecar::SidecarArgs),
    /// Say in one line whether the running gate serves; for a container's health check
    Health(control::HealthArgs),
    /// Check the configuration and every policy it names; touches nothing
    Check(check::CheckArgs),
    /// Check, show and try policies
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Say what the running gate is and whether it would let a permitted request pass
    Status(control::StatusArgs),
    /// Read policies and credentials again; what is broken stays as it was and is named
    Reload(control::ReloadArgs),
    /// Have the running gate try every credential that has a canary, now
    Canary(canary::CanaryArgs),
    /// Decide about requests that wait for a person
    #[command(subcommand)]
    Hold(hold::HoldCommand),
    /// List the open runs
    Runs(control::RunsArgs),
    /// Show what askers have taken of their allowances
    #[command(subcommand)]
    Allowance(allowance::AllowanceCommand),
    /// Read the audit log
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Keep the entries of the OpenPGP store
    #[command(subcommand)]
    Secret(secret::SecretCommand),
    /// Make and show the certificate authority
    #[command(subcommand)]
    Ca(ca::CaCommand),
    /// Make a token for an agent that the kernel cannot vouch for; keeps nothing
    Token(token::TokenArgs),
    /// Print the manual page
    Man,
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
}

/// Where the configuration is.
#[derive(Debug, Clone, Args)]
struct ConfigArg {
    /// Configuration file
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
    config: PathBuf,
}

/// Parses the arguments and does what they say.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => {
            // Help and version are asked for and go to stdout; anything else is a usage error.
            let code = if answer.use_stderr() { 2 } else { 0 };
            // Nobody is left to tell when the terminal is gone.
            let _ = answer.print();
            return ExitCode::from(code);
        }
    };
    let exit = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Sidecar(args) => sidecar::sidecar(&args),
        Command::Health(args) => control::health(&args),
        Command::Check(args) => check::check(&args),
        Command::Policy(command) => policy::policy(&command),
        Command::Status(args) => control::status(&args),
        Command::Reload(args) => control::reload(&args),
        Command::Hold(command) => hold::hold(&command),
        Command::Canary(args) => canary::canary(&args),
        Command::Runs(args) => control::runs(&args),
        Command::Allowance(command) => allowance::allowance(&command),
        Command::Audit(command) => audit::audit(&command),
        Command::Secret(command) => secret::secret(&command),
        Command::Ca(command) => ca::ca(&command),
        Command::Token(args) => token::token(&args),
        Command::Man => man(),
        Command::Completions { shell } => completions(shell),
    };
    exit.into()
}

fn man() -> Exit {
    let mut page = Vec::new();
    let mut command = Cli::command();
    if let Err(problem) = clap_mangen::Man::new(command.clone()).render(&mut page) {
        return fail(&problem);
    }
    let mut text = String::from_utf8_lossy(&page).into_owned();
    command.build();
    for sub in command.get_subcommands_mut() {
        describe(sub, &mut text);
    }
    say(text.trim_end());
    Exit::Yes
}

/// A section for every command that does something, with its help as it is printed.
fn describe(command: &mut clap::Command, page: &mut String) {
    if command.get_name() == "help" {
        return;
    }
    if command.has_subcommands() {
        for sub in command.get_subcommands_mut() {
            describe(sub, page);
        }
        return;
    }
    let name = command
        .get_bin_name()
        .unwrap_or_else(|| command.get_name())
        .to_owned();
    page.push_str(&format!(".SH \"{name}\"\n.nf\n"));
    for line in command.render_long_help().to_string().lines() {
        // A leading dot or quote would be taken for a request.
        page.push_str("\\&");
        page.push_str(&line.replace('\\', "\\\\").replace('-', "\\-"));
        page.push('\n');
    }
    page.push_str(".fi\n");
}

fn completions(shell: Shell) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "portcullis-proxy", &mut script);
    say(String::from_utf8_lossy(&script).trim_end());
    Exit::Yes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
