//! Keeps the boundary standing: listens for changes of rules and routes, checks every second anyway,
//! re-asserts on drift, and says so. Never removes anything, also not at its end, and never opens
//! anything by itself: a user that was deleted and made anew has another uid, while programs may still
//! run under the old one.
//!
//! What lets more through than the rules in force is somebody's decision, and `apply` is how to take
//! it: when the kernel holds exactly what `boundary.toml` and the accounts mean now, that is adopted as
//! what has to stand. An edited file alone changes nothing. Restarting the watcher adopts too.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::boundary::{self, BoundaryError};
use crate::config::Config;
use crate::foreign::{self, Neighbours};
use crate::history::{History, Refused};
use crate::lock;
use crate::netlink::{self, Author, Monitor};
use crate::ruleset::Ruleset;
use crate::status::{self, Noted, Status};
use crate::verify::{self, Difference};

/// How often the rules are read back and the status file is written.
pub const PERIOD: Duration = Duration::from_secs(1);
/// How long a stop request may go unnoticed.
const STEP: Duration = Duration::from_millis(200);
/// Events kept in the status file.
const EVENTS: usize = 20;
/// Longest text of an event in the status file; the log has all of it.
const EVENT_BYTES: usize = 1_000;

/// What the watcher tells its caller.
#[derive(Debug)]
pub enum Event {
    /// The rules were as they should be when watching began.
    Standing { hash: String },
    /// Rules differed and were put back.
    Reasserted {
        differences: Vec<Difference>,
        /// Who changed rules since the last look; nobody is known for routes.
        authors: Vec<Author>,
    },
    /// Another ruleset is due: an exception lapsed, or a user's ranges changed.
    Renewed { hash: String },
    /// Somebody applied another ruleset, and the configuration agrees.
    Adopted { hash: String },
    /// Another table does something that opens nothing but deserves a look.
    Warning { text: String },
    /// The boundary could not be checked or put back. The status file says so.
    Failed { error: BoundaryError },
    /// After a failure: it stands again.
    Recovered { hash: String },
}

impl Event {
    /// One word for scripts.
    pub fn kind(&self) -> &'static str {
        match self {
            Event::Standing { .. } => "standing",
            Event::Reasserted { .. } => "reasserted",
            Event::Renewed { .. } => "renewed",
            Event::Adopted { .. } => "adopted",
            Event::Warning { .. } => "warning",
            Event::Failed { .. } => "failed",
            Event::Recovered { .. } => "recovered",
        }
    }

    /// A sentence for people; more lines name what differed.
    pub fn text(&self) -> String {
        let short = |hash: &str| hash.get(..12).unwrap_or_default().to_owned();
        match self {
            Event::Standing { hash } => format!("ruleset {} stands", short(hash)),
            Event::Renewed { hash } => {
                format!("another ruleset was due, {} loaded", short(hash))
            }
            Event::Adopted { hash } => format!(
                "ruleset {} was applied and is what the configuration means now",
                short(hash)
            ),
            Event::Recovered { hash } => format!("ruleset {} stands again", short(hash)),
            Event::Warning { text } => format!("warning: {text}"),
            Event::Failed { error } => format!("NOT PROVEN: {}", chain(error)),
            Event::Reasserted {
                differences,
                authors,
            } => {
                let mut text = "rules had changed and were put back".to_owned();
                if !authors.is_empty() {
                    let names: Vec<String> = authors.iter().map(ToString::to_string).collect();
                    text.push_str(&format!(" (changed by {})", names.join(", ")));
                }
                for difference in differences {
                    text.push_str(&format!("\n  {difference}"));
                }
                text
            }
        }
    }
}

