//! Starting the process of an attempt, and hearing its report.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::identity::{Identity, SELF};
use super::task::{Outcome, Report, Task};
use crate::process::SEARCH_PATH;

/// What an attempt may take beyond the patience it was told.
const GRACE: Duration = Duration::from_secs(30);

/// Makes an attempt as that user; `None` is whoever we are, with our own environment.
#[must_use]
pub fn attempt(identity: Option<Identity>, task: &Task) -> Report {
    let mut child = match start(identity, task) {
        Ok(child) => child,
        Err(error) => return unable(&error.to_string()),
    };
    drop(child.stdin.take());
    let Some(mut output) = child.stdout.take() else {
        return unable("its output is not there");
    };
    let reader = thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).map(|_| text)
    });
    let deadline = Instant::now() + Duration::from_millis(task.patience_ms) + GRACE;
    while !reader.is_finished() {
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            return unable("it did not end");
        }
        thread::sleep(Duration::from_millis(2));
    }
    let status = child.wait();
    let text = reader.join().ok().and_then(Result::ok).unwrap_or_default();
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|_| unable(&format!("{status:?}: {}", text.trim())))
}

/// Somebody who listens until dropped.
#[derive(Debug)]
pub struct Listener {
    child: Child,
    input: Option<ChildStdin>,
    _output: BufReader<ChildStdout>,
}

impl Listener {
    /// Starts it and waits until it listens.
    ///
    /// # Errors
    /// What kept it from listening.
    pub fn start(identity: Option<Identity>, task: &Task) -> Result<Self, Report> {
        let started = start(identity, task);
        let mut child = started.map_err(|error| unable(&error.to_string()))?;
        let input = child.stdin.take();
        let Some(output) = child.stdout.take() else {
            return Err(unable("its output is not there"));
        };
        let mut output = BufReader::new(output);
        let mut line = String::new();
        let read = output.read_line(&mut line);
        let listener = Self {
            child,
            input,
            _output: output,
        };
        match read {
            Ok(_) if line.trim() == "listening" => Ok(listener),
            _ => Err(serde_json::from_str(&line).unwrap_or_else(|_| unable(line.trim()))),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(identity: Option<Identity>, task: &Task) -> std::io::Result<Child> {
    let task = serde_json::to_string(task)?;
    let mut command = Command::new(SELF);
    command.args(["prove", "attempt"]);
    if let Some(identity) = identity {
        command.args(["--become", &identity.to_string()]);
        command
            .env_clear()
            .env("PATH", SEARCH_PATH)
            .env("LC_ALL", "C.UTF-8");
    }
    command
        .arg(task)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
}

fn unable(why: &str) -> Report {
    Report::new(Outcome::Unable, why)
}
