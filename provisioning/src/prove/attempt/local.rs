//! What this machine itself offers: sockets, files, programs, the packet filter, the gate.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::{Group, Uid, User, getgid, getgroups, setuid};

use crate::process::SEARCH_PATH;
use crate::prove::kind::Kind;
use crate::prove::task::{Outcome, Report, Task};
use crate::prove::verdict;

/// Groups whose members become root by one command, or read and write what root keeps.
const AS_GOOD_AS_ROOT: [&str; 18] = [
    "_lxd",
    "adm",
    "admin",
    "containerd",
    "disk",
    "docker",
    "incus",
    "incus-admin",
    "kmem",
    "kvm",
    "libvirt",
    "lxd",
    "podman",
    "root",
    "shadow",
    "staff",
    "sudo",
    "wheel",
];
/// Programs that run another one as root; each is asked for its uid.
const RAISING: [&[&str]; 6] = [
    &["sudo", "-n", "id", "-u"],
    &["doas", "-n", "id", "-u"],
    &["pkexec", "--disable-internal-agent", "id", "-u"],
    &["su", "root", "-c", "id -u"],
    &["runuser", "-u", "root", "--", "id", "-u"],
    &[
        "systemd-run",
        "--quiet",
        "--wait",
        "--pipe",
        "--no-ask-password",
        "id",
        "-u",
    ],
];
/// How long a program may take: some pause before they refuse, or ask others first.
pub(super) const PROGRAM_PATIENCE: Duration = Duration::from_secs(20);

/// The set-user-id `ping`.
pub(super) fn ping(task: &Task) -> Report {
    let Some(address) = task.address else {
        return Report::new(Outcome::Unable, "the attempt names no address");
    };
    let seconds = task.patience_ms.div_ceil(1000).max(1).to_string();
    let address = address.to_string();
    let words = [
        "ping", "-n", "-q", "-c", "2", "-i", "0.3", "-w", &seconds, &address,
    ];
    match program(&words, PROGRAM_PATIENCE) {
        Ok(Ended::Said(_)) => Report::new(Outcome::Answered, ""),
        Ok(Ended::Failed) => Report::new(Outcome::Sent, ""),
        Ok(Ended::Late) => Report::new(Outcome::Unable, "ping did not end in time"),
        Err(error) => Report::of_error(&error),
    }
}

/// Any message: the kernel judges the sender before it looks at what is wanted, so that reading is refused as changing is.
pub(super) fn netlink(task: &Task) -> Report {
    let table = task.names.first().map_or("portcullis", String::as_str);
    match nftables::netlink::observe(table) {
        Ok(_) => Report::new(Outcome::Granted, "the packet filter answers"),
        Err(nftables::netlink::NetlinkError::NotPermitted { .. }) => Report {
            errno: Some("EPERM".to_owned()),
            ..Report::new(Outcome::Refused, "")
        },
        // A list of system calls, as a run has one, may refuse the socket itself.
        Err(nftables::netlink::NetlinkError::Io { source, .. })
            if source.raw_os_error().is_some() =>
        {
            Report::of_error(&source)
        }
        Err(error) => Report::new(Outcome::Unable, crate::output::chain(&error)),
    }
}

/// Whether somebody answers at a unix socket. One that begins with `@` has a name and no file.
///
/// # Errors
/// What the kernel said.
pub fn connects(path: &Path) -> io::Result<()> {
    let address = match path.as_os_str().as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    match UnixStream::connect_addr(&address) {
        // The other kind of socket.
        Err(error) if error.raw_os_error() == Some(nix::errno::Errno::EPROTOTYPE as i32) => {
            UnixDatagram::unbound()?.connect_addr(&address)
        }
        other => other.map(drop),
    }
}

pub(super) fn connect_paths(task: &Task) -> Report {
    each(task, connects)
}

pub(super) fn files(task: &Task, write: bool) -> Report {
    each(task, |path| open(path, write))
}