/// Runs until `stop` says so. Each event is told once, when it begins.
pub fn run(
    config: &Config,
    mut stop: impl FnMut() -> bool,
    mut tell: impl FnMut(&Event),
) -> Result<(), BoundaryError> {
    let mut watcher = Watcher::new(config.clone())?;
    loop {
        watcher.tick(&mut tell);
        let due = Instant::now() + PERIOD;
        loop {
            if stop() {
                return Ok(());
            }
            let left = due.saturating_duration_since(Instant::now());
            if watcher.hear(left.min(STEP))? || left.is_zero() {
                break;
            }
        }
        watcher.drain()?;
    }
}

struct Watcher {
    monitor: Monitor,
    config: Config,
    last: Option<Ruleset>,
    failed: Option<String>,
    started: bool,
    events: Vec<Noted>,
    history: History,
    /// Who changed rules since the last look.
    authors: Vec<Author>,
    /// What other tables do, as of the last change.
    neighbours: Option<Neighbours>,
    warned: Vec<String>,
}

impl Watcher {
    fn new(config: Config) -> Result<Self, BoundaryError> {
        let held = Status::now(None, "", "", None)?.with_events_of(&config.status);
        Ok(Self {
            monitor: Monitor::open()?,
            history: History::load(&History::path(&config.status))?,
            config,
            last: None,
            failed: None,
            started: false,
            events: held.events,
            authors: Vec::new(),
            neighbours: None,
            warned: Vec::new(),
        })
    }

    /// Waits for changes and notes whose they are; our own replacements are among them.
    fn hear(&mut self, patience: Duration) -> Result<bool, BoundaryError> {
        let changes = self.monitor.changes(patience)?;
        if changes.is_empty() {
            return Ok(false);
        }
        self.neighbours = None;
        let me = std::process::id();
        for author in changes.into_iter().filter_map(|change| change.author) {
            if author.pid != me && !self.authors.contains(&author) && self.authors.len() < 8 {
                self.authors.push(author);
            }
        }
        Ok(true)
    }

    /// A flood of changes by somebody else must not become a flood of checks.
    fn drain(&mut self) -> Result<(), BoundaryError> {
        const AT_MOST: u32 = 64;
        for _ in 0..AT_MOST {
            if !self.hear(Duration::from_millis(1))? {
                break;
            }
        }
        Ok(())
    }

    fn tick(&mut self, tell: &mut impl FnMut(&Event)) {
        let mut happened = Vec::new();
        let checked = self.check(&mut happened);
        self.authors.clear();
        let problem = checked.as_ref().err().map(chain);
        match checked {
            Ok(()) => {
                if self.failed.take().is_some() {
                    happened.push(Event::Recovered { hash: self.hash() });
                } else if !self.started {
                    happened.push(Event::Standing { hash: self.hash() });
                }
                self.started = true;
            }
            Err(error) => self.fail(error, &mut happened),
        }
        for event in &happened {
            self.note(event);
            tell(event);
        }
        if let Err(error) = self.write(problem) {
            let mut late = Vec::new();
            self.fail(error, &mut late);
            late.iter().for_each(tell);
        }
    }

    fn fail(&mut self, error: BoundaryError, happened: &mut Vec<Event>) {
        let text = chain(&error);
        if self.failed.as_deref() != Some(&text) {
            self.failed = Some(text);
            happened.push(Event::Failed { error });
        }
    }

    fn note(&mut self, event: &Event) {
        let mut text = event.text();
        if text.len() > EVENT_BYTES {
            let end = (0..=EVENT_BYTES)
                .rev()
                .find(|end| text.is_char_boundary(*end));
            text.truncate(end.unwrap_or(0));
        }
        self.events.push(Noted {
            at: format!("{:.0}", jiff::Timestamp::now()),
            boottime_ms: status::boottime_ms().unwrap_or_default(),
            kind: event.kind().to_owned(),
            text,
        });
        let surplus = self.events.len().saturating_sub(EVENTS);
        self.events.drain(..surplus);
    }

