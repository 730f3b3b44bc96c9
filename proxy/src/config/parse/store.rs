//! `[store]`.

use super::path_key;
use crate::config::document::Section;
use crate::config::{ScopeProof, StoreConfig};

/// The table as far as it is usable, and `Err` with nothing where it is there but broken: then the
/// credentials that name entries need no second complaint.
pub(super) fn store(root: &mut Section<'_, '_>) -> Option<Result<StoreConfig, ()>> {
    let mut section = root.section("store")?;
    let directory = path_key(&mut section, "directory", true);
    let key = path_key(&mut section, "key", true);
    let given = (
        section.has("operator_entries"),
        section.has("no_operator_entries"),
    );
    let entries = path_key(&mut section, "operator_entries", false);
    let reason = section.string("no_operator_entries");
    match given {
        (true, true) => section.problem(
            section.at(),
            "",
            "has both operator_entries and no_operator_entries",
            "keep operator_entries; the other is for machines without an operator's store",
        ),
        (false, false) => section.problem(
            section.at(),
            "operator_entries",
            "is missing: nothing would prove that the key reads the agents' entries alone",
            "add operator_entries = \"/home/YOU/.password-store\", or no_operator_entries = \"REASON\"",
        ),
        (true, false) | (false, true) => {}
    }
    let state = path_key(&mut section, "state", false);
    if let (Some(directory), Some(entries)) = (&directory, &entries)
        && (entries.starts_with(directory) || directory.starts_with(entries))
    {
        section.problem(
            section.at(),
            "operator_entries",
            "lies in the agents' store, or the other way round",
            "keep the two stores apart",
        );
    }
    section.close();
    let scope = entries
        .map(ScopeProof::Entries)
        .or_else(|| reason.map(|reason| ScopeProof::None(reason.value)));
    Some(match (directory, key, scope) {
        (Some(directory), Some(key), Some(scope)) => Ok(StoreConfig {
            directory,
            key,
            scope,
            state,
        }),
        (..) => Err(()),
    })
}
