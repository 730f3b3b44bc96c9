//! What the boundary refused, in total and by whom.

use serde::Serialize;

use crate::accounts::Accounts;
use crate::netlink::{self, NetlinkError, ObservedTable};
use crate::ruleset::SET_REFUSED;

/// Refusals since the rules were loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Counters {
    pub table: String,
    pub totals: Vec<Total>,
    /// Most refused first.
    pub users: Vec<UserRefusals>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Total {
    /// `refused` (output), `squatted` (answers from the gate's port by somebody else), and in
    /// scope guest `inbound` and `forwarded`.
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
}

/// Reads them from the kernel; `None` when there is no such table.
pub fn read(table: &str, accounts: &Accounts) -> Result<Option<Counters>, NetlinkError> {
    Ok(netlink::observe(table)?.map(|observed| from_table(table, &observed, accounts)))
}

fn from_table(table: &str, observed: &ObservedTable, accounts: &Accounts) -> Counters {
    let totals = observed
        .counters
        .iter()
        .map(|(name, (packets, bytes))| Total {
            name: name.clone(),
            packets: *packets,
            bytes: *bytes,
        })
        .collect();
    let elements = observed
        .sets
        .get(SET_REFUSED)
        .map(|set| set.elements.as_slice());
    let mut users: Vec<UserRefusals> = elements
        .unwrap_or_default()
        .iter()
        .filter_map(|element| {
            let uid = u32::from_ne_bytes(element.key.as_slice().try_into().ok()?);
            let (packets, bytes) = element.counted;
            Some(UserRefusals {
                uid,
                user: accounts.describe(uid),
                packets,
                bytes,
            })
        })
        .collect();
    users.sort_by(|a, b| b.packets.cmp(&a.packets).then(a.uid.cmp(&b.uid)));
    Counters {
        table: table.to_owned(),
        totals,
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
        let counters = from_table("t", &observed, &accounts);
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
    }
}