/// Tries each path. Granted when one is open, else the hardest refusal.
fn each(task: &Task, run: impl Fn(&Path) -> io::Result<()>) -> Report {
    let mut report = Report::new(Outcome::Absent, "");
    for path in &task.paths {
        match run(path) {
            Ok(()) => report.found.push(path.display().to_string()),
            Err(error) => {
                let one = Report::of_error(&error);
                if one.outcome != Outcome::Absent && report.outcome == Outcome::Absent {
                    report = Report {
                        found: report.found,
                        detail: path.display().to_string(),
                        ..one
                    };
                }
            }
        }
    }
    if !report.found.is_empty() {
        report.outcome = Outcome::Granted;
        report.errno = None;
        report.detail.clear();
    }
    report
}

/// Opens, and changes nothing: a directory is listed, or tried with a file that never gets a name.
fn open(path: &Path, write: bool) -> io::Result<()> {
    if path.is_dir() {
        if !write {
            return fs::read_dir(path).map(drop);
        }
        let unnamed = OpenOptions::new()
            .write(true)
            .custom_flags(nix::fcntl::OFlag::O_TMPFILE.bits())
            .open(path);
        return match unnamed {
            // Not every kind of file system has them.
            Err(error) if error.raw_os_error() == Some(nix::errno::Errno::EOPNOTSUPP as i32) => {
                named(path)
            }
            other => other.map(drop),
        };
    }
    OpenOptions::new()
        .read(!write)
        .append(write)
        .custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits())
        .open(path)
        .map(drop)
}

/// A file that is removed again at once.
fn named(directory: &Path) -> io::Result<()> {
    let mine = directory.join(format!(".portcullis-prove-{}", std::process::id()));
    OpenOptions::new()
        .create_new(true)
        .write(true)
        .open(&mine)?;
    fs::remove_file(mine)
}

/// Asks the control socket how the gate is.
pub(super) fn control_socket(task: &Task) -> Report {
    let Some(path) = task.paths.first() else {
        return Report::new(Outcome::Unable, "the attempt names no socket");
    };
    let request = "GET /v1/status HTTP/1.1\r\nHost: gate\r\nConnection: close\r\n\r\n";
    match ask(path, request, task.patience_ms) {
        Err(error) => Report::of_error(&error),
        Ok(answer) => {
            let line = answer.lines().next().unwrap_or("closed without an answer");
            let granted = line
                .split(' ')
                .nth(1)
                .is_some_and(|code| code.starts_with('2'));
            let outcome = if granted {
                Outcome::Granted
            } else {
                Outcome::Refused
            };
            Report::new(outcome, line)
        }
    }
}

/// One request through the gate: `names[0]` is the request line's method and target, the rest are fields.
pub(super) fn gate_request(task: &Task) -> Report {
    let (Some(path), Some((asked, fields))) = (task.paths.first(), task.names.split_first()) else {
        return Report::new(Outcome::Unable, "the attempt names no socket");
    };
    let mut request = format!("{asked} HTTP/1.1\r\n");
    for field in fields {
        request.push_str(&format!("{field}\r\n"));
    }
    request.push_str("Connection: close\r\n\r\n");
    match ask(path, &request, task.patience_ms) {
        Err(error) => Report::of_error(&error),
        Ok(answer) => {
            let line = answer.lines().next().unwrap_or("closed without an answer");
            let code = line.split(' ').nth(1).unwrap_or_default();
            let outcome = if code.starts_with('2') {
                Outcome::Answered
            } else {
                Outcome::Refused
            };
            let mut found = vec![code.to_owned()];
            if task.kind == Kind::GateError {
                found.extend(repeated(&answer, asked, fields));
            }
            Report {
                found,
                ..Report::new(outcome, line)
            }
        }
    }
}

/// A shorter part may stand in any page by chance.
const TELLING: usize = 8;

/// What of a request stands in its answer: parts of the target behind its host, and values of fields other than Host.
fn repeated(answer: &str, line: &str, fields: &[String]) -> Vec<String> {
    let target = line.splitn(5, '/').skip(3);
    let parts = target.flat_map(|rest| rest.split(['/', '?', '&', '=']));
    let values = fields
        .iter()
        .filter_map(|field| field.split_once(':'))
        .filter(|(name, _)| !name.eq_ignore_ascii_case("host"))
        .map(|(_, value)| value.trim());
    parts
        .chain(values)
        .filter(|part| part.len() >= TELLING && answer.contains(part))
        .map(str::to_owned)
        .collect()
}

