//! Subordinate id ranges: 65,536 ids that no other account, range or user of this host has.
//!
//! `/etc/subuid` and `/etc/subgid` are edited under the same lock files that `useradd` takes, so that two writers never
//! lose each other's line, and replaced by rename.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::file::{self, Access, FileError};

/// Ids in one range; a run gets a slice of 1,024 of them.
pub const RANGE: u32 = 65_536;
/// Where allocation begins (`SUB_UID_MIN` of Debian and Ubuntu).
const FIRST: u32 = 100_000;
/// Allocation stays below the ids systemd keeps for containers and dynamic users of its own.
const LIMIT: u32 = 0x7000_0000;
const LOCK_PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Error)]
pub enum SubidError {
    #[error(
        "{file}:{line}: {text:?} is not `name:first:count`\n  hint: correct or remove that line"
    )]
    Malformed {
        file: PathBuf,
        line: usize,
        text: String,
    },
    #[error(
        "no {RANGE} consecutive ids are free below {LIMIT}\n  hint: remove ranges nobody uses from /etc/subuid"
    )]
    Exhausted,
    #[error(
        "{path} is held by process {holder}\n  hint: wait for it, or remove the file if that is not a user tool"
    )]
    Locked { path: PathBuf, holder: String },
    #[error("cannot take the lock {path}")]
    Lock {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    File(#[from] FileError),
}

/// One line of a subordinate id file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    pub owner: String,
    pub first: u32,
    pub count: u32,
}

impl Range {
    fn end(&self) -> u64 {
        u64::from(self.first) + u64::from(self.count)
    }

    /// Whether the two have an id in common.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        self.overlaps(other.first, other.count)
    }

    fn overlaps(&self, first: u32, count: u32) -> bool {
        u64::from(first) < self.end() && u64::from(self.first) < u64::from(first) + u64::from(count)
    }
}

/// Reads the lines of a file of ranges. `file` is for the message alone.
///
/// # Errors
/// At the first line that is neither blank, a comment nor a range: guessing there could hand out ids twice.
pub fn parse(text: &str, file: &Path) -> Result<Vec<Range>, SubidError> {
    let mut ranges = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let content = line.trim();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let malformed = || SubidError::Malformed {
            file: file.into(),
            line: index + 1,
            text: line.to_owned(),
        };
        let parts: Vec<&str> = content.split(':').collect();
        let [owner, first, count] = parts[..] else {
            return Err(malformed());
        };
        let (Ok(first), Ok(count)) = (first.parse(), count.parse()) else {
            return Err(malformed());
        };
        ranges.push(Range {
            owner: owner.to_owned(),
            first,
            count,
        });
    }
    Ok(ranges)
}

/// The lowest free range of [`RANGE`] ids: it meets no range in `taken` and none of the `ids` of accounts and groups.
///
/// # Errors
/// When there is none.
pub fn allocate(taken: &[Range], ids: &[u32]) -> Result<u32, SubidError> {
    let mut first = FIRST;
    while first < LIMIT {
        let range = taken
            .iter()
            .find(|range| range.overlaps(first, RANGE))
            .map(Range::end);
        let id = ids
            .iter()
            .find(|id| (first..first + RANGE).contains(id))
            .map(|id| u64::from(*id) + 1);
        match range.into_iter().chain(id).max() {
            None => return Ok(first),
            Some(next) => first = u32::try_from(next).map_err(|_| SubidError::Exhausted)?,
        }
    }
    Err(SubidError::Exhausted)
}

/// What `owner` has in both files: `Some(range)` when it is one same range of the right size in each.
#[must_use]
pub fn held<'a>(owner: &str, uids: &'a [Range], gids: &[Range]) -> Option<&'a Range> {
    let mut own = uids.iter().filter(|range| range.owner == owner);
    let range = own.next()?;
    let alone =
        own.next().is_none() && gids.iter().filter(|other| other.owner == owner).eq([range]);
    (alone && range.count == RANGE).then_some(range)
}

/// The text with exactly one range for `owner`; every other line stays as it is.
#[must_use]
pub fn with_range(text: &str, owner: &str, first: Option<u32>) -> String {
    let mut out: String = text
        .lines()
        .filter(|line| line.split(':').next() != Some(owner))
        .map(|line| format!("{line}\n"))
        .collect();
    if let Some(first) = first {
        out.push_str(&format!("{owner}:{first}:{RANGE}\n"));
    }
    out
}

