//! The gate's control socket, spoken to by a real HTTP client as any uid.

use std::path::{Path, PathBuf};
use std::process::Child;

use serde_json::Value;

use crate::command::Program;
use crate::netns::Netns;

/// A caller of a control socket.
#[derive(Clone, Debug)]
pub struct Control<'a> {
    /// The unix socket.
    pub socket: PathBuf,
    /// Who calls.
    pub uid: u32,
    /// Where the caller lives.
    pub netns: &'a Netns,
}

/// An answer of the control socket.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status; 0 when there was no answer at all.
    pub status: u16,
    /// The body, as text.
    pub body: String,
}

impl Control<'_> {
    /// Sends one request, with a JSON body where given.
    pub fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let mut program = self
            .curl(path)
            .args(["--max-time", "30", "--request", method]);
        program = program.args(["--write-out", "\n%{http_code}"]);
        if let Some(body) = body {
            program = program.args(["--header", "content-type: application/json"]);
            program = program
                .args(["--data-binary", "@-"])
                .input(&body.to_string());
        }
        let finished = program.run();
        let (body, status) = finished.stdout.rsplit_once('\n').unwrap_or(("", "0"));
        Answer {
            status: status.parse().unwrap_or(0),
            body: body.to_owned(),
        }
    }

    /// `GET /v1/status`, parsed; panics unless it is 200.
    #[track_caller]
    pub fn status(&self) -> Value {
        self.call("GET", "/v1/status", None).ok()
    }

    /// Follows a stream (`/v1/events`) into `log` until the child is killed.
    pub fn follow(&self, path: &str, log: &Path) -> Child {
        self.curl(path).arg("--no-buffer").spawn_logging(log)
    }

    fn curl(&self, path: &str) -> Program {
        Program::new("curl")
            .args(["--silent", "--show-error", "--unix-socket"])
            .arg(&self.socket)
            .arg(format!("http://gate{path}"))
            .as_uid(self.uid)
            .in_netns(self.netns)
    }
}

impl Answer {
    /// The body as JSON; panics unless the status is 2xx.
    #[track_caller]
    pub fn ok(&self) -> Value {
        assert!(
            (200..300).contains(&self.status),
            "{}: {}",
            self.status,
            self.body
        );
        if self.body.is_empty() {
            Value::Null
        } else {
            self.json()
        }
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}