fn ask(path: &Path, request: &str, patience_ms: u64) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    let patience = Some(Duration::from_millis(patience_ms));
    stream.set_read_timeout(patience)?;
    stream.set_write_timeout(patience)?;
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    // An answer cut short is judged by what came.
    match stream.take(64 << 10).read_to_end(&mut answer) {
        Err(error) if answer.is_empty() => Err(error),
        _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
    }
}

/// Variables of this process that match, unless their value is the placeholder that agents get instead of a secret.
pub(super) fn environment(task: &Task) -> Report {
    let own: Vec<(String, String)> = std::env::vars_os()
        .map(|(name, value)| {
            let text = |os: std::ffi::OsString| os.to_string_lossy().into_owned();
            (text(name), text(value))
        })
        .collect();
    Report::of_found(telling(&own, &task.names))
}

/// The names of the variables that match one of the patterns and hold more than a placeholder.
#[must_use]
pub fn telling(variables: &[(String, String)], patterns: &[String]) -> Vec<String> {
    let matches = |name: &str, pattern: &String| match pattern.split_once('*') {
        Some((head, tail)) => {
            name.len() >= head.len() + tail.len() && name.starts_with(head) && name.ends_with(tail)
        }
        None => name == pattern,
    };
    variables
        .iter()
        .filter(|(_, value)| !value.is_empty() && !value.contains("portcullis"))
        .filter(|(name, _)| patterns.iter().any(|pattern| matches(name, pattern)))
        .map(|(name, _)| name.clone())
        .collect()
}

pub(super) fn become_user(uid: u32) -> Report {
    match setuid(Uid::from_raw(uid)) {
        Ok(()) => Report::new(Outcome::Granted, format!("became uid {uid}")),
        Err(error) => Report::of_error(&error.into()),
    }
}

/// The groups this process is in.
pub(super) fn groups() -> Report {
    let mut own = getgroups().unwrap_or_default();
    own.push(getgid());
    let names = own
        .into_iter()
        .filter_map(|gid| Group::from_gid(gid).ok().flatten())
        .map(|group| group.name);
    Report::of_found(dangerous(names))
}

/// Those of the groups an account is given when it logs in that are as good as root. A uid without an account has none.
#[must_use]
pub fn groups_as_good_as_root(uid: u32) -> Vec<String> {
    let Some(user) = User::from_uid(Uid::from_raw(uid)).ok().flatten() else {
        return Vec::new();
    };
    let text = fs::read_to_string("/etc/group").unwrap_or_default();
    let listed = text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let member = fields.nth(2)?.split(',').any(|member| member == user.name);
        member.then(|| name.to_owned())
    });
    let primary = Group::from_gid(user.gid)
        .ok()
        .flatten()
        .map(|group| group.name);
    dangerous(listed.chain(primary))
}

fn dangerous(names: impl Iterator<Item = String>) -> Vec<String> {
    names
        .filter(|name| AS_GOOD_AS_ROOT.contains(&name.as_str()))
        .collect()
}

/// Programs that run another one as root, without a password.
pub(super) fn elevate(_: &Task) -> Report {
    raised(&RAISING, PROGRAM_PATIENCE)
}

/// Each is tried. Granted when one of them did it; refused only when each that is here said so.
fn raised(ways: &[&[&str]], patience: Duration) -> Report {
    let ended: Vec<(&str, io::Result<Ended>)> = thread::scope(|scope| {
        let started: Vec<_> = ways
            .iter()
            .map(|words| (words[0], scope.spawn(|| program(words, patience))))
            .collect();
        let ended = started.into_iter().map(|(name, thread)| {
            let died = |_| Err(io::Error::other("it could not be watched"));
            (name, thread.join().unwrap_or_else(died))
        });
        ended.collect()
    });
    let (mut found, mut refused, mut untold) = (Vec::new(), Vec::new(), None);
    for (name, ended) in ended {
        match ended {
            Ok(Ended::Said(said)) if said.trim() == "0" => found.push(name.to_owned()),
            Ok(Ended::Said(_) | Ended::Failed) => refused.push(name),
            Ok(Ended::Late) => untold = Some(format!("{name} did not end in time")),
            Err(error) => {
                let report = Report::of_error(&error);
                if verdict::is_refused(&report) {
                    refused.push(name);
                } else if report.outcome != Outcome::Absent {
                    untold = Some(format!("{name} did not start: {error}"));
                }
            }
        }
    }
    if !found.is_empty() {
        return Report {
            found,
            ..Report::new(Outcome::Granted, "ran a program as root")
        };
    }
    match untold {
        Some(why) => Report::new(Outcome::Unable, why),
        None if refused.is_empty() => Report::new(Outcome::Absent, "none of them is here"),
        None => Report::new(Outcome::Refused, refused.join(", ")),
    }
}

