//! The command line: `noun verb`, stdout is data, stderr is talk, exit 0 yes, 1 no, 2 could not tell.

mod agent;
mod approval;
mod company;
mod environment;
mod output;
mod person;
mod plan;
mod routine;
mod run;
mod serve;
mod ticket;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::config::{self, Config};
use crate::exec::{self, ExecArgs, trial};
use crate::gate_client::chain;
use crate::operator_client::{OperatorClient, OperatorError};
use crate::store::{self, StoreError};

/// Tickets, wakes and runs of agents behind the gate
#[derive(Debug, Parser)]
#[command(
    name = "portcullis-orchestrator",
    version,
    arg_required_else_help = true
)]
#[command(after_help = "\
Examples:
  portcullis-orchestrator check
  portcullis-orchestrator company create Acme
  portcullis-orchestrator agent create ada --bundle /srv/agents/ada -- /bin/sh /opt/agent/run.sh
  portcullis-orchestrator ticket create 'Fix the build' --assign ada
  portcullis-orchestrator ticket wait ACM-1 --timeout 600
  portcullis-orchestrator ticket timeline ACM-1
  portcullis-orchestrator why ACM-1")]
struct Cli {
    /// The orchestrator's configuration; names the socket that is asked
    #[arg(long, global = true, value_name = "FILE", default_value = config::DEFAULT_PATH)]
    config: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the orchestrator
    Serve(serve::ServeArgs),
    /// Check the configuration and the host
    Check(Json),
    /// Companies
    #[command(subcommand)]
    Company(company::CompanyCommand),
    /// Agents
    #[command(subcommand)]
    Agent(agent::AgentCommand),
    /// Tickets
    #[command(subcommand)]
    Ticket(ticket::TicketCommand),
    /// Runs
    #[command(subcommand)]
    Run(run::RunCommand),
    /// What agents ask for and people decide
    #[command(subcommand)]
    Approval(approval::ApprovalCommand),
    /// Work that comes back
    #[command(subcommand)]
    Routine(routine::RoutineCommand),
    /// Projects
    #[command(subcommand)]
    Project(plan::ProjectCommand),
    /// Goals
    #[command(subcommand)]
    Goal(plan::GoalCommand),
    /// Labels
    #[command(subcommand)]
    Label(plan::LabelCommand),
    /// Why a ticket runs, waits or does not: every gate and its fact
    Why(ticket::WhyArgs),
    /// Wake an agent
    Wake(agent::WakeArgs),
    /// Run any command in a fresh container behind the gate
    Exec(ExecArgs),
    /// Run a command in a container with no gate, to try out a host
    Container(trial::TrialArgs),
    /// The read-only system of run containers
    #[command(subcommand)]
    Rootfs(RootfsCommand),
    /// The event journal
    #[command(subcommand)]
    Journal(JournalCommand),
    /// Print the variables that make clients use the gate; write the files some need instead
    Environment(environment::EnvironmentArgs),
    /// Print the description of the board's API (OpenAPI 3.1)
    Openapi,
    /// Print the manual page
    Man,
    /// Print a shell's completions
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Subcommand)]
enum RootfsCommand {
    /// Make or complete it, where the configuration says
    Create,
}

#[derive(Debug, Subcommand)]
enum JournalCommand {
    /// Read the whole hash chain; exit 1 names the first entry that does not fit
    Verify(Json),
}

/// How to print.
#[derive(Debug, Clone, Copy, Args)]
struct Json {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
enum CliError {
    #[error(transparent)]
    Config(#[from] config::Problems),
    #[error(transparent)]
    Operator(#[from] OperatorError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Serve(#[from] serve::ServeError),
    #[error("{0}")]
    Usage(String),
    #[error("{doing}")]
    Io {
        doing: String,
        #[source]
        source: std::io::Error,
    },
}

impl CliError {
    fn io(doing: impl Into<String>, source: std::io::Error) -> Self {
        Self::Io {
            doing: doing.into(),
            source,
        }
    }

    /// 1 when the answer is no; 2 when there is none.
    fn code(&self) -> ExitCode {
        match self {
            Self::Operator(OperatorError::Refused { status, .. }) if *status < 500 => {
                ExitCode::from(1)
            }
            _ => ExitCode::from(2),
        }
    }
}

/// Parses the command line and does what it says.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { 2 } else { 0 };
            // A closed pipe is the reader's choice.
            let _unread = error.print();
            return ExitCode::from(code);
        }
    };
    match dispatch(cli) {
        Ok(code) => code,
        Err(error) => {
            output::talk(&format!("error: {}", chain(&error)));
            error.code()
        }
    }
}

