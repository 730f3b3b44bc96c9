//! The status file: how the gate knows that the boundary stands, here and now.
//!
//! ```json
//! {"version":1,"ok":true,"boot_id":"6f0c...","netns":4026531840,"boottime_ms":123456,
//!  "ruleset_hash":"9b1d...","scope":"agents","table":"portcullis","problem":null,
//!  "events":[{"at":"2026-12-01T08:00:00Z","boottime_ms":123000,"kind":"reasserted","text":"...",
//!             "cause":"notice","after_ms":9}]}
//! ```
//! A reader compares boot id and namespace with its own and the time with `CLOCK_BOOTTIME`: a file
//! from before a reboot, from another namespace or older than [`FRESH`] proves nothing.

use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::ruleset::Ruleset;

/// A status further away than this is stale. `watch` writes every second.
pub const FRESH: Duration = Duration::from_secs(5);

/// The file's contents, version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    pub version: u32,
    /// The kernel held exactly the expected rules at `boottime_ms`.
    pub ok: bool,
    pub boot_id: String,
    /// Inode of the network namespace the rules are in.
    pub netns: u64,
    /// `CLOCK_BOOTTIME` in milliseconds when this was written.
    pub boottime_ms: u64,
    /// SHA-256 of the rendered ruleset, hex; empty when none could be built.
    pub ruleset_hash: String,
    pub scope: String,
    pub table: String,
    /// Why `ok` is false.
    pub problem: Option<String>,
    /// What the watcher did and saw last, oldest first.
    #[serde(default)]
    pub events: Vec<Noted>,
}

/// One event of the watcher, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Noted {
    /// RFC 3339, UTC.
    pub at: String,
    pub boottime_ms: u64,
    /// `standing`, `reasserted`, `elsewhere`, `renewed`, `adopted`, `failed`, `recovered`, `warning`.
    pub kind: String,
    /// What made the watcher put rules back: `notice` (of the kernel) or `look` (that of each second).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Milliseconds from the kernel's notice until the rules stood again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<u64>,
    pub text: String,
}

#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    #[error("reading {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} is not a boundary status")]
    Form {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("{path} has version {version}, this program understands 1")]
    Version { path: PathBuf, version: u32 },
    #[error("{path} can be written by others than root")]
    Untrusted { path: PathBuf },
    #[error("writing {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl Status {
    /// Reads and checks the form; judging freshness is the reader's own business.
    pub fn read(path: &Path) -> Result<Self, StatusError> {
        let bytes = std::fs::read(path).map_err(|source| StatusError::Read {
            path: path.to_owned(),
            source,
        })?;
        let status: Self = serde_json::from_slice(&bytes).map_err(|source| StatusError::Form {
            path: path.to_owned(),
            source,
        })?;
        if status.version != 1 {
            return Err(StatusError::Version {
                path: path.to_owned(),
                version: status.version,
            });
        }
        Ok(status)
    }

    /// The same, only from a file that nobody but root could have written.
    pub fn read_trusted(path: &Path) -> Result<Self, StatusError> {
        let status = Self::read(path)?;
        let metadata = std::fs::symlink_metadata(path).map_err(|source| StatusError::Read {
            path: path.to_owned(),
            source,
        })?;
        if !metadata.is_file() || metadata.uid() != 0 || metadata.mode() & 0o022 != 0 {
            return Err(StatusError::Untrusted {
                path: path.to_owned(),
            });
        }
        Ok(status)
    }

    /// A statement about this moment in this network namespace.
    pub fn now(
        ruleset: Option<&Ruleset>,
        scope: &str,
        table: &str,
        problem: Option<String>,
    ) -> io::Result<Self> {
        Ok(Self {
            version: 1,
            ok: problem.is_none(),
            boot_id: boot_id()?,
            netns: netns_inode()?,
            boottime_ms: boottime_ms()?,
            ruleset_hash: ruleset.map(Ruleset::hash).unwrap_or_default(),
            scope: scope.to_owned(),
            table: table.to_owned(),
            problem,
            events: Vec::new(),
        })
    }

    /// With the events that the file at `path` tells of this boot, so that no writer loses them.
    #[must_use]
    pub fn with_events_of(mut self, path: &Path) -> Self {
        if let Ok(held) = Self::read(path)
            && held.boot_id == self.boot_id
        {
            self.events = held.events;
        }
        self
    }

    /// Replaces the file in one step: a reader sees the old one or the new one, whole.
    pub fn write(&self, path: &Path) -> Result<(), StatusError> {
        replace(path, self)
    }

    /// `None` when this file proves the boundary for the caller's own boot and namespace at this
    /// moment; otherwise why not.
    pub fn weakness(&self) -> io::Result<Option<String>> {
        Ok(self.weakness_here(&Here::now()?))
    }

    /// The same for that boot, namespace and moment. Refuses exactly what `policy::boundary` refuses.
    pub fn weakness_here(&self, here: &Here) -> Option<String> {
        if !self.ok {
            let why = self.problem.as_deref().unwrap_or("no reason given");
            return Some(format!("the boundary reports a problem: {why}"));
        }
        if self.ruleset_hash.is_empty() {
            return Some("the status names no ruleset".into());
        }
        if self.boot_id != here.boot_id {
            return Some("the status is from before the last boot".into());
        }
        if self.netns != here.netns {
            let (theirs, mine) = (self.netns, here.netns);
            let text = format!("the status is about network namespace {theirs}, not {mine}");
            return Some(text);
        }
        // Written after the reader looked at its clock is no weakness; written much later is one.
        let apart = here.boottime_ms.abs_diff(self.boottime_ms);
        if u128::from(apart) <= FRESH.as_millis() {
            return None;
        }
        Some(if self.boottime_ms > here.boottime_ms {
            "the status is from the future".into()
        } else {
            format!("the status is {} s old", apart / 1000)
        })
    }
}

