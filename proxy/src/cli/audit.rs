//! `audit`: read the log, follow it, ask it about a run.

mod anchors;
mod keys;
mod stats;
mod table;
mod verify;

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use policy::record::{Record, Verdict};

use super::ConfigArg;
use super::output::{Exit, fail, say, tell};
use crate::audit::FILE;
use crate::audit::query::{Filter, Reader};
use crate::audit::snapshot::Snapshot;
use crate::audit::tail::{Follower, Heard, Paint, render};
use crate::config::Config;

/// How often a followed file is looked at.
const POLL_EVERY: Duration = Duration::from_millis(150);

#[derive(Debug, Subcommand)]
pub(super) enum AuditCommand {
    /// Show the last records, and with -f those to come
    #[command(after_help = "\
Examples:
  portcullis-proxy audit tail -f
  portcullis-proxy audit tail -n 100 --verdict refuse --agent coder
  portcullis-proxy audit tail --json --file audit.jsonl")]
    Tail(TailArgs),
    /// Show every record that matches
    #[command(after_help = "\
Example:
  portcullis-proxy audit query --run 4b1e --json
  portcullis-proxy audit query --since 2h --code destination_not_listed
  portcullis-proxy audit query --since 2026-11-30 --until 2026-12-01T06:00:00Z --host github.com")]
    Query(QueryArgs),
    /// Count: requests, refusals by code and rule, the hosts that were asked most, bytes, cost
    #[command(after_help = "\
Example:
  portcullis-proxy audit stats --since 24h --agent coder")]
    Stats(stats::StatsArgs),
    /// Print records as CSV, for a spreadsheet
    #[command(after_help = "\
Example:
  portcullis-proxy audit export --since 7d > audit.csv")]
    Export(table::TableArgs),
    /// Check that the log is what was written; needs no gate
    #[command(after_help = "\
Examples:
  portcullis-proxy audit verify
  portcullis-proxy audit verify --file /backup/audit --key audit.key.pub --json
  portcullis-proxy audit verify --anchors /run/portcullis/orchestrator/api.sock

Exit status: 0 intact, 1 not intact, 2 could not tell")]
    Verify(verify::VerifyArgs),
    /// Make the key that signs checkpoints, unless there is one; never overwrites
    #[command(after_help = "\
Example:
  portcullis-proxy audit keygen --user portcullis-proxy   (as root: the key belongs to that user)")]
    Keygen(keys::KeygenArgs),
    /// Write a checkpoint and its signature as files for gpg
    #[command(after_help = "\
Example:
  portcullis-proxy audit checkpoint-export --to /tmp
  gpg --import audit.key.pub && gpg --verify /tmp/checkpoint-812.txt.asc /tmp/checkpoint-812.txt")]
    CheckpointExport(keys::ExportArgs),
}