/// The two files of a host, and its accounts' own ids. Tests point it elsewhere.
#[derive(Debug, Clone)]
pub struct SubidFiles {
    pub etc: PathBuf,
}

impl Default for SubidFiles {
    fn default() -> Self {
        Self {
            etc: PathBuf::from("/etc"),
        }
    }
}

impl SubidFiles {
    fn text(&self, name: &str) -> Result<String, SubidError> {
        let path = self.etc.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(text),
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(source) => Err(FileError::new("read", &path)(source).into()),
        }
    }

    /// The ranges in subuid and subgid.
    ///
    /// # Errors
    /// When a file cannot be read or has a line that is not a range.
    pub fn ranges(&self) -> Result<(Vec<Range>, Vec<Range>), SubidError> {
        let read = |name: &str| parse(&self.text(name)?, &self.etc.join(name));
        Ok((read("subuid")?, read("subgid")?))
    }

    /// Gives each owner one range free of overlap, the same numbers as uids and gids; one that is right stays.
    ///
    /// # Errors
    /// When a lock, a file or free ids cannot be had; nothing is changed then.
    pub fn assign(&self, owners: &[String]) -> Result<(), SubidError> {
        self.edit(|uids, gids, ids| {
            let mut changes = Vec::new();
            let (mut uids, gids) = (uids.to_vec(), gids.to_vec());
            for owner in owners {
                if held(owner, &uids, &gids).is_some() {
                    continue;
                }
                let others: Vec<Range> = uids
                    .iter()
                    .chain(&gids)
                    .filter(|range| &range.owner != owner)
                    .cloned()
                    .collect();
                let first = allocate(&others, ids)?;
                uids.push(Range {
                    owner: owner.clone(),
                    first,
                    count: RANGE,
                });
                changes.push((owner.clone(), Some(first)));
            }
            Ok(changes)
        })
    }

    /// Removes every range of these owners.
    ///
    /// # Errors
    /// As [`SubidFiles::assign`].
    pub fn release(&self, owners: &[String]) -> Result<(), SubidError> {
        self.edit(|_, _, _| Ok(owners.iter().map(|owner| (owner.clone(), None)).collect()))
    }

    fn edit(
        &self,
        plan: impl FnOnce(&[Range], &[Range], &[u32]) -> Result<Vec<(String, Option<u32>)>, SubidError>,
    ) -> Result<(), SubidError> {
        let _subuid = Lock::take(&self.etc.join("subuid.lock"))?;
        let _subgid = Lock::take(&self.etc.join("subgid.lock"))?;
        let (uids, gids) = self.ranges()?;
        let changes = plan(&uids, &gids, &self.account_ids()?)?;
        for name in ["subuid", "subgid"] {
            let old = self.text(name)?;
            let new = changes.iter().fold(old.clone(), |text, (owner, first)| {
                with_range(&text, owner, *first)
            });
            if new != old {
                file::write(&self.etc.join(name), new.as_bytes(), Access::root(0o644))?;
            }
        }
        Ok(())
    }

    fn account_ids(&self) -> Result<Vec<u32>, SubidError> {
        let text = self.text("passwd")? + &self.text("group")?;
        Ok(text
            .lines()
            .filter_map(|line| line.split(':').nth(2)?.parse().ok())
            .collect())
    }
}

/// A lock file as the shadow tools take it: a hard link whose content is the holder's process id.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
}

impl Lock {
    fn take(path: &Path) -> Result<Self, SubidError> {
        let own = path.with_extension(std::process::id().to_string());
        let failed = |source| SubidError::Lock {
            path: path.into(),
            source,
        };
        fs::write(&own, std::process::id().to_string()).map_err(failed)?;
        let deadline = Instant::now() + LOCK_PATIENCE;
        let taken = loop {
            match fs::hard_link(&own, path) {
                Ok(()) => break Ok(Self { path: path.into() }),
                Err(refused) if refused.kind() != io::ErrorKind::AlreadyExists => {
                    break Err(failed(refused));
                }
                Err(_) => {}
            }
            let holder = fs::read_to_string(path).unwrap_or_default();
            let holder = holder.trim_matches(['\0', '\n', ' ']).to_owned();
            if !holder.is_empty() && !Path::new("/proc").join(&holder).exists() {
                let _ = fs::remove_file(path);
            } else if Instant::now() > deadline {
                break Err(SubidError::Locked {
                    path: path.into(),
                    holder,
                });
            } else {
                thread::sleep(Duration::from_millis(50));
            }
        };
        let _ = fs::remove_file(&own);
        taken
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests;
