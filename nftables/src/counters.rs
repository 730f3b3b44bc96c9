//! What the boundary refused, in total and by whom.

use std::io;
use std::path::Path;

use serde::Serialize;

use crate::accounts::Accounts;
use crate::history::{History, Refused};
use crate::netlink::{self, NetlinkError, ObservedTable};
use crate::ruleset::{SET_REFUSED, SET_REFUSED_SIZE};
use crate::status;

/// Refusals since the rules were loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Counters {
    pub table: String,
    pub totals: Vec<Total>,
    /// Most refused first.
    pub users: Vec<UserRefusals>,
    /// No more users fit into the kernel's list: whoever else is refused is counted in `totals` alone.
    pub users_full: bool,
}

/// What a list of users that is full means, for people.
pub(crate) fn full() -> String {
    format!(
        "the kernel's list of refused users is full with {}: whoever else is refused is counted in total, and not \
         named, until the rules are loaded again",
        thousands(u64::from(SET_REFUSED_SIZE))
    )
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Total {
    /// `refused` (output), `squatted` (answers from the gate's ports by somebody else), in scope
    /// agents `handshakes` (SYN-ACKs without a uid), in scope guest `inbound` and `forwarded`.
    pub name: String,
    pub packets: u64,
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UserRefusals {
    pub uid: u32,
    /// The account, or whose subordinate it is; absent when nobody knows this uid.
    pub user: Option<String>,
    pub packets: u64,
    pub bytes: u64,
    /// Packets since the watcher began, over every replacement of the rules.
    pub packets_watched: Option<u64>,
    /// Packets in the last minute; absent without a watcher.
    pub packets_last_minute: Option<u64>,
}

impl Counters {
    /// What to say when not all who were refused are named.
    pub fn unnamed(&self) -> Option<String> {
        self.users_full.then(full)
    }
}

impl UserRefusals {
    /// `uid 42 (_apt) was refused 1,014 times in the last minute, 2,310 times in all`.
    pub fn sentence(&self) -> String {
        let who = format!(
            "uid {} ({})",
            self.uid,
            self.user.as_deref().unwrap_or("no such user")
        );
        let all = self.packets_watched.unwrap_or(0).max(self.packets);
        match self.packets_last_minute {
            Some(recent) => format!(
                "{who} was refused {} in the last minute, {} in all",
                times(recent),
                times(all)
            ),
            None => format!(
                "{who} was refused {} since the rules were loaded",
                times(all)
            ),
        }
    }
}

/// `once` is a word of its own; thousands are set apart.
pub(crate) fn times(count: u64) -> String {
    if count == 1 {
        return "1 time".to_owned();
    }
    thousands(count) + " times"
}

fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Reads them from the kernel alone; `None` when there is no such table.
pub fn read(table: &str, accounts: &Accounts) -> Result<Option<Counters>, NetlinkError> {
    let history = History::default();
    Ok(
        netlink::observe(table)?
            .map(|observed| from_table(table, &observed, accounts, &history, 0)),
    )
}

/// The same with what the watcher remembers beside the status file: the last minute, and what came
/// before the rules were loaded last.
pub fn watched(
    table: &str,
    status: &Path,
    accounts: &Accounts,
) -> Result<Option<Counters>, CountersError> {
    let Some(observed) = netlink::observe(table)? else {
        return Ok(None);
    };
    let history = History::load(&History::path(status))?;
    let now = status::boottime_ms()?;
    Ok(Some(from_table(table, &observed, accounts, &history, now)))
}

#[derive(Debug, thiserror::Error)]
pub enum CountersError {
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    #[error("reading the system's state")]
    System(#[from] io::Error),
}

/// Whether the kernel's list of refused users can take no more.
pub(crate) fn is_full(refused: usize) -> bool {
    u32::try_from(refused).map_or(true, |users| users >= SET_REFUSED_SIZE)
}

/// Packets refused by uid, as the kernel shows them.
pub(crate) fn refused(observed: &ObservedTable) -> Refused {
    elements(observed)
        .map(|(uid, packets, _)| (uid, packets))
        .collect()
}

fn elements(observed: &ObservedTable) -> impl Iterator<Item = (u32, u64, u64)> {
    let set = observed.sets.get(SET_REFUSED);
    set.map(|set| set.elements.as_slice())
        .unwrap_or_default()
        .iter()
        .filter_map(|element| {
            let uid = u32::from_ne_bytes(element.key.as_slice().try_into().ok()?);
            let (packets, bytes) = element.counted;
            Some((uid, packets, bytes))
        })
}

fn from_table(
    table: &str,
    observed: &ObservedTable,
    accounts: &Accounts,
    history: &History,
    now: u64,
) -> Counters {
    let totals = observed
        .counters
        .iter()
        .map(|(name, (packets, bytes))| Total {
            name: name.clone(),
            packets: *packets,
            bytes: *bytes,
        })
        .collect();
    let shown = refused(observed);
    let mut users: Vec<UserRefusals> = elements(observed)
        .map(|(uid, packets, bytes)| {
            let share = history.share(uid, &shown, now);
            UserRefusals {
                uid,
                user: accounts.describe(uid),
                packets,
                bytes,
                packets_watched: history.began().then_some(share.total),
                packets_last_minute: share.last_minute,
            }
        })
        .collect();
    users.sort_by(|a, b| b.packets.cmp(&a.packets).then(a.uid.cmp(&b.uid)));
    Counters {
        table: table.to_owned(),
        totals,
        users_full: is_full(users.len()),
        users,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{Element, ObservedSet};

    #[test]
    fn users_are_named_and_the_loudest_comes_first() {
        let accounts = Accounts::from_texts(
            "_apt:x:42:65534::/:/bin/false\n",
            "portcullis-exec:100000:65536\n",
            "",
        )
        .unwrap();
        let mut observed = ObservedTable::default();
        observed.counters.insert("refused".into(), (1017, 60_000));
        let element = |uid: u32, packets| Element {
            lapses_in: None,
            key: uid.to_ne_bytes().to_vec(),
            flags: 0,
            counted: (packets, packets * 60),
        };
        observed.sets.insert(
            SET_REFUSED.into(),
            ObservedSet {
                elements: vec![element(100_007, 2), element(42, 1014), element(7, 1)],
                ..ObservedSet::default()
            },
        );
        let counters = from_table("t", &observed, &accounts, &History::default(), 0);
        let names: Vec<_> = counters
            .users
            .iter()
            .map(|user| user.user.as_deref())
            .collect();
        assert_eq!(
            names,
            [Some("_apt"), Some("subordinate of portcullis-exec"), None]
        );
        assert_eq!(counters.users[0].packets, 1014);
        let sentence = counters.users[0].sentence();
        let expected = "uid 42 (_apt) was refused 1,014 times since the rules were loaded";
        assert_eq!(sentence, expected);

        let mut history = History::default();
        history.note(&Refused::new(), 0);
        let counters = from_table("t", &observed, &accounts, &history, 61_000);
        let sentences: Vec<_> = counters.users.iter().map(UserRefusals::sentence).collect();
        assert_eq!(
            sentences,
            [
                "uid 42 (_apt) was refused 1,014 times in the last minute, 1,014 times in all",
                "uid 100007 (subordinate of portcullis-exec) was refused 2 times in the last \
                 minute, 2 times in all",
                "uid 7 (no such user) was refused 1 time in the last minute, 1 time in all",
            ]
        );
        assert_eq!(times(1_234_567), "1,234,567 times");
        assert_eq!(times(0), "0 times");
    }
}