/// How a program ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It succeeded, and wrote this.
    Said(String),
    /// It said that it failed.
    Failed,
    /// Not in time: nobody knows what it would have done.
    Late,
}

pub(super) fn program(words: &[&str], patience: Duration) -> io::Result<Ended> {
    // Where a manager of the user's own would be.
    let runtime = format!("/run/user/{}", Uid::current());
    let mut child = Command::new(words[0])
        .args(&words[1..])
        .env_clear()
        .env("PATH", SEARCH_PATH)
        .env("XDG_RUNTIME_DIR", runtime)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let deadline = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait()? {
            let mut said = String::new();
            if let Some(mut output) = child.stdout.take() {
                output.read_to_string(&mut said)?;
            }
            return Ok(if status.success() {
                Ended::Said(said)
            } else {
                Ended::Failed
            });
        }
        if Instant::now() > deadline {
            // A program that runs as somebody else may not be ours to kill.
            if child.kill().is_ok() {
                child.wait()?;
            }
            return Ok(Ended::Late);
        }
        thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_page_repeats_of_a_request_is_found() {
        let fields = ["Host: a-host.test", "X-A: secret-field"].map(str::to_owned);
        let line = "GET http://a-host.test:81/secret-path?secret-query=1";
        let of = |page: &str| repeated(page, line, &fields);
        assert_eq!(of("<p>502 a-host.test 1</p>"), Vec::<String>::new());
        assert_eq!(of("/secret-path?"), ["secret-path"]);
        assert_eq!(
            of("secret-query and secret-field"),
            ["secret-query", "secret-field"]
        );
    }

    #[test]
    fn a_placeholder_is_no_credential_and_a_wildcard_is_a_suffix() {
        let variables = [
            ("GITHUB_TOKEN", "ghp_x"),
            ("OPENAI_API_KEY", "injected-by-portcullis"),
            ("MY_SECRET", "s"),
            ("PATH", "/bin"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let patterns = ["GITHUB_TOKEN", "*_API_KEY", "*_SECRET"].map(str::to_owned);
        assert_eq!(
            telling(&variables, &patterns),
            ["GITHUB_TOKEN", "MY_SECRET"]
        );
    }

    #[test]
    fn files_that_open_are_found_and_missing_ones_are_absent() {
        let dir = tempfile::tempdir().unwrap();
        let mut task = Task::new(crate::prove::kind::Kind::FileReadable, 100);
        task.paths = vec![dir.path().join("none")];
        assert_eq!(files(&task, false).outcome, Outcome::Absent);
        task.paths.push(dir.path().to_owned());
        assert_eq!(files(&task, true).outcome, Outcome::Granted);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_program_that_is_late_has_not_refused() {
        const MISSING: &[&str] = &["no-such-program-as-this"];
        const REFUSES: &[&str] = &["false"];
        const RAISES: &[&str] = &["echo", "0"];
        const HANGS: &[&str] = &["sleep", "60"];
        const CANNOT_START: &[&str] = &["/etc/passwd/none"];
        let long = Duration::from_secs(60);
        let of = |ways: &[&[&str]], patience| raised(ways, patience).outcome;
        assert_eq!(of(&[MISSING], long), Outcome::Absent);
        assert_eq!(of(&[MISSING, REFUSES], long), Outcome::Refused);
        // It may be executed by others, or by nobody: that is said at once.
        assert_eq!(of(&[&["/etc/passwd"]], long), Outcome::Refused);
        assert_eq!(of(&[REFUSES, CANNOT_START], long), Outcome::Unable);
        let short = Duration::from_millis(200);
        assert_eq!(of(&[HANGS, REFUSES], short), Outcome::Unable);
        assert_eq!(of(&[RAISES, REFUSES], long), Outcome::Granted);
    }
}
