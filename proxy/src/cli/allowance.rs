//! `allowance`: what askers have taken, as the running gate counts it.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::Value;

use super::control::{GateArg, ask, parse};
use super::output::{Exit, say, tell};

#[derive(Debug, Subcommand)]
pub(super) enum AllowanceCommand {
    /// List every allowance and what was taken of it
    List(ListArgs),
    /// Show one allowance by its name
    Show(ShowArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  portcullis-proxy allowance list
  portcullis-proxy allowance list --json")]
pub(super) struct ListArgs {
    #[command(flatten)]
    gate: GateArg,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  portcullis-proxy allowance show run/4b1e
  portcullis-proxy allowance show agent/acme/coder@86400 --json

Exit status: 0 found, 1 there is none of this name, 2 could not tell")]
pub(super) struct ShowArgs {
    /// As `allowance list` names it
    name: String,
    #[command(flatten)]
    gate: GateArg,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn allowance(command: &AllowanceCommand) -> Exit {
    match command {
        AllowanceCommand::List(args) => list(args),
        AllowanceCommand::Show(args) => show(args),
    }
}

fn all(gate: &GateArg) -> Result<Vec<Value>, Exit> {
    let (code, body) = ask(gate, Method::GET, "/v1/allowances")?;
    match parse(code, &body)? {
        Value::Array(all) => Ok(all),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            Ok(Vec::new())
        }
    }
}

fn list(args: &ListArgs) -> Exit {
    let all = match all(&args.gate) {
        Ok(all) => all,
        Err(exit) => return exit,
    };
    if args.json {
        say(&Value::Array(all).to_string());
        return Exit::Yes;
    }
    if all.is_empty() {
        tell("nobody has an allowance");
    }
    for one in &all {
        say(&line(one));
    }
    Exit::Yes
}

fn show(args: &ShowArgs) -> Exit {
    let all = match all(&args.gate) {
        Ok(all) => all,
        Err(exit) => return exit,
    };
    let Some(one) = all.iter().find(|one| one["name"] == args.name.as_str()) else {
        tell(&format!(
            "there is no allowance of the name {}\n  hint: allowance list names them",
            args.name
        ));
        return Exit::No;
    };
    if args.json {
        say(&one.to_string());
        return Exit::Yes;
    }
    say(&line(one));
    for measure in ["usd", "tokens", "requests", "bytes"] {
        say(&format!(
            "  {measure}: {} taken, {} reserved",
            plain(&one["spent"][measure]),
            plain(&one["reserved"][measure]),
        ));
    }
    let limits = one["limits"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    if limits.is_empty() {
        say("  limits: none that is known now");
    }
    for limit in limits.iter().filter_map(Value::as_object) {
        let words = limit.iter().filter(|(name, _)| *name != "per");
        let words: Vec<String> = words
            .map(|(name, value)| format!("{name} = {}", plain(value)))
            .collect();
        say(&format!("  limit: {}", words.join(", ")));
    }
    Exit::Yes
}

/// One allowance as a line of words.
pub(super) fn line(one: &Value) -> String {
    let spent = &one["spent"];
    let renewed = one["renewed_in"].as_u64();
    let renewed = renewed.map_or_else(String::new, |seconds| format!(", renewed in {seconds} s"));
    format!(
        "{}: {} US dollars, {} tokens, {} requests, {} bytes in {} s{renewed}",
        plain(&one["name"]),
        plain(&spent["usd"]),
        plain(&spent["tokens"]),
        plain(&spent["requests"]),
        plain(&spent["bytes"]),
        plain(&one["seconds"]),
    )
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
