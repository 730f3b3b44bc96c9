//! Other processes: what of them can be read, and whether they can be traced.

use std::fs::{self, File};
use std::io::{self, IoSliceMut, Read as _};

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use crate::prove::task::{Outcome, Report};

/// Every way into the memory of one process.
pub(super) fn inspect(number: u32) -> Report {
    let pid = Pid::from_raw(i32::try_from(number).unwrap_or(i32::MAX));
    let mut report = Report::new(Outcome::Refused, "");
    let mut note = |what: &str, result: io::Result<()>| match result {
        Ok(()) => report.found.push(what.to_owned()),
        Err(error) => report.errno = Report::of_error(&error).errno,
    };
    for name in ["mem", "environ", "auxv", "maps"] {
        // Some are opened by anybody and then refuse, or give nothing, to whoever may not look.
        note(
            name,
            read_some(&format!("/proc/{pid}/{name}"), name == "mem"),
        );
    }
    note("fd", fs::read_dir(format!("/proc/{pid}/fd")).map(drop));
    let mut byte = [0];
    let remote = RemoteIoVec { base: 1, len: 1 };
    let vm = process_vm_readv(pid, &mut [IoSliceMut::new(&mut byte)], &[remote]);
    note(
        "process_vm_readv",
        match vm {
            // There is nothing at that address; that we were told so means that we were let in.
            Ok(_) | Err(Errno::EFAULT) => Ok(()),
            Err(error) => Err(error.into()),
        },
    );
    let traced = ptrace::seize(pid, ptrace::Options::empty());
    note("ptrace", traced.map_err(Into::into));
    if !report.found.is_empty() {
        report.outcome = Outcome::Granted;
        report.errno = None;
    }
    report
}

/// An open memory file reads as nothing, without an error, when the process has no memory of its own (a kernel thread).
fn read_some(path: &str, opening_is_enough: bool) -> io::Result<()> {
    let mut file = File::open(path)?;
    if opening_is_enough {
        return Ok(());
    }
    let mut byte = [0];
    match file.read(&mut byte)? {
        0 => Err(io::Error::from_raw_os_error(Errno::EACCES as i32)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// The control: what belongs to us is read by the same code that others are kept from by.
    #[test]
    fn a_process_of_our_own_is_open() {
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        // While it becomes another program there is no environment to read.
        let of = |what: &str| std::fs::read(format!("/proc/{}/{what}", child.id())).unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while of("comm") != b"sleep\n" || of("environ").is_empty() {
            assert!(
                std::time::Instant::now() < deadline,
                "it never became sleep"
            );
            std::thread::yield_now();
        }
        let report = inspect(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(report.outcome, Outcome::Granted, "{report:?}");
        for way in ["mem", "environ", "fd", "process_vm_readv"] {
            assert!(
                report.found.iter().any(|found| found == way),
                "{way}: {report:?}"
            );
        }
    }
}
