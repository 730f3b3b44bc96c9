//! The gate killed, held down while everything is tried again, and brought back.
//!
//! A process of its own holds it down, in a session of its own, and brings it back when its standard input ends: that it
//! does however `prove` ends, by a signal that nothing can catch as well.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, setsid};
use thiserror::Error;

use super::identity::SELF;
use crate::control::{self, Health};
use crate::instance::Instance;
use crate::process::{Call, ProcessError, SEARCH_PATH};
use crate::site::Site;
use crate::supervise::{self, record::Moment, record::Record};
use crate::{ready, systemd};

const KEY: &str = "proxy";
/// How long the gate may take to die, and to serve again.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Error)]
pub enum OutageError {
    #[error(
        "--kill-gate needs an instance of Portcullis, whose gate can be brought back\n  hint: leave it out, or name one with --prefix"
    )]
    NoInstance,
    #[error("the gate does not run: {0}\n  hint: `portcullis up` starts it")]
    NotRunning(String),
    #[error("the process that holds the gate down could not be started")]
    Start(#[source] io::Error),
    #[error("the process that holds the gate down said: {0}")]
    Said(String),
    #[error("the gate survived for {0:?}")]
    Survived(Duration),
    #[error("the gate is not back: {0}\n  hint: `portcullis up` repairs the instance")]
    NotBack(String),
    #[error("cannot signal the gate")]
    Signal(#[source] nix::Error),
    #[error("cannot keep systemd from starting the gate")]
    DropIn(#[source] io::Error),
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// A gate that is held down.
#[derive(Debug)]
pub struct Outage {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Outage {
    /// Kills the gate and holds it down.
    ///
    /// # Errors
    /// When it does not run, or does not die.
    pub fn begin(instance: &Instance) -> Result<Self, OutageError> {
        let mut child = Command::new(SELF)
            .args(["prove", "hold-gate", "--prefix"])
            .arg(instance.layout.prefix())
            .env_clear()
            .env("PATH", SEARCH_PATH)
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(OutageError::Start)?;
        let input = child.stdin.take();
        let Some(output) = child.stdout.take() else {
            return Err(OutageError::Start(io::ErrorKind::BrokenPipe.into()));
        };
        let mut outage = Self {
            child,
            input,
            output: BufReader::new(output),
        };
        outage.expect("down")?;
        Ok(outage)
    }

    /// Brings it back and waits until it serves.
    ///
    /// # Errors
    /// When it does not serve again.
    pub fn end(mut self) -> Result<(), OutageError> {
        drop(self.input.take());
        self.expect("back")
    }

    fn expect(&mut self, word: &str) -> Result<(), OutageError> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(_) if line.trim() == word => Ok(()),
            Ok(_) => Err(OutageError::Said(line.trim().to_owned())),
            Err(error) => Err(OutageError::Start(error)),
        }
    }
}

impl Drop for Outage {
    fn drop(&mut self) {
        drop(self.input.take());
        // It ends when the gate is back, or when it has given up on it, and has said which.
        let _ = self.child.wait();
    }
}

/// The body of the process that holds the gate down.
///
/// # Errors
/// As [`Outage::begin`] and [`Outage::end`].
pub fn hold(instance: &Instance) -> Result<(), OutageError> {
    // Fails only for the leader of a process group, which a child of ours is not.
    let _ = setsid();
    let by_systemd = Site::host_has_systemd();
    let running = match control::health(instance, by_systemd, KEY) {
        Health::Up(up) => up.pid,
        Health::Down(why) => return Err(OutageError::NotRunning(why)),
    };
    let keeper = Keeper::find(instance, by_systemd)?;
    // From here on it is brought back, whatever happens.
    let result = keeper
        .hold_back()
        .and_then(|()| slay(running))
        .and_then(|()| falls_silent(instance));
    if result.is_ok() {
        crate::output::data("down");
        let mut rest = Vec::new();
        // However the input ends, it is over.
        let _ = io::stdin().read_to_end(&mut rest);
    }
    keeper.let_go()?;
    serves(instance)?;
    result?;
    crate::output::data("back");
    Ok(())
}

fn slay(pid: i32) -> Result<(), OutageError> {
    let Some(moment) = Moment::of(pid) else {
        return Ok(());
    };
    kill(Pid::from_raw(pid), Signal::SIGKILL).map_err(OutageError::Signal)?;
    let deadline = Instant::now() + PATIENCE;
    while moment.is_alive() {
        if Instant::now() > deadline {
            return Err(OutageError::Survived(PATIENCE));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The first thread of a killed process may be gone while others still hold its sockets.
fn falls_silent(instance: &Instance) -> Result<(), OutageError> {
    let deadline = Instant::now() + PATIENCE;
    while ready::problem(instance, KEY).is_none() {
        if Instant::now() > deadline {
            return Err(OutageError::Survived(PATIENCE));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn serves(instance: &Instance) -> Result<(), OutageError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ready::problem(instance, KEY) {
            None => return Ok(()),
            Some(problem) if Instant::now() > deadline => {
                return Err(OutageError::NotBack(problem));
            }
            Some(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Whoever starts the gate again when it falls.
enum Keeper {
    /// Our own supervisor, which is stopped meanwhile.
    Supervisor(Moment),
    /// systemd, with the unit and the file that tells it to wait.
    Systemd { unit: String, file: PathBuf },
}

impl Keeper {
    fn find(instance: &Instance, by_systemd: bool) -> Result<Self, OutageError> {
        if by_systemd {
            let unit = systemd::unit_name(instance, KEY);
            let directory = Path::new("/run/systemd/system").join(format!("{unit}.d"));
            return Ok(Self::Systemd {
                file: directory.join("portcullis-prove.conf"),
                unit,
            });
        }
        let record = Record::load(&supervise::record_path(instance, KEY));
        match record
            .map(|record| record.supervisor)
            .filter(Moment::is_alive)
        {
            Some(supervisor) => Ok(Self::Supervisor(supervisor)),
            None => Err(OutageError::NotRunning(
                "nothing would start it again".to_owned(),
            )),
        }
    }

    fn hold_back(&self) -> Result<(), OutageError> {
        match self {
            Self::Supervisor(moment) => {
                kill(Pid::from_raw(moment.pid), Signal::SIGSTOP).map_err(OutageError::Signal)
            }
            Self::Systemd { file, .. } => {
                let directory = file.parent().unwrap_or(Path::new("/"));
                fs::create_dir_all(directory).map_err(OutageError::DropIn)?;
                fs::write(file, "[Service]\nRestart=no\n").map_err(OutageError::DropIn)?;
                Call::new("systemctl").arg("daemon-reload").run()?;
                Ok(())
            }
        }
    }

    fn let_go(&self) -> Result<(), OutageError> {
        match self {
            Self::Supervisor(moment) => {
                kill(Pid::from_raw(moment.pid), Signal::SIGCONT).map_err(OutageError::Signal)
            }
            Self::Systemd { unit, file } => {
                // Not there when it could not be written.
                let _ = fs::remove_file(file);
                let _ = file.parent().map(fs::remove_dir);
                Call::new("systemctl").arg("daemon-reload").run()?;
                Call::new("systemctl")
                    .args(["start", unit.as_str()])
                    .run()?;
                Ok(())
            }
        }
    }
}
