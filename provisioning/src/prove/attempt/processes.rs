//! Other processes: what of them can be read, and whether they can be traced.

use std::fs::{self, File};
use std::io::{self, IoSliceMut, Read as _};

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use crate::prove::task::{Outcome, Report};
use crate::prove::verdict;

/// Every way into the memory of one process.
pub(super) fn inspect(number: u32) -> Report {
    let pid = Pid::from_raw(i32::try_from(number).unwrap_or(i32::MAX));
    let mut ways: Vec<(&str, io::Result<()>)> = Vec::new();
    for name in ["mem", "environ", "auxv", "maps"] {
        // Some are opened by anybody and then refuse, or give nothing, to whoever may not look.
        let read = read_some(&format!("/proc/{pid}/{name}"), name == "mem");
        ways.push((name, read));
    }
    let listed = fs::read_dir(format!("/proc/{pid}/fd"));
    ways.push(("fd", listed.map(drop)));
    let mut byte = [0];
    let remote = RemoteIoVec { base: 1, len: 1 };
    let vm = process_vm_readv(pid, &mut [IoSliceMut::new(&mut byte)], &[remote]);
    ways.push((
        "process_vm_readv",
        match vm {
            // There is nothing at that address; that we were told so means that we were let in.
            Ok(_) | Err(Errno::EFAULT) => Ok(()),
            Err(error) => Err(error.into()),
        },
    ));
    let traced = ptrace::seize(pid, ptrace::Options::empty());
    ways.push(("ptrace", traced.map_err(Into::into)));
    judge(&ways)
}

/// Granted when one of the ways is open, and refused only when each said no: one that failed for another reason tells
/// nothing, and a process that is gone refuses nobody.
fn judge(ways: &[(&str, io::Result<()>)]) -> Report {
    let open = ways.iter().filter(|(_, result)| result.is_ok());
    let found: Vec<String> = open.map(|(what, _)| (*what).to_owned()).collect();
    if !found.is_empty() {
        return Report {
            found,
            ..Report::new(Outcome::Granted, "")
        };
    }
    let errors: Vec<(&str, &io::Error)> = ways
        .iter()
        .filter_map(|(what, result)| Some((*what, result.as_ref().err()?)))
        .collect();
    let is = |error: &io::Error, errno: Errno| error.raw_os_error() == Some(errno as i32);
    if errors.iter().any(|(_, error)| is(error, Errno::ESRCH)) {
        return Report::new(Outcome::Absent, "the process is gone");
    }
    // A process that is hidden (hidepid) has no entry, and is there: the system calls say so.
    let there = errors
        .iter()
        .any(|(_, error)| is(error, Errno::EPERM) || is(error, Errno::EACCES));
    let refusal = |error: &io::Error| {
        let report = Report::of_error(error);
        report.outcome == Outcome::Refused && verdict::is_refused(&report)
            || there && is(error, Errno::ENOENT)
    };
    let other = errors.iter().find(|(_, error)| !refusal(error));
    match other.or(errors.first()) {
        None => Report::new(Outcome::Unable, "no way was tried"),
        Some((what, error)) => {
            let report = Report::of_error(error);
            let outcome = if other.is_some() {
                Outcome::Unable
            } else {
                Outcome::Refused
            };
            Report {
                outcome,
                detail: (*what).to_owned(),
                ..report
            }
        }
    }
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

    #[test]
    fn a_process_that_is_gone_refuses_nobody() {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let report = inspect(child.id());
        assert_eq!(report.outcome, Outcome::Absent, "{report:?}");
    }

    #[test]
    fn every_way_has_to_say_no() {
        let of = |errors: &[Option<Errno>]| {
            let ways: Vec<(&str, io::Result<()>)> = errors
                .iter()
                .map(|errno| ("way", errno.map_or(Ok(()), |errno| Err(errno.into()))))
                .collect();
            judge(&ways).outcome
        };
        let no = [Some(Errno::EACCES), Some(Errno::EPERM)];
        assert_eq!(of(&no), Outcome::Refused);
        let with = |errno| of(&[no[0], Some(errno), no[1]]);
        for failure in [
            Errno::EMFILE,
            Errno::ENFILE,
            Errno::ENOSYS,
            Errno::ENOMEM,
            Errno::EINVAL,
            Errno::EIO,
            Errno::EAGAIN,
        ] {
            assert_eq!(with(failure), Outcome::Unable, "{failure}");
        }
        assert_eq!(with(Errno::ESRCH), Outcome::Absent);
        // Hidden, and there; or nothing there at all.
        assert_eq!(with(Errno::ENOENT), Outcome::Refused);
        assert_eq!(of(&[Some(Errno::ENOENT)]), Outcome::Unable);
        assert_eq!(of(&[no[0], None, no[1]]), Outcome::Granted);
    }
}
