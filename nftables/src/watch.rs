//! Keeps the boundary standing: listens for changes of rules and routes, checks every second anyway,
//! re-asserts on drift, and says so. What could not be put back is tried again at once, with growing
//! waits of up to a quarter of that. Rules that are gone are put back first, from memory, before anything is asked that could take
//! its time: files, routes, whoever has the turn. Never removes anything, also not at its end, and never opens
//! anything by itself: a user that was deleted and made anew has another uid, while programs may still
//! run under the old one.
//!
//! What lets more through than the rules in force is somebody's decision, and `apply` is how to take
//! it: when the kernel holds exactly what `boundary.toml` and the accounts mean now, that is adopted as
//! what has to stand. An edited file alone changes nothing. Restarting the watcher adopts too.

mod event;

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

pub use event::{Cause, Event};

use crate::accounts::Accounts;
use crate::boundary::{self, BoundaryError};
use crate::config::Config;
use crate::foreign::{self, Neighbours};
use crate::forwarding;
use crate::history::{History, Refused};
use crate::lock::{self, Turn};
use crate::netlink::{self, Author, Change, Monitor, ObservedTable, Place};
use crate::ports;
use crate::ruleset::Ruleset;
use crate::status::{self, Noted, Status};
use crate::verify::{self, Difference};
use crate::warning::Warning;

use event::chain;

/// How often the rules are read back and the status file is written.
pub const PERIOD: Duration = Duration::from_secs(1);
/// The wait after a check that failed; each one after it is twice as long, up to [`LAST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(10);
const LAST_WAIT: Duration = Duration::from_millis(250);
/// How long to wait for the turn before looking without it.
const TURN: Duration = Duration::from_millis(250);
/// How long a stop request may go unnoticed.
const STEP: Duration = Duration::from_millis(200);
/// `NFT_TABLE_F_DORMANT` of linux/netfilter/nf_tables.h: no rule of the table is in force.
const DORMANT: u32 = 1;
/// Events kept in the status file.
const EVENTS: usize = 20;
/// How long the same change of another table by the same program is not told again.
const ELSEWHERE_AGAIN: Duration = Duration::from_secs(60);
/// Different ones that are told in that time.
const ELSEWHERE_MOST: usize = 16;
/// Longest text of an event in the status file; the log has all of it.
const EVENT_BYTES: usize = 1_000;

/// Runs until `stop` says so. Each event is told once, when it begins.
pub fn run(
    config: &Config,
    stop: impl FnMut() -> bool,
    tell: impl FnMut(&Event),
) -> Result<(), BoundaryError> {
    run_every(PERIOD, config, stop, tell)
}

/// The same with another time between the looks that nothing asked for. The kernel's notices are heard as ever; the
/// status file gets as old as that.
pub fn run_every(
    period: Duration,
    config: &Config,
    mut stop: impl FnMut() -> bool,
    mut tell: impl FnMut(&Event),
) -> Result<(), BoundaryError> {
    let mut watcher = Watcher::new(config.clone())?;
    loop {
        watcher.tick(&mut tell);
        let due = Instant::now() + watcher.wait(period);
        loop {
            if stop() {
                return Ok(());
            }
            let left = due.saturating_duration_since(Instant::now());
            let again = std::mem::take(&mut watcher.again);
            if again || watcher.hear(left.min(STEP))? || left.is_zero() {
                break;
            }
        }
        watcher.drain()?;
    }
}

struct Watcher {
    monitor: Monitor,
    /// As the kernel names this thread in its notices.
    me: Option<u32>,
    config: Config,
    last: Option<Ruleset>,
    /// What had to stand at the last look: that, or what shuts more.
    in_force: Option<Ruleset>,
    failed: Option<String>,
    started: bool,
    events: Vec<Noted>,
    history: History,
    /// What differed and was not said yet: putting it back did not come to its end.
    untold: Vec<Difference>,
    /// Who changed rules since the last look.
    authors: Vec<Author>,
    /// Where they did.
    places: BTreeSet<Place>,
    /// When the kernel first told of a change of somebody's since the last look.
    heard: Option<Instant>,
    /// Notices were taken in that no look has followed.
    again: bool,
    /// The last check ended before the rules were seen to stand.
    unsettled: bool,
    /// How long to wait after the next such one.
    next_wait: Duration,
    /// Who changed what elsewhere, and when that was said last.
    elsewhere: Vec<(String, Instant)>,
    /// What other tables do, as of the last change.
    neighbours: Option<Neighbours>,
    warned: Vec<Warning>,
}

impl Watcher {
    fn new(config: Config) -> Result<Self, BoundaryError> {
        let held = Status::now(None, "", "", None)?.with_events_of(&config.status);
        Ok(Self {
            monitor: Monitor::open()?,
            me: netlink::own_number()?,
            history: History::load(&History::path(&config.status))?,
            config,
            last: None,
            in_force: None,
            failed: None,
            started: false,
            events: held.events,
            untold: Vec::new(),
            authors: Vec::new(),
            places: BTreeSet::new(),
            heard: None,
            again: false,
            unsettled: false,
            next_wait: FIRST_WAIT,
            elsewhere: Vec::new(),
            neighbours: None,
            warned: Vec::new(),
        })
    }