#[derive(Debug, Args)]
pub(super) struct TailArgs {
    #[command(flatten)]
    source: SourceArg,
    #[command(flatten)]
    filter: FilterArgs,
    /// Go on with what is being written
    #[arg(short, long)]
    follow: bool,
    /// How many records to begin with
    #[arg(short = 'n', long, default_value_t = 20)]
    lines: usize,
    /// Print the records as they are in the log; the default unless stdout is a terminal
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct QueryArgs {
    #[command(flatten)]
    source: SourceArg,
    #[command(flatten)]
    filter: FilterArgs,
    /// Print the records as they are in the log; the default unless stdout is a terminal
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct SourceArg {
    #[command(flatten)]
    config: ConfigArg,
    /// The log itself, instead of the one the configuration names: its directory, or one file of it
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct FilterArgs {
    /// Only this run
    #[arg(long)]
    run: Option<String>,
    /// Only this agent
    #[arg(long)]
    agent: Option<String>,
    /// Only this ticket
    #[arg(long)]
    ticket: Option<String>,
    /// Only this host
    #[arg(long)]
    host: Option<String>,
    /// Only this verdict
    #[arg(long)]
    verdict: Option<VerdictArg>,
    /// Only the lines of this request
    #[arg(long)]
    id: Option<String>,
    /// Only this refusal code
    #[arg(long)]
    code: Option<String>,
    /// Only this rule
    #[arg(long)]
    rule: Option<String>,
    /// Not before: a time, a date (UTC), or so long ago (90s, 15m, 2h, 7d)
    #[arg(long, value_name = "WHEN", value_parser = when)]
    since: Option<String>,
    /// Before: a time, a date (UTC), or so long ago
    #[arg(long, value_name = "WHEN", value_parser = when)]
    until: Option<String>,
}

/// A point in time as the log writes it.
fn when(text: &str) -> Result<String, String> {
    let ago = || -> Option<jiff::Timestamp> {
        let (count, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        let each = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            "d" => 24 * 3600,
            _ => return None,
        };
        let seconds = count
            .parse::<u32>()
            .ok()
            .map(i64::from)?
            .checked_mul(each)?;
        let now = jiff::Timestamp::now();
        now.checked_sub(jiff::SignedDuration::from_secs(seconds))
            .ok()
    };
    let date = || format!("{text}T00:00:00Z").parse().ok();
    let found = text
        .parse::<jiff::Timestamp>()
        .ok()
        .or_else(ago)
        .or_else(date);
    found.map(|time| format!("{time:.6}")).ok_or_else(|| {
        "write 2026-11-30T08:00:00Z, 2026-11-30, or how long ago: 90s, 15m, 2h, 7d".to_owned()
    })
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum VerdictArg {
    Allow,
    Refuse,
}

impl FilterArgs {
    pub(super) fn filter(&self) -> Filter {
        Filter {
            run: self.run.clone(),
            agent: self.agent.clone(),
            ticket: self.ticket.clone(),
            host: self.host.clone(),
            verdict: self.verdict.map(|verdict| match verdict {
                VerdictArg::Allow => Verdict::Allow,
                VerdictArg::Refuse => Verdict::Refuse,
            }),
            id: self.id.clone(),
            code: self.code.clone(),
            rule: self.rule.clone(),
            since: self.since.clone(),
            until: self.until.clone(),
        }
    }
}

impl SourceArg {
    /// Where the log is: its directory, or one file of it.
    fn path(&self) -> Result<PathBuf, Exit> {
        match &self.file {
            Some(file) => Ok(file.clone()),
            None => Config::load(&self.config.config)
                .map(|config| config.audit_directory)
                .map_err(|problem| fail(&problem)),
        }
    }

    /// Every file of the log, as they are now.
    fn files(&self) -> Result<Snapshot, Exit> {
        let path = self.path()?;
        Snapshot::at(&path).map_err(|problem| unreadable(&path, &problem))
    }

    /// What to call the log when it cannot be read.
    fn shown(&self) -> PathBuf {
        let configured = || Some(Config::load(&self.config.config).ok()?.audit_directory);
        self.file.clone().or_else(configured).unwrap_or_default()
    }
}

/// How records are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Line(Paint),
}

impl Form {
    fn of(json: bool) -> Self {
        let no_colour = std::env::var_os("NO_COLOR");
        Self::for_whom(json, std::io::stdout().is_terminal(), no_colour.as_deref())
    }

    /// Lines are for terminals; without colour where `NO_COLOR` is set and not empty
    /// (<https://no-color.org>).
    fn for_whom(json: bool, terminal: bool, no_colour: Option<&std::ffi::OsStr>) -> Self {
        let plain = no_colour.is_some_and(|value| !value.is_empty());
        match (json, terminal) {
            (false, true) if plain => Self::Line(Paint::Plain),
            (false, true) => Self::Line(Paint::Colour),
            (true, _) | (false, false) => Self::Json,
        }
    }

    fn print(self, line: &str, record: &Record) -> bool {
        match self {
            Self::Json => say(line),
            Self::Line(paint) => say(&render(record, paint)),
        }
    }
}

pub(super) fn audit(command: &AuditCommand) -> Exit {
    match command {
        AuditCommand::Tail(args) => tail(args),
        AuditCommand::Query(args) => query(args),
        AuditCommand::Stats(args) => stats::stats(args),
        AuditCommand::Export(args) => table::export(args),
        AuditCommand::Verify(args) => verify::verify(args),
        AuditCommand::Keygen(args) => keys::keygen(args),
        AuditCommand::CheckpointExport(args) => keys::export(args),
    }
}

/// 0 when something matched, 1 when nothing did.
fn query(args: &QueryArgs) -> Exit {
    let files = match args.source.files() {
        Ok(files) => files,
        Err(exit) => return exit,
    };
    let form = Form::of(args.json);
    let mut exit = Exit::No;
    let filter = args.filter.filter();
    let mut reader = Reader::new(&files, &filter);
    let read = reader.each(|line, record| {
        exit = Exit::Yes;
        if form.print(line, record) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    let exit = remark(&reader, exit);
    match read {
        Ok(()) => exit,
        Err(problem) => unreadable(&args.source.shown(), &problem),
    }
}

/// Says what the reader had to leave out. That nothing was found says nothing where something lacks.
pub(super) fn remark(reader: &Reader<'_>, exit: Exit) -> Exit {
    for remark in reader.remarks() {
        tell(&remark);
    }
    match exit {
        Exit::No if reader.lacks() => Exit::CouldNotTell,
        Exit::Yes | Exit::No | Exit::CouldNotTell => exit,
    }
}

fn tail(args: &TailArgs) -> Exit {
    let path = match args.source.path() {
        Ok(path) => path,
        Err(exit) => return exit,
    };
    let (form, filter) = (Form::of(args.json), args.filter.filter());
    let files = match Snapshot::at(&path) {
        Ok(files) => files,
        Err(problem) => return unreadable(&path, &problem),
    };
    if files.is_empty() {
        tell(&format!("error: there is no log in {}", path.display()));
        return Exit::CouldNotTell;
    }
    let written = if path.is_dir() {
        path.join(FILE)
    } else {
        path.clone()
    };
    let mut reader = Reader::new(&files, &filter);
    let shown = match reader.last(args.lines) {
        Ok(shown) => shown,
        Err(problem) => return unreadable(&path, &problem),
    };
    let exit = remark(&reader, Exit::Yes);
    for (line, record) in &shown {
        if !form.print(line, record) {
            return exit;
        }
    }
    if !args.follow {
        return exit;
    }
    drop(shown);
    // It goes on where the files of that moment ended.
    match Follower::behind(&files, &written) {
        Ok(follower) => follow(follower, &filter, form, &path),
        Err(problem) => unreadable(&path, &problem),
    }
}

fn follow(mut follower: Follower, filter: &Filter, form: Form, path: &std::path::Path) -> Exit {
    let mut wanted = true;
    while wanted {
        let polled = follower.poll(|heard| match &heard {
            Heard::Line(line) => {
                if let Some(record) = filter.select(line) {
                    wanted = wanted && form.print(line, &record);
                }
            }
            Heard::Missed(..) | Heard::Back(..) => tell(&heard.to_string()),
        });
        match polled {
            Ok(true) => {}
            Ok(false) => std::thread::sleep(POLL_EVERY),
            Err(problem) => return unreadable(path, &problem),
        }
    }
    Exit::Yes
}

pub(super) fn unreadable(path: &std::path::Path, problem: &std::io::Error) -> Exit {
    tell(&format!("error: cannot read {}: {problem}", path.display()));
    tell("  hint: the log belongs to the gate's user; read it as root, or name a copy with --file");
    Exit::CouldNotTell
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_for_terminals_that_want_it_and_everything_else_gets_json() {
        let form = |json, terminal, no_colour: Option<&str>| {
            Form::for_whom(json, terminal, no_colour.map(std::ffi::OsStr::new))
        };
        for (form, wanted) in [
            (form(false, true, None), Form::Line(Paint::Colour)),
            (form(false, true, Some("")), Form::Line(Paint::Colour)),
            (form(false, true, Some("1")), Form::Line(Paint::Plain)),
            (form(false, true, Some("0")), Form::Line(Paint::Plain)),
            (form(true, true, None), Form::Json),
            (form(false, false, None), Form::Json),
            (form(false, false, Some("1")), Form::Json),
        ] {
            assert_eq!(form, wanted);
        }
    }

    #[test]
    fn that_nothing_was_found_says_nothing_where_lines_are_gone() {
        let folder = tempfile::tempdir().unwrap();
        let closed = folder.path().join("audit-00000000000000000001.jsonl");
        let everything = Filter::default();
        for (gone, nothing) in [(false, Exit::No), (true, Exit::CouldNotTell)] {
            std::fs::write(&closed, "").unwrap();
            let files = Snapshot::at(folder.path()).unwrap();
            if gone {
                std::fs::remove_file(&closed).unwrap();
            }
            let mut reader = Reader::new(&files, &everything);
            reader.each(|_, _| ControlFlow::Continue(())).unwrap();
            assert_eq!(remark(&reader, Exit::No), nothing);
            assert_eq!(remark(&reader, Exit::Yes), Exit::Yes);
        }
    }
}