/// Where and when a reader is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Here {
    pub boot_id: String,
    /// Inode of the network namespace.
    pub netns: u64,
    /// `CLOCK_BOOTTIME` in milliseconds.
    pub boottime_ms: u64,
}

impl Here {
    /// The calling process, at this moment.
    pub fn now() -> io::Result<Self> {
        Ok(Self {
            boot_id: boot_id()?,
            netns: netns_inode()?,
            boottime_ms: boottime_ms()?,
        })
    }
}

/// Writes `value` as JSON in place of `path`, readable by everybody, writable by its owner.
pub(crate) fn replace(path: &Path, value: &impl Serialize) -> Result<(), StatusError> {
    let fail = |source| StatusError::Write {
        path: path.to_owned(),
        source,
    };
    let directory = path
        .parent()
        .ok_or_else(|| fail(io::ErrorKind::InvalidInput.into()))?;
    std::fs::create_dir_all(directory).map_err(fail)?;
    let mut text = serde_json::to_vec(value).map_err(|error| fail(error.into()))?;
    text.push(b'\n');
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = directory.join(name);
    let store = || {
        // Left by a crash, or a link that somebody put in its place.
        match std::fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&temporary)?;
        file.set_permissions(std::fs::Permissions::from_mode(0o644))?;
        file.write_all(&text)?;
        std::fs::rename(&temporary, path)
    };
    let stored = store();
    if stored.is_err() {
        // The first error is the one to tell; a file left over is replaced by the next writing.
        let _ = std::fs::remove_file(&temporary);
    }
    stored.map_err(fail)
}

/// This boot's random id.
pub fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

/// Inode of the caller's network namespace.
pub fn netns_inode() -> io::Result<u64> {
    Ok(std::fs::metadata("/proc/self/ns/net")?.ino())
}

/// Milliseconds since boot, sleep included.
pub fn boottime_ms() -> io::Result<u64> {
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME)?;
    let elapsed = Duration::from(time);
    Ok(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Status {
        Status {
            ruleset_hash: "abc".into(),
            ..Status::now(None, "agents", "portcullis", None).unwrap()
        }
    }

    #[test]
    fn what_is_written_is_read_and_proves_this_moment() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("made/on/the/way/status.json");
        let status = good();
        status.write(&path).unwrap();
        let read = Status::read(&path).unwrap();
        assert_eq!(read, status);
        assert_eq!(read.weakness().unwrap(), None);
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o644
        );
        let left: Vec<_> = std::fs::read_dir(path.parent().unwrap()).unwrap().collect();
        assert_eq!(left.len(), 1, "no temporary file stays behind");
    }

    #[test]
    fn a_link_in_the_way_is_replaced_and_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("status.json");
        let victim = directory.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        let temporary = format!("status.json.{}.tmp", std::process::id());
        for link in [&path, &directory.path().join(temporary)] {
            std::os::unix::fs::symlink(&victim, link).unwrap();
        }
        let status = good();
        status.write(&path).unwrap();
        assert_eq!(Status::read(&path).unwrap(), status);
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    }

    #[test]
    fn each_weakness_is_named() {
        let good = good();
        assert_eq!(good.weakness().unwrap(), None);
        let cases = [
            (
                Status {
                    ruleset_hash: String::new(),
                    ..good.clone()
                },
                "names no ruleset",
            ),
            (
                Status {
                    ok: false,
                    ..good.clone()
                },
                "problem",
            ),
            (
                Status {
                    boot_id: "other".into(),
                    ..good.clone()
                },
                "before the last boot",
            ),
            (
                Status {
                    netns: 1,
                    ..good.clone()
                },
                "network namespace",
            ),
            (
                Status {
                    boottime_ms: good.boottime_ms.saturating_sub(60_000),
                    ..good.clone()
                },
                "old",
            ),
            (
                Status {
                    boottime_ms: good.boottime_ms + 600_000,
                    ..good
                },
                "future",
            ),
        ];
        for (status, word) in cases {
            let weakness = status.weakness().unwrap().unwrap();
            assert!(weakness.contains(word), "{weakness}");
        }
    }

    #[test]
    fn another_version_or_form_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("status.json");
        for text in ["", "{}", "{\"version\":1}", "not json"] {
            std::fs::write(&path, text).unwrap();
            assert!(
                matches!(Status::read(&path), Err(StatusError::Form { .. })),
                "{text}"
            );
        }
        let mut status = Status::now(None, "agents", "t", None).unwrap();
        status.version = 2;
        status.write(&path).unwrap();
        assert!(matches!(
            Status::read(&path),
            Err(StatusError::Version { version: 2, .. })
        ));
    }
}
