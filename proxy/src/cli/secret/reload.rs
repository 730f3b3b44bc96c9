//! The running gate, which is to take a new value up.

use std::os::unix::net::UnixStream;

use super::super::output::{Exit, fail, say, tell};
use super::StoreArg;
use crate::config::Config;

/// A connection to the running gate, made as whoever called: as the store's owner it might not be
/// let in.
pub(super) fn gate_of(arg: &StoreArg) -> Option<UnixStream> {
    let config = Config::load(&arg.config.config).ok()?;
    UnixStream::connect(&config.control.socket).ok()
}

/// What a reload that succeeded means for a new value.
fn taken_up(report: &[u8]) -> String {
    let report: serde_json::Value = serde_json::from_slice(report).unwrap_or_default();
    if report["sealed"] == true {
        return "the gate holds no credential while the boundary is not proven; it reads this one when it is"
            .to_owned();
    }
    let waiting = report["waiting_credentials"].as_array();
    let waiting: Vec<&str> = waiting
        .into_iter()
        .flatten()
        .filter_map(serde_json::Value::as_str)
        .collect();
    match waiting.as_slice() {
        [] => "the gate uses it from now on".to_owned(),
        names => format!(
            "the gate uses it from now on, except where a new value must pass its canary first: {} \
             (`portcullis-proxy status` shows when it has)",
            names.join(", ")
        ),
    }
}

/// Has the running gate read its credentials again.
pub(super) fn take_up(gate: Option<UnixStream>) -> Exit {
    const LATER: &str =
        "note: the gate was not told; a running one takes it up by itself in a few seconds";
    let Some(gate) = gate else {
        tell(LATER);
        return Exit::Yes;
    };
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(problem) => return fail(&problem),
    };
    let asked = runtime.block_on(crate::control::client::ask_on(
        gate,
        http::Method::POST,
        "/v1/reload",
        Vec::new(),
    ));
    match asked {
        Ok((code, body)) if code.is_success() => {
            say(&taken_up(&body));
            Exit::Yes
        }
        Ok((http::StatusCode::UNPROCESSABLE_ENTITY, body)) => {
            let report: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
            tell(
                report["error"]
                    .as_str()
                    .unwrap_or("the reload is incomplete"),
            );
            Exit::No
        }
        Ok(_) | Err(_) => {
            tell(LATER);
            Exit::Yes
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_reload_means_for_a_new_value_is_told_as_it_is() {
        let told = |report: &str| taken_up(report.as_bytes());
        let plain = told(r#"{"waiting_credentials":[],"sealed":false}"#);
        assert_eq!(plain, "the gate uses it from now on");
        let waits = told(r#"{"waiting_credentials":["api"],"sealed":false}"#);
        assert!(waits.contains("pass its canary first: api"), "{waits}");
        let sealed = told(r#"{"waiting_credentials":[],"sealed":true}"#);
        assert!(sealed.contains("holds no credential"), "{sealed}");
    }
}
