//! From method and path to what is asked for.

use http::{Method, Uri};
use policy::grant::{GrantError, RunId};
use serde::Deserialize;

use crate::audit::query::Filter;

/// What a client of the control socket asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Open(RunId),
    Extend(RunId),
    Close { run: RunId, epoch: u64 },
    Runs,
    Allowances,
    Status,
    Reload,
    Canaries,
    Events,
    Metrics,
    Checkpoint,
    Audit(Filter),
    Holds,
    Hold(String),
    Approve(String),
    Deny(String),
}

/// Body of `POST /v1/holds/{id}/approve` and `.../deny`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Deciding {
    /// How the digest begins that is decided about.
    pub(crate) digest: Option<String>,
    /// What the agent reads.
    pub(crate) reason: Option<String>,
}

/// Body of `POST /v1/runs/{run}/extend`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Extend {
    pub(crate) epoch: u64,
    /// The lease from now; the one the run was opened with, if absent.
    #[serde(default)]
    pub(crate) lease_seconds: Option<u32>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum CommandError {
    #[error("there is nothing at this path")]
    NotFound,
    #[error("this path does not take this method")]
    Method,
    #[error("{0}")]
    Run(#[from] GrantError),
    #[error("{0}")]
    Query(&'static str),
}

impl Command {
    pub(crate) fn parse(method: &Method, uri: &Uri) -> Result<Self, CommandError> {
        let rest = uri
            .path()
            .strip_prefix("/v1/")
            .ok_or(CommandError::NotFound)?;
        let parts: Vec<&str> = rest.split('/').collect();
        match (parts.as_slice(), method) {
            (["runs"], &Method::GET) => Ok(Self::Runs),
            (["runs", run], &Method::PUT) => Ok(Self::Open(RunId::parse(run)?)),
            (["runs", run], &Method::DELETE) => {
                let epoch = parameter(uri, "epoch")
                    .and_then(|text| text.parse().ok())
                    .ok_or(CommandError::Query("say which epoch ends: ?epoch=N"))?;
                Ok(Self::Close {
                    run: RunId::parse(run)?,
                    epoch,
                })
            }
            (["runs", run, "extend"], &Method::POST) => Ok(Self::Extend(RunId::parse(run)?)),
            (["allowances"], &Method::GET) => Ok(Self::Allowances),
            (["status"], &Method::GET) => Ok(Self::Status),
            (["reload"], &Method::POST) => Ok(Self::Reload),
            (["canaries"], &Method::POST) => Ok(Self::Canaries),
            (["checkpoint"], &Method::GET) => Ok(Self::Checkpoint),
            (["metrics"], &Method::GET) => Ok(Self::Metrics),
            (["holds"], &Method::GET) => Ok(Self::Holds),
            (["holds", id], &Method::GET) => Ok(Self::Hold((*id).to_owned())),
            (["holds", id, "approve"], &Method::POST) => Ok(Self::Approve((*id).to_owned())),
            (["holds", id, "deny"], &Method::POST) => Ok(Self::Deny((*id).to_owned())),
            (["events"], &Method::GET) => Ok(Self::Events),
            (["audit"], &Method::GET) => {
                let text = |key| parameter(uri, key).map(str::to_owned);
                let filter = Filter {
                    run: text("run"),
                    id: text("id"),
                    ..Filter::default()
                };
                if filter == Filter::default() {
                    return Err(CommandError::Query("say which: ?run=ID or ?id=ID"));
                }
                Ok(Self::Audit(filter))
            }
            (
                [
                    "runs" | "allowances" | "status" | "reload" | "canaries" | "events" | "audit"
                    | "metrics" | "checkpoint" | "holds",
                ]
                | ["holds", _]
                | ["holds", _, "approve" | "deny"]
                | ["runs", _]
                | ["runs", _, "extend"],
                _,
            ) => Err(CommandError::Method),
            (_, _) => Err(CommandError::NotFound),
        }
    }
}

/// Ids and numbers need no decoding: what would is no id.
fn parameter<'u>(uri: &'u Uri, key: &str) -> Option<&'u str> {
    uri.query()?
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .find_map(|(name, value)| (name == key).then_some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(method: &Method, uri: &str) -> Result<Command, CommandError> {
        Command::parse(method, &uri.parse().unwrap())
    }

    #[test]
    fn each_path_has_its_command() {
        let run = RunId::parse("r-1").unwrap();
        assert_eq!(
            parse(&Method::PUT, "/v1/runs/r-1"),
            Ok(Command::Open(run.clone()))
        );
        assert_eq!(
            parse(&Method::DELETE, "/v1/runs/r-1?epoch=3"),
            Ok(Command::Close {
                run: run.clone(),
                epoch: 3
            })
        );
        assert_eq!(
            parse(&Method::POST, "/v1/runs/r-1/extend"),
            Ok(Command::Extend(run))
        );
        assert_eq!(parse(&Method::GET, "/v1/status"), Ok(Command::Status));
        assert_eq!(
            parse(&Method::GET, "/v1/allowances"),
            Ok(Command::Allowances)
        );
        assert_eq!(parse(&Method::POST, "/v1/canaries"), Ok(Command::Canaries));
        let filter = Filter {
            run: Some("r-1".to_owned()),
            ..Filter::default()
        };
        assert_eq!(
            parse(&Method::GET, "/v1/audit?run=r-1"),
            Ok(Command::Audit(filter))
        );
    }

    #[test]
    fn anything_else_is_an_error_that_says_which() {
        assert_eq!(parse(&Method::GET, "/"), Err(CommandError::NotFound));
        assert_eq!(
            parse(&Method::GET, "/v2/status"),
            Err(CommandError::NotFound)
        );
        assert_eq!(
            parse(&Method::GET, "/v1/runs/a/b/c"),
            Err(CommandError::NotFound)
        );
        assert_eq!(
            parse(&Method::POST, "/v1/status"),
            Err(CommandError::Method)
        );
        assert_eq!(
            parse(&Method::GET, "/v1/canaries"),
            Err(CommandError::Method)
        );
        assert_eq!(
            parse(&Method::PUT, "/v1/runs/.."),
            Err(CommandError::Run(GrantError::RunId))
        );
        assert!(matches!(
            parse(&Method::DELETE, "/v1/runs/a"),
            Err(CommandError::Query(_))
        ));
        assert!(matches!(
            parse(&Method::DELETE, "/v1/runs/a?epoch=-1"),
            Err(CommandError::Query(_))
        ));
        assert!(matches!(
            parse(&Method::GET, "/v1/audit"),
            Err(CommandError::Query(_))
        ));
    }
}
