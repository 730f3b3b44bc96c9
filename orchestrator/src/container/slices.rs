//! Ranges of host ids for runs: no two runs share one, and none is reused while anything of its
//! last user may still live.
//!
//! Each slice has a lock file. Whoever runs in it holds the lock and has written its name there; a
//! slice whose file still carries a name is *quarantined* even when nobody holds the lock (its
//! holder crashed) until [`Slices::release`] is told that the container is proven gone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::Slice;

/// Ids per run. Small enough that 63 fit in a guest that has 65,536 in all.
pub const SLICE_IDS: u32 = 1024;

/// The uid and gid of the command inside every container.
pub const AGENT_ID: u32 = 1000;

/// Why a slice cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SliceError {
    /// The account has no subordinate range of at least one slice.
    #[error(
        "{file} gives {account} no range of at least 1024 ids\n  hint: add a line such as \
         {account}:1000000:65536 to /etc/subuid and to /etc/subgid"
    )]
    NoRange {
        /// `/etc/subuid` or `/etc/subgid`.
        file: &'static str,
        /// Whose range was looked for.
        account: String,
    },
    /// The uid and the gid range of an account differ.
    #[error(
        "the ranges of {0} in /etc/subuid and /etc/subgid differ\n  hint: give it the same range in both"
    )]
    Unequal(String),
    /// Every slice is in use or quarantined.
    #[error("all {0} id slices are in use or quarantined\n  hint: wait for a run to end")]
    Exhausted(u32),
    /// The lock files cannot be used.
    #[error("the id slices in {directory} cannot be locked")]
    Io {
        /// Where the lock files are.
        directory: PathBuf,
        /// What failed.
        #[source]
        source: io::Error,
    },
}

/// The slices of one account.
#[derive(Debug, Clone)]
pub struct Slices {
    directory: PathBuf,
    first: u32,
    slices: u32,
}

/// A slice held by this process. Dropping it unlocks but leaves the quarantine mark.
#[derive(Debug)]
pub struct Held {
    /// The ids.
    pub slice: Slice,
    file: File,
}

impl Slices {
    /// The slices of the range `first..first + count`, locked through files in `directory`.
    pub fn new(directory: impl Into<PathBuf>, first: u32, count: u32) -> Self {
        Self {
            directory: directory.into(),
            first,
            slices: count / SLICE_IDS,
        }
    }

    /// The slices of `account`'s range in `/etc/subuid` and `/etc/subgid`.
    ///
    /// # Errors
    /// It has none, or not the same in both.
    pub fn of_account(directory: impl Into<PathBuf>, account: &str) -> Result<Self, SliceError> {
        let range = |file: &'static str| {
            let text = fs::read_to_string(file).unwrap_or_default();
            range_of(&text, account).ok_or(SliceError::NoRange {
                file,
                account: account.to_owned(),
            })
        };
        let (uids, gids) = (range("/etc/subuid")?, range("/etc/subgid")?);
        if uids != gids {
            return Err(SliceError::Unequal(account.to_owned()));
        }
        Ok(Self::new(directory, uids.0, uids.1))
    }

    /// The first id of the first slice, and how many slices there are.
    pub fn range(&self) -> (u32, u32) {
        (self.first, self.slices)
    }

    /// Takes a slice for the run `name` that nobody holds and nobody's remains may be in.
    ///
    /// # Errors
    /// None is free.
    pub fn acquire(&self, name: &str) -> Result<Held, SliceError> {
        fs::create_dir_all(&self.directory).map_err(|source| self.io(source))?;
        for index in 0..self.slices {
            if self.slice(index).holds(NOBODY) {
                continue;
            }
            if let Some(mut file) = self.lock(index).map_err(|source| self.io(source))? {
                if !content(&mut file)
                    .map_err(|source| self.io(source))?
                    .is_empty()
                {
                    continue;
                }
                file.write_all(name.as_bytes())
                    .and_then(|()| file.sync_data())
                    .map_err(|source| self.io(source))?;
                return Ok(Held {
                    slice: self.slice(index),
                    file,
                });
            }
        }
        Err(SliceError::Exhausted(self.slices))
    }

    /// The slices whose last user was not proven gone, with that user's name, and which nobody
    /// holds now.
    ///
    /// # Errors
    /// The lock files cannot be read.
    pub fn quarantined(&self) -> Result<Vec<(Held, String)>, SliceError> {
        let mut found = Vec::new();
        for index in 0..self.slices {
            if !self.path(index).exists() {
                continue;
            }
            if let Some(mut file) = self.lock(index).map_err(|source| self.io(source))? {
                let name = content(&mut file).map_err(|source| self.io(source))?;
                if !name.is_empty() {
                    found.push((
                        Held {
                            slice: self.slice(index),
                            file,
                        },
                        name,
                    ));
                }
            }
        }
        Ok(found)
    }

    /// Gives a slice back. Only for whoever has proof that no process of its user exists.
    ///
    /// # Errors
    /// The mark cannot be removed; the slice stays quarantined.
    pub fn release(&self, held: Held) -> Result<(), SliceError> {
        held.file
            .set_len(0)
            .and_then(|()| held.file.sync_data())
            .map_err(|source| self.io(source))
    }

    fn slice(&self, index: u32) -> Slice {
        Slice {
            first: self.first + index * SLICE_IDS,
            count: SLICE_IDS,
        }
    }

    fn path(&self, index: u32) -> PathBuf {
        self.directory
            .join(format!("slice-{}.lock", self.slice(index).first))
    }

    fn lock(&self, index: u32) -> io::Result<Option<File>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.path(index))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    fn io(&self, source: io::Error) -> SliceError {
        SliceError::Io {
            directory: self.directory.clone(),
            source,
        }
    }
}

