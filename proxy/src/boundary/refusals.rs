//! What the kernel boundary refused, by uid, as `portcullis-boundary watch` writes it beside its
//! status.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

/// Uids told apart; the rest is one.
const MOST_UIDS: usize = 256;
/// The rest.
const OTHER: &str = "other";
/// A file longer than this is none of the boundary's.
const REFUSALS_BYTES_MAX: u64 = 1024 * 1024;

/// What `portcullis-boundary watch` counted, by uid; nothing where it does not tell.
#[must_use]
pub fn counted(status: &Path) -> BTreeMap<String, u64> {
    #[derive(Deserialize)]
    struct Refusals {
        totals: BTreeMap<u32, u64>,
    }
    let path = status.with_file_name("refusals.json");
    let read = || -> Option<Refusals> {
        let most = std::fs::metadata(&path).ok()?.len() <= REFUSALS_BYTES_MAX;
        serde_json::from_slice(&std::fs::read(&path).ok().filter(|_| most)?).ok()
    };
    let mut counts = BTreeMap::new();
    for (at, (uid, count)) in read().into_iter().flat_map(|it| it.totals).enumerate() {
        let uid = if at < MOST_UIDS {
            uid.to_string()
        } else {
            OTHER.to_owned()
        };
        *counts.entry(uid).or_default() += count;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_boundary_counted_is_read_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let status = folder.path().join("status.json");
        assert!(counted(&status).is_empty());
        let totals: BTreeMap<u32, u64> = (0..1000).map(|uid| (uid, 2)).collect();
        let text = serde_json::json!({"version": 1, "totals": totals}).to_string();
        std::fs::write(folder.path().join("refusals.json"), text).unwrap();
        let counts = counted(&status);
        assert_eq!(counts.len(), MOST_UIDS + 1);
        assert_eq!(counts.values().sum::<u64>(), 2000);
    }
}
