//! `hold`: requests that wait for a person.

use clap::{Args, Subcommand};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::control::{GateArg, ask_with, parse};
use super::output::{Exit, say, tell};
use crate::audit::tail::clean;

#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  portcullis hold list
  portcullis hold show h-r2e8baf14-8
  portcullis hold approve h-r2e8baf14-8 --digest 9f86d081
  portcullis hold deny h-r2e8baf14-8 --reason 'not on a Friday'")]
pub(super) enum HoldCommand {
    /// List what waits, oldest first
    List(ListArgs),
    /// Show one hold: the exact request that is decided about
    Show(ShowArgs),
    /// Let this very request through, once
    Approve(ApproveArgs),
    /// Refuse this request
    Deny(DenyArgs),
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    gate: GateArg,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// The hold
    id: String,
    #[command(flatten)]
    gate: GateArg,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ApproveArgs {
    /// The hold
    id: String,
    /// Only if this is its digest, or how that begins
    #[arg(long)]
    digest: Option<String>,
    #[command(flatten)]
    gate: GateArg,
}

#[derive(Debug, Args)]
pub(super) struct DenyArgs {
    /// The hold
    id: String,
    /// One line that the agent reads
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    gate: GateArg,
}

pub(super) fn hold(command: &HoldCommand) -> Exit {
    match command {
        HoldCommand::List(args) => list(args),
        HoldCommand::Show(args) => show(args),
        HoldCommand::Approve(args) => {
            let body = json!({ "digest": args.digest });
            decide(&args.gate, &args.id, "approve", &body)
        }
        HoldCommand::Deny(args) => {
            let body = json!({ "reason": args.reason });
            decide(&args.gate, &args.id, "deny", &body)
        }
    }
}

/// 0 when something waits, 1 when nothing does.
fn list(args: &ListArgs) -> Exit {
    let (value, body) = match get(&args.gate, "/v1/holds") {
        Ok(answer) => answer,
        Err(exit) => return exit,
    };
    let holds = value["holds"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    if args.json {
        say(&body);
    } else {
        for hold in holds {
            say(&line(hold));
        }
        if holds.is_empty() {
            tell("nothing waits for a decision");
        }
    }
    if holds.is_empty() {
        Exit::No
    } else {
        Exit::Yes
    }
}

fn show(args: &ShowArgs) -> Exit {
    let (hold, body) = match get(&args.gate, &format!("/v1/holds/{}", args.id)) {
        Ok(answer) => answer,
        Err(exit) => return exit,
    };
    if args.json {
        say(&body);
        return Exit::Yes;
    }
    say(&line(&hold));
    let subject = hold["subject"].as_array().into_iter().flatten();
    for part in subject.filter_map(Value::as_str) {
        say(&format!("  {}", clean(part)));
    }
    say(&format!("  digest  {}", text(&hold["digest"])));
    for key in ["why", "agent", "ticket", "run"] {
        if let Some(said) = hold[key].as_str() {
            say(&format!("  {key:<7} {}", clean(said)));
        }
    }
    let by = hold["by"].as_array().into_iter().flatten();
    let by: Vec<&str> = by.filter_map(Value::as_str).collect();
    let by = if by.is_empty() {
        "whoever administers the gate".to_owned()
    } else {
        by.join(", ")
    };
    say(&format!("  decides {}", clean(&by)));
    for said in hold["body"].as_str().into_iter().flat_map(str::lines) {
        say(&format!("  > {}", clean(said)));
    }
    Exit::Yes
}

fn get(gate: &GateArg, path: &str) -> Result<(Value, String), Exit> {
    let (code, body) = ask_with(gate, Method::GET, path, Vec::new())?;
    let value = told(code, &body)?;
    Ok((value, String::from_utf8_lossy(&body).trim_end().to_owned()))
}

/// 0 when it was decided, 1 when it was not: somebody else's, another request's, gone.
fn decide(gate: &GateArg, id: &str, verb: &str, body: &Value) -> Exit {
    let path = format!("/v1/holds/{id}/{verb}");
    let body = body.to_string().into_bytes();
    let (code, body) = match ask_with(gate, Method::POST, &path, body) {
        Ok(answer) => answer,
        Err(exit) => return exit,
    };
    match told(code, &body) {
        Ok(hold) => {
            say(&line(&hold));
            Exit::Yes
        }
        Err(exit) => exit,
    }
}

fn told(code: StatusCode, body: &[u8]) -> Result<Value, Exit> {
    let exit = match code {
        StatusCode::NOT_FOUND | StatusCode::FORBIDDEN | StatusCode::CONFLICT => Exit::No,
        _ => Exit::CouldNotTell,
    };
    parse(code, body).map_err(|_| exit)
}

/// `h-1  waiting  212 s left  POST api.example.com:443/v1/x  rule release`
fn line(hold: &Value) -> String {
    format!(
        "{}  {}  {} s left  {} {}{}  rule {}",
        text(&hold["id"]),
        text(&hold["state"]),
        hold["seconds_left"],
        clean(&text(&hold["method"])),
        text(&hold["authority"]),
        clean(&text(&hold["target"])),
        text(&hold["rule"])
    )
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}