    fn write(&self, problem: Option<String>) -> Result<(), BoundaryError> {
        let mut status = Status::now(
            self.last.as_ref(),
            self.config.scope.as_str(),
            &self.config.table,
            problem,
        )?;
        status.events.clone_from(&self.events);
        Ok(status.write(&self.config.status)?)
    }

    /// When the wanted ruleset cannot be built, or would open something, the last good one is kept
    /// in force; the failure is reported all the same, and the gate closes on it.
    fn check(&mut self, happened: &mut Vec<Event>) -> Result<(), BoundaryError> {
        let _turn = lock::take(&self.config.status)?;
        let wanted = boundary::ruleset(&self.config);
        let (ruleset, mut failure) = match (wanted, &self.last) {
            (Ok(wanted), Some(last)) => match wanted.opens_beyond(last) {
                Some(what) => (last.clone(), Some(BoundaryError::WouldOpen(what))),
                None => (wanted, None),
            },
            (Ok(wanted), None) => (wanted, None),
            (Err(error), Some(last)) => (last.clone(), Some(error)),
            (Err(error), None) => return Err(error),
        };
        let observed = netlink::observe(&ruleset.table)?;
        let differences = verify::compare(&ruleset, observed.as_ref())?;
        let mut standing = ruleset;
        if !differences.is_empty() {
            if let Some((config, adopted)) = self.adopted() {
                happened.push(Event::Adopted {
                    hash: adopted.hash(),
                });
                self.config = config;
                standing = adopted;
                failure = None;
            } else {
                self.restore(&standing, differences, happened)?;
            }
        }
        self.last = Some(standing);
        if let Some(observed) = observed {
            self.remember(&crate::counters::refused(&observed))?;
        }
        self.look_around(happened)?;
        failure.map_or(Ok(()), Err)
    }

    fn restore(
        &mut self,
        ruleset: &Ruleset,
        differences: Vec<Difference>,
        happened: &mut Vec<Event>,
    ) -> Result<(), BoundaryError> {
        // What was seen may have been done since we listened last.
        self.drain()?;
        boundary::load(ruleset)?;
        happened.push(match &self.last {
            Some(last) if last != ruleset => Event::Renewed {
                hash: ruleset.hash(),
            },
            _ => Event::Reasserted {
                differences,
                authors: std::mem::take(&mut self.authors),
            },
        });
        Ok(())
    }

    /// What the file and the accounts mean now, if the kernel already holds exactly that: somebody who
    /// may do it applied it.
    fn adopted(&self) -> Option<(Config, Ruleset)> {
        self.last.as_ref()?;
        let config = Config::load(Path::new(&self.config.file)).ok()?;
        let ruleset = boundary::ruleset(&config).ok()?;
        let differences = verify::verify(&ruleset).ok()?;
        differences.is_empty().then_some((config, ruleset))
    }

    fn remember(&mut self, refused: &Refused) -> Result<(), BoundaryError> {
        if self.history.note(refused, status::boottime_ms()?) {
            self.history.write(&History::path(&self.config.status))?;
        }
        Ok(())
    }

    /// Other tables are read again only when something changed.
    fn look_around(&mut self, happened: &mut Vec<Event>) -> Result<(), BoundaryError> {
        let Some(ruleset) = &self.last else {
            return Ok(());
        };
        let neighbours = match self.neighbours.take() {
            Some(known) => known,
            None => foreign::look(ruleset)?,
        };
        for text in &neighbours.warnings {
            if !self.warned.contains(text) {
                happened.push(Event::Warning { text: text.clone() });
            }
        }
        self.warned.clone_from(&neighbours.warnings);
        let breaches = neighbours.breaches.clone();
        self.neighbours = Some(neighbours);
        if breaches.is_empty() {
            Ok(())
        } else {
            Err(BoundaryError::Undone(breaches))
        }
    }

    fn hash(&self) -> String {
        self.last.as_ref().map(Ruleset::hash).unwrap_or_default()
    }
}

/// An error and its causes on one line.
pub fn chain(error: &BoundaryError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
