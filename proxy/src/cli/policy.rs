//! `policy`: check a file, show what it means, try a request on it.

mod diff;
mod explain;
mod fmt;
mod replay;
mod test;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use policy::{Destination, Policy};

use super::output::{Exit, fail, say, say_pretty, tell};
use crate::config::Config;
use crate::policies::{self, PolicyError};

#[derive(Debug, Subcommand)]
pub(super) enum PolicyCommand {
    /// Check policy files; names file, line, key, problem and remedy
    Check(CheckArgs),
    /// Show a policy
    Show(ShowArgs),
    /// Say how a request would be judged
    #[command(after_help = "\
Examples:
  portcullis-proxy policy explain GET https://api.example.com/v1/items --policy default.toml
  portcullis-proxy policy explain POST https://github.com/acme/web.git/git-receive-pack \\
      --ref refs/heads/agent/x --policy default.toml
  portcullis-proxy policy explain POST https://api.example.com/v1/jobs --body job.json --as ci

Exit status: 0 allowed, 1 refused, 2 held, or could not tell")]
    Explain(explain::ExplainArgs),
    /// Try the tests that stand in a policy file
    Test(test::TestArgs),
    /// Say what becomes possible, and what no longer is, with another policy
    #[command(after_help = "\
Example:
  portcullis-proxy policy diff /etc/portcullis/default.toml new.toml")]
    Diff(diff::DiffArgs),
    /// Say what another policy would have said about the traffic on record
    #[command(after_help = "\
Example:
  portcullis-proxy policy replay /var/lib/portcullis/proxy/audit --with new.toml --since 24h")]
    Replay(replay::ReplayArgs),
    /// Write policy files in their one form; comments stay
    Fmt(fmt::FmtArgs),
    /// Print the JSON Schema of policy files, for editors
    Schema,
}

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Policy files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Also check that the credentials they name are bound to their hosts in this configuration
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// Policy file
    file: PathBuf,
    /// With every kind expanded into plain rules, as a policy again
    #[arg(long)]
    expanded: bool,
}

pub(super) fn policy(command: &PolicyCommand) -> Exit {
    match command {
        PolicyCommand::Check(args) => check(args),
        PolicyCommand::Show(args) => show(args),
        PolicyCommand::Explain(args) => explain::explain(args),
        PolicyCommand::Test(args) => test::test(args),
        PolicyCommand::Diff(args) => diff::diff(args),
        PolicyCommand::Replay(args) => replay::replay(args),
        PolicyCommand::Fmt(args) => fmt::fmt(args),
        PolicyCommand::Schema => match say_pretty(&policy::schema()) {
            Ok(()) => Exit::Yes,
            Err(exit) => exit,
        },
    }
}

fn check(args: &CheckArgs) -> Exit {
    let config = match args.config.as_deref().map(Config::load).transpose() {
        Ok(config) => config,
        Err(problem) => return fail(&problem),
    };
    let mut exit = Exit::Yes;
    for file in &args.files {
        let checked = match &config {
            Some(config) => policies::read(file, config).map(|_| ()),
            None => parse(file).map(|_| ()),
        };
        match checked {
            Ok(()) => {
                say(&format!("{}: ok", file.display()));
            }
            Err(problem @ PolicyError::Unreadable { .. }) => {
                tell(&problem.to_string());
                exit = Exit::CouldNotTell;
            }
            Err(problem) => {
                tell(&problem.to_string());
                if exit == Exit::Yes {
                    exit = Exit::No;
                }
            }
        }
    }
    exit
}

fn parse(file: &Path) -> Result<Policy, PolicyError> {
    let text = policies::read_text(file)?;
    Policy::parse(&text, &file.display().to_string()).map_err(PolicyError::Invalid)
}

/// The policy of a file; what is wrong with it has been told otherwise.
fn parse_or_tell(file: &Path) -> Option<Policy> {
    parse(file)
        .map_err(|problem| tell(&problem.to_string()))
        .ok()
}

fn show(args: &ShowArgs) -> Exit {
    let Some(policy) = parse_or_tell(&args.file) else {
        return Exit::CouldNotTell;
    };
    if args.expanded {
        say(policy.expanded().trim_end());
        return Exit::Yes;
    }
    if policy.services().is_empty() {
        tell("this policy permits nothing");
    }
    for service in policy.services() {
        say(&format!("{} ({})", service.id, service.kind));
        for destination in &service.destinations {
            let Destination { scheme, host, port } = destination;
            say(&format!(
                "  to          {}://{host}:{port}",
                scheme.as_str()
            ));
        }
        if let Some(credential) = &service.credential {
            say(&format!("  credential  {credential}"));
        }
        let lists = [
            ("allow", &service.allow),
            ("when", &service.when),
            ("push", &service.push),
            ("hold", &service.hold),
            ("hold by", &service.hold_by),
            ("refs", &service.refs),
            ("deny", &service.deny),
        ];
        for (word, list) in lists {
            for line in list {
                say(&format!("  {word:<10}  {line}"));
            }
        }
        let bounds = [
            ("max inspected bytes", service.max_inspected_bytes),
            ("max request bytes", service.max_request_bytes),
            ("max response bytes", service.max_response_bytes),
            ("max seconds", service.max_seconds),
            ("hold seconds", service.hold_seconds),
        ];
        for (what, bound) in bounds {
            if let Some(bound) = bound {
                say(&format!("  {what}  {bound}"));
            }
        }
        if let Some(why) = &service.why {
            say(&format!("  why         {why}"));
        }
    }
    Exit::Yes
}
