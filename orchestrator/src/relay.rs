//! The first process of a run container: carries loopback connections to the run's socket and
//! looks after the command.
//!
//! It decides nothing and holds nothing: [`Direct`] answers names as the gate says. [`listen`] accepts on the container's own loopback and
//! pumps bytes to the gate's unix socket, where the kernel tells the gate whose container this is.
//! [`supervise`] starts the command, reaps whatever is orphaned to it and returns the command's
//! exit code. Descriptors are never passed to anyone.

mod addresses;
mod ask;
mod carry;
mod control;
mod direct;
mod dns;
mod pump;

pub use control::{Control, Spec, SpecError};
pub use direct::Direct;
pub use pump::{CONNECTIONS, listen};

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

/// The code a shell gives for a command that cannot be found.
pub const NOT_FOUND: i32 = 127;
/// The code a shell gives for a command that cannot be executed.
pub const NOT_EXECUTABLE: i32 = 126;

/// Signals that the relay hands on to the command.
pub const FORWARDED: [Signal; 4] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// How the command ended: an exit code, or a signal as `128 + number`, as shells say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Exit code.
    Code(i32),
    /// Killed by this signal.
    Signal(i32),
}

impl Ended {
    /// The code this process should end with.
    pub fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(number) => 128 + number,
        }
    }
}

/// Blocks the forwarded signals in this thread and every thread started later, so that
/// [`supervise`] alone receives them. Call before any thread is started.
///
/// # Errors
/// The kernel refused the signal mask.
pub fn block_signals() -> Result<(), Errno> {
    forwarded().thread_block()
}

/// Starts `command`, forwards signals to it, reaps every orphan, and returns how it ended.
///
/// # Errors
/// The command could not be started; [`NOT_FOUND`] or [`NOT_EXECUTABLE`] says which way.
pub fn supervise(
    command: &mut Command,
    started: impl FnOnce(Pid),
) -> Result<Ended, (i32, std::io::Error)> {
    let child = crate::spawn::with_all_signals(command)
        .spawn()
        .map_err(|error| {
            let missing = error.kind() == std::io::ErrorKind::NotFound;
            (if missing { NOT_FOUND } else { NOT_EXECUTABLE }, error)
        })?;
    let pid = Pid::from_raw(child.id().cast_signed());
    started(pid);
    std::thread::spawn(move || {
        while let Ok(signal) = forwarded().wait() {
            // The command may have ended already; then there is nobody to tell.
            let _gone = kill(pid, signal);
        }
    });
    Ok(reap_until(pid))
}

fn forwarded() -> SigSet {
    FORWARDED.into_iter().collect()
}

fn reap_until(command: Pid) -> Ended {
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) if pid == command => return Ended::Code(code),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == command => {
                return Ended::Signal(signal as i32);
            }
            Ok(_) | Err(Errno::EINTR) => {}
            // Real-time signals have no name in `Signal`: nix answers EINVAL after reaping.
            Err(Errno::EINVAL) if kill(command, None).is_err() => {
                return Ended::Signal(Signal::SIGKILL as i32);
            }
            Err(Errno::EINVAL) => {}
            Err(_none_left) => return Ended::Code(1),
        }
    }
}

/// The same reading of a status for parents that use [`std::process::Child`].
impl From<ExitStatus> for Ended {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Code(1),
        }
    }
}

#[cfg(test)]
mod tests;
