//! Which uids a name means on this host: `/etc/passwd`, `/etc/subuid` and `/etc/subgid`.
//!
//! `newuidmap` lets a user become any uid of its subordinate ranges, so a user is never one uid
//! alone. Group ids take no part in judging packets, but whoever can enter a group that nobody
//! looked at can use what that group may; both files are held to the same rule.

use std::fmt;
use std::path::{Path, PathBuf};

/// Uids `first..=last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UidRange {
    pub first: u32,
    pub last: u32,
}

impl UidRange {
    pub fn one(uid: u32) -> Self {
        Self {
            first: uid,
            last: uid,
        }
    }

    pub fn contains(&self, uid: u32) -> bool {
        self.first <= uid && uid <= self.last
    }

    /// Sorts and joins ranges that overlap or touch.
    pub fn merge(mut ranges: Vec<UidRange>) -> Vec<UidRange> {
        ranges.sort_unstable();
        let mut merged: Vec<UidRange> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.first <= last.last.saturating_add(1) => {
                    last.last = last.last.max(range.last);
                }
                _ => merged.push(range),
            }
        }
        merged
    }

    /// Whether `merged` (sorted, disjoint, as [`UidRange::merge`] returns) holds all of `self`.
    pub fn covered_by(&self, merged: &[UidRange]) -> bool {
        merged
            .iter()
            .any(|range| range.first <= self.first && self.last <= range.last)
    }
}

impl fmt::Display for UidRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

/// The account files could not be used.
#[derive(Debug, thiserror::Error)]
pub enum AccountsError {
    #[error("reading {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path}:{line}: not in the form USER:FIRST:COUNT")]
    Subordinate { path: PathBuf, line: usize },
}

/// One line of `/etc/subuid` or `/etc/subgid`. The owner is a name or a uid in digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subordinate {
    /// Of its file, from 1.
    pub line: usize,
    pub owner: String,
    pub range: UidRange,
}

/// What a subordinate range is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ids {
    Users,
    Groups,
}

/// A snapshot of the account files, and of the lowest port that needs no capability (0 by default).
#[derive(Debug, Clone, Default)]
pub struct Accounts {
    users: Vec<(String, u32)>,
    subuid: Vec<Subordinate>,
    subgid: Vec<Subordinate>,
    ask_name_service: bool,
    first_port: u16,
}

/// From here on any user may bind, unless the system says otherwise.
const FIRST_PORT: u16 = 1024;

impl Accounts {
    /// Reads the host's files. A missing subuid or subgid file means that nobody has any.
    pub fn load() -> Result<Self, AccountsError> {
        let passwd = read(Path::new("/etc/passwd"))?;
        let subuid = read_optional(Path::new("/etc/subuid"))?;
        let subgid = read_optional(Path::new("/etc/subgid"))?;
        let mut accounts = Self::from_texts(&passwd, &subuid, &subgid)?;
        accounts.ask_name_service = true;
        let path = Path::new("/proc/sys/net/ipv4/ip_unprivileged_port_start");
        // What cannot be read may be any port.
        let first = read(path).ok().and_then(|text| text.trim().parse().ok());
        accounts.first_port = first.unwrap_or(0).min(FIRST_PORT);
        Ok(accounts)
    }

    /// The same from texts, without asking the name service for anything.
    pub fn from_texts(passwd: &str, subuid: &str, subgid: &str) -> Result<Self, AccountsError> {
        let users = passwd
            .lines()
            .filter_map(|line| {
                let mut fields = line.split(':');
                let name = fields.next()?;
                let uid = fields.nth(1)?.parse().ok()?;
                Some((name.to_owned(), uid))
            })
            .collect();
        Ok(Self {
            users,
            subuid: subordinates(Path::new("/etc/subuid"), subuid)?,
            subgid: subordinates(Path::new("/etc/subgid"), subgid)?,
            ask_name_service: false,
            first_port: FIRST_PORT,
        })
    }

    /// The lowest port that every user may bind; never above 1024.
    pub fn first_port(&self) -> u16 {
        self.first_port
    }

    /// The uid of a name; falls back to the name service (LDAP and the like) on a real host.
    pub fn uid_of(&self, name: &str) -> Option<u32> {
        if let Some((_, uid)) = self.users.iter().find(|(known, _)| known == name) {
            return Some(*uid);
        }
        if !self.ask_name_service {
            return None;
        }
        nix::unistd::User::from_name(name)
            .ok()
            .flatten()
            .map(|user| user.uid.as_raw())
    }

    /// A name for a uid: the account's, or the owner of the subordinate range it lies in.
    ///
    /// `1900` -> `portcullis-proxy`; `101000` -> `subordinate of portcullis-exec`.
    pub fn describe(&self, uid: u32) -> Option<String> {
        if let Some((name, _)) = self.users.iter().find(|(_, known)| *known == uid) {
            return Some(name.clone());
        }
        let owner = self.subuid.iter().find(|entry| entry.range.contains(uid))?;
        Some(format!("subordinate of {}", owner.owner))
    }

    /// Subordinate uid ranges of the user with this uid, under its name or its number.
    pub fn subordinate_uids(&self, uid: u32) -> Vec<UidRange> {
        self.owned_by(&self.subuid, uid)
    }

