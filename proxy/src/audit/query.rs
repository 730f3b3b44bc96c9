//! Reading the log: which records somebody asked for, and one pass over its files for them, without
//! those that cannot have any.

use std::ops::ControlFlow;
use std::path::Path;

use policy::record::{Record, Verdict};

use super::index::Index;
use super::segment::Segment;

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
    /// The code of a refusal.
    pub code: Option<String>,
    /// The rule that decided.
    pub rule: Option<String>,
    /// Not before this time, in UTC as the log writes it.
    pub since: Option<String>,
    /// Before this time, in UTC as the log writes it.
    pub until: Option<String>,
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
            && same(&self.code, record.code.map(|code| code.as_str()))
            && same(&self.rule, record.rule.as_ref().map(|rule| rule.as_str()))
            && self
                .since
                .as_ref()
                .is_none_or(|since| record.time >= *since)
            && self.until.as_ref().is_none_or(|until| record.time < *until)
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
#[must_use]
pub fn host_of(authority: &str) -> &str {
    authority
        .rsplit_once(':')
        .map_or(authority, |(host, _)| host)
}

/// One pass over the files of a log.
#[derive(Debug)]
pub struct Reader<'r> {
    segments: &'r [Segment],
    filter: &'r Filter,
    opened: usize,
    overlong: u64,
}

impl<'r> Reader<'r> {
    /// Over these files, for records that match.
    #[must_use]
    pub fn new(segments: &'r [Segment], filter: &'r Filter) -> Self {
        Self {
            segments,
            filter,
            opened: 0,
            overlong: 0,
        }
    }

    /// How many files were opened for their lines.
    #[must_use]
    pub fn opened(&self) -> usize {
        self.opened
    }

    /// What must be said beside the answer: lines that are too long to be records were not read.
    #[must_use]
    pub fn remark(&self) -> Option<String> {
        (self.overlong > 0).then(|| {
            format!(
                "{} lines of the log are too long to be records and were not read; \
                 `audit verify` names them",
                self.overlong
            )
        })
    }

    /// Hands every matching line to `visit`, in order, until it breaks. A last line without its end
    /// is still being written and is left out.
    ///
    /// # Errors
    /// What the system said about a file.
    pub fn each(
        &mut self,
        mut visit: impl FnMut(&str, &Record) -> ControlFlow<()>,
    ) -> std::io::Result<()> {
        for segment in self.segments {
            if Index::read(segment).is_some_and(|index| !index.may_match(self.filter)) {
                continue;
            }
            self.opened += 1;
            let (segment, file) = segment.found()?;
            let mut lines = segment.lines(file)?;
            while let Some(line) = lines.read()? {
                if line.long {
                    self.overlong += 1;
                    continue;
                }
                if !line.whole {
                    continue;
                }
                let Ok(text) = std::str::from_utf8(line.text) else {
                    continue;
                };
                if let Some(record) = self.filter.select(text)
                    && visit(text, &record).is_break()
                {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// The same over one file.
///
/// # Errors
/// What the system said about the file.
pub fn scan(
    path: &Path,
    filter: &Filter,
    visit: impl FnMut(&str, &Record) -> ControlFlow<()>,
) -> std::io::Result<()> {
    let segments = [Segment::alone(path)];
    Reader::new(&segments, filter).each(visit)
}