fn dispatch(cli: Cli) -> Result<ExitCode, CliError> {
    match cli.command {
        // These need no configuration.
        Command::Exec(args) => Ok(exec::run(args)),
        Command::Container(args) => Ok(trial::run(args)),
        Command::Environment(args) => environment::run(&args),
        Command::Openapi => output::bytes(format!("{:#}\n", crate::api::document()).as_bytes()),
        Command::Man => man(),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(
                shell,
                &mut Cli::command(),
                "portcullis-orchestrator",
                &mut text,
            );
            output::bytes(&text)
        }
        Command::Serve(args) => serve::run(&Config::load(&cli.config)?, &args),
        Command::Check(json) => serve::check(&Config::load(&cli.config)?, json.json),
        Command::Rootfs(RootfsCommand::Create) => {
            let tree = Config::load(&cli.config)?.rootfs;
            crate::container::rootfs::create(&tree)
                .map_err(|error| CliError::io(format!("making {}", tree.display()), error))?;
            output::talk(&format!("{} is complete", tree.display()));
            Ok(ExitCode::SUCCESS)
        }
        Command::Journal(JournalCommand::Verify(json)) => {
            verify(&Config::load(&cli.config)?, json.json)
        }
        Command::Company(command) => ask(&cli.config, |person| company::run(person, command)),
        Command::Agent(command) => ask(&cli.config, |person| agent::run(person, command)),
        Command::Ticket(command) => ask(&cli.config, |person| ticket::run(person, command)),
        Command::Run(command) => ask(&cli.config, |person| run::run(person, command)),
        Command::Approval(command) => ask(&cli.config, |person| approval::run(person, command)),
        Command::Routine(command) => ask(&cli.config, |person| routine::run(person, command)),
        Command::Project(command) => ask(&cli.config, |person| plan::project(person, command)),
        Command::Goal(command) => ask(&cli.config, |person| plan::goal(person, command)),
        Command::Label(command) => ask(&cli.config, |person| plan::label(person, command)),
        Command::Why(args) => ask(&cli.config, |person| ticket::why(person, args)),
        Command::Wake(args) => ask(&cli.config, |person| agent::wake(person, args)),
    }
}

/// Runs a conversation with the orchestrator.
fn ask<F: Future<Output = Result<ExitCode, CliError>>>(
    path: &std::path::Path,
    work: impl FnOnce(person::Person) -> F,
) -> Result<ExitCode, CliError> {
    let config = Config::load(path)?;
    let person = person::Person::new(OperatorClient::new(config.api_socket));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::io("starting", error))?;
    runtime.block_on(work(person))
}

fn verify(config: &Config, json: bool) -> Result<ExitCode, CliError> {
    match store::verify_file(&config.database())? {
        Ok(entries) => {
            output::either(
                json,
                &serde_json::json!({ "ok": true, "entries": entries }),
                || format!("{entries} entries, all as they were written"),
            );
            Ok(ExitCode::SUCCESS)
        }
        Err(broken) => {
            let facts =
                serde_json::json!({ "ok": false, "seq": broken.seq, "problem": broken.problem });
            output::either(json, &facts, || {
                format!("entry {}: {}", broken.seq, broken.problem)
            });
            Ok(ExitCode::from(1))
        }
    }
}

fn man() -> Result<ExitCode, CliError> {
    let mut text = Vec::new();
    let failed = |error| CliError::io("writing the manual page", error);
    let command = Cli::command();
    clap_mangen::Man::new(command.clone())
        .render(&mut text)
        .map_err(failed)?;
    for sub in command.get_subcommands() {
        let page = clap_mangen::Man::new(sub.clone());
        page.render_description_section(&mut text).map_err(failed)?;
        page.render_synopsis_section(&mut text).map_err(failed)?;
        page.render_options_section(&mut text).map_err(failed)?;
        page.render_subcommands_section(&mut text).map_err(failed)?;
    }
    output::bytes(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn commands_of_scripts_parse() {
        let lines: [&[&str]; 10] = [
            &["x", "--config", "/c", "company", "create", "Acme", "--json"],
            &[
                "x",
                "agent",
                "create",
                "a",
                "--company",
                "c",
                "--adapter",
                "process",
                "--bundle",
                "/b",
                "--json",
                "--",
                "/bin/bash",
                "/opt/agent/agent.sh",
            ],
            &["x", "ticket", "assign", "A-1", "--agent", "a", "--json"],
            &["x", "run", "list", "--live", "--json"],
            &["x", "serve", "--config", "/c", "--ready-file", "/r"],
            &["x", "exec", "--json", "--", "git", "push"],
            &["x", "approval", "approve", "ID", "--note", "go", "--json"],
            &["x", "project", "create", "Web", "--company", "c", "--json"],
            &["x", "label", "list", "--json"],
            &["x", "routine", "set", "ID", "--cron", "none", "--json"],
        ];
        for line in lines {
            assert!(Cli::try_parse_from(line).is_ok(), "{line:?}");
        }
    }
}
