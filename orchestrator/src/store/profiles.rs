//! What the configuration says about profiles, where changes can look at it.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::json;

use super::journal::About;
use super::{StoreError, Writer};
use crate::model::Profile;

const PROFILE: &str = "name, agent_wakes, concurrent, quiet";

/// Makes these the profiles. Nothing is written where they are already.
pub fn replace(w: &mut Writer<'_>, profiles: &[Profile]) -> Result<(), StoreError> {
    let mut wanted = profiles.to_vec();
    wanted.sort_by(|a, b| a.name.cmp(&b.name));
    if all(w)? == wanted {
        return Ok(());
    }
    w.execute("DELETE FROM profiles", [])?;
    for it in &wanted {
        w.execute(
            &format!("INSERT INTO profiles ({PROFILE}) VALUES (?, ?, ?, ?)"),
            params![it.name, it.agent_wakes, it.concurrent, it.quiet],
        )?;
    }
    let names: Vec<_> = wanted
        .iter()
        .map(|it| {
            json!({ "profile": it.name, "agentWakes": it.agent_wakes,
                    "concurrent": it.concurrent, "quiet": it.quiet })
        })
        .collect();
    w.note(
        "profiles.configured",
        About::default(),
        json!({ "profiles": names }),
    )?;
    Ok(())
}

/// A profile; a plain one where the configuration does not name it.
pub fn of(connection: &Connection, name: &str) -> Result<Profile, StoreError> {
    let found = connection
        .prepare_cached(&format!("SELECT {PROFILE} FROM profiles WHERE name = ?"))?
        .query_row([name], profile_row)
        .optional()?;
    Ok(found.unwrap_or_else(|| Profile::plain(name)))
}

/// All that the configuration names, by name.
pub fn all(connection: &Connection) -> Result<Vec<Profile>, StoreError> {
    let mut statement =
        connection.prepare_cached(&format!("SELECT {PROFILE} FROM profiles ORDER BY name"))?;
    let rows = statement.query_map([], profile_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn profile_row(row: &Row<'_>) -> rusqlite::Result<Profile> {
    Ok(Profile {
        name: row.get(0)?,
        agent_wakes: row.get(1)?,
        concurrent: row.get(2)?,
        quiet: row.get(3)?,
    })
}
