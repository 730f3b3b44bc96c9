//! Proof that a run's processes are gone, from the kernel alone.

use std::fs;
use std::io;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{EngineError, Evidence, cgroup};

/// The id of this boot.
///
/// # Errors
/// `/proc` is not readable.
pub(super) fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

/// Start time of a process in clock ticks since boot; `None` when there is no such process, or
/// only its exit status is left of it.
///
/// # Errors
/// The process exists but cannot be read.
pub(super) fn start_time(pid: i32) -> io::Result<Option<u64>> {
    let text = match fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")) {
        Ok(text) => text,
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                || error.raw_os_error() == Some(libc::ESRCH) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    // The name (column 2) may contain anything; columns count again after its last parenthesis.
    let mut columns = text
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    let state = columns.next().unwrap_or_default();
    if matches!(state, "Z" | "X") {
        return Ok(None);
    }
    let start = columns.nth(18).and_then(|column| column.parse().ok());
    start
        .map(Some)
        .ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat is not understood")))
}

impl Evidence {
    fn is_monitor_alive(&self) -> io::Result<bool> {
        if self.monitor_pid <= 0 {
            return Ok(false);
        }
        Ok(start_time(self.monitor_pid)? == Some(self.start_time))
    }

    /// True only when nothing of the run can exist: another boot, or no monitor and empty groups.
    pub(super) fn proves_gone(&self) -> Result<bool, EngineError> {
        let unreadable = |error: io::Error| EngineError::Unreadable(error.to_string());
        if boot_id().map_err(unreadable)? != self.boot_id {
            return Ok(true);
        }
        if self.is_monitor_alive().map_err(unreadable)? {
            return Ok(false);
        }
        for group in &self.cgroups {
            if !cgroup::processes(group).map_err(unreadable)?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Kills what is left: everything in the groups (the monitor is in them), and the monitor by its
    /// number in case it never got there.
    pub(super) fn kill_rest(&self) -> Result<(), EngineError> {
        let unreadable = |error: io::Error| EngineError::Unreadable(error.to_string());
        if boot_id().map_err(unreadable)? != self.boot_id {
            return Ok(());
        }
        cgroup::kill_all(&self.cgroups).map_err(unreadable)?;
        if self.is_monitor_alive().map_err(unreadable)? {
            let _gone_meanwhile = kill(Pid::from_raw(self.monitor_pid), Signal::SIGKILL);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_is_recognised_by_its_start_time_and_not_by_its_number() {
        let mut child = Command::new("/bin/cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id().cast_signed();
        let mut evidence = Evidence {
            boot_id: boot_id().unwrap(),
            monitor_pid: pid,
            start_time: start_time(pid).unwrap().unwrap(),
            cgroups: vec!["/nonexistent/group".into()],
        };
        assert!(!evidence.proves_gone().unwrap());
        evidence.start_time += 1;
        assert!(
            evidence.proves_gone().unwrap(),
            "the number belongs to somebody else now"
        );
        evidence.start_time -= 1;
        evidence.boot_id = "another boot".into();
        assert!(evidence.proves_gone().unwrap());
        evidence.boot_id = boot_id().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(evidence.proves_gone().unwrap());
    }
}