    /// Until the next check, unless something asks for it.
    fn wait(&mut self, period: Duration) -> Duration {
        if !self.unsettled {
            self.next_wait = FIRST_WAIT;
            return period;
        }
        let wait = self.next_wait;
        self.next_wait = LAST_WAIT.min(2 * wait);
        wait.min(period)
    }

    /// Waits for changes and notes whose they are; our own replacements are among them.
    fn hear(&mut self, patience: Duration) -> Result<bool, BoundaryError> {
        let changes = match self.monitor.changes(patience) {
            Ok(changes) => changes,
            // Whatever it was: what it would have told may have been a change.
            Err(_) => {
                self.monitor = Monitor::open()?;
                vec![Change::lost()]
            }
        };
        if changes.is_empty() {
            return Ok(false);
        }
        self.neighbours = None;
        for change in changes {
            // Routes have no author; ours are followed by a look that finds nothing.
            if change
                .author
                .as_ref()
                .is_some_and(|author| Some(author.pid) == self.me)
            {
                continue;
            }
            self.heard.get_or_insert_with(Instant::now);
            self.places.extend(change.tables);
            if let Some(author) = change.author
                && !self.authors.contains(&author)
                && self.authors.len() < 8
            {
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
        self.unsettled = true;
        // Held until the status is written: `apply` and `remove` write it too, each in its own turn.
        let turn = self.turn(&mut happened);
        let (turn, checked) = match turn {
            Ok(turn) => (Some(turn), self.check(&mut happened)),
            Err(error) => (None, Err(error)),
        };
        let stands = checked.is_ok() && !happened.iter().any(Event::is_drift);
        self.look_elsewhere(stands, &mut happened);
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
        happened.iter().for_each(|event| self.note(event));
        if let Err(error) = self.write(problem) {
            self.fail(error, &mut happened);
        }
        drop(turn);
        // Whoever reads this may take its time.
        happened.iter().for_each(tell);
    }

    /// Whoever has the turn may be stopped in the middle of it, or the lock be spoilt. No `apply` takes the rules out of force,
    /// so that where they are, they are put back all the same; anything else waits.
    fn turn(&mut self, happened: &mut Vec<Event>) -> Result<Turn, BoundaryError> {
        let due = Instant::now() + lock::PATIENCE;
        loop {
            let turn = lock::take_within(&self.config.status, TURN);
            if let Ok(Some(turn)) = turn {
                return Ok(turn);
            }
            let observed = netlink::observe(&self.config.table)?;
            let put_back = self.put_back_at_once(observed.as_ref())?;
            if let Some(rules) = &put_back {
                let differences = verify::differences(rules, observed.as_ref());
                self.settle(rules, true, differences, happened)?;
            }
            if turn?.is_none() && (put_back.is_some() || Instant::now() >= due) {
                let busy = "another portcullis-boundary has the turn, and keeps it";
                return Err(io::Error::new(io::ErrorKind::WouldBlock, busy).into());
            }
        }
    }

    /// Where no rule of ours is in force at all, what has to stand is loaded from memory, and returned.
    fn put_back_at_once(
        &mut self,
        observed: Option<&ObservedTable>,
    ) -> Result<Option<Ruleset>, BoundaryError> {
        let in_force = observed.is_some_and(|table| table.flags & DORMANT == 0);
        let Some(rules) = self.in_force.clone().filter(|_| !in_force) else {
            return Ok(None);
        };
        // What was seen may have been done since we listened last.
        self.drain()?;
        netlink::replace(&rules)?;
        Ok(Some(rules))
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
            cause: event.cause().map(|cause| cause.as_str().to_owned()),
            after_ms: event.cause().and_then(Cause::after_ms),
            text,
        });
        while self.events.len() > EVENTS {
            // What others do to their own tables is what is forgotten first.
            let kept = Event::ELSEWHERE;
            let place = self.events.iter().position(|event| event.kind == kept);
            self.events.remove(place.unwrap_or(0));
        }
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

    /// Has the turn. When the wanted ruleset cannot be built, or would open something, the last good one is kept
    /// in force; the failure is reported all the same, and the gate closes on it.
    fn check(&mut self, happened: &mut Vec<Event>) -> Result<(), BoundaryError> {
        let observed = netlink::observe(&self.config.table)?;
        let put_back = self.put_back_at_once(observed.as_ref())?;
        let now = jiff::Timestamp::now();
        let (accounts, wanted) = match Accounts::load() {
            Ok(accounts) => {
                let wanted = Ruleset::build(&self.config, &accounts, now);
                (Some(accounts), wanted.map_err(BoundaryError::from))
            }
            Err(error) => (None, Err(error.into())),
        };
        let wanted = wanted.map(|wanted| match &self.last {
            Some(last) => ports::as_low_as(wanted, last),
            None => ports::as_low_as_held(wanted, observed.as_ref()),
        });
        let (ruleset, mut failure) = match (wanted, &self.last) {
            (Ok(wanted), Some(last)) => match wanted.opens_beyond(last) {
                Some(what) => (last.clone(), Some(BoundaryError::WouldOpen(what))),
                None => (wanted, None),
            },
            (Ok(wanted), None) => (wanted, None),
            (Err(error), Some(last)) => (last.clone(), Some(error)),
            (Err(error), None) => return Err(error),
        };
        // Whom the accounts mean now is shut all the same: an agent may have been given a uid that is let out.
        let mut in_force = match (&failure, &accounts) {
            (Some(_), Some(accounts)) => ruleset.shut_also(&self.config, accounts),
            _ => ruleset.clone(),
        };
        let mut standing = ruleset;
        let mut differences = verify::differences(&in_force, observed.as_ref());
        let adopted = match differences.is_empty() || put_back.is_some() {
            true => None,
            false => self.adopted(),
        };
        match adopted {
            Some((config, adopted)) => {
                happened.push(Event::Adopted {
                    hash: adopted.hash(),
                });
                self.config = config;
                in_force.clone_from(&adopted);
                standing = adopted;
                failure = None;
            }
            None => {
                let mut replaced = put_back.as_ref() == Some(&in_force);
                if !differences.is_empty() && !replaced {
                    // What was seen may have been done since we listened last.
                    self.drain()?;
                    netlink::replace(&in_force)?;
                    replaced = true;
                }
                differences.extend(verify::around(&in_force)?);
                if !differences.is_empty() || !self.untold.is_empty() {
                    self.settle(&in_force, replaced, differences, happened)?;
                }
            }
        }
        self.last = Some(standing);
        self.unsettled = false;
        self.in_force = Some(in_force);
        if let Some(observed) = observed {
            self.remember(&crate::counters::refused(&observed))?;
        }
        self.look_around(happened)?;
        failure.map_or(Ok(()), Err)
    }

    /// After the rules, or with them: what else belongs to the boundary, and the word of it all.
    fn settle(
        &mut self,
        ruleset: &Ruleset,
        replaced: bool,
        differences: Vec<Difference>,
        happened: &mut Vec<Event>,
    ) -> Result<(), BoundaryError> {
        for difference in differences {
            if !self.untold.contains(&difference) {
                self.untold.push(difference);
            }
        }
        if !replaced {
            self.drain()?;
        }
        let heard = self.heard;
        if replaced {
            boundary::settle(ruleset)?;
        } else {
            boundary::load(ruleset)?;
        }
        let cause = match heard {
            Some(heard) => Cause::Notice {
                after: heard.elapsed(),
            },
            None => Cause::Look,
        };
        // The kernel tells of a change after it is in force, and before the next one: whose it was is known by now. What
        // else is told here is looked at once more.
        self.drain()?;
        self.again = true;
        happened.push(match &self.in_force {
            Some(last) if last != ruleset => {
                self.untold.clear();
                Event::Renewed {
                    hash: ruleset.hash(),
                }
            }
            _ => Event::Reasserted {
                differences: std::mem::take(&mut self.untold),
                authors: std::mem::take(&mut self.authors),
                cause,
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
        // The table alone first: routes may have to be waited for.
        let observed = netlink::observe(&ruleset.table).ok()?;
        if !verify::differences(&ruleset, observed.as_ref()).is_empty() {
            return None;
        }
        let differences = verify::around(&ruleset).ok()?;
        differences.is_empty().then_some((config, ruleset))
    }

    /// What was changed without any difference to this table is said as well, but the same by the same program once a
    /// minute: container engines do it all day.
    fn look_elsewhere(&mut self, stands: bool, happened: &mut Vec<Event>) {
        if self.unsettled {
            // Who changed rules, and when, is told with what is put back.
            self.places.clear();
            return;
        }
        let authors = std::mem::take(&mut self.authors);
        let places = std::mem::take(&mut self.places);
        self.heard = None;
        let mine = |place: &Place| {
            let guard = place.table.strip_suffix(netlink::GUARD);
            guard.unwrap_or(&place.table) == self.config.table
        };
        let others: Vec<Place> = places.into_iter().filter(|place| !mine(place)).collect();
        if !stands || authors.is_empty() || others.is_empty() {
            return;
        }
        let names: BTreeSet<&str> = authors.iter().map(|author| author.name.as_str()).collect();
        let what = format!("{names:?} {others:?}");
        self.elsewhere
            .retain(|(_, said)| said.elapsed() < ELSEWHERE_AGAIN);
        let known = self.elsewhere.iter().any(|(known, _)| *known == what);
        if known || self.elsewhere.len() >= ELSEWHERE_MOST {
            return;
        }
        self.elsewhere.push((what, Instant::now()));
        happened.push(Event::Elsewhere {
            authors,
            places: others,
        });
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
            None => {
                let mut seen = foreign::look(ruleset)?;
                seen.warnings.extend(forwarding::warning(&self.config));
                seen
            }
        };
        for warning in &neighbours.warnings {
            if !self.warned.contains(warning) {
                happened.push(Event::Warning {
                    text: warning.text.clone(),
                });
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
