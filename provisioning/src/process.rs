//! Running the host's own tools and our sibling binaries, with their words in the error when they fail.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use nix::unistd::User;
use thiserror::Error;

/// What a child sees as its search path, whatever the caller's was.
pub const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A tool that could not be started or did not succeed.
#[derive(Debug, Error)]
pub enum ProcessError {
    #[error("cannot start `{command}`")]
    Start {
        command: String,
        #[source]
        source: io::Error,
    },
    #[error("`{command}` failed ({status}): {said}")]
    Failed {
        command: String,
        status: ExitStatus,
        said: String,
    },
    #[error("there is no user {0}")]
    NoUser(String),
}

/// One call of a program: built, then [`Call::run`].
#[derive(Debug)]
pub struct Call {
    command: Command,
    shown: String,
    input: Option<Vec<u8>>,
}

impl Call {
    /// A call with an environment of its own: a fixed search path, the C locale and nothing inherited.
    #[must_use]
    pub fn new(program: impl AsRef<Path>) -> Self {
        let program = program.as_ref();
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", SEARCH_PATH)
            .env("LC_ALL", "C.UTF-8")
            .current_dir("/");
        Self {
            command,
            shown: program.display().to_string(),
            input: None,
        }
    }

    /// A call of what is added to it that is ended after so many seconds, and killed two later: see [`in_time`].
    #[must_use]
    pub fn bounded(seconds: u32) -> Self {
        Self::new("timeout").args(["--kill-after=2", &seconds.to_string()])
    }

    #[must_use]
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        let argument = argument.into();
        self.shown.push(' ');
        self.shown.push_str(&argument.to_string_lossy());
        self.command.arg(argument);
        self
    }

    #[must_use]
    pub fn args<I: IntoIterator<Item = A>, A: Into<OsString>>(self, arguments: I) -> Self {
        arguments.into_iter().fold(self, Self::arg)
    }

    #[must_use]
    pub fn env(mut self, key: &str, value: impl Into<OsString>) -> Self {
        self.command.env(key, value.into());
        self
    }

    /// Bytes for the program's standard input; they are not part of any message.
    #[must_use]
    pub fn input(mut self, bytes: Vec<u8>) -> Self {
        self.input = Some(bytes);
        self
    }

    /// Runs as that account, with its primary group alone.
    ///
    /// # Errors
    /// When the account does not exist.
    pub fn as_user(mut self, name: &str) -> Result<Self, ProcessError> {
        let user = User::from_name(name)
            .ok()
            .flatten()
            .ok_or_else(|| ProcessError::NoUser(name.to_owned()))?;
        self.command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        Ok(self)
    }

    /// Runs it and returns what it wrote to standard output.
    ///
    /// # Errors
    /// When it cannot be started or does not exit with 0; the error carries what it said.
    pub fn run(self) -> Result<String, ProcessError> {
        let shown = self.shown.clone();
        let (status, out, err) = self.outcome()?;
        if status.success() {
            return Ok(out);
        }
        let said = if err.trim().is_empty() { out } else { err };
        Err(ProcessError::Failed {
            command: shown,
            status,
            said: said.trim().to_owned(),
        })
    }

    /// Runs it and returns status, standard output and standard error, whatever the status is.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn outcome(mut self) -> Result<(ExitStatus, String, String), ProcessError> {
        let shown = self.shown;
        let failed = |source| ProcessError::Start {
            command: shown.clone(),
            source,
        };
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        self.command.stdin(if self.input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        });
        let mut child = self.command.spawn().map_err(failed)?;
        if let (Some(bytes), Some(mut pipe)) = (self.input, child.stdin.take()) {
            // A program that does not read all of it says more with its exit status.
            let _ = pipe.write_all(&bytes);
        }
        let output = child.wait_with_output().map_err(failed)?;
        Ok((
            output.status,
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ))
    }
}

/// The exit status of a [`Call::bounded`]; `None` when it had to be ended.
#[must_use]
pub fn in_time(status: ExitStatus) -> Option<i32> {
    status.code().filter(|code| ![124, 137].contains(code))
}

/// Whether a program of that name is on the fixed search path.
#[must_use]
pub fn is_installed(program: &str) -> bool {
    SEARCH_PATH
        .split(':')
        .any(|directory| Path::new(directory).join(program).is_file())
}
