//! The gate's control socket, as the orchestrator uses it: open, extend and close runs, ask whether
//! the gate is ready, and read what a run's requests met.

use std::path::{Path, PathBuf};

use http::Method;
use policy::grant::{OpenRun, OpenedRun, RunId};
use serde_json::{Value, json};

use crate::scheduler::Readiness;
use crate::socket_client::{self, Answer, SocketError};

/// Why the gate did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// It could not be asked; this may pass.
    #[error("the gate does not answer")]
    Away(#[from] SocketError),
    /// It said no.
    #[error("the gate refused with status {status}: {error}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Its words.
        error: String,
    },
    /// It said something that cannot be read.
    #[error("the gate's answer cannot be read")]
    Unreadable(#[source] serde_json::Error),
    /// Its log holds more than it could read.
    #[error("the gate's log could not be read whole: {0}")]
    Lacking(String),
}

impl GateError {
    /// Whether trying again later may help: the gate is away or not ready, not unwilling.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Away(_) => true,
            Self::Refused { status, .. } => *status >= 500 || *status == 429,
            Self::Unreadable(_) | Self::Lacking(_) => false,
        }
    }
}

/// A client of the gate; cheap to clone.
#[derive(Debug, Clone)]
pub struct GateClient {
    socket: PathBuf,
}

impl GateClient {
    /// A client of the control socket at this path.
    #[must_use]
    pub fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Opens a run, or says again that it is open.
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn open(&self, run: &OpenRun) -> Result<OpenedRun, GateError> {
        let body = serde_json::to_vec(run).map_err(GateError::Unreadable)?;
        let target = format!("/v1/runs/{}", run.grant.run);
        let answer = self.ask(Method::PUT, &target, Some(body)).await?;
        serde_json::from_slice(&answer.body).map_err(GateError::Unreadable)
    }

    /// Extends a run's lease.
    ///
    /// # Errors
    /// See [`GateError`]; 404 when the gate does not know the run (any more).
    pub async fn extend(&self, run: &RunId, epoch: u64) -> Result<(), GateError> {
        let body = json!({ "epoch": epoch }).to_string().into_bytes();
        self.ask(Method::POST, &format!("/v1/runs/{run}/extend"), Some(body))
            .await?;
        Ok(())
    }

    /// Closes a run: its live streams are cut at once. A run the gate does not know is closed.
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn close(&self, run: &RunId, epoch: u64) -> Result<(), GateError> {
        match self
            .ask(
                Method::DELETE,
                &format!("/v1/runs/{run}?epoch={epoch}"),
                None,
            )
            .await
        {
            Ok(_)
            | Err(GateError::Refused {
                status: 404 | 410, ..
            }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Why no run can be opened now, if so: the gate is away, or it does not serve.
    pub async fn readiness(&self) -> Readiness {
        match self.ask(Method::GET, "/v1/status", None).await {
            Ok(answer) => {
                let status = answer.json();
                let said = |part: &str| {
                    let why = status[part]["problem"]
                        .as_str()
                        .or(status[part]["error"].as_str());
                    why.unwrap_or("no reason given").to_owned()
                };
                let deaf = status["audit"]["ok"] == json!(false);
                Readiness {
                    boundary: unproven(&status)
                        .map(|why| format!("the boundary is not proven: {why}")),
                    gate: deaf
                        .then(|| format!("the gate cannot write its audit log: {}", said("audit"))),
                }
            }
            Err(error) => Readiness {
                boundary: Some("the gate, which knows, does not answer".to_owned()),
                gate: Some(chain(&error)),
            },
        }
    }

    /// Why the boundary is not proven at this moment, if so.
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn unproven(&self) -> Result<Option<String>, GateError> {
        let answer = self.ask(Method::GET, "/v1/status", None).await?;
        Ok(unproven(&answer.json()))
    }

    /// The audit records of a run, oldest first.
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn audit(&self, run: &RunId) -> Result<Vec<Value>, GateError> {
        let answer = self
            .ask(Method::GET, &format!("/v1/audit?run={run}"), None)
            .await?;
        records(&answer.body)
    }

    /// The last checkpoint of the gate's audit log, if there is one.
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn checkpoint(&self) -> Result<Option<Value>, GateError> {
        match self.ask(Method::GET, "/v1/checkpoint", None).await {
            Ok(answer) => serde_json::from_slice(&answer.body)
                .map(Some)
                .map_err(GateError::Unreadable),
            Err(GateError::Refused { status: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn ask(
        &self,
        method: Method,
        target: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Answer, GateError> {
        let answer = socket_client::request(&self.socket, method, target, body).await?;
        if (200..300).contains(&answer.status) {
            return Ok(answer);
        }
        let json = answer.json();
        let error = json["error"].as_str().map_or_else(
            || {
                String::from_utf8_lossy(&answer.body)
                    .chars()
                    .take(200)
                    .collect()
            },
            str::to_owned,
        );
        Err(GateError::Refused {
            status: answer.status,
            error,
        })
    }
}

/// The gate says whether it holds the boundary for proven, and names the file it goes by, unless its
/// operator vouches otherwise; that file is read here too.
fn unproven(status: &Value) -> Option<String> {
    let boundary = &status["boundary"];
    if boundary["ok"] == json!(false) {
        let why = boundary["problem"].as_str().unwrap_or("no reason given");
        return Some(why.to_owned());
    }
    let file = boundary["status"].as_str()?;
    crate::proof::fresh(Path::new(file)).err()
}

/// An error with its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

/// The records in an answer, one a line.
fn records(body: &[u8]) -> Result<Vec<Value>, GateError> {
    let lines = body
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let record: Value = serde_json::from_slice(line).map_err(GateError::Unreadable)?;
            if record["kind"] == "lacking" {
                let reason = record["reason"].as_str().unwrap_or("it does not say why");
                return Err(GateError::Lacking(reason.to_owned()));
            }
            Ok(record)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_lacks_lines_is_no_answer() {
        let whole = b"{\"kind\":\"request\"}\n{\"kind\":\"response\"}\n";
        assert_eq!(records(whole).unwrap().len(), 2, "control");
        let lacking = [
            &whole[..],
            b"{\"kind\":\"lacking\",\"reason\":\"lines 1 to 3\"}\n",
        ]
        .concat();
        let said = records(&lacking).unwrap_err().to_string();
        assert!(
            said.ends_with("could not be read whole: lines 1 to 3"),
            "{said}"
        );
        assert!(matches!(records(b"{\"ki"), Err(GateError::Unreadable(_))));
    }
}
