//! Starting, stopping and asking after services, the same whether systemd or our own supervisor keeps them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::file::{self, Access, FileError};
use crate::instance::Instance;
use crate::process::{Call, ProcessError};
use crate::service::Service;
use crate::step::StepError;
use crate::supervise::{self, record::Moment, record::Record};
use crate::{ready, systemd};

/// A service that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Up {
    pub pid: i32,
    /// RFC 3339.
    pub since: String,
    pub restarts: u32,
    /// What it was started with; unknown for a unit that a boot started.
    pub fingerprint: Option<String>,
}

/// Whether a service runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    Up(Up),
    /// Why not.
    Down(String),
}

/// A call of the gate's program with this instance's configuration.
#[must_use]
pub fn gate(instance: &Instance, arguments: &[&str]) -> Call {
    Call::new(instance.layout.binary("portcullis-proxy"))
        .args(arguments.iter().copied())
        .arg("--config")
        .arg(instance.layout.config("proxy"))
}

/// A call of the orchestrator's program with this instance's configuration.
#[must_use]
pub fn orchestrator(instance: &Instance, arguments: &[&str]) -> Call {
    Call::new(instance.layout.binary("portcullis-orchestrator"))
        .arg("--config")
        .arg(instance.layout.config("orchestrator"))
        .args(arguments.iter().copied())
}

/// How the service is now.
#[must_use]
pub fn health(instance: &Instance, by_systemd: bool, key: &str) -> Health {
    if by_systemd {
        return systemd::health(instance, key);
    }
    let Some(record) = Record::load(&supervise::record_path(instance, key)) else {
        return Health::Down("it is not running".to_owned());
    };
    match (record.program.filter(Moment::is_alive), record.started) {
        (Some(program), Some(since)) => Health::Up(Up {
            pid: program.pid,
            since,
            restarts: record.restarts,
            fingerprint: Some(record.fingerprint),
        }),
        _ => {
            let end = record
                .last_end
                .unwrap_or_else(|| "its supervisor is gone".to_owned());
            let supervised = record.supervisor.is_alive();
            Health::Down(if supervised {
                format!("it {end} and will be started again")
            } else {
                end
            })
        }
    }
}

/// Whether a service that was just started has fallen so often that waiting for it is idle.
#[must_use]
pub fn keeps_falling(instance: &Instance, by_systemd: bool, key: &str) -> bool {
    let restarts = if by_systemd {
        systemd::restarts(instance, key)
    } else {
        Record::load(&supervise::record_path(instance, key)).map_or(0, |record| record.restarts)
    };
    restarts >= 3
}

/// Why a running service does not serve yet; `None` when it does.
#[must_use]
pub fn not_ready(instance: &Instance, key: &str) -> Option<String> {
    ready::problem(instance, key)
}

/// Hash over what decides how a service runs: its command line, its programs, the content of its configuration and,
/// with systemd, its unit.
///
/// # Errors
/// When an input cannot be read.
pub fn fingerprint(
    instance: &Instance,
    by_systemd: bool,
    service: &Service,
) -> Result<String, FileError> {
    let mut text = format!(
        "{:?} {:?} {:?}",
        service.arguments, service.user, service.bounding
    );
    for path in &service.programs {
        // Programs are replaced only when their content differs, so there is no need to read them again.
        text.push_str(&file::identity(path)?);
    }
    for path in &service.inputs {
        text.push_str(&file::read(path)?);
    }
    if by_systemd {
        for unit in systemd::unit_paths(instance, service.key) {
            text.push_str(&file::read(&unit)?);
        }
    }
    Ok(file::hash(text.as_bytes()))
}

/// Whether anything that decides how the unit of a service runs was changed when it ran already, or in the second it was
/// started: the answer where nobody noted what it was started with, as at a boot.
///
/// # Errors
/// When a file cannot be looked at.
pub fn is_touched_since(
    instance: &Instance,
    service: &Service,
    since: &str,
) -> Result<bool, FileError> {
    let Ok(since) = since.parse::<jiff::Timestamp>() else {
        return Ok(true);
    };
    let units = systemd::unit_paths(instance, service.key);
    let decisive = service.programs.iter().chain(&service.inputs);
    one_changed_since(decisive.chain(&units), since.as_second())
}

fn one_changed_since<'a>(
    mut paths: impl Iterator<Item = &'a PathBuf>,
    second: i64,
) -> Result<bool, FileError> {
    paths.try_fold(false, |changed, path| {
        let metadata = fs::metadata(path).map_err(FileError::new("look at", path))?;
        Ok(changed || metadata.ctime() >= second)
    })
}

/// Starts it; does not wait until it serves.
///
/// # Errors
/// When it cannot be started.
pub fn start(instance: &Instance, by_systemd: bool, service: &Service) -> Result<(), StepError> {
    if by_systemd {
        let path = systemd::fingerprint_path(instance, service.key);
        let fingerprint = fingerprint(instance, true, service)?;
        file::write(&path, fingerprint.as_bytes(), Access::root(0o644))?;
        // A unit edited by hand counts from now on too.
        Call::new("systemctl").arg("daemon-reload").run()?;
        Call::new("systemctl")
            .arg("restart")
            .args(systemd::unit_names(instance, service.key))
            .run()?;
        return Ok(());
    }
    Ok(supervise::start(
        instance,
        service,
        &fingerprint(instance, false, service)?,
    )?)
}

/// Stops it and waits for its end. Returns whether it ran.
///
/// # Errors
/// When it does not end.
pub fn stop(instance: &Instance, by_systemd: bool, key: &'static str) -> Result<bool, StepError> {
    if !by_systemd {
        return Ok(supervise::stop(instance, key)?);
    }
    let ran = matches!(health(instance, true, key), Health::Up(_));
    match Call::new("systemctl")
        .arg("stop")
        .args(systemd::unit_names(instance, key))
        .run()
    {
        // A unit that was never written is as stopped as can be.
        Ok(_) | Err(ProcessError::Failed { .. }) => Ok(ran),
        Err(error) => Err(error.into()),
    }
}

/// The end of what the service wrote.
#[must_use]
pub fn last_words(instance: &Instance, by_systemd: bool, key: &'static str) -> String {
    let text = if by_systemd {
        // Of every unit of the service: it may be the rules that failed, not their watcher.
        let units = systemd::unit_names(instance, key);
        Call::new("journalctl")
            .args(["--no-pager", "-n", "12", "-o", "cat"])
            .args(units.into_iter().flat_map(|unit| ["-u".to_owned(), unit]))
            .run()
            .ok()
    } else {
        fs::read_to_string(supervise::log_path(instance, key)).ok()
    };
    let text = text.unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(12);
    lines[from..]
        .iter()
        .map(|line| format!("        | {line}\n"))
        .collect::<String>()
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_changed_since_the_start_counts_and_one_from_before_does_not() {
        let root = tempfile::tempdir().unwrap();
        let paths = ["program", "config"].map(|name| root.path().join(name));
        for path in &paths {
            fs::write(path, "x").unwrap();
        }
        let changed = paths
            .each_ref()
            .map(|path| fs::metadata(path).unwrap().ctime());
        let last = changed.into_iter().max().unwrap();
        assert!(one_changed_since(paths.iter(), last).unwrap());
        assert!(!one_changed_since(paths.iter(), last + 1).unwrap());
        fs::remove_file(&paths[1]).unwrap();
        assert!(one_changed_since(paths.iter(), last).is_err());
    }
}
