//! The engine: rootless LXC, one container per run, started inside a control group of its own.
//!
//! The monitor (`lxc-start -F`) runs as an ordinary uid that owns the slice's subordinate range.
//! Its first process is the relay, which gets the command over a descriptor only after the
//! [`Evidence`] of this start is on disk: whatever crashes when, no command ever runs unrecorded.
//! Four threads serve a run (standard input, two outputs, the end); nothing polls.

mod io;
mod watch_over;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::unistd::{Gid, Uid, chown};
use policy::grant::RunId;

pub use io::Io;

use super::cgroup::{CgroupRoot, RunGroup};
use super::config::{self, Fixed};
use super::{Engine, EngineError, Evidence, RunSpec, Running, evidence, passable_directory};
use crate::environment::files;
use crate::relay::{Control, Spec};
use crate::spawn::{Launch, launch};

/// The shipped allow-list of system calls.
pub const SECCOMP: &str = include_str!("../../seccomp/run.seccomp");

/// How long the relay may take to start the command; a start takes about 50 ms.
const START: Duration = Duration::from_secs(20);

/// Whom monitors run as when that is not the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The owner of the slices' subordinate range.
    pub uid: u32,
    /// Its primary group; `newuidmap` insists.
    pub gid: u32,
}

/// Hands signals to a run's command, as a terminal or a service manager would.
#[derive(Debug)]
pub struct Orders(UnixStream);

impl Orders {
    /// Asks the relay to send `signal` to the command; nothing happens when it has ended.
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        use std::io::Write;
        if let Ok(number) = u8::try_from(signal as i32) {
            let _ended = (&self.0).write_all(&[number]);
        }
    }
}

/// Starts runs as LXC containers.
#[derive(Debug, Clone)]
pub struct LxcEngine {
    /// Directory of the engine's own: one subdirectory per live run. Mode 0711 up to here.
    pub state: PathBuf,
    /// The tree made by [`super::rootfs::create`].
    pub rootfs: PathBuf,
    /// The `portcullis-relay` binary; readable by everyone.
    pub relay: PathBuf,
    /// Where groups for runs are made.
    pub cgroups: CgroupRoot,
    /// Root starts monitors as this identity; anybody else as itself (`None`).
    pub identity: Option<Identity>,
}

impl LxcEngine {
    fn directory(&self, run: &RunId) -> PathBuf {
        self.state.join(run.as_str())
    }

    /// Starts the run with the given streams instead of [`RunSpec::stdin`] and [`RunSpec::log`].
    ///
    /// # Errors
    /// As [`Engine::start`]. Blocks for as long as a start takes.
    pub fn start_with(&self, spec: &RunSpec, io: Io) -> Result<(Running, Orders), EngineError> {
        let command = Spec {
            argv: spec.argv.clone(),
            env: spec.env.clone(),
            directory: "/work".to_owned(),
        };
        let command = command
            .encode()
            .map_err(|error| EngineError::Refused(error.to_string()))?;
        let directory = self.prepare(spec)?;
        let owner = self
            .identity
            .map(|id| (Uid::from_raw(id.uid), Gid::from_raw(id.gid)));
        let group = match self.cgroups.create(spec.run.as_str(), owner) {
            Ok(group) => group,
            Err(error) => {
                let _best_effort = fs::remove_dir_all(&directory);
                return Err(EngineError::Refused(chain(&error)));
            }
        };
        let attempt = Attempt {
            engine: self,
            spec,
            group: &group,
            directory: &directory,
        };
        attempt
            .start(&command, io)
            .inspect_err(|_| attempt.clean_up())
    }

    /// Writes what LXC reads into a directory that only this run uses.
    fn prepare(&self, spec: &RunSpec) -> Result<PathBuf, EngineError> {
        let directory = self.directory(&spec.run);
        let failed =
            |error: std::io::Error| EngineError::Start(format!("{}: {error}", directory.display()));
        passable_directory(&self.state).map_err(failed)?;
        if directory.symlink_metadata().is_ok() {
            return Err(EngineError::Refused(format!(
                "run {} was started before and is not proven gone",
                spec.run
            )));
        }
        passable_directory(&directory).map_err(failed)?;
        let seccomp = directory.join("run.seccomp");
        let gitconfig = directory.join("gitconfig");
        let remotes = files::gitconfig(&spec.git_hosts);
        let fixed = Fixed {
            rootfs: &self.rootfs,
            relay: &self.relay,
            seccomp: &seccomp,
            gitconfig: &gitconfig,
            cgroups: &self.cgroups,
            usr_mounts: &usr_mounts(),
        };
        let written = config::render(spec, &fixed).and_then(|config| {
            let lxc = directory.join("lxc");
            let readable = fs::Permissions::from_mode(0o644);
            let own = directory.join("config");
            for (path, text) in [(&seccomp, SECCOMP), (&gitconfig, &remotes), (&own, &config)] {
                fs::write(path, text).map_err(failed)?;
                fs::set_permissions(path, readable.clone()).map_err(failed)?;
            }
            passable_directory(&lxc).map_err(failed)?;
            // The monitor's own place is the only one that it may write to.
            if let Some(Identity { uid, gid }) = self.identity {
                chown(&lxc, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
                    .map_err(|error| failed(error.into()))?;
            }
            Ok(())
        });
        if let Err(error) = written {
            let _best_effort = fs::remove_dir_all(&directory);
            return Err(error);
        }
        Ok(directory)
    }

    fn evidence_file(&self, run: &RunId) -> PathBuf {
        self.directory(run).join("evidence.json")
    }
}

impl Engine for LxcEngine {
    async fn start(&self, spec: RunSpec) -> Result<Running, EngineError> {
        let engine = self.clone();
        let started = tokio::task::spawn_blocking(move || {
            let io = Io::logged(&spec)
                .map_err(|error| EngineError::Start(format!("{}: {error}", spec.log.display())))?;
            engine
                .start_with(&spec, io)
                .map(|(running, _orders)| running)
        });
        started
            .await
            .map_err(|error| EngineError::Start(error.to_string()))?
    }

