//! Tells a person what happens at the boundary while it happens: who changed rules, what the watcher
//! did about it, and whom the kernel refuses.
//!
//! Reads only. Everybody is told of once when first refused, then once a minute as long as it goes on:
//! a loud agent must not flood the terminal.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::accounts::Accounts;
use crate::boundary::BoundaryError;
use crate::config::Config;
use crate::counters::{self, is_full, refused, times};
use crate::foreign::shown;
use crate::history::Refused;
use crate::netlink::{self, Author, Change, Monitor};
use crate::status::{Noted, Status};

/// How often counters and the watcher's events are looked at.
const PERIOD: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(200);
const MINUTE: Duration = Duration::from_secs(60);

/// Something to tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Notice {
    /// Somebody changed rules, in these tables: `table inet x`.
    Changed {
        pid: u32,
        name: String,
        tables: Vec<String>,
    },
    /// Routes changed, or more happened than the kernel could tell.
    Unattributed { text: String },
    /// The watcher did or saw something.
    Watcher {
        at: String,
        event: String,
        text: String,
    },
    /// A user was refused for the first time since this began.
    First {
        uid: u32,
        user: Option<String>,
        packets: u64,
    },
    /// The kernel's list of refused users is full.
    Full { text: String },
    /// A user's refusals of the last minute.
    Minute {
        uid: u32,
        user: Option<String>,
        packets: u64,
    },
}

impl Notice {
    /// One line for people; more when an event has details.
    pub fn text(&self) -> String {
        let who = |uid: &u32, user: &Option<String>| {
            format!("uid {uid} ({})", user.as_deref().unwrap_or("no such user"))
        };
        match self {
            Notice::Changed { pid, name, tables } => {
                let what = match tables.as_slice() {
                    [] => "something".to_owned(),
                    tables => tables.join(", "),
                };
                format!("{name} (pid {pid}) changed {what}")
            }
            Notice::Unattributed { text } | Notice::Full { text } => text.clone(),
            Notice::Watcher { text, .. } => format!("watcher: {text}"),
            Notice::First { uid, user, packets } => {
                format!(
                    "{} is refused now: {} so far",
                    who(uid, user),
                    times(*packets)
                )
            }
            Notice::Minute { uid, user, packets } => format!(
                "{} was refused {} in the last minute",
                who(uid, user),
                times(*packets)
            ),
        }
    }
}

/// Runs until `stop` says so.
pub fn run(
    config: &Config,
    mut stop: impl FnMut() -> bool,
    mut tell: impl FnMut(&Notice),
) -> Result<(), BoundaryError> {
    let mut monitor = Monitor::open()?;
    let mut ear = Ear::new(config)?;
    tell(&Notice::Unattributed {
        text: format!("listening to table inet {}", config.table),
    });
    let mut due = Instant::now();
    loop {
        if stop() {
            return Ok(());
        }
        for change in monitor.changes(STEP)? {
            tell(&notice(change));
        }
        if Instant::now() >= due {
            due = Instant::now() + PERIOD;
            ear.listen(config, &mut tell)?;
        }
    }
}

fn notice(change: Change) -> Notice {
    match change.author {
        Some(Author { pid, name }) => Notice::Changed {
            pid,
            name,
            tables: change.tables.iter().map(shown).collect(),
        },
        None => Notice::Unattributed {
            text: "routes changed, or more rules than the kernel could tell of".to_owned(),
        },
    }
}

/// What was told already.
struct Ear {
    last: Refused,
    minute: BTreeMap<u32, u64>,
    known: BTreeSet<u32>,
    since: Instant,
    told: Option<Noted>,
    full: bool,
}

impl Ear {
    fn new(config: &Config) -> Result<Self, BoundaryError> {
        Ok(Self {
            last: now(config)?,
            minute: BTreeMap::new(),
            known: BTreeSet::new(),
            since: Instant::now(),
            told: events(&config.status).pop(),
            full: false,
        })
    }

    fn listen(
        &mut self,
        config: &Config,
        tell: &mut impl FnMut(&Notice),
    ) -> Result<(), BoundaryError> {
        let events = events(&config.status);
        let heard = events
            .iter()
            .rposition(|event| Some(event) == self.told.as_ref());
        for event in events.iter().skip(heard.map_or(0, |place| place + 1)) {
            tell(&Notice::Watcher {
                at: event.at.clone(),
                event: event.kind.clone(),
                text: event.text.clone(),
            });
        }
        self.told = events.last().cloned().or(self.told.take());
        let shown = now(config)?;
        let mut accounts = None;
        for (uid, packets) in &shown {
            let before = self.last.get(uid).copied().unwrap_or(0);
            // A counter that went down began anew.
            let more = packets.checked_sub(before).unwrap_or(*packets);
            if more == 0 {
                continue;
            }
            *self.minute.entry(*uid).or_default() += more;
            if self.known.insert(*uid) {
                let user = describe(&mut accounts, *uid)?;
                tell(&Notice::First {
                    uid: *uid,
                    user,
                    packets: more,
                });
            }
        }
        let full = is_full(shown.len());
        if full && !self.full {
            tell(&Notice::Full {
                text: counters::full(),
            });
        }
        self.full = full;
        self.last = shown;
        if self.since.elapsed() >= MINUTE {
            self.since = Instant::now();
            for (uid, packets) in std::mem::take(&mut self.minute) {
                let user = describe(&mut accounts, uid)?;
                tell(&Notice::Minute { uid, user, packets });
            }
        }
        Ok(())
    }
}

/// The account files are read at most once a look, and only when somebody has to be named.
fn describe(accounts: &mut Option<Accounts>, uid: u32) -> Result<Option<String>, BoundaryError> {
    let known = match accounts.take() {
        Some(known) => known,
        None => Accounts::load()?,
    };
    let name = known.describe(uid);
    *accounts = Some(known);
    Ok(name)
}

fn now(config: &Config) -> Result<Refused, BoundaryError> {
    let observed = netlink::observe(&config.table)?;
    Ok(observed
        .map(|observed| refused(&observed))
        .unwrap_or_default())
}

fn events(status: &Path) -> Vec<Noted> {
    Status::read(status)
        .map(|status| status.events)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_read_as_sentences() {
        let minute = Notice::Minute {
            uid: 42,
            user: Some("_apt".into()),
            packets: 1014,
        };
        assert_eq!(
            minute.text(),
            "uid 42 (_apt) was refused 1,014 times in the last minute"
        );
        let changed = notice(Change {
            author: Some(Author {
                pid: 7,
                name: "nft".into(),
            }),
            tables: [netlink::Place {
                family: libc::NFPROTO_IPV4.cast_unsigned(),
                table: "nat".into(),
            }]
            .into(),
        });
        assert_eq!(changed.text(), "nft (pid 7) changed table ip nat");
        let json = serde_json::to_value(&changed).unwrap();
        assert_eq!(json["kind"], "changed");
        assert_eq!(json["tables"][0], "table ip nat");
    }
}
