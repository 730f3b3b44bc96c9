//! What a supervisor writes down: who runs, since when, how often it fell.
//!
//! ```json
//! {"supervisor":{"pid":412,"start_time":90211},"program":{"pid":413,"start_time":90212},
//!  "started":"2026-11-30T08:00:00Z","restarts":0,"last_end":null,"pause_seconds":null,"fingerprint":"3f…"}
//! ```

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::save;
use crate::file::FileError;

/// A process named so that a reused id is not mistaken for it: id and start time in clock ticks since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    pub pid: i32,
    pub start_time: u64,
}

impl Moment {
    /// The process of that id as it is now; `None` when there is none.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (state, start_time) = parse_stat(&stat)?;
        (state != 'Z').then_some(Self { pid, start_time })
    }

    /// Whether that very process still runs. A zombie does not.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        Self::of(self.pid).as_ref() == Some(self)
    }
}

/// State letter and start time (field 22). The name in parentheses may itself contain spaces and parentheses.
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    Some((
        fields.first()?.chars().next()?,
        fields.get(19)?.parse().ok()?,
    ))
}

/// The record of one supervised service.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    pub supervisor: Moment,
    pub program: Option<Moment>,
    /// RFC 3339; when the program last started.
    pub started: Option<String>,
    pub restarts: u32,
    /// How it last ended.
    pub last_end: Option<String>,
    /// The pause it is in, if it is not running.
    pub pause_seconds: Option<u64>,
    /// SHA-256 over command line, binary and configuration it was started with.
    pub fingerprint: String,
}

impl Record {
    /// Of this very process, before it started anything.
    #[must_use]
    pub fn new(fingerprint: &str) -> Self {
        let pid = i32::try_from(std::process::id()).unwrap_or(i32::MAX);
        Self {
            supervisor: Moment::of(pid).unwrap_or(Moment { pid, start_time: 0 }),
            program: None,
            started: None,
            restarts: 0,
            last_end: None,
            pause_seconds: None,
            fingerprint: fingerprint.to_owned(),
        }
    }

    /// Notes a started program.
    pub fn started(&mut self, pid: i32) {
        if self.started.is_some() {
            self.restarts += 1;
        }
        self.program = Moment::of(pid);
        self.started = Some(format!("{:.0}", jiff::Timestamp::now()));
        self.pause_seconds = None;
    }

    /// Notes its end.
    pub fn ended(&mut self, how: &str, pause: Duration) {
        self.program = None;
        self.last_end = Some(how.to_owned());
        self.pause_seconds = Some(pause.as_secs());
    }

    /// Reads it; `None` when there is none or it is torn, which means the same to every caller.
    #[must_use]
    pub fn load(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    /// # Errors
    /// When it cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), FileError> {
        let text = serde_json::to_vec(self).unwrap_or_default();
        save(path, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let tail = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(
            parse_stat(&format!("7 (a) b (c) {tail}")),
            Some(('S', 4711))
        );
        assert_eq!(parse_stat("7 (a"), None);
    }

    #[test]
    fn a_process_is_itself_and_a_reused_id_is_not() {
        let own = Moment::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(own.is_alive());
        assert!(
            !Moment {
                start_time: own.start_time + 1,
                ..own
            }
            .is_alive()
        );
    }

    #[test]
    fn restarts_are_counted_from_the_second_start() {
        let mut record = Record::new("f");
        record.started(1);
        assert_eq!(record.restarts, 0);
        record.ended("ended with 1", Duration::from_secs(2));
        assert_eq!(record.pause_seconds, Some(2));
        record.started(1);
        assert_eq!((record.restarts, record.pause_seconds), (1, None));
    }
}
