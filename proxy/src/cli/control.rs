//! `status`, `health`, `reload`, `runs`: asking the running gate.

use std::path::PathBuf;

use bytes::Bytes;
use clap::Args;
use http::{Method, StatusCode};
use serde_json::Value;

use super::ConfigArg;
use super::output::{Exit, fail, say, tell};
use crate::config::Config;
use crate::control::client;

#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    gate: GateArg,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct HealthArgs {
    #[command(flatten)]
    gate: GateArg,
}

#[derive(Debug, Args)]
pub(super) struct ReloadArgs {
    #[command(flatten)]
    gate: GateArg,
}

#[derive(Debug, Args)]
pub(super) struct RunsArgs {
    #[command(flatten)]
    gate: GateArg,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Which gate.
#[derive(Debug, Args)]
pub(super) struct GateArg {
    #[command(flatten)]
    config: ConfigArg,
    /// Control socket, instead of the one the configuration names
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// 0 when the gate is ready, 1 when it runs but is not, 2 when it does not answer.
pub(super) fn status(args: &StatusArgs) -> Exit {
    let (code, body) = match ask(&args.gate, Method::GET, "/v1/status") {
        Ok(answer) => answer,
        Err(exit) => return exit,
    };
    let status: Value = match parse(code, &body) {
        Ok(status) => status,
        Err(exit) => return exit,
    };
    if args.json {
        say(String::from_utf8_lossy(&body).trim_end());
    } else {
        print_status(&status);
    }
    if status["ready"] == Value::Bool(true) {
        Exit::Yes
    } else {
        Exit::No
    }
}

/// 0 when a permitted request would pass, 1 when not; containers' health checks know no other answer.
pub(super) fn health(args: &HealthArgs) -> Exit {
    let asked =
        ask(&args.gate, Method::GET, "/v1/status").and_then(|(code, body)| parse(code, &body));
    let Ok(status) = asked else {
        return Exit::No;
    };
    if status["ready"] == Value::Bool(true) {
        say("ready");
        return Exit::Yes;
    }
    let reasons = reasons(&status);
    say(&format!("not ready: {}", reasons.join("; ")));
    Exit::No
}

/// Everything that keeps a gate with this status from being ready.
fn reasons(status: &Value) -> Vec<String> {
    let mut reasons = Vec::new();
    // The hint is for whoever asks for the status.
    let first = |text: &Value| Some(text.as_str()?.lines().next()?.to_owned());
    for part in ["boundary", "audit", "descriptors"] {
        if status[part]["ok"] != Value::Bool(true) {
            let problem = first(&status[part]["problem"]);
            let problem = problem.unwrap_or_else(|| "not ok".to_owned());
            reasons.push(format!("{part}: {problem}"));
        }
    }
    let policies = status["policies"].as_object().into_iter().flatten();
    for (name, policy) in policies.filter(|(_, policy)| policy["stale"].is_object()) {
        let since = policy["stale"]["since"].as_str().unwrap_or_default();
        reasons.push(format!(
            "policy {name}: its file is broken since {since}, the former one stays in force"
        ));
    }
    for credential in status["credentials"].as_array().into_iter().flatten() {
        if let Some(problem) = first(&credential["problem"]) {
            let name = credential["name"].as_str().unwrap_or_default();
            reasons.push(format!("credential {name}: {problem}"));
        }
    }
    reasons
}

/// 0 when everything was taken up, 1 when something is broken and stays as it was.
pub(super) fn reload(args: &ReloadArgs) -> Exit {
    let (code, body) = match ask(&args.gate, Method::POST, "/v1/reload") {
        Ok(answer) => answer,
        Err(exit) => return exit,
    };
    if code == StatusCode::UNPROCESSABLE_ENTITY {
        let report: Value = serde_json::from_slice(&body).unwrap_or_default();
        tell(
            report["error"]
                .as_str()
                .unwrap_or("the reload is incomplete"),
        );
        return Exit::No;
    }
    let report = match parse(code, &body) {
        Ok(report) => report,
        Err(exit) => return exit,
    };
    let changed = words(&report["changed"]);
    if changed.is_empty() {
        say("reloaded: no policy changed");
    } else {
        say(&format!("reloaded: new policy for {}", changed.join(", ")));
    }
    if report["restart_needed"] == Value::Bool(true) {
        tell("the configuration file has changed\n  hint: restart the gate to take it up");
    }
    Exit::Yes
}

pub(super) fn runs(args: &RunsArgs) -> Exit {
    let (code, body) = match ask(&args.gate, Method::GET, "/v1/runs") {
        Ok(answer) => answer,
        Err(exit) => return exit,
    };
    let runs = match parse(code, &body) {
        Ok(runs) => runs,
        Err(exit) => return exit,
    };
    if args.json {
        say(String::from_utf8_lossy(&body).trim_end());
        return Exit::Yes;
    }
    let runs = runs.as_array().map(Vec::as_slice).unwrap_or_default();
    if runs.is_empty() {
        tell("no run is open");
    }
    for run in runs {
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let grant = &run["grant"];
        say(&format!(
            "{}  epoch {}  {}/{}  ticket {}  profile {}  lease {}s  connections {}",
            text(&grant["run"]),
            run["epoch"],
            text(&grant["company"]),
            text(&grant["agent"]),
            text(&grant["ticket"]),
            text(&grant["profile"]),
            run["lease_seconds_left"],
            run["connections"],
        ));
    }
    Exit::Yes
}

pub(super) fn ask(gate: &GateArg, method: Method, path: &str) -> Result<(StatusCode, Bytes), Exit> {
    ask_with(gate, method, path, Vec::new())
}

/// The same with a body.
pub(super) fn ask_with(
    gate: &GateArg,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> Result<(StatusCode, Bytes), Exit> {
    let socket = match &gate.socket {
        Some(socket) => socket.clone(),
        None => {
            Config::load(&gate.config.config)
                .map_err(|problem| fail(&problem))?
                .control
                .socket
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|problem| fail(&problem))?;
    runtime
        .block_on(client::ask(&socket, method, path, body))
        .map_err(|problem| {
            let exit = fail(&problem);
            tell("  hint: is the gate running? start it with portcullis-proxy run");
            exit
        })
}

pub(super) fn parse(code: StatusCode, body: &[u8]) -> Result<Value, Exit> {
    let value: Value = serde_json::from_slice(body).map_err(|problem| fail(&problem))?;
    if code.is_success() {
        return Ok(value);
    }
    tell(&format!(
        "error: {}",
        value["error"].as_str().unwrap_or("the gate refused")
    ));
    Err(Exit::CouldNotTell)
}

fn words(list: &Value) -> Vec<&str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

fn print_status(status: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let word = |good: &Value| {
        if *good == Value::Bool(true) {
            "ok"
        } else {
            "NOT OK"
        }
    };
    let ready = if status["ready"] == Value::Bool(true) {
        "ready"
    } else {
        "NOT READY"
    };
    say(&format!(
        "gate        {ready}  version {}  pid {}  since {}",
        text(&status["version"]),
        status["pid"],
        text(&status["started_at"])
    ));
    let boundary = &status["boundary"];
    let detail = match boundary["kind"].as_str() {
        Some("external") => format!("not proven here: {}", text(&boundary["reason"])),
        Some(_) => {
            format!(
                "scope {}  table {}",
                text(&boundary["scope"]),
                text(&boundary["table"])
            )
        }
        None => text(&boundary["problem"]),
    };
    say(&format!("boundary    {}  {detail}", word(&boundary["ok"])));
    let audit = &status["audit"];
    let problem = audit["problem"]
        .as_str()
        .map(|text| format!("  {text}"))
        .unwrap_or_default();
    say(&format!(
        "audit       {}  seq {}{problem}",
        word(&audit["ok"]),
        audit["seq"]
    ));
    let places = &status["descriptors"];
    say(&format!(
        "descriptors {}  {} of {} taken",
        word(&places["ok"]),
        places["used"],
        places["most"]
    ));
    for (profile, policy) in status["policies"].as_object().into_iter().flatten() {
        let stale = &policy["stale"];
        let state = if stale.is_null() {
            "ok".to_owned()
        } else {
            format!("STALE since {}", text(&stale["since"]))
        };
        say(&format!(
            "policy      {state}  {profile}  {}",
            text(&policy["path"])
        ));
        if let Some(problem) = stale["problem"].as_str() {
            say(problem);
        }
    }
    for credential in status["credentials"].as_array().into_iter().flatten() {
        let problem = credential["problem"]
            .as_str()
            .map(|text| format!("  {text}"))
            .unwrap_or_default();
        let sick = credential["sick"].as_object().map(|sick| {
            format!(
                "  SICK: {} refuses it since {} ({} times)",
                text(&sick["by"]),
                text(&sick["since"]),
                sick["refusals"]
            )
        });
        let canary = credential["canary"].as_object().map(|found| {
            format!(
                "  canary {}: {}",
                text(&found["verdict"]),
                text(&found["text"])
            )
        });
        say(&format!(
            "credential  {}  {} ({}){problem}{}{}",
            word(&credential["ok"]),
            text(&credential["name"]),
            text(&credential["kind"]),
            sick.unwrap_or_default(),
            canary.unwrap_or_default()
        ));
    }
    for (word, authority) in [
        ("signs", &status["ca"]["current"]),
        ("next", &status["ca"]["next"]),
    ] {
        if authority["name"].is_string() {
            let from = authority["from"].as_str();
            let from = from.map_or_else(String::new, |from| format!("  signs from {from}"));
            say(&format!(
                "authority   {word}  {}  expires {}{from}",
                text(&authority["name"]),
                text(&authority["expires"])
            ));
        }
    }
    say(&format!("runs        {} open", status["runs"]));
    let allowances = status["allowances"].as_array().map(Vec::as_slice);
    for one in allowances.unwrap_or_default() {
        say(&format!("allowance   {}", super::allowance::line(one)));
    }
    for warning in words(&status["warnings"]) {
        say(&format!("warning     {warning}"));
    }
}
