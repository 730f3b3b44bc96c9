//! Starting processes with nothing inherited, and the few kernel calls that have no safe wrapper.
//!
//! The only module of this room that may use `unsafe`; everything it offers is safe to call.
//! [`launch`] is how a container's monitor starts: inside its control groups, in a session of its
//! own, with no descriptor above 2 except the one it is meant to have.

#![allow(
    unsafe_code,
    reason = "pre_exec, descriptor hand-over and the mount calls newer than the C library"
)]

pub mod idmap;

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// What [`launch`] does in the child between fork and exec.
#[derive(Debug, Default)]
pub struct Launch {
    /// Open `cgroup.procs` files; the child writes itself into each before it runs anything.
    pub cgroup_procs: Vec<OwnedFd>,
    /// The one descriptor above 2 that survives exec, under its own number.
    pub keep: Option<OwnedFd>,
}

/// Starts `command` as [`Launch`] says, leading a session of its own and leaving no core files. Descriptors above 2 are
/// closed by the exec, whether or not whoever opened them thought of it (KRN-10).
///
/// # Errors
/// Whatever fork, the control group writes or exec answered; the child has then ended.
pub fn launch(command: &mut Command, launch: Launch) -> io::Result<Child> {
    let groups: Vec<RawFd> = launch.cgroup_procs.iter().map(AsRawFd::as_raw_fd).collect();
    let keep = launch.keep.as_ref().map(AsRawFd::as_raw_fd);
    // SAFETY: the closure runs after fork in a child of a possibly threaded process, so it only
    // makes system calls (write, setsid, setrlimit, close_range, fcntl) on memory allocated before the fork.
    // The descriptors stay open in the parent until `spawn` has returned: `launch` owns them.
    unsafe {
        command.pre_exec(move || {
            for fd in &groups {
                check(libc::write(*fd, c"0".as_ptr().cast(), 1))?;
            }
            check(libc::setsid())?;
            let no_core = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            check(libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core))?;
            let flags = libc::CLOSE_RANGE_CLOEXEC.cast_signed();
            check(libc::close_range(3, libc::c_uint::MAX, flags))?;
            if let Some(fd) = keep {
                check(libc::fcntl(fd, libc::F_SETFD, 0))?;
            }
            Ok(())
        });
    }
    let child = command.spawn();
    drop(launch);
    child
}

/// Makes `command` start with no signal blocked, whatever its starter has blocked for itself: the
/// mask survives exec, and a command that never hears SIGTERM cannot be asked to stop.
pub fn with_all_signals(command: &mut Command) -> &mut Command {
    // SAFETY: the closure runs between fork and exec and makes one system call on a local variable.
    unsafe {
        command.pre_exec(|| {
            let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
            check(libc::sigemptyset(none.as_mut_ptr()))?;
            check(libc::sigprocmask(
                libc::SIG_SETMASK,
                none.as_ptr(),
                std::ptr::null_mut(),
            ))
        })
    }
}

/// Takes over a descriptor that this process was started with, and keeps it from its children.
///
/// # Errors
/// `fd` is a standard stream, or not open.
pub fn adopt(fd: RawFd) -> io::Result<OwnedFd> {
    if fd <= 2 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a descriptor above 2",
        ));
    }
    // SAFETY: fcntl on a number is harmless; it fails when the number is not an open descriptor.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: the descriptor is open (just checked) and was handed to this process by its parent
    // under this number; callers adopt it once, at start, before anything else could own it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn check<T: TryInto<i64>>(answer: T) -> io::Result<()> {
    match answer.try_into() {
        Ok(value) if value < 0 => Err(io::Error::last_os_error()),
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests;
