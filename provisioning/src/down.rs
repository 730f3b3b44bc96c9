//! `portcullis down`: stop everything in reverse order, open the boundary last; with `--purge`, remove what `up` made.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User};
use thiserror::Error;

use crate::file::FileError;
use crate::instance::{Instance, InstanceError};
use crate::output::say;
use crate::process::{Call, ProcessError};
use crate::site::Site;
use crate::step::{StepError, settings};
use crate::subid::{SubidError, SubidFiles};
use crate::{cgroup, control, service, systemd};

/// How long killed runs may take to disappear.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Error)]
pub enum DownError {
    #[error(transparent)]
    Instance(#[from] InstanceError),
    #[error(transparent)]
    Step(#[from] StepError),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Subid(#[from] SubidError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(
        "processes of runs are still there: {0:?}\n  hint: look at them with `ps -p PID`, then run it again"
    )]
    Runs(Vec<i32>),
}

/// Stops the instance at `prefix`; with `purge` also removes it. Doing it twice is fine.
///
/// # Errors
/// At the first thing that cannot be stopped or removed.
pub fn down(prefix: &Path, name: Option<&str>, purge: bool) -> Result<(), DownError> {
    let Some(instance) = Instance::find(prefix)? else {
        say(&format!(
            "there is no Portcullis at {}; nothing to do",
            prefix.display()
        ));
        return Ok(());
    };
    if name.is_some() {
        Instance::open(prefix, name)?;
    }
    stop(&instance)?;
    if purge {
        remove(&instance)?;
    } else {
        say("tickets, audit log, configuration and accounts stay; `portcullis up` starts it again");
    }
    Ok(())
}

fn stop(instance: &Instance) -> Result<(), DownError> {
    let by_systemd = Site::host_has_systemd();
    for key in service::ORDER.into_iter().rev() {
        if key == "boundary" {
            // Whatever a run left behind goes while the rules still hold it.
            end_runs(instance)?;
        }
        if control::stop(instance, by_systemd, key)? {
            say(&format!("stopped {key}"));
        }
    }
    let config = instance.layout.config("boundary");
    let boundary = instance.layout.binary("portcullis-boundary");
    if boundary.exists() && config.exists() {
        say(&format!(
            "remove the rules (table {})",
            instance.layout.name()
        ));
        Call::new(boundary)
            .args(["remove", "--config"])
            .arg(config)
            .run()?;
    }
    Ok(())
}

fn end_runs(instance: &Instance) -> Result<(), DownError> {
    let root = Path::new(cgroup::ROOT);
    let mut groups = cgroup::directories(root, instance.layout.name());
    groups.extend(cgroup::named(root, &instance.layout.user("exec")));
    let present = || {
        let mut pids: Vec<i32> = groups
            .iter()
            .flat_map(|group| cgroup::processes(group))
            .collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let pids = present();
        if pids.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(DownError::Runs(pids));
        }
        for pid in &pids {
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn remove(instance: &Instance) -> Result<(), DownError> {
    let layout = &instance.layout;
    if Site::host_has_systemd() {
        remove_units(instance)?;
    }
    for done in settings::restore(instance)? {
        say(&done);
    }
    let root = Path::new(cgroup::ROOT);
    let mut groups = cgroup::directories(root, layout.name());
    groups.extend(cgroup::named(root, &layout.user("exec")));
    for group in groups {
        if group.exists() {
            say(&format!("remove {}", group.display()));
            cgroup::remove(&group).map_err(FileError::new("remove", &group))?;
        }
    }
    let owners: Vec<String> = ["orchestrator", "exec", "proxy", "standin"]
        .map(|role| layout.user(role))
        .into();
    say("remove their ranges from /etc/subuid and /etc/subgid");
    SubidFiles::default().release(&owners)?;
    for name in &owners {
        if User::from_name(name).ok().flatten().is_some() {
            say(&format!("remove the user {name}"));
            Call::new("/usr/sbin/userdel").arg(name).run()?;
        }
    }
    let command = layout.command();
    if fs::read_link(&command).is_ok_and(|to| to == layout.binary("portcullis")) {
        say(&format!("remove {}", command.display()));
        fs::remove_file(&command).map_err(FileError::new("remove", &command))?;
    }
    for tree in layout.owned_trees() {
        remove_tree(&tree)?;
    }
    remove_empty_parents(instance);
    Ok(())
}

fn remove_tree(tree: &Path) -> Result<(), DownError> {
    match fs::symlink_metadata(tree) {
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => Ok(()),
        _ => {
            say(&format!("remove {}", tree.display()));
            Ok(fs::remove_dir_all(tree).map_err(FileError::new("remove", tree))?)
        }
    }
}

/// Below a prefix of its own the directories that only led to ours go too, if nothing else is in them.
fn remove_empty_parents(instance: &Instance) {
    let prefix = instance.layout.prefix();
    if prefix == Path::new("/") {
        return;
    }
    for path in [
        "usr/local/lib",
        "usr/local/bin",
        "usr/local",
        "usr",
        "etc",
        "var/lib",
        "var/log",
        "var",
        "run",
        "",
    ] {
        let _ = fs::remove_dir(prefix.join(path));
    }
}

fn remove_units(instance: &Instance) -> Result<(), DownError> {
    let names: Vec<String> = service::ORDER
        .iter()
        .flat_map(|key| systemd::unit_names(instance, key))
        .collect();
    let _ = Call::new("systemctl")
        .args(["--quiet", "disable"])
        .args(names)
        .run();
    let units = service::ORDER
        .iter()
        .flat_map(|key| systemd::unit_paths(instance, key));
    for path in units.chain([systemd::tmpfiles_path(instance)]) {
        if path.exists() {
            say(&format!("remove {}", path.display()));
            fs::remove_file(&path).map_err(FileError::new("remove", &path))?;
        }
    }
    Call::new("systemctl").arg("daemon-reload").run()?;
    Ok(())
}
