//! The schema and its migrations.
//!
//! `user_version` counts the migrations that have been applied. A migration is never changed once
//! released; the next one is appended.

use std::path::Path;

use rusqlite::Connection;

use super::{StoreError, unusable};

/// Marks the file as ours: "PORT".
const APPLICATION_ID: i32 = 0x504f_5254;

const MIGRATIONS: &[&str] = &[
    include_str!("schema/0001.sql"),
    include_str!("schema/0002.sql"),
    include_str!("schema/0003.sql"),
    include_str!("schema/0004.sql"),
    include_str!("schema/0005.sql"),
    include_str!("schema/0006.sql"),
    include_str!("schema/0007.sql"),
    include_str!("schema/0008.sql"),
    include_str!("schema/0009.sql"),
    include_str!("schema/0010.sql"),
    include_str!("schema/0011.sql"),
];

pub(super) fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.set_prepared_statement_cache_capacity(128);
    Ok(())
}

pub(super) fn configure_reader(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.set_prepared_statement_cache_capacity(128);
    Ok(())
}

pub(super) fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let explain = |error: rusqlite::Error| unusable(path, &error);
    let tx = connection
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .map_err(explain)?;
    let version: i64 = tx
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(explain)?;
    let owner: i32 = tx
        .pragma_query_value(None, "application_id", |row| row.get(0))
        .map_err(explain)?;
    let tables: i64 = tx
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(explain)?;
    let not_ours = if tables == 0 {
        owner != 0
    } else {
        owner != APPLICATION_ID
    };
    if not_ours {
        return Err(StoreError::Unusable {
            path: path.to_owned(),
            problem: "this is not the orchestrator's database".to_owned(),
            hint: "check `state` in orchestrator.toml".to_owned(),
        });
    }
    let version = usize::try_from(version).unwrap_or(usize::MAX);
    let Some(pending) = MIGRATIONS.get(version..) else {
        return Err(StoreError::Unusable {
            path: path.to_owned(),
            problem: format!(
                "the database has schema version {version}, this program knows {}",
                MIGRATIONS.len()
            ),
            hint: "start the newer program that last used it".to_owned(),
        });
    };
    for migration in pending {
        tx.execute_batch(migration).map_err(explain)?;
    }
    tx.pragma_update(None, "application_id", APPLICATION_ID)
        .map_err(explain)?;
    tx.pragma_update(None, "user_version", MIGRATIONS.len() as i64)
        .map_err(explain)?;
    tx.commit().map_err(explain)
}

/// Reads the whole file once: a damaged page is found at start, not in the middle of a claim.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let verdict: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(|error| unusable(path, &error))?;
    if verdict == "ok" {
        return Ok(());
    }
    Err(StoreError::Unusable {
        path: path.to_owned(),
        problem: format!("the database is damaged: {verdict}"),
        hint: "keep the file for inspection, restore the last good copy, then start again"
            .to_owned(),
    })
}