    fn leftover(&self, run: &RunId) -> Result<Option<Evidence>, EngineError> {
        let unreadable = |error: std::io::Error| EngineError::Unreadable(error.to_string());
        let cgroups = self.cgroups.of_run(run.as_str());
        let started = self.directory(run).exists() || cgroups.iter().any(|group| group.exists());
        if !started {
            return Ok(None);
        }
        let evidence = match fs::read(self.evidence_file(run)) {
            Ok(text) => serde_json::from_slice(&text)
                .map_err(|error| EngineError::Unreadable(error.to_string()))?,
            // The crash came before the record: no command ran, but a monitor may exist, and it is
            // in the run's group.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Evidence {
                boot_id: evidence::boot_id().map_err(unreadable)?,
                monitor_pid: 0,
                start_time: 0,
                cgroups,
            },
            Err(error) => return Err(unreadable(error)),
        };
        if evidence.proves_gone()? {
            self.forget(run);
            return Ok(None);
        }
        Ok(Some(evidence))
    }

    fn proven_gone(&self, evidence: &Evidence) -> Result<bool, EngineError> {
        let gone = evidence.proves_gone()?;
        if gone {
            RunGroup {
                directories: evidence.cgroups.clone(),
            }
            .remove();
            if let Some(run) = run_of(evidence) {
                self.forget(&run);
            }
        }
        Ok(gone)
    }

    fn kill_leftover(&self, evidence: &Evidence) -> Result<(), EngineError> {
        evidence.kill_rest()
    }
}

impl LxcEngine {
    /// Removes what a run that is proven gone has left in the engine's own state.
    fn forget(&self, run: &RunId) {
        RunGroup {
            directories: self.cgroups.of_run(run.as_str()),
        }
        .remove();
        let _best_effort = fs::remove_dir_all(self.directory(run));
    }
}

/// The run that evidence is about, from the name of its group.
fn run_of(evidence: &Evidence) -> Option<RunId> {
    let name = evidence.cgroups.first()?.file_name()?.to_str()?;
    name.strip_prefix("run-")?.parse().ok()
}

/// One start under way.
struct Attempt<'a> {
    engine: &'a LxcEngine,
    spec: &'a RunSpec,
    group: &'a RunGroup,
    directory: &'a Path,
}

