//! `audit`: read the log, follow it, ask it about a run.

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
use crate::audit::query::{self, Filter};
use crate::audit::segment::{self, Segment};
use crate::audit::tail::{self, Follower, Paint, render};
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
  portcullis-proxy audit query --run 4b1e --json")]
    Query(QueryArgs),
    /// Check that the log is what was written; needs no gate
    #[command(after_help = "\
Examples:
  portcullis-proxy audit verify
  portcullis-proxy audit verify --file /backup/audit --json

Exit status: 0 intact, 1 not intact, 2 could not tell")]
    Verify(verify::VerifyArgs),
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
struct FilterArgs {
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
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum VerdictArg {
    Allow,
    Refuse,
}

impl FilterArgs {
    fn filter(&self) -> Filter {
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
        }
    }
}

impl SourceArg {
    /// Every file of the log, in the order of its lines.
    fn segments(&self) -> Result<Vec<Segment>, Exit> {
        let path = match &self.file {
            Some(file) => file.clone(),
            None => Config::load(&self.config.config)
                .map(|config| config.audit_directory)
                .map_err(|problem| fail(&problem))?,
        };
        if !path.is_dir() {
            return Ok(vec![Segment::alone(&path)]);
        }
        segment::list(&path).map_err(|problem| unreadable(&path, &problem))
    }

    fn path(&self) -> Result<PathBuf, Exit> {
        match &self.file {
            Some(file) => Ok(file.clone()),
            None => Config::load(&self.config.config)
                .map(|config| config.audit_directory.join(FILE))
                .map_err(|problem| fail(&problem)),
        }
    }
}

/// How records are printed.
#[derive(Debug, Clone, Copy)]
enum Form {
    Json,
    Line(Paint),
}

impl Form {
    fn of(json: bool) -> Self {
        match (json, std::io::stdout().is_terminal()) {
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
        AuditCommand::Verify(args) => verify::verify(args),
    }
}

/// 0 when something matched, 1 when nothing did.
fn query(args: &QueryArgs) -> Exit {
    let path = match args.source.path() {
        Ok(path) => path,
        Err(exit) => return exit,
    };
    let form = Form::of(args.json);
    let mut exit = Exit::No;
    let scanned = query::scan(&path, &args.filter.filter(), |line, record| {
        exit = Exit::Yes;
        if form.print(line, record) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    match scanned {
        Ok(()) => exit,
        Err(problem) => unreadable(&path, &problem),
    }
}

fn tail(args: &TailArgs) -> Exit {
    let path = match args.source.path() {
        Ok(path) => path,
        Err(exit) => return exit,
    };
    let (form, filter) = (Form::of(args.json), args.filter.filter());
    // Before the scan, so that nothing falls between the two; what the scan has seen already is
    // told apart by its number.
    let follower = match Follower::at_end(&path) {
        Ok(follower) => follower,
        Err(problem) => return unreadable(&path, &problem),
    };
    let shown = match tail::last(&path, &filter, args.lines) {
        Ok(shown) => shown,
        Err(problem) => return unreadable(&path, &problem),
    };
    for (line, record) in &shown {
        if !form.print(line, record) {
            return Exit::Yes;
        }
    }
    if !args.follow {
        return Exit::Yes;
    }
    let seen = shown.last().map_or(0, |(_, record)| record.seq);
    drop(shown);
    follow(follower, &filter, form, seen, &path)
}

fn follow(
    mut follower: Follower,
    filter: &Filter,
    form: Form,
    seen: u64,
    path: &std::path::Path,
) -> Exit {
    loop {
        let lines = match follower.poll() {
            Ok(lines) => lines,
            Err(problem) => return unreadable(path, &problem),
        };
        if lines.is_empty() {
            std::thread::sleep(POLL_EVERY);
            continue;
        }
        for line in &lines {
            if let Some(record) = filter.select(line)
                && record.seq > seen
                && !form.print(line, &record)
            {
                return Exit::Yes;
            }
        }
    }
}

fn unreadable(path: &std::path::Path, problem: &std::io::Error) -> Exit {
    tell(&format!("error: cannot read {}: {problem}", path.display()));
    tell("  hint: the log belongs to the gate's user; read it as root, or name a copy with --file");
    Exit::CouldNotTell
}
