//! Reading the log: which records somebody asked for, and one pass over a file for them.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::path::Path;

use policy::record::{Record, Verdict};

/// A line longer than this is no record of ours and is skipped.
const LINE_BYTES_MAX: usize = 1024 * 1024;

/// Which records to show; what is not set does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// The run's name.
    pub run: Option<String>,
    /// The agent's label.
    pub agent: Option<String>,
    /// The ticket's label.
    pub ticket: Option<String>,
    /// The host, without a port.
    pub host: Option<String>,
    /// The judgement.
    pub verdict: Option<Verdict>,
    /// The id of one request.
    pub id: Option<String>,
}

impl Filter {
    /// Whether a record was asked for.
    #[must_use]
    pub fn matches(&self, record: &Record) -> bool {
        let same = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
        };
        let host = record.authority.as_deref().map(host_of);
        same(&self.run, record.run.as_ref().map(|run| run.as_str()))
            && same(&self.agent, record.agent.as_deref())
            && same(&self.ticket, record.ticket.as_deref())
            && same(&self.host, host)
            && same(&self.id, Some(&record.id))
            && self
                .verdict
                .is_none_or(|wanted| record.verdict == Some(wanted))
    }

    /// Whether a line can match at all; spares parsing most of a long log.
    fn may_match(&self, line: &str) -> bool {
        [&self.run, &self.id, &self.agent, &self.ticket, &self.host]
            .into_iter()
            .flatten()
            .filter(|wanted| {
                wanted
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            })
            .all(|wanted| line.contains(wanted.as_str()))
    }

    /// The record in this line, if it was asked for. A line that is no record matches nothing.
    #[must_use]
    pub fn select(&self, line: &str) -> Option<Record> {
        if !self.may_match(line) {
            return None;
        }
        let record: Record = serde_json::from_str(line).ok()?;
        self.matches(&record).then_some(record)
    }
}

/// The host of a canonical `host:port`.
fn host_of(authority: &str) -> &str {
    authority
        .rsplit_once(':')
        .map_or(authority, |(host, _)| host)
}

/// Hands every matching line of the log to `visit`, in order, until it breaks. A last line without
/// its end is still being written and is left out.
///
/// # Errors
/// What the system said about the file.
pub fn scan(
    path: &Path,
    filter: &Filter,
    mut visit: impl FnMut(&str, &Record) -> ControlFlow<()>,
) -> std::io::Result<()> {
    let mut reader = BufReader::with_capacity(64 * 1024, File::open(path)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 || line.last() != Some(&b'\n') {
            return Ok(());
        }
        if line.len() > LINE_BYTES_MAX {
            continue;
        }
        let Ok(text) = std::str::from_utf8(&line) else {
            continue;
        };
        let text = text.trim_end();
        if let Some(record) = filter.select(text)
            && visit(text, &record).is_break()
        {
            return Ok(());
        }
    }
}
