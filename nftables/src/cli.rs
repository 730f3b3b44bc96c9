//! The subcommands.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use nftables::accounts::Accounts;
use nftables::boundary::{self, BoundaryError, Verified};
use nftables::config::Config;
use nftables::counters::{self, Counters, CountersError};
use nftables::netlink::NetlinkError;
use nftables::status::Status;
use nftables::verify::Kind;
use nftables::warning::Warning;
use nftables::{monitor, privilege, render, watch};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::output;
use crate::talker::Talker;

const EXAMPLES: &str = "\
Examples:
  portcullis-boundary render                         what the kernel should hold, as nft text
  portcullis-boundary apply                          make it so, in one transaction
  portcullis-boundary verify                         exit 0 when it is exactly so, 1 when not
  portcullis-boundary counters --json                who was refused, for a script
  portcullis-boundary watch                          keep it so, and say so in the status file
  portcullis-boundary monitor                        who changes rules, who is refused, as it happens
  portcullis-boundary proven                         exit 0 when the status file proves it now
  portcullis-boundary --config ./boundary.toml render

Exit codes: 0 yes (or done), 1 no (verify found differences), 2 could not tell (usage,
configuration, missing privilege).";

/// The kernel boundary: only the gate's user reaches the network
#[derive(Debug, Parser)]
#[command(name = "portcullis-boundary", version, after_help = EXAMPLES)]
struct Cli {
    /// The boundary file
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        default_value = "/etc/portcullis/boundary.toml"
    )]
    config: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the rules as nft text; touches nothing
    #[command(after_help = "Example:\n  portcullis-boundary render | nft -c -f -")]
    Render {
        /// The ruleset's hash and parts as JSON instead
        #[arg(long)]
        json: bool,
    },
    /// Load the rules in one transaction, read them back, write the status file
    #[command(after_help = "Example:\n  portcullis-boundary apply && portcullis-boundary verify")]
    Apply {
        #[arg(long)]
        json: bool,
    },
    /// Compare the kernel's rules with the configuration; names each difference
    #[command(after_help = "Example:\n  portcullis-boundary verify || portcullis-boundary apply")]
    Verify {
        #[arg(long)]
        json: bool,
    },
    /// What was refused, in total, by user, and in the last minute
    #[command(
        after_help = "Example:\n  portcullis-boundary counters\n\nThe last minute is known while \
                      watch runs."
    )]
    Counters {
        #[arg(long)]
        json: bool,
    },
    /// Keep the rules in place until told to stop; the rules stay when it ends
    #[command(
        after_help = "Needs CAP_NET_ADMIN and gives up everything else. SIGTERM or SIGINT end \
                      it and leave the rules in place."
    )]
    Watch,
    /// Tell who changes rules and who is refused, while it happens; changes nothing
    #[command(
        after_help = "Examples:\n  portcullis-boundary monitor\n  portcullis-boundary monitor --json | jq \
                      'select(.kind == \"minute\")'\n\nSIGTERM or SIGINT end it."
    )]
    Monitor {
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Exit 0 when the status file proves the boundary here and now; needs no privilege
    #[command(
        after_help = "Example (before an agent starts):\n  portcullis-boundary proven && exec agent"
    )]
    Proven {
        /// The status file, instead of the one that the boundary file names
        #[arg(long, value_name = "FILE")]
        status: Option<PathBuf>,
    },
    /// Delete the table: everybody may leave again
    #[command(after_help = "Example:\n  portcullis-boundary remove")]
    Remove,
    /// Print the manual page
    Man,
    /// Print a completion script
    Completions { shell: clap_complete::Shell },
}

/// Parses the command line and does what it says.
pub(crate) fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { 2 } else { 0 };
            // A closed terminal leaves nobody to tell, and the exit code says it all the same.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    match command(&cli) {
        Ok(code) => code,
        Err(error) => {
            let hint = hint(&error);
            output::could_not_tell(&error, hint)
        }
    }
}

fn command(cli: &Cli) -> Result<ExitCode, BoundaryError> {
    match &cli.command {
        Command::Man => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page)?;
            output::data(&String::from_utf8_lossy(&page));
            return Ok(ExitCode::SUCCESS);
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(
                *shell,
                &mut Cli::command(),
                "portcullis-boundary",
                &mut script,
            );
            output::data(&String::from_utf8_lossy(&script));
            return Ok(ExitCode::SUCCESS);
        }
        Command::Render { .. }
        | Command::Apply { .. }
        | Command::Verify { .. }
        | Command::Counters { .. }
        | Command::Watch
        | Command::Monitor { .. }
        | Command::Proven { .. }
        | Command::Remove => {}
    }
    if let Command::Proven {
        status: Some(status),
    } = &cli.command
    {
        return proven(status);
    }
    let config = Config::load(&cli.config)?;
    match &cli.command {
        Command::Render { json } => render(&config, *json),
        Command::Apply { json } => apply(&config, *json),
        Command::Verify { json } => verify(&config, *json),
        Command::Counters { json } => show_counters(&config, *json),
        Command::Watch => watch(&config),
        Command::Monitor { json } => monitor(&config, *json),
        Command::Proven { .. } => proven(&config.status),
        Command::Remove => remove(&config),
        Command::Man | Command::Completions { .. } => Ok(ExitCode::SUCCESS),
    }
}