impl Attempt<'_> {
    fn start(&self, command: &[u8], io: Io) -> Result<(Running, Orders), EngineError> {
        let (ours, theirs) = UnixStream::pair().map_err(start_error)?;
        let keep = std::os::fd::OwnedFd::from(theirs);
        let cgroup_procs = self
            .group
            .open_procs()
            .map_err(|error| EngineError::Refused(chain(&error)))?;
        let mut monitor = self.monitor(&keep);
        let streams = io.connect(&mut monitor).map_err(start_error)?;
        let child = launch(
            &mut monitor,
            Launch {
                cgroup_procs,
                keep: Some(keep),
            },
        )
        .map_err(|error| EngineError::Start(format!("lxc-start: {error}")))?;
        drop(monitor);
        self.started(child, Control(ours), command, streams)
    }

    fn monitor(&self, keep: &impl std::os::fd::AsRawFd) -> Command {
        let mut command = Command::new("lxc-start");
        command
            .args(["-F", "-q", "-n", self.spec.run.as_str(), "-l", "ERROR"])
            .arg("-P")
            .arg(self.directory.join("lxc"))
            .arg("-f")
            .arg(self.directory.join("config"))
            .arg("-o")
            .arg(self.directory.join("lxc/log"))
            .args([
                "--",
                config::RELAY,
                "--direct",
                "--control-fd",
                &keep.as_raw_fd().to_string(),
            ])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", self.directory.join("lxc"))
            .env("XDG_RUNTIME_DIR", self.directory.join("lxc"))
            .current_dir("/")
            .stdin(Stdio::null());
        if let Some(Identity { uid, gid }) = self.engine.identity {
            command.uid(uid).gid(gid);
        }
        command
    }

    fn started(
        &self,
        mut child: Child,
        mut control: Control,
        command: &[u8],
        mut streams: io::Streams,
    ) -> Result<(Running, Orders), EngineError> {
        let handed_over = self.record(&child).and_then(|evidence| {
            use std::io::Write;
            control
                .0
                .set_read_timeout(Some(START))
                .map_err(start_error)?;
            // A failed write means that the monitor is gone; the read says so too.
            let _gone = control.0.write_all(command);
            if control.hear_started().unwrap_or(false) {
                control.0.set_read_timeout(None).map_err(start_error)?;
                let orders = Orders(control.0.try_clone().map_err(start_error)?);
                return Ok((evidence, orders));
            }
            Err(EngineError::Start(String::new()))
        });
        match handed_over {
            Ok((evidence, orders)) => {
                let engine = self.engine.clone();
                let run = self.spec.run.clone();
                let forget = move || engine.forget(&run);
                Ok((
                    watch_over::watch(child, control, streams, evidence, forget),
                    orders,
                ))
            }
            Err(error) => {
                drop(control);
                let _gone = super::cgroup::kill_all(&self.group.directories);
                let _gone = child.kill();
                let _reaped = child.wait();
                let said = streams.first_words();
                Err(match error {
                    EngineError::Start(text) if text.is_empty() => self.explain(&said),
                    other => other,
                })
            }
        }
    }

    /// Writes the evidence of this start to disk.
    fn record(&self, child: &Child) -> Result<Evidence, EngineError> {
        let monitor_pid = child.id().cast_signed();
        let evidence = Evidence {
            boot_id: evidence::boot_id().map_err(start_error)?,
            monitor_pid,
            start_time: evidence::start_time(monitor_pid)
                .map_err(start_error)?
                .ok_or_else(|| EngineError::Start("the monitor ended at once".to_owned()))?,
            cgroups: self.group.directories.clone(),
        };
        let text =
            serde_json::to_vec(&evidence).map_err(|error| EngineError::Start(error.to_string()))?;
        let path = self.engine.evidence_file(&self.spec.run);
        let file = fs::File::create(&path).map_err(start_error)?;
        std::io::Write::write_all(&mut &file, &text)
            .and_then(|()| file.sync_all())
            .and_then(|()| file.set_permissions(fs::Permissions::from_mode(0o600)))
            .map_err(start_error)?;
        Ok(evidence)
    }

    /// Turns LXC's log and words into one reason.
    fn explain(&self, said: &str) -> EngineError {
        let log = fs::read_to_string(self.directory.join("lxc/log")).unwrap_or_default();
        let first = log.lines().find(|line| line.contains(" ERROR "));
        if log.contains("Failed to setup cgroup limits") {
            return EngineError::Refused(
                "limits cannot be set: the container's control groups do not take them\n  hint: hand the memory \
                 and pids control group subtrees to the uid that starts runs, and start it inside"
                    .to_owned(),
            );
        }
        let reason = first
            .and_then(|line| line.rsplit_once(" - ").map(|(_, text)| text.to_owned()))
            .or_else(|| said.lines().next().map(str::to_owned))
            .unwrap_or_else(|| "the container ended before the command started".to_owned());
        EngineError::Start(reason)
    }

    fn clean_up(&self) {
        // Killed processes leave their group a moment later.
        let deadline = std::time::Instant::now() + Duration::from_secs(5);
        while std::time::Instant::now() < deadline
            && self.group.directories.iter().any(|group| {
                super::cgroup::processes(group).is_ok_and(|processes| !processes.is_empty())
            })
        {
            let _again = super::cgroup::kill_all(&self.group.directories);
            std::thread::sleep(Duration::from_millis(5));
        }
        self.engine.forget(&self.spec.run);
    }
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "the shape that map_err wants"
)]
fn start_error(error: std::io::Error) -> EngineError {
    EngineError::Start(error.to_string())
}

/// An error with its causes, in one string.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // The hint stays the last line.
        match text.split_once('\n') {
            Some((first, rest)) => text = format!("{first}: {cause_text}\n{rest}"),
            None => text = format!("{text}: {cause_text}"),
        }
        source = cause.source();
    }
    text
}

fn usr_mounts() -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    // A point that holds blanks is escaped there; such a mount is left as it is.
    let mut mounts: Vec<PathBuf> = points
        .filter(|point| point.starts_with("/usr/") && !point.contains('\\'))
        .map(PathBuf::from)
        .collect();
    mounts.sort();
    mounts.dedup();
    mounts
}
