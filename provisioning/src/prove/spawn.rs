//! Starting the process of an attempt, and hearing its report.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::bare::Bare;
use super::identity::{Identity, SELF};
use super::peer::PeerError;
use super::task::{Outcome, Report, Task};
use crate::process::SEARCH_PATH;

/// What an attempt may take beyond the patience it was told. Those that run other programs end them by themselves, before this
/// and with a reason.
const GRACE: Duration = Duration::from_secs(120);

/// Makes an attempt as that user; `None` is whoever we are, with our own environment.
#[must_use]
pub fn attempt(identity: Option<Identity>, task: &Task) -> Report {
    finish(start(identity, None, task), task)
}

/// The same where there is no rule, and nothing but loopback. Only root can.
#[must_use]
pub fn attempt_without_rules(identity: Option<Identity>, task: &Task) -> Report {
    finish(start(identity, Some(Bare::Loopback), task), task)
}

fn finish(started: std::io::Result<Child>, task: &Task) -> Report {
    let mut child = match started {
        Ok(child) => child,
        Err(error) => return unable(&error.to_string()),
    };
    drop(child.stdin.take());
    let Some(mut output) = child.stdout.take() else {
        return unable("its output is not there");
    };
    let (sender, whole) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut text = String::new();
        let read = output.read_to_string(&mut text);
        // Whoever has given up on it needs it no more.
        let _ = sender.send(read.map(|_| text).unwrap_or_default());
    });
    let patience = Duration::from_millis(task.patience_ms) + GRACE;
    let Ok(text) = whole.recv_timeout(patience) else {
        let _ = child.kill();
        let _ = child.wait();
        return unable("it did not end");
    };
    let status = child.wait();
    // It has sent what it had, and ends.
    let _ = reader.join();
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|_| unable(&format!("{status:?}: {}", text.trim())))
}

/// Somebody who listens until dropped.
#[derive(Debug)]
pub struct Listener {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Listener {
    /// Starts it and waits until it listens.
    ///
    /// # Errors
    /// What kept it from listening.
    pub fn start(identity: Option<Identity>, task: &Task) -> Result<Self, Report> {
        let mut listener = Self::of(start(identity, None, task))?;
        listener.says("listening")?;
        Ok(listener)
    }

    /// The same where there is no rule. `lay` lays a wire to the process with that number, and says what `ip` has to be
    /// told at its end.
    ///
    /// # Errors
    /// As [`Listener::start`], and when there is no wire.
    pub fn start_without_rules(
        identity: Option<Identity>,
        task: &Task,
        lay: impl FnOnce(u32) -> Result<Vec<Vec<String>>, PeerError>,
    ) -> Result<Self, Report> {
        let mut listener = Self::of(start(identity, Some(Bare::Wired), task))?;
        listener.says("bare")?;
        let failed = |error: &dyn std::error::Error| unable(&crate::output::chain(error));
        let commands = lay(listener.child.id()).map_err(|error| failed(&error))?;
        let mut line = serde_json::to_string(&commands).map_err(|error| failed(&error))?;
        line.push('\n');
        let input = listener.input.as_mut();
        let written = input.map_or(Ok(()), |input| input.write_all(line.as_bytes()));
        written.map_err(|error| failed(&error))?;
        listener.says("listening")?;
        Ok(listener)
    }

    fn of(started: std::io::Result<Child>) -> Result<Self, Report> {
        let mut child = started.map_err(|error| unable(&error.to_string()))?;
        let input = child.stdin.take();
        let output = child.stdout.take();
        let output = output.ok_or_else(|| unable("its output is not there"))?;
        Ok(Self {
            child,
            input,
            output: BufReader::new(output),
        })
    }

    fn says(&mut self, word: &str) -> Result<(), Report> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(_) if line.trim() == word => Ok(()),
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

fn start(identity: Option<Identity>, bare: Option<Bare>, task: &Task) -> std::io::Result<Child> {
    let task = serde_json::to_string(task)?;
    let mut command = Command::new(SELF);
    command.args(["prove", "attempt"]);
    if let Some(bare) = bare {
        command.args(["--bare", bare.word()]);
    }
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
