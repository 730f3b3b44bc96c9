//! Who was refused how often lately. The watcher keeps it beside the status file; it alone writes.
//!
//! ```json
//! {"version":1,"boot_id":"6f0c...","netns":4026531840,
//!  "last":{"42":1014},"totals":{"42":2310},
//!  "samples":[{"boottime_ms":81234,"totals":{"42":1296}}]}
//! ```
//! The kernel's counters start at zero whenever rules are replaced; `totals` go on counting. `last`
//! is what the kernel showed last.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::status;

/// Milliseconds of one sample, and of a rate.
const SAMPLE: u64 = 5_000;
pub const MINUTE: u64 = 60_000;
/// Samples that make a minute, and one before it.
const KEPT: usize = 14;
/// Users beyond this many are not remembered: whoever can be that many uids can make a file grow.
const USERS: usize = 4_096;

/// Packets refused by uid.
pub type Refused = BTreeMap<u32, u64>;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    version: u32,
    boot_id: String,
    netns: u64,
    last: Refused,
    totals: Refused,
    samples: VecDeque<Sample>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Sample {
    boottime_ms: u64,
    totals: Refused,
}

/// One user's share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Since the watcher began, over every replacement.
    pub total: u64,
    /// In the last minute; absent when nobody has watched for that long.
    pub last_minute: Option<u64>,
}

impl History {
    /// Where it is kept.
    pub fn path(status: &Path) -> PathBuf {
        status.with_file_name("refusals.json")
    }

    /// What was kept for this boot and namespace, or nothing yet.
    pub fn load(path: &Path) -> io::Result<Self> {
        let fresh = Self {
            version: 1,
            boot_id: status::boot_id()?,
            netns: status::netns_inode()?,
            ..Self::default()
        };
        let held = std::fs::read(path)
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Self>(&bytes).ok());
        Ok(held.filter(|held| held.is_like(&fresh)).unwrap_or(fresh))
    }

    fn is_like(&self, other: &Self) -> bool {
        (self.version, &self.boot_id, self.netns) == (other.version, &other.boot_id, other.netns)
    }

    /// Whether anybody ever watched, since this boot.
    pub fn began(&self) -> bool {
        !self.samples.is_empty()
    }

    /// Takes in what the kernel shows now. `true` when a sample was taken: time to write.
    pub fn note(&mut self, now: &Refused, boottime_ms: u64) -> bool {
        for (uid, total) in self.totals_with(now) {
            if self.totals.contains_key(&uid) || self.totals.len() < USERS {
                self.totals.insert(uid, total);
            }
        }
        self.last = now.clone();
        let due = self
            .samples
            .back()
            .is_none_or(|sample| boottime_ms.saturating_sub(sample.boottime_ms) >= SAMPLE);
        if due {
            self.samples.push_back(Sample {
                boottime_ms,
                totals: self.totals.clone(),
            });
            while self.samples.len() > KEPT {
                self.samples.pop_front();
            }
        }
        due
    }

    /// One user's share, given what the kernel shows now.
    pub fn share(&self, uid: u32, now: &Refused, boottime_ms: u64) -> Share {
        let total = self.total(uid, now);
        // The latest sample that is a minute old: at most a sample's time more than a minute.
        let base = self
            .samples
            .iter()
            .rev()
            .find(|sample| boottime_ms.saturating_sub(sample.boottime_ms) >= MINUTE);
        // Whoever was not refused before counts from zero, however short the watch.
        let last_minute = match base {
            Some(sample) => {
                let stale = boottime_ms.saturating_sub(sample.boottime_ms) > MINUTE + 3 * SAMPLE;
                (!stale)
                    .then(|| total.saturating_sub(sample.totals.get(&uid).copied().unwrap_or(0)))
            }
            None => self
                .samples
                .front()
                .map(|sample| total.saturating_sub(sample.totals.get(&uid).copied().unwrap_or(0))),
        };
        Share { total, last_minute }
    }

    fn totals_with(&self, now: &Refused) -> Vec<(u32, u64)> {
        now.keys()
            .map(|uid| (*uid, self.total(*uid, now)))
            .collect()
    }

    /// A counter that went down began anew.
    fn total(&self, uid: u32, now: &Refused) -> u64 {
        let before = self.last.get(&uid).copied().unwrap_or(0);
        let held = self.totals.get(&uid).copied().unwrap_or(0);
        let Some(shown) = now.get(&uid).copied() else {
            return held;
        };
        held + shown.checked_sub(before).unwrap_or(shown)
    }

    /// Replaces the file in one step.
    pub fn write(&self, path: &Path) -> Result<(), status::StatusError> {
        status::replace(path, self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(packets: u64) -> Refused {
        Refused::from([(42, packets)])
    }

    #[test]
    fn the_last_minute_is_what_came_since_a_minute_ago() {
        let mut history = History::default();
        for second in 0..=120u64 {
            history.note(&shown(second * 10), second * 1000);
        }
        let share = history.share(42, &shown(1200), 120_000);
        assert_eq!(share.total, 1200);
        assert_eq!(share.last_minute, Some(600));
        assert_eq!(history.share(7, &shown(1200), 120_000).last_minute, Some(0));
        // Nothing for longer than a minute: the watcher is gone, and nobody knows.
        assert_eq!(history.share(42, &shown(1300), 400_000).last_minute, None);
    }

    #[test]
    fn a_counter_that_began_anew_goes_on_counting() {
        let mut history = History::default();
        history.note(&shown(100), 0);
        history.note(&shown(30), 1000);
        assert_eq!(history.share(42, &shown(35), 2000).total, 135);
        assert_eq!(history.share(42, &Refused::new(), 2000).total, 130);
    }

    #[test]
    fn samples_and_users_are_bounded_and_another_boot_s_are_dropped() {
        let mut history = History::load(Path::new("/nonexistent")).unwrap();
        let many: Refused = (0..5_000).map(|uid| (uid, 1)).collect();
        for round in 0..50 {
            history.note(&many, round * SAMPLE);
        }
        assert!(history.samples.len() <= KEPT);
        assert!(history.totals.len() <= USERS);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("refusals.json");
        history.write(&path).unwrap();
        assert_eq!(History::load(&path).unwrap(), history);
        history.boot_id = "other".into();
        history.write(&path).unwrap();
        assert!(History::load(&path).unwrap().samples.is_empty());
    }
}