    /// Subordinate gid ranges of the user with this uid.
    pub fn subordinate_gids(&self, uid: u32) -> Vec<UidRange> {
        self.owned_by(&self.subgid, uid)
    }

    /// Every (owner, owner's uid, range) of `/etc/subuid`; owners that do not exist are left out.
    pub fn subuid_owners(&self) -> impl Iterator<Item = (&str, u32, UidRange)> {
        self.owners(&self.subuid)
    }

    /// The same of `/etc/subgid`.
    pub fn subgid_owners(&self) -> impl Iterator<Item = (&str, u32, UidRange)> {
        self.owners(&self.subgid)
    }

    /// Every entry of both files with its owner's uid; owners that do not exist are left out.
    pub fn owned(&self) -> impl Iterator<Item = (Ids, &Subordinate, u32)> {
        let uids = self.subuid.iter().map(|entry| (Ids::Users, entry));
        let gids = self.subgid.iter().map(|entry| (Ids::Groups, entry));
        uids.chain(gids).filter_map(|(ids, entry)| {
            let uid = entry.owner.parse().ok();
            let uid = uid.or_else(|| self.uid_of(&entry.owner))?;
            Some((ids, entry, uid))
        })
    }

    fn owners<'a>(
        &'a self,
        entries: &'a [Subordinate],
    ) -> impl Iterator<Item = (&'a str, u32, UidRange)> {
        entries.iter().filter_map(|entry| {
            let uid = entry
                .owner
                .parse()
                .ok()
                .or_else(|| self.uid_of(&entry.owner))?;
            Some((entry.owner.as_str(), uid, entry.range))
        })
    }

    fn owned_by(&self, entries: &[Subordinate], uid: u32) -> Vec<UidRange> {
        entries
            .iter()
            .filter(|entry| {
                entry.owner.parse() == Ok(uid) || self.uid_of(&entry.owner) == Some(uid)
            })
            .map(|entry| entry.range)
            .collect()
    }
}

fn subordinates(path: &Path, text: &str) -> Result<Vec<Subordinate>, AccountsError> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let malformed = || AccountsError::Subordinate {
            path: path.to_owned(),
            line: index + 1,
        };
        let mut fields = line.split(':');
        let (Some(owner), Some(first), Some(count), None) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(malformed());
        };
        let first: u32 = first.trim().parse().map_err(|_| malformed())?;
        let count: u32 = count.trim().parse().map_err(|_| malformed())?;
        if count == 0 {
            continue;
        }
        let last = first.checked_add(count - 1).ok_or_else(malformed)?;
        found.push(Subordinate {
            line: index + 1,
            owner: owner.to_owned(),
            range: UidRange { first, last },
        });
    }
    Ok(found)
}

fn read(path: &Path) -> Result<String, AccountsError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(source) => Err(AccountsError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

fn read_optional(path: &Path) -> Result<String, AccountsError> {
    match read(path) {
        Err(AccountsError::Read { source, .. })
            if source.kind() == std::io::ErrorKind::NotFound =>
        {
            Ok(String::new())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0::/:/bin/sh\nagent:x:1500:1500::/:/bin/sh\n";

    #[test]
    fn a_user_is_found_by_name_and_by_number_in_subuid() {
        let accounts =
            Accounts::from_texts(PASSWD, "agent:100000:65536\n1500:300000:10\n", "").unwrap();
        assert_eq!(accounts.uid_of("agent"), Some(1500));
        assert_eq!(accounts.uid_of("nobody-here"), None);
        let ranges = accounts.subordinate_uids(1500);
        assert_eq!(ranges.len(), 2);
        assert_eq!(
            ranges[0],
            UidRange {
                first: 100_000,
                last: 165_535
            }
        );
        assert_eq!(
            accounts.describe(100_001).as_deref(),
            Some("subordinate of agent")
        );
        assert_eq!(accounts.describe(1500).as_deref(), Some("agent"));
        assert_eq!(accounts.describe(7), None);
    }

    #[test]
    fn a_malformed_subuid_line_is_an_error_not_an_empty_list() {
        for text in ["agent:100000", "agent:x:5", "agent:4294967295:2", "a:1:2:3"] {
            assert!(Accounts::from_texts(PASSWD, text, "").is_err(), "{text}");
        }
        assert!(Accounts::from_texts(PASSWD, "# none\n\n", "").is_ok());
    }

    #[test]
    fn ranges_merge_when_they_touch() {
        let merged = UidRange::merge(vec![
            UidRange {
                first: 10,
                last: 20,
            },
            UidRange { first: 1, last: 3 },
            UidRange {
                first: 21,
                last: 25,
            },
            UidRange { first: 2, last: 2 },
        ]);
        assert_eq!(
            merged,
            vec![
                UidRange { first: 1, last: 3 },
                UidRange {
                    first: 10,
                    last: 25
                }
            ]
        );
        assert!(
            UidRange {
                first: 12,
                last: 22
            }
            .covered_by(&merged)
        );
        assert!(!UidRange { first: 3, last: 10 }.covered_by(&merged));
    }
}