/// What the kernel answers for ids that it cannot name: never anyone's identity.
const NOBODY: u32 = 65_534;

impl Slice {
    fn holds(self, id: u32) -> bool {
        id.checked_sub(self.first)
            .is_some_and(|offset| offset < self.count)
    }

    /// The host uid (and gid) of the command inside.
    pub fn agent(self) -> u32 {
        self.first + AGENT_ID
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Closing would not do: a child that another thread has forked and that has not yet begun
        // its program keeps the lock alive. If this fails, the end of the process unlocks.
        let _still_locked = self.file.unlock();
    }
}

fn content(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// The first range of `account` in the text of a subordinate id file that holds a slice.
fn range_of(text: &str, account: &str) -> Option<(u32, u32)> {
    text.lines().find_map(|line| {
        let mut columns = line.trim().split(':');
        if columns.next()? != account {
            return None;
        }
        let first: u32 = columns.next()?.parse().ok()?;
        let count: u32 = columns.next()?.parse().ok()?;
        first.checked_add(count)?;
        (count >= SLICE_IDS && first > 0).then_some((first, count))
    })
}

/// Where the lock files of a state directory are.
pub fn directory(state: &Path) -> PathBuf {
    state.join("slices")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_held_quarantined_and_only_then_free_again() {
        let dir = tempfile::tempdir().unwrap();
        let slices = Slices::new(dir.path(), 100_000, 2 * SLICE_IDS + 5);
        let first = slices.acquire("one").unwrap();
        let second = slices.acquire("two").unwrap();
        assert_eq!(
            first.slice,
            Slice {
                first: 100_000,
                count: 1024
            }
        );
        assert_eq!(
            second.slice,
            Slice {
                first: 101_024,
                count: 1024
            }
        );
        assert_eq!(second.slice.agent(), 102_024);
        assert!(matches!(
            slices.acquire("three"),
            Err(SliceError::Exhausted(2))
        ));
        assert!(
            slices.quarantined().unwrap().is_empty(),
            "held slices are not listed"
        );

        drop(first);
        assert!(matches!(
            slices.acquire("three"),
            Err(SliceError::Exhausted(2))
        ));
        let mut waiting = slices.quarantined().unwrap();
        let (held, name) = waiting.pop().unwrap();
        assert_eq!(
            (held.slice.first, name.as_str(), waiting.len()),
            (100_000, "one", 0)
        );
        slices.release(held).unwrap();
        assert_eq!(slices.acquire("three").unwrap().slice.first, 100_000);
    }

    #[test]
    fn ranges_are_read_by_name_and_never_include_root() {
        let text = "bob:5:10\nann:100000:65536\nroot2:0:65536\nbig:4294967295:65536\n";
        assert_eq!(range_of(text, "ann"), Some((100_000, 65_536)));
        for nobody in ["bob", "an", "root2", "big"] {
            assert_eq!(range_of(text, nobody), None, "{nobody}");
        }
    }
}
