//! The event journal: append-only, each entry's hash covers the one before.
//!
//! It answers "what happened" for the timeline and, read from the first entry on, whether anybody
//! changed, removed or reordered entries since ([`verify`]).

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{StoreError, Writer};
use crate::model::Ticket;
use crate::model::time::Millis;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Counts from 1 without gaps.
    pub seq: i64,
    /// When.
    pub at: Millis,
    /// What: `ticket.created`, `wake.merged`, `run.ended` and so on.
    pub kind: String,
    /// `user:NAME`, `agent:ID` or `system`.
    pub actor: String,
    /// In which company.
    pub company: Option<String>,
    /// On which ticket.
    pub ticket: Option<String>,
    /// In or about which run.
    pub run: Option<String>,
    /// The facts, a JSON object.
    pub facts: Value,
}

/// What an entry is about.
#[derive(Debug, Clone, Copy, Default)]
pub struct About<'a> {
    /// In which company.
    pub company: Option<&'a str>,
    /// On which ticket.
    pub ticket: Option<&'a str>,
    /// About which run; the acting run when absent.
    pub run: Option<&'a str>,
}

impl<'a> About<'a> {
    /// About a company, in the acting run.
    pub(super) fn company(company: &'a str) -> Self {
        Self {
            company: Some(company),
            ..Self::default()
        }
    }

    /// About a ticket, in the acting run.
    pub(super) fn of(ticket: &'a Ticket) -> Self {
        Self {
            company: Some(&ticket.company),
            ticket: Some(&ticket.id),
            run: None,
        }
    }
}

/// The first entry that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// Its number.
    pub seq: i64,
    /// What is wrong.
    pub problem: String,
}

impl Writer<'_> {
    /// Appends an entry to the journal, as part of this transaction.
    pub(crate) fn note(
        &mut self,
        kind: &str,
        about: About<'_>,
        facts: Value,
    ) -> Result<i64, StoreError> {
        let (seq, previous): (i64, Vec<u8>) = self
            .prepare_cached("SELECT seq, hash FROM journal_head WHERE one = 1")?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let entry = Entry {
            seq: seq + 1,
            at: self.now,
            kind: kind.to_owned(),
            actor: self.actor.label(),
            company: about.company.map(str::to_owned),
            ticket: about.ticket.map(str::to_owned),
            run: about.run.or(self.actor.run()).map(str::to_owned),
            facts,
        };
        let facts = entry.facts.to_string();
        let hash = digest(&previous, &entry, &facts);
        self.prepare_cached(
            "INSERT INTO journal (seq, at, kind, actor, company, ticket, run, facts, hash)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            entry.seq,
            entry.at,
            entry.kind,
            entry.actor,
            entry.company,
            entry.ticket,
            entry.run,
            facts,
            hash
        ])?;
        self.prepare_cached("UPDATE journal_head SET seq = ?, hash = ? WHERE one = 1")?
            .execute(params![entry.seq, hash])?;
        self.entries += 1;
        self.bytes += facts.len() as i64 + entry.facts["bytes"].as_i64().unwrap_or(0);
        Ok(entry.seq)
    }
}

/// The entries of a ticket, oldest first.
pub(crate) fn of_ticket(connection: &Connection, ticket: &str) -> Result<Vec<Entry>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT seq, at, kind, actor, company, ticket, run, facts, hash FROM journal
         WHERE ticket = ? ORDER BY seq",
    )?;
    let rows = statement.query_map([ticket], |row| Ok(entry(row)?.0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The newest entries of a company, newest first.
pub(crate) fn of_company(
    connection: &Connection,
    company: &str,
    limit: u32,
) -> Result<Vec<Entry>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT seq, at, kind, actor, company, ticket, run, facts, hash FROM journal
         WHERE company = ? ORDER BY seq DESC LIMIT ?",
    )?;
    let rows = statement.query_map(params![company, limit], |row| Ok(entry(row)?.0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The newest entry of a kind.
pub(crate) fn last_of_kind(
    connection: &Connection,
    kind: &str,
) -> Result<Option<Entry>, StoreError> {
    Ok(of_kind(connection, kind, 1)?.pop())
}

/// The newest entries of a kind, oldest first.
pub(crate) fn of_kind(
    connection: &Connection,
    kind: &str,
    limit: u32,
) -> Result<Vec<Entry>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT seq, at, kind, actor, company, ticket, run, facts, hash FROM journal
         WHERE kind = ? ORDER BY seq DESC LIMIT ?",
    )?;
    let rows = statement.query_map(params![kind, limit], |row| Ok(entry(row)?.0))?;
    let mut found: Vec<Entry> = rows.collect::<Result<_, _>>()?;
    found.reverse();
    Ok(found)
}

/// Reads the whole chain. `Ok(Ok(n))` = n entries, all as written.
///
/// # Errors
/// When the database cannot be read.
pub fn verify(connection: &Connection) -> Result<Result<i64, Broken>, StoreError> {
    let mut statement = connection.prepare(
        "SELECT seq, at, kind, actor, company, ticket, run, facts, hash FROM journal ORDER BY seq",
    )?;
    let mut rows = statement.query([])?;
    let mut previous = vec![0_u8; 32];
    let mut last = 0;
    while let Some(row) = rows.next()? {
        let (entry, facts, hash) = entry(row)?;
        if entry.seq != last + 1 {
            let problem = format!("entry {} is missing", last + 1);
            return Ok(Err(Broken {
                seq: last + 1,
                problem,
            }));
        }
        if digest(&previous, &entry, &facts) != hash {
            let problem = "its hash does not fit: it or an entry before was changed".to_owned();
            return Ok(Err(Broken {
                seq: entry.seq,
                problem,
            }));
        }
        last = entry.seq;
        previous = hash;
    }
    let head: Option<(i64, Vec<u8>)> = connection
        .query_row("SELECT seq, hash FROM journal_head", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    match head {
        Some((seq, hash)) if seq == last && hash == previous => Ok(Ok(last)),
        _ => Ok(Err(Broken {
            seq: last + 1,
            problem: "the end of the journal is cut off".into(),
        })),
    }
}

fn entry(row: &Row<'_>) -> rusqlite::Result<(Entry, String, Vec<u8>)> {
    let facts: String = row.get(7)?;
    let entry = Entry {
        seq: row.get(0)?,
        at: row.get(1)?,
        kind: row.get(2)?,
        actor: row.get(3)?,
        company: row.get(4)?,
        ticket: row.get(5)?,
        run: row.get(6)?,
        facts: serde_json::from_str(&facts).unwrap_or(Value::Null),
    };
    Ok((entry, facts, row.get(8)?))
}

/// SHA-256 over the previous hash and each column, every text with its length before it.
fn digest(previous: &[u8], entry: &Entry, facts: &str) -> Vec<u8> {
    let mut hasher = Sha256::new();
    hasher.update(previous);
    hasher.update(entry.seq.to_be_bytes());
    hasher.update(entry.at.to_be_bytes());
    let texts = [
        Some(entry.kind.as_str()),
        Some(entry.actor.as_str()),
        entry.company.as_deref(),
        entry.ticket.as_deref(),
        entry.run.as_deref(),
        Some(facts),
    ];
    for text in texts {
        match text {
            Some(text) => {
                hasher.update([1]);
                hasher.update((text.len() as u64).to_be_bytes());
                hasher.update(text.as_bytes());
            }
            None => hasher.update([0]),
        }
    }
    hasher.finalize().to_vec()
}
