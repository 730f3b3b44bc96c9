//! How an agent's runs are started.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Refusal, text};

/// The configuration of one agent's adapter, e.g.
/// `{"adapter":"process","command":["sh","-c","..."],"bundle":"/srv/agents/ada","env":{"X":"1"}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "adapter", rename_all = "snake_case")]
pub enum Adapter {
    /// A command inside the run's container; exit 0 is success, the prompt comes on stdin.
    Process(Process),
}

/// See [`Adapter::Process`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Program and arguments; passed as data, never through a shell.
    pub command: Vec<String>,
    /// Host directory with the agent's instructions, mounted read-only at `/opt/agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<PathBuf>,
    /// Extra variables. Names starting with `PAPERCLIP_` are ours and refused here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Seconds after which the run is cancelled; 3600 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
}

impl Adapter {
    /// The adapter's name.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Process(_) => "process",
        }
    }

    /// The command of the run's container.
    #[must_use]
    pub fn process(&self) -> &Process {
        match self {
            Self::Process(process) => process,
        }
    }

    /// Checks what can be checked without starting anything.
    ///
    /// # Errors
    /// 400 naming the field.
    pub fn check(&self) -> Result<(), Refusal> {
        let process = self.process();
        if process
            .command
            .first()
            .is_none_or(|program| program.is_empty())
        {
            return Err(Refusal::invalid("adapter.command must name a program"));
        }
        if process.command.iter().any(|arg| arg.contains('\0')) {
            return Err(Refusal::invalid("adapter.command must not contain NUL"));
        }
        if let Some(bundle) = &process.bundle
            && (!bundle.is_absolute() || bundle.as_os_str().len() > 4096)
        {
            return Err(Refusal::invalid("adapter.bundle must be an absolute path"));
        }
        if process.timeout_seconds == Some(0) {
            return Err(Refusal::invalid(
                "adapter.timeout_seconds must be at least 1",
            ));
        }
        for (name, value) in &process.env {
            let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            let starts = name.bytes().next().is_some_and(|b| !b.is_ascii_digit());
            if !plain || !starts || name.len() > text::NAME {
                return Err(Refusal::invalid(format!(
                    "adapter.env: `{name}` is not a variable name"
                )));
            }
            if name.starts_with("PAPERCLIP_") {
                return Err(Refusal::invalid(format!(
                    "adapter.env: `{name}` is set by the orchestrator and cannot be configured"
                )));
            }
            if value.contains('\0') {
                return Err(Refusal::invalid(format!(
                    "adapter.env: `{name}` contains NUL"
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Adapter {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn run_variables_cannot_be_configured() {
        assert!(
            parse(r#"{"adapter":"process","command":["true"],"env":{"A":"1"}}"#)
                .check()
                .is_ok()
        );
        let bad =
            parse(r#"{"adapter":"process","command":["true"],"env":{"PAPERCLIP_API_KEY":"1"}}"#);
        assert!(bad.check().is_err());
    }

    #[test]
    fn a_command_is_needed() {
        assert!(
            parse(r#"{"adapter":"process","command":[]}"#)
                .check()
                .is_err()
        );
        assert!(serde_json::from_str::<Adapter>(r#"{"adapter":"shell","command":["x"]}"#).is_err());
        let unknown = r#"{"adapter":"process","command":["x"],"comand":1}"#;
        assert!(serde_json::from_str::<Adapter>(unknown).is_err());
    }
}
