//! The subcommands.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use nftables::accounts::Accounts;
use nftables::boundary::{self, BoundaryError};
use nftables::config::Config;
use nftables::counters::{self, Counters};
use nftables::netlink::NetlinkError;
use nftables::watch::{self, Event};
use nftables::{privilege, render};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::output;

const EXAMPLES: &str = "\
Examples:
  portcullis-boundary render                         what the kernel should hold, as nft text
  portcullis-boundary apply                          make it so, in one transaction
  portcullis-boundary verify                         exit 0 when it is exactly so, 1 when not
  portcullis-boundary counters --json                who was refused, for a script
  portcullis-boundary watch                          keep it so, and say so in the status file
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
    /// What was refused, in total and by user
    #[command(after_help = "Example:\n  portcullis-boundary counters")]
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
            // A closed terminal leaves nothing to tell.
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
        | Command::Remove => {}
    }
    let config = Config::load(&cli.config)?;
    match &cli.command {
        Command::Render { json } => render(&config, *json),
        Command::Apply { json } => apply(&config, *json),
        Command::Verify { json } => verify(&config, *json),
        Command::Counters { json } => show_counters(&config, *json),
        Command::Watch => watch(&config),
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
        });
        output::line(&value.to_string());
        return Ok(ExitCode::SUCCESS);
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

fn verify(config: &Config, json: bool) -> Result<ExitCode, BoundaryError> {
    let (ruleset, differences) = boundary::verify(config)?;
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
        });
        output::line(&value.to_string());
    } else if good {
        let hash = &ruleset.hash()[..12];
        output::line(&format!(
            "table inet {}: ruleset {hash} stands",
            ruleset.table
        ));
    } else {
        for difference in &differences {
            output::line(&difference.to_string());
        }
        output::talk("  hint: portcullis-boundary apply puts the rules back");
    }
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn show_counters(config: &Config, json: bool) -> Result<ExitCode, BoundaryError> {
    let accounts = Accounts::load()?;
    let Some(counters) = counters::read(&config.table, &accounts)? else {
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
///   uid 42 (_apt)     1014 packets     60840 bytes
/// ```
fn table(counters: &Counters) -> String {
    let mut text = String::new();
    let mut row = |name: &str, packets: u64, bytes: u64| {
        text.push_str(&format!(
            "{name:<44} {packets:>12} packets {bytes:>14} bytes\n"
        ));
    };
    for total in &counters.totals {
        row(&total.name, total.packets, total.bytes);
        if total.name == nftables::ruleset::COUNTER_REFUSED {
            for user in &counters.users {
                let name = user.user.as_deref().unwrap_or("no such user");
                row(
                    &format!("  uid {} ({name})", user.uid),
                    user.packets,
                    user.bytes,
                );
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
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    let stop = signals
        .thread_block()
        .and_then(|()| SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK))
        .map_err(std::io::Error::from)?;
    watch::run(
        config,
        || !matches!(stop.read_signal(), Ok(None)),
        |event| output::talk(&describe(&event)),
    )?;
    output::talk("boundary: stopped watching, the rules stay in place");
    Ok(ExitCode::SUCCESS)
}

fn describe(event: &Event) -> String {
    match event {
        Event::Standing { hash } => format!("boundary: ruleset {} stands", &hash[..12]),
        Event::Renewed { hash } => {
            format!("boundary: another ruleset was due, {} loaded", &hash[..12])
        }
        Event::Recovered { hash } => {
            format!(
                "boundary: ruleset {} stands again",
                hash.get(..12).unwrap_or_default()
            )
        }
        Event::Reasserted { differences } => {
            let mut text = "boundary: rules had changed and were put back".to_owned();
            for difference in differences {
                text.push_str(&format!("\n  {difference}"));
            }
            text
        }
        Event::Failed { error } => format!("boundary: NOT PROVEN: {}", watch::chain(error)),
    }
}

fn hint(error: &BoundaryError) -> Option<&'static str> {
    match error {
        BoundaryError::Netlink(NetlinkError::NotPermitted { .. }) => {
            Some("run it as root of this network namespace (sudo), reading the rules included")
        }
        BoundaryError::Status(_) => {
            Some("only root may write the status file; is its directory on a writable disk?")
        }
        BoundaryError::WouldOpen(_) => Some("if that is meant, restart portcullis-boundary watch"),
        BoundaryError::NotAsWritten(_) => Some(
            "does another program change this table, or a watcher of older rules? see docs/boundary.md",
        ),
        BoundaryError::Netlink(_) => {
            Some("is this kernel built with nf_tables, and its fib and reject modules?")
        }
        BoundaryError::Config(_) | BoundaryError::Accounts(_) | BoundaryError::System(_) => None,
    }
}