fn render(config: &Config, json: bool) -> Result<ExitCode, BoundaryError> {
    let ruleset = boundary::ruleset(config)?;
    if json {
        let value = serde_json::json!({
            "table": ruleset.table,
            "scope": ruleset.scope.as_str(),
            "ruleset_hash": ruleset.hash(),
            "text": render::text(&ruleset, jiff::Timestamp::now()),
        });
        output::line(&value.to_string());
    } else {
        output::data(&render::text(&ruleset, jiff::Timestamp::now()));
    }
    Ok(ExitCode::SUCCESS)
}

fn apply(config: &Config, json: bool) -> Result<ExitCode, BoundaryError> {
    let applied = boundary::apply(config)?;
    let hash = applied.ruleset.hash();
    if json {
        let value = serde_json::json!({
            "table": config.table,
            "scope": config.scope.as_str(),
            "ruleset_hash": hash,
            "changed": applied.changed(),
            "connections_closed": applied.cut.closed,
            "connections_left": applied.cut.left,
            "warnings": listed(&applied.warnings),
        });
        output::line(&value.to_string());
        return Ok(ExitCode::SUCCESS);
    }
    for warning in &applied.warnings {
        output::talk(&format!("warning: {warning}"));
    }
    let short = &hash[..12];
    let name = format!(
        "table inet {} (scope {})",
        config.table,
        config.scope.as_str()
    );
    if !applied.changed() {
        output::line(&format!("{name}: nothing changed, ruleset {short} stands"));
        return Ok(ExitCode::SUCCESS);
    }
    let rules: usize = applied
        .ruleset
        .chains
        .iter()
        .map(|chain| chain.rules.len())
        .sum();
    let mut text = format!("{name}: loaded ruleset {short}, {rules} rules read back as written");
    if applied.cut.closed > 0 {
        text.push_str(&format!(", {} old connections closed", applied.cut.closed));
    }
    output::line(&text);
    if applied.cut.left > 0 {
        output::talk(&format!(
            "{} connections of shut users are older than the rules and could not be closed; \
             their next packet will be refused",
            applied.cut.left
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn listed(warnings: &[Warning]) -> Vec<serde_json::Value> {
    warnings.iter().map(Warning::json).collect()
}

fn verify(config: &Config, json: bool) -> Result<ExitCode, BoundaryError> {
    let Verified {
        ruleset,
        differences,
        warnings,
    } = boundary::verify(config)?;
    let good = differences.is_empty();
    if json {
        let list: Vec<_> = differences
            .iter()
            .map(|difference| {
                serde_json::json!({
                    "kind": difference.kind.as_str(),
                    "what": difference.what,
                    "detail": difference.detail,
                })
            })
            .collect();
        let value = serde_json::json!({
            "ok": good,
            "table": ruleset.table,
            "ruleset_hash": ruleset.hash(),
            "differences": list,
            "warnings": listed(&warnings),
        });
        output::line(&value.to_string());
        return Ok(yes_or_no(good));
    }
    for warning in &warnings {
        output::talk(&format!("warning: {warning}"));
    }
    if good {
        let hash = &ruleset.hash()[..12];
        output::line(&format!(
            "table inet {}: ruleset {hash} stands",
            ruleset.table
        ));
    } else {
        for difference in &differences {
            output::line(&difference.to_string());
        }
        if differences
            .iter()
            .any(|difference| !matches!(difference.kind, Kind::Foreign | Kind::Able))
        {
            output::talk("  hint: portcullis-boundary apply puts the rules back");
        }
    }
    Ok(yes_or_no(good))
}

fn yes_or_no(good: bool) -> ExitCode {
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    }
}

fn show_counters(config: &Config, json: bool) -> Result<ExitCode, BoundaryError> {
    let accounts = Accounts::load()?;
    let counters = counters::watched(&config.table, &config.status, &accounts);
    let counters = counters.map_err(|error| match error {
        CountersError::Netlink(error) => BoundaryError::from(error),
        CountersError::System(error) => BoundaryError::from(error),
    })?;
    let Some(counters) = counters else {
        output::talk(&format!("table inet {} is not loaded", config.table));
        output::talk("  hint: portcullis-boundary apply loads it");
        return Ok(ExitCode::from(1));
    };
    if json {
        let text = serde_json::to_string(&counters).map_err(std::io::Error::from)?;
        output::line(&text);
    } else {
        output::data(&table(&counters));
    }
    Ok(ExitCode::SUCCESS)
}

/// ```text
/// refused             1017 packets     61020 bytes
///   uid 42 (_apt) was refused 1,014 times in the last minute, 1,014 times in all
/// ```
fn table(counters: &Counters) -> String {
    let mut text = String::new();
    for total in &counters.totals {
        text.push_str(&format!(
            "{:<20} {:>12} packets {:>14} bytes\n",
            total.name, total.packets, total.bytes
        ));
        if total.name == nftables::ruleset::COUNTER_REFUSED {
            for user in &counters.users {
                text.push_str(&format!("  {}\n", user.sentence()));
            }
            if let Some(sentence) = counters.unnamed() {
                text.push_str(&format!("  {sentence}\n"));
            }
        }
    }
    text
}

fn remove(config: &Config) -> Result<ExitCode, BoundaryError> {
    if boundary::remove(config)? {
        output::line(&format!(
            "table inet {}: removed, nobody is shut any more",
            config.table
        ));
    } else {
        output::line(&format!(
            "table inet {}: was not loaded, nothing to remove",
            config.table
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn watch(config: &Config) -> Result<ExitCode, BoundaryError> {
    if let Err(error) = privilege::keep_net_admin() {
        let hint = "start it as root, or as a unit with AmbientCapabilities=CAP_NET_ADMIN";
        return Ok(output::could_not_tell(&error, Some(hint)));
    }
    let stop = until_told()?;
    let talker = Talker::start()?;
    watch::run(
        config,
        || !matches!(stop.read_signal(), Ok(None)),
        |event| talker.say(format!("boundary: {}", event.text())),
    )?;
    talker.say("boundary: stopped watching, the rules stay in place".to_owned());
    talker.finish();
    Ok(ExitCode::SUCCESS)
}

fn monitor(config: &Config, json: bool) -> Result<ExitCode, BoundaryError> {
    let stop = until_told()?;
    monitor::run(
        config,
        || !matches!(stop.read_signal(), Ok(None)),
        |notice| {
            let line = match json {
                true => serde_json::to_string(notice).unwrap_or_default(),
                false => notice.text(),
            };
            output::line(&line);
        },
    )?;
    Ok(ExitCode::SUCCESS)
}

/// SIGTERM and SIGINT, as something that can be looked at.
fn until_told() -> Result<SignalFd, BoundaryError> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    Ok(signals
        .thread_block()
        .and_then(|()| SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK))
        .map_err(std::io::Error::from)?)
}

/// For whoever starts agents: not the rules are looked at (that takes privilege), but the watcher's word.
fn proven(path: &Path) -> Result<ExitCode, BoundaryError> {
    let status = Status::read_trusted(path)?;
    if let Some(weakness) = status.weakness()? {
        output::talk(&format!("not proven: {weakness}"));
        output::talk(
            "  hint: portcullis-boundary watch keeps the status fresh, verify names differences",
        );
        return Ok(ExitCode::from(1));
    }
    let hash = status.ruleset_hash.get(..12).unwrap_or_default();
    output::line(&format!(
        "table inet {}: ruleset {hash} is proven",
        status.table
    ));
    Ok(ExitCode::SUCCESS)
}

fn hint(error: &BoundaryError) -> Option<&'static str> {
    match error {
        BoundaryError::Netlink(NetlinkError::NotPermitted { .. }) => {
            Some("run it as root of this network namespace (sudo), reading the rules included")
        }
        BoundaryError::Status(_) => {
            Some("only root may write the status file; is its directory on a writable disk?")
        }
        BoundaryError::WouldOpen(_) => {
            Some("if that is meant, portcullis-boundary apply puts it in force")
        }
        BoundaryError::Undone(_) => Some(
            "delete the rule, or give its chain a priority below 0; portcullis-boundary verify lists it",
        ),
        BoundaryError::NotAsWritten(_) => Some(
            "does another program change this table, or a watcher of older rules? see docs/boundary.md",
        ),
        BoundaryError::Netlink(_) => {
            Some("is this kernel built with nf_tables, and its fib and reject modules?")
        }
        BoundaryError::Config(_) | BoundaryError::Accounts(_) | BoundaryError::System(_) => None,
    }
}
