//! Reading the log: which records somebody asked for, and one pass over its files for them, without
//! those that cannot have any. The files are those of one moment ([`Snapshot`]); what was removed before
//! it could be read is told.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::Path;

use policy::record::{Record, Verdict};

use super::Seq;
use super::index::Index;
use super::snapshot::{Snapshot, Step};

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

/// One pass over the files of a log, as they were at one moment.
#[derive(Debug)]
pub struct Reader<'r> {
    files: &'r Snapshot,
    filter: &'r Filter,
    opened: usize,
    overlong: u64,
    /// The first lines of files that were gone, and of what came behind them.
    gone: Vec<(Option<Seq>, Option<Seq>)>,
}

impl<'r> Reader<'r> {
    /// Over these files, for records that match.
    #[must_use]
    pub fn new(files: &'r Snapshot, filter: &'r Filter) -> Self {
        Self {
            files,
            filter,
            opened: 0,
            overlong: 0,
            gone: Vec::new(),
        }
    }

    /// How many files were opened for their lines.
    #[must_use]
    pub fn opened(&self) -> usize {
        self.opened
    }

    /// Whether files that may have had an answer were removed before they could be read.
    #[must_use]
    pub fn lacks(&self) -> bool {
        !self.gone.is_empty()
    }

    /// What must be said beside the answer: which lines were not read, and why.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let overlong = (self.overlong > 0).then(|| {
            format!(
                "{} lines of the log are too long to be records and were not read; \
                 `audit verify` names them",
                self.overlong
            )
        });
        let gone = self.gone.iter().map(|(first, behind)| {
            let lines = match (first, behind.and_then(|behind| behind.checked_sub(1))) {
                (Some(first), Some(last)) => format!("lines {first} to {last}"),
                (Some(first), None) => format!("lines from {first} on"),
                (None, _) => "some lines".to_owned(),
            };
            format!(
                "{lines} were removed while the log was read and are not in this answer; \
                 `audit verify` says whether retention did it"
            )
        });
        overlong.into_iter().chain(gone).collect()
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
        self.each_with(&mut visit, &mut |_| {})
    }

    /// The same; `between` is called before each file.
    pub(super) fn each_with(
        &mut self,
        visit: &mut dyn FnMut(&str, &Record) -> ControlFlow<()>,
        between: &mut dyn FnMut(Step),
    ) -> std::io::Result<()> {
        for at in 0..self.count() {
            between(Step::Reading);
            if self.one(at, visit)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The last `count` matching lines, oldest first: from the newest file back, until there are
    /// enough.
    ///
    /// # Errors
    /// What the system said about a file.
    pub fn last(&mut self, count: usize) -> std::io::Result<Vec<(String, Record)>> {
        let mut found: Vec<(String, Record)> = Vec::new();
        for at in (0..self.count()).rev() {
            let wanted = count.saturating_sub(found.len());
            if wanted == 0 {
                break;
            }
            let mut kept: VecDeque<(String, Record)> = VecDeque::new();
            // Nothing breaks it off.
            let _: ControlFlow<()> = self.one(at, &mut |line, record| {
                if kept.len() == wanted {
                    kept.pop_front();
                }
                kept.push_back((line.to_owned(), record.clone()));
                ControlFlow::Continue(())
            })?;
            let mut older = Vec::from(kept);
            older.append(&mut found);
            found = older;
        }
        Ok(found)
    }

    /// Closed files, and the one that was being written.
    fn count(&self) -> usize {
        self.files.closed.len() + usize::from(self.files.last.is_some())
    }

    /// One pass over one file.
    fn one(
        &mut self,
        at: usize,
        visit: &mut dyn FnMut(&str, &Record) -> ControlFlow<()>,
    ) -> std::io::Result<ControlFlow<()>> {
        let mut lines = match (self.files.closed.get(at), &self.files.last) {
            (Some(segment), _) => {
                if Index::read(segment).is_some_and(|index| !index.may_match(self.filter)) {
                    return Ok(ControlFlow::Continue(()));
                }
                match segment.found() {
                    Ok((segment, file)) => segment.lines(file)?,
                    Err(problem) if problem.kind() == ErrorKind::NotFound => {
                        self.gone.push((segment.first, self.files.behind(at)));
                        return Ok(ControlFlow::Continue(()));
                    }
                    Err(problem) => return Err(problem),
                }
            }
            (None, Some(held)) => held.lines(),
            (None, None) => return Ok(ControlFlow::Continue(())),
        };
        self.opened += 1;
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
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
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
    Reader::new(&Snapshot::at(path)?, filter).each(visit)
}
