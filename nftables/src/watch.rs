//! Keeps the boundary standing: listens for rule changes, checks every second anyway, re-asserts
//! on drift, and says so. Never removes anything, also not at its end, and never opens anything:
//! a user that was deleted and made anew has another uid, while programs may still run under the old
//! one. What lets more through than the rules in force waits for a restart of the watcher: somebody's
//! decision.

use std::time::{Duration, Instant};

use crate::boundary::{self, BoundaryError};
use crate::config::Config;
use crate::netlink::Monitor;
use crate::ruleset::Ruleset;
use crate::status::Status;
use crate::verify::{self, Difference};

/// How often the rules are read back and the status file is written.
pub const PERIOD: Duration = Duration::from_secs(1);
/// How long a stop request may go unnoticed.
const STEP: Duration = Duration::from_millis(200);

/// What the watcher tells its caller.
#[derive(Debug)]
pub enum Event {
    /// The rules were as they should be when watching began.
    Standing { hash: String },
    /// Rules differed and were put back.
    Reasserted { differences: Vec<Difference> },
    /// Another ruleset is due: an exception lapsed, or a user's ranges changed.
    Renewed { hash: String },
    /// The boundary could not be checked or put back. The status file says so.
    Failed { error: BoundaryError },
    /// After a failure: it stands again.
    Recovered { hash: String },
}

/// Runs until `stop` says so. Each event is told once, when it begins.
pub fn run(
    config: &Config,
    mut stop: impl FnMut() -> bool,
    mut tell: impl FnMut(Event),
) -> Result<(), BoundaryError> {
    let monitor = Monitor::open()?;
    let mut watcher = Watcher {
        config,
        last: None,
        failed: None,
        started: false,
    };
    loop {
        watcher.tick(&mut tell);
        let due = Instant::now() + PERIOD;
        loop {
            if stop() {
                return Ok(());
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() || monitor.changed(left.min(STEP))? {
                break;
            }
        }
        drain(&monitor)?;
    }
}

/// A flood of changes by somebody else must not become a flood of checks.
fn drain(monitor: &Monitor) -> Result<(), BoundaryError> {
    const AT_MOST: u32 = 64;
    for _ in 0..AT_MOST {
        if !monitor.changed(Duration::from_millis(1))? {
            break;
        }
    }
    Ok(())
}

struct Watcher<'c> {
    config: &'c Config,
    last: Option<Ruleset>,
    failed: Option<String>,
    started: bool,
}

impl Watcher<'_> {
    fn tick(&mut self, tell: &mut impl FnMut(Event)) {
        let checked = self.check(tell);
        let problem = checked.as_ref().err().map(chain);
        let status = Status::now(
            self.last.as_ref(),
            self.config.scope.as_str(),
            &self.config.table,
            problem.clone(),
        );
        let written = status.map_err(BoundaryError::from).and_then(|status| {
            status
                .write(&self.config.status)
                .map_err(BoundaryError::from)
        });
        match checked.and(written) {
            Ok(()) => {
                if self.failed.take().is_some() {
                    tell(Event::Recovered { hash: self.hash() });
                } else if !self.started {
                    tell(Event::Standing { hash: self.hash() });
                }
                self.started = true;
            }
            Err(error) => {
                let text = chain(&error);
                if self.failed.as_deref() != Some(&text) {
                    self.failed = Some(text);
                    tell(Event::Failed { error });
                }
            }
        }
    }

    /// When the wanted ruleset cannot be built, or would open something, the last good one is kept
    /// in force; the failure is reported all the same, and the gate closes on it.
    fn check(&mut self, tell: &mut impl FnMut(Event)) -> Result<(), BoundaryError> {
        let wanted = boundary::ruleset(self.config);
        let (ruleset, failure) = match (wanted, &self.last) {
            (Ok(wanted), Some(last)) => match wanted.opens_beyond(last) {
                Some(what) => (last.clone(), Some(BoundaryError::WouldOpen(what))),
                None => (wanted, None),
            },
            (Ok(wanted), None) => (wanted, None),
            (Err(error), Some(last)) => (last.clone(), Some(error)),
            (Err(error), None) => return Err(error),
        };
        let differences = verify::verify(&ruleset)?;
        if !differences.is_empty() {
            boundary::load(&ruleset)?;
            match &self.last {
                Some(last) if *last != ruleset => {
                    tell(Event::Renewed {
                        hash: ruleset.hash(),
                    });
                }
                _ => tell(Event::Reasserted { differences }),
            }
        }
        self.last = Some(ruleset);
        failure.map_or(Ok(()), Err)
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
