//! Keeping a service running where systemd is not process 1.
//!
//! `portcullis supervise SERVICE` is one process per service, in a session of its own. It starts the program through
//! `portcullis supervise SERVICE --launch`, which takes on the service's rights and then becomes the program, so that the
//! supervisor needs no code between fork and exec. It restarts the program with growing pauses, keeps a record that
//! `status` and `down` read, and ends program and itself on SIGTERM.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::{Pid, alarm, setsid};
use thiserror::Error;

use crate::file::{self, Access, FileError};
use crate::instance::Instance;
use crate::process::SEARCH_PATH;
use crate::service::Service;

pub mod backoff;
pub mod launch;
pub mod record;

use backoff::Backoff;
use record::{Moment, Record};

/// How long a program may take to end after SIGTERM before it is killed.
const PATIENCE: Duration = Duration::from_secs(10);
/// A log larger than this is moved to `.1` when the service starts.
const LOG_LIMIT: u64 = 16 << 20;

#[derive(Debug, Error)]
pub enum SuperviseError {
    #[error("no service is called {0:?}\n  hint: boundary, stand-in, proxy or orchestrator")]
    NoService(String),
    #[error("{0} is supervised already, by process {1}")]
    Running(&'static str, i32),
    #[error("cannot start {what}")]
    Start {
        what: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot {what}")]
    System {
        what: &'static str,
        #[source]
        source: nix::Error,
    },
    #[error("{0} did not end within {1:?}, not even after SIGKILL")]
    Immortal(&'static str, Duration),
    #[error(transparent)]
    File(#[from] FileError),
}

/// Where the record of a service lies.
#[must_use]
pub fn record_path(instance: &Instance, key: &str) -> PathBuf {
    instance.layout.supervise().join(format!("{key}.json"))
}

/// Where what a service writes is kept.
#[must_use]
pub fn log_path(instance: &Instance, key: &str) -> PathBuf {
    instance.layout.logs().join(format!("{key}.log"))
}

/// Starts a supervisor for the service in the background. What it needs of us it has by then: descriptors are its own,
/// and it leaves our session as its first act.
///
/// # Errors
/// When its log or the program cannot be opened or started.
pub fn start(
    instance: &Instance,
    service: &Service,
    fingerprint: &str,
) -> Result<(), SuperviseError> {
    let log = log_path(instance, service.key);
    if fs::metadata(&log).is_ok_and(|found| found.len() > LOG_LIMIT) {
        fs::rename(&log, log.with_extension("log.1")).map_err(FileError::new("rotate", &log))?;
    }
    let open = || OpenOptions::new().create(true).append(true).open(&log);
    let out = open().map_err(FileError::new("open", &log))?;
    let err = out.try_clone().map_err(FileError::new("open", &log))?;
    let mut command = own_command(instance, service.key);
    command.args(["--fingerprint", fingerprint]);
    command.stdin(Stdio::null()).stdout(out).stderr(err);
    let started = command.spawn();
    // The supervisor outlives us on purpose; its record, not this handle, is how it is found again.
    started.map(drop).map_err(|source| SuperviseError::Start {
        what: format!("a supervisor for {}", service.key),
        source,
    })
}

/// Ends a supervised service and waits until supervisor and program are gone. Returns whether there was one.
///
/// # Errors
/// When a process survives SIGKILL, which a process in the middle of a disk access may do for a while.
pub fn stop(instance: &Instance, key: &'static str) -> Result<bool, SuperviseError> {
    let path = record_path(instance, key);
    let Some(record) = Record::load(&path) else {
        return Ok(false);
    };
    let mut present = false;
    for (moment, patience) in [
        (Some(record.supervisor), PATIENCE * 2),
        (record.program, PATIENCE),
    ] {
        let Some(moment) = moment.filter(Moment::is_alive) else {
            continue;
        };
        present = true;
        end(key, moment, patience)?;
    }
    let _ = fs::remove_file(&path);
    Ok(present)
}

fn end(key: &'static str, moment: Moment, patience: Duration) -> Result<(), SuperviseError> {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        if moment.is_alive() {
            let _ = kill(Pid::from_raw(moment.pid), signal);
        }
        let deadline = Instant::now() + patience;
        while moment.is_alive() {
            if Instant::now() > deadline {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        if !moment.is_alive() {
            return Ok(());
        }
    }
    Err(SuperviseError::Immortal(key, patience))
}

/// Supervises until SIGTERM: the body of `portcullis supervise SERVICE`.
///
/// # Errors
/// When another supervisor lives, or the program can never be started.
pub fn supervise(
    instance: &Instance,
    service: &Service,
    fingerprint: &str,
) -> Result<(), SuperviseError> {
    let path = record_path(instance, service.key);
    if let Some(old) = Record::load(&path) {
        if old.supervisor.is_alive() {
            return Err(SuperviseError::Running(service.key, old.supervisor.pid));
        }
        // Its supervisor was killed; two of one service must never run.
        if let Some(orphan) = old.program.filter(Moment::is_alive) {
            end(service.key, orphan, PATIENCE)?;
        }
    }
    // Fails only for the leader of a process group: then a person started us, and the session is theirs.
    let _ = setsid();
    let signals = blocked_signals()?;
    let mut backoff = Backoff::default();
    let mut record = Record::new(fingerprint);
    loop {
        let mut child = spawn(instance, service)?;
        record.started(pid(&child));
        record.save(&path)?;
        let began = Instant::now();
        let Some(status) = watch(&mut child, &signals)? else {
            let _ = fs::remove_file(&path);
            return Ok(());
        };
        let pause = backoff.after(began.elapsed());
        record.ended(&describe(status), pause);
        record.save(&path)?;
        note(&format!(
            "{}: {}; starting again in {} s",
            service.key,
            describe(status),
            pause.as_secs()
        ));
        if paused_until_stopped(pause, &signals)? {
            let _ = fs::remove_file(&path);
            return Ok(());
        }
    }
}

fn own_command(instance: &Instance, key: &str) -> Command {
    let mut command = Command::new(instance.layout.binary("portcullis"));
    command
        .arg("supervise")
        .arg(key)
        .arg("--prefix")
        .arg(instance.layout.prefix());
    command
        .env_clear()
        .env("PATH", SEARCH_PATH)
        .env("LC_ALL", "C.UTF-8")
        .current_dir("/");
    command
}

fn spawn(instance: &Instance, service: &Service) -> Result<Child, SuperviseError> {
    own_command(instance, service.key)
        .arg("--launch")
        .stdin(Stdio::null())
        .spawn()
        .map_err(|source| SuperviseError::Start {
            what: service.key.to_owned(),
            source,
        })
}

fn pid(child: &Child) -> i32 {
    i32::try_from(child.id()).unwrap_or(i32::MAX)
}

/// Blocks what [`SigSet::wait`] is to deliver. The launcher unblocks them again for the program.
fn blocked_signals() -> Result<SigSet, SuperviseError> {
    let mut set = SigSet::empty();
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGCHLD,
        Signal::SIGALRM,
    ] {
        set.add(signal);
    }
    set.thread_block()
        .map_err(|source| SuperviseError::System {
            what: "block signals",
            source,
        })?;
    Ok(set)
}

fn next(signals: &SigSet) -> Result<Signal, SuperviseError> {
    signals.wait().map_err(|source| SuperviseError::System {
        what: "wait for a signal",
        source,
    })
}

/// Waits for the program's end (`Some`), or ends it because we were told to (`None`).
fn watch(child: &mut Child, signals: &SigSet) -> Result<Option<ExitStatus>, SuperviseError> {
    let lost = |source| SuperviseError::Start {
        what: "watching the program".to_owned(),
        source,
    };
    loop {
        if let Some(status) = child.try_wait().map_err(lost)? {
            return Ok(Some(status));
        }
        match next(signals)? {
            Signal::SIGTERM | Signal::SIGINT => break,
            Signal::SIGHUP => {
                let _ = kill(Pid::from_raw(pid(child)), Signal::SIGHUP);
            }
            _ => {}
        }
    }
    let _ = kill(Pid::from_raw(pid(child)), Signal::SIGTERM);
    alarm::set(u32::try_from(PATIENCE.as_secs()).unwrap_or(10));
    while child.try_wait().map_err(lost)?.is_none() {
        if next(signals)? == Signal::SIGALRM {
            let _ = child.kill();
            let _ = child.wait();
            break;
        }
    }
    alarm::cancel();
    Ok(None)
}

/// Waits out the pause; true when SIGTERM came first.
fn paused_until_stopped(pause: Duration, signals: &SigSet) -> Result<bool, SuperviseError> {
    let Ok(seconds) = u32::try_from(pause.as_secs()) else {
        return Ok(false);
    };
    if seconds == 0 {
        return Ok(false);
    }
    alarm::set(seconds);
    loop {
        match next(signals)? {
            Signal::SIGALRM => return Ok(false),
            Signal::SIGTERM | Signal::SIGINT => {
                alarm::cancel();
                return Ok(true);
            }
            _ => {}
        }
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

fn note(text: &str) {
    crate::output::say(&format!("portcullis supervise: {text}"));
}

/// Saves a record where only root may write.
fn save(path: &Path, content: &[u8]) -> Result<(), FileError> {
    file::write(path, content, Access::root(0o644))
}
