//! The gate killed, held down while everything is tried again, and brought back.
//!
//! A process of its own holds it down, in a session of its own and deaf to the signals that end whatever is in its control
//! group, and brings the gate back when its standard input ends: that it does however `prove` ends, by a signal that nothing
//! can catch as well. Where systemd is process 1 it is in a scope of its own too, since whoever stops the unit that `prove`
//! runs in kills every process of it. Where it is itself killed that way, `portcullis up` finds what it left ([`remains`]).

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal, kill};
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
        let mut command = if Site::host_has_systemd() {
            let mut command = Command::new("systemd-run");
            command.args(["--scope", "--quiet", "--collect", "--"]);
            // Its own `self` would be systemd-run.
            command.arg(format!("/proc/{}/exe", std::process::id()));
            command
        } else {
            Command::new(SELF)
        };
        let mut child = command
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
    deaf().map_err(OutageError::Signal)?;
    let by_systemd = Site::host_has_systemd();
    let running = match control::health(instance, by_systemd, KEY) {
        Health::Up(up) => up.pid,
        Health::Down(why) => return Err(OutageError::NotRunning(why)),
    };
    let keeper = Keeper::find(instance, by_systemd)?;
    // From here on it is brought back, whatever fails.
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
    let released = keeper.let_go();
    let serving = serves(instance);
    released.and(serving).and(result)?;
    crate::output::data("back");
    Ok(())
}

/// What ends a session or a control group ends this as well, but for this. Programs it starts inherit it.
fn deaf() -> nix::Result<()> {
    let signals = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];
    SigSet::from_iter(signals).thread_block()
}

/// Whether a holder that was killed has left the gate without anybody to start it, in words.
#[must_use]
pub fn remains(instance: &Instance, by_systemd: bool) -> Option<String> {
    match Keeper::find(instance, by_systemd).ok()? {
        Keeper::Supervisor(moment) => is_stopped(moment.pid)
            .then(|| format!("the gate's supervisor (process {}) is stopped", moment.pid)),
        Keeper::Systemd { file, .. } => file
            .exists()
            .then(|| format!("{} keeps systemd from starting the gate", file.display())),
    }
}

/// Takes away what such a holder has left, and starts the gate.
///
/// # Errors
/// When it cannot be taken away, or the gate does not start.
pub fn clear(instance: &Instance, by_systemd: bool) -> Result<(), OutageError> {
    Keeper::find(instance, by_systemd)?.let_go()
}

fn is_stopped(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mut lines = status.lines();
    let state = lines.find_map(|line| line.strip_prefix("State:"));
    state.is_some_and(|state| state.trim_start().starts_with('T'))
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
                let systemctl = |words: &[&str]| {
                    let done = Call::new("systemctl").args(words).run();
                    Ok(done.map(drop)?)
                };
                restore(file, unit, systemctl)
            }
        }
    }
}

/// Nothing that fails on the way keeps the gate from being started; the first failure is told.
fn restore(
    file: &Path,
    unit: &str,
    systemctl: impl Fn(&[&str]) -> Result<(), OutageError>,
) -> Result<(), OutageError> {
    let removed = match fs::remove_file(file) {
        // Not there when it could not be written.
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(OutageError::DropIn(error)),
        _ => Ok(()),
    };
    // It may hold files of others.
    let _ = file.parent().map(fs::remove_dir);
    let reloaded = systemctl(&["daemon-reload"]);
    let started = systemctl(&["start", unit]);
    removed.and(reloaded).and(started)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    use crate::layout::Layout;

    #[test]
    fn the_gate_is_started_whatever_fails_on_the_way() {
        for fails in ["", "daemon-reload", "start"] {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("unit.d/portcullis-prove.conf");
            fs::create_dir(file.parent().unwrap()).unwrap();
            fs::write(&file, "").unwrap();
            let called = RefCell::new(Vec::new());
            let restored = restore(&file, "gate.service", |words| {
                called.borrow_mut().push(words.join(" "));
                if words[0] == fails {
                    return Err(OutageError::Said(fails.to_owned()));
                }
                Ok(())
            });
            assert_eq!(restored.is_ok(), fails.is_empty(), "{restored:?}");
            assert_eq!(*called.borrow(), ["daemon-reload", "start gate.service"]);
            assert!(!file.exists());
        }
        // A file that cannot be taken away keeps it from nothing either.
        let dir = tempfile::tempdir().unwrap();
        let called = RefCell::new(0);
        let restored = restore(dir.path(), "gate.service", |_| {
            *called.borrow_mut() += 1;
            Ok(())
        });
        assert!(matches!(restored, Err(OutageError::DropIn(_))));
        assert_eq!(*called.borrow(), 2);
    }

    /// The control: another thread, which was not made deaf.
    #[test]
    fn what_ends_a_control_group_is_not_heard() {
        let hears = |deafened: bool| {
            let thread = thread::spawn(move || {
                if deafened {
                    deaf().unwrap();
                }
                let blocked = SigSet::thread_get_mask().unwrap();
                [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]
                    .map(|signal| !blocked.contains(signal))
            });
            thread.join().unwrap()
        };
        assert_eq!(hears(true), [false; 3]);
        assert_eq!(hears(false), [true; 3]);
    }

    #[test]
    fn a_supervisor_that_was_left_stopped_is_found_and_let_go() {
        let dir = tempfile::tempdir().unwrap();
        let instance = Instance {
            layout: Layout::new(dir.path(), "t").unwrap(),
            record: crate::instance::Record {
                name: "t".into(),
                repo: "a/b".into(),
                stand_in_port: None,
                gate_port: 3128,
                scope: crate::instance::Scope::Agents,
            },
        };
        // Nothing runs, so nothing is left either.
        assert_eq!(remains(&instance, false), None);
        let mut supervisor = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(supervisor.id()).unwrap();
        let mut record = Record::new("");
        record.supervisor = Moment::of(pid).unwrap();
        fs::create_dir_all(instance.layout.supervise()).unwrap();
        record
            .save(&supervise::record_path(&instance, KEY))
            .unwrap();
        assert_eq!(remains(&instance, false), None);
        let until = |stopped: bool| {
            let deadline = Instant::now() + PATIENCE;
            while is_stopped(pid) != stopped {
                assert!(Instant::now() < deadline, "never: stopped is {stopped}");
                thread::sleep(Duration::from_millis(1));
            }
        };
        kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
        until(true);
        let left = remains(&instance, false).unwrap();
        assert!(left.contains(&pid.to_string()), "{left}");
        clear(&instance, false).unwrap();
        until(false);
        assert_eq!(remains(&instance, false), None);
        supervisor.kill().unwrap();
        supervisor.wait().unwrap();
    }
}
