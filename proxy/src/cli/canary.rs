//! `canary`: has the running gate try its credentials now.

use clap::Args;
use http::Method;
use serde_json::Value;

use super::control::{GateArg, ask, parse};
use super::output::{Exit, say, tell};

#[derive(Debug, Args)]
#[command(after_help = "\
One harmless call with and one without each credential that names a canary in its section; they are in the audit log
as the gate's own requests, and the whole is over within 40 seconds.

Examples:
  portcullis canary
  portcullis canary --json

Exit status: 0 every canary works, 1 one does not, 2 could not tell")]
pub(super) struct CanaryArgs {
    #[command(flatten)]
    gate: GateArg,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn canary(args: &CanaryArgs) -> Exit {
    let (code, body) = match ask(&args.gate, Method::POST, "/v1/canaries") {
        Ok(answer) => answer,
        Err(exit) => return exit,
    };
    let answer = match parse(code, &body) {
        Ok(answer) => answer,
        Err(exit) => return exit,
    };
    if args.json {
        say(String::from_utf8_lossy(&body).trim_end());
    }
    let credentials = answer["credentials"].as_array();
    let credentials = credentials.map(Vec::as_slice).unwrap_or_default();
    if !args.json {
        for credential in credentials {
            say(&line(credential));
        }
        if credentials.is_empty() {
            tell("the configuration names no credential");
        }
    }
    exit(credentials)
}

/// `works  github: 200 OK with it, 401 Unauthorized without`
fn line(credential: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let (name, found) = (text(&credential["name"]), &credential["canary"]);
    if let Some(verdict) = found["verdict"].as_str() {
        return format!("{verdict}  {name}: {}", text(&found["text"]));
    }
    if credential["ok"] == Value::Bool(true) {
        format!("untried  {name}: its section names no canary")
    } else {
        format!("missing  {name}: {}", text(&credential["problem"]))
    }
}

/// A canary that does not work is a no; one without an answer to judge leaves it open.
fn exit(credentials: &[Value]) -> Exit {
    let verdict = |credential: &Value| match credential["canary"]["verdict"].as_str() {
        Some("works") => Exit::Yes,
        Some("format" | "scope" | "expired" | "refused") => Exit::No,
        Some(_) => Exit::CouldNotTell,
        None if credential["ok"] == Value::Bool(true) => Exit::Yes,
        None => Exit::No,
    };
    let found: Vec<Exit> = credentials.iter().map(verdict).collect();
    match [Exit::No, Exit::CouldNotTell]
        .into_iter()
        .find(|exit| found.contains(exit))
    {
        Some(exit) => exit,
        None => Exit::Yes,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_that_fails_is_a_no_and_one_unanswered_leaves_it_open() {
        let of =
            |word: &str| json!({"name": "a", "ok": true, "canary": {"verdict": word, "text": "t"}});
        let without = json!({"name": "b", "ok": true});
        let missing = json!({"name": "c", "ok": false, "problem": "empty"});
        assert_eq!(exit(&[]), Exit::Yes);
        assert_eq!(exit(&[of("works"), without.clone()]), Exit::Yes);
        for word in ["unknown", "proves_nothing"] {
            assert_eq!(exit(&[of("works"), of(word)]), Exit::CouldNotTell, "{word}");
        }
        for word in ["format", "scope", "expired", "refused"] {
            let all = [of("unknown"), of(word), without.clone()];
            assert_eq!(exit(&all), Exit::No, "{word}");
        }
        assert_eq!(exit(std::slice::from_ref(&missing)), Exit::No);
        assert_eq!(line(&missing), "missing  c: empty");
        assert_eq!(line(&of("works")), "works  a: t");
    }
}
