use super::*;
use std::fs::File;
use std::io::Read;
use std::process::Stdio;

fn listing(keep: Option<OwnedFd>) -> Vec<String> {
    let mut command = Command::new("/bin/ls");
    command
        .arg("/proc/self/fd")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut child = launch(
        &mut command,
        Launch {
            cgroup_procs: Vec::new(),
            keep,
        },
    )
    .unwrap();
    let mut text = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    child.wait().unwrap();
    text.split_whitespace().map(str::to_owned).collect()
}

/// A descriptor without close-on-exec, as a careless library would leave it.
fn careless() -> OwnedFd {
    let file: OwnedFd = File::open("/dev/null").unwrap().into();
    // SAFETY: the descriptor is open for the length of the call.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) }).unwrap();
    file
}

#[test]
fn nothing_above_two_is_inherited_except_what_is_kept() {
    let leaked = careless();
    // Control: an ordinary start does leak it.
    let output = Command::new("/bin/ls")
        .arg("/proc/self/fd")
        .output()
        .unwrap();
    let plain = String::from_utf8(output.stdout).unwrap();
    assert!(
        plain
            .split_whitespace()
            .any(|fd| fd == leaked.as_raw_fd().to_string()),
        "{plain}"
    );

    // `ls` itself opens the directory it lists: one descriptor beside the standard three.
    assert_eq!(listing(None).len(), 4);
    let kept = careless();
    let number = kept.as_raw_fd().to_string();
    let seen = listing(Some(kept));
    assert!(seen.contains(&number) && seen.len() == 5, "{seen:?}");
}

#[test]
fn standard_streams_and_closed_numbers_cannot_be_adopted() {
    assert!(adopt(2).is_err());
    assert!(adopt(9999).is_err());
    let open = std::mem::ManuallyDrop::new(careless());
    assert!(adopt(open.as_raw_fd()).is_ok());
}

#[test]
fn a_command_hears_the_signals_that_its_starter_blocks() {
    use nix::sys::signal::{SigSet, Signal};
    let output = std::thread::spawn(|| {
        SigSet::from(Signal::SIGTERM).thread_block().unwrap();
        let blocked = |command: &mut Command| {
            let output = command
                .args(["SigBlk", "/proc/self/status"])
                .output()
                .unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        (
            blocked(&mut Command::new("grep")),
            blocked(with_all_signals(&mut Command::new("grep"))),
        )
    });
    let (plain, cleared) = output.join().unwrap();
    assert_eq!(
        plain.trim(),
        "SigBlk:\t0000000000004000",
        "the control inherits the mask"
    );
    assert_eq!(cleared.trim(), "SigBlk:\t0000000000000000");
}
