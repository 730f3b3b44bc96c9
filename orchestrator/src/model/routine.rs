//! Routines: work that comes back by the clocks of a place, or when asked for.

use std::cmp::Ordering;
use std::str::FromStr as _;

use croner::Cron;
use croner::errors::CronError;
use croner::time::{CivilDate, CivilDateTime, CivilTime, CronDateTime, Resolution, Weekday};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::hook::HookKind;
use super::time::Millis;
use super::words;
use super::{Priority, Refusal};

words! {
    /// Whether a routine does anything.
    RoutineStatus {
        /// It does.
        Active = "active",
        /// Its slots are skipped.
        Paused = "paused",
        /// It has no slots.
        Archived = "archived",
    }
}

words! {
    /// What becomes of slots that were due while nobody looked.
    CatchUp {
        /// They are missed.
        Skip = "skip_missed",
        /// The last of them starts.
        Once = "run_once",
        /// The last 25 of them start.
        All = "run_all",
    }
}

words! {
    /// What becomes of a slot while the ticket of the one before is open.
    Overlap {
        /// It is skipped.
        Skip = "skip_if_active",
        /// It starts.
        Always = "always",
    }
}

words! {
    /// What became of a slot.
    SlotState {
        /// It made a ticket.
        Started = "started",
        /// It made none; the reason says why.
        Skipped = "skipped",
        /// Nobody looked when it was due.
        Missed = "missed",
    }
}

/// Work that comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routine {
    /// UUID.
    pub id: String,
    /// Its company.
    pub company: String,
    /// Unique in the company; the title of its tickets.
    pub name: String,
    /// The description of its tickets.
    pub description: Option<String>,
    /// The agent that its tickets are assigned to.
    pub assignee: String,
    /// The project of its tickets.
    pub project: Option<String>,
    /// Of its tickets.
    pub priority: Priority,
    /// Whether it does anything.
    pub status: RoutineStatus,
    /// Minute, hour, day, month, weekday; without it, only who asks starts it.
    pub cron: Option<String>,
    /// IANA name of the place whose clocks count.
    pub zone: String,
    /// Slots that were due while nobody looked.
    pub catch_up: CatchUp,
    /// A slot while the last one's ticket is open.
    pub overlap: Overlap,
    /// How deliveries of its webhook are proven, if it has one.
    pub hook: Option<HookKind>,
    /// The next slot.
    pub next_due: Option<Millis>,
    /// When it was created.
    pub created_at: Millis,
    /// When it was last changed.
    pub updated_at: Millis,
}

/// A due time of a routine and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// UUID.
    pub id: String,
    /// When it was due.
    pub due_at: Millis,
    /// `schedule`, `api` or `webhook`.
    pub trigger: String,
    /// What became of it.
    pub state: SlotState,
    /// Why, where it did not start.
    pub reason: Option<String>,
    /// The ticket it made.
    pub ticket: Option<String>,
}

/// A cron pattern by the clocks of a place.
///
/// A time that the clocks leave out comes as much later as they are put on; one that they show twice
/// comes once, the first time.
#[derive(Debug, Clone)]
pub struct Schedule {
    cron: Cron,
    zone: TimeZone,
}

impl Schedule {
    /// Five fields and the name of a time zone.
    ///
    /// # Errors
    /// 400 saying which does not fit.
    pub fn parse(cron: &str, zone: &str) -> Result<Self, Refusal> {
        if cron.split_whitespace().count() != 5 {
            let error = "cron must have five fields: minute hour day month weekday";
            return Err(Refusal::invalid(error));
        }
        let cron = Cron::from_str(cron)
            .map_err(|error| Refusal::invalid(format!("cron does not fit: {error}")))?;
        let zone = TimeZone::get(zone)
            .map_err(|_error| Refusal::invalid(format!("timezone: `{zone}` is no time zone")))?;
        Ok(Self { cron, zone })
    }

    /// The first due time after this one; `None` for a date that never comes.
    #[must_use]
    pub fn after(&self, at: Millis) -> Option<Millis> {
        let mut civil = Timestamp::from_millisecond(at)
            .ok()?
            .to_zoned_datetime(self.zone.clone())
            .datetime();
        // Twice for each time that clocks show twice.
        for _ in 0..200 {
            let next = self.cron.find_next_occurrence(&Clocks(civil), false);
            civil = next.ok()?.0;
            let due = civil.to_zoned_datetime(self.zone.clone()).ok()?;
            let due = due.timestamp().as_millisecond();
            if due > at {
                return Some(due);
            }
        }
        None
    }
}

/// What the clocks of a place show, as the pattern's arithmetic wants it: without gap or repetition.
#[derive(Clone)]
struct Clocks(DateTime);

impl CronDateTime for Clocks {
    fn to_civil(&self) -> CivilDateTime {
        let part = |value: i8| u32::from(value.unsigned_abs());
        CivilDateTime::new(
            CivilDate::from_parts_unchecked(
                self.0.year().into(),
                part(self.0.month()),
                part(self.0.day()),
            ),
            CivilTime::from_parts_unchecked(
                part(self.0.hour()),
                part(self.0.minute()),
                part(self.0.second()),
            ),
        )
    }

    fn civil_weekday(&self) -> Weekday {
        let day = self.0.weekday().to_sunday_zero_offset();
        Weekday::from_days_from_sunday(u32::from(day.unsigned_abs()))
    }

    fn resolve_civil(&self, civil: CivilDateTime) -> Result<Resolution<Self>, CronError> {
        let part = |value: u32| i8::try_from(value).map_err(|_error| CronError::InvalidTime);
        let year = i16::try_from(civil.year()).map_err(|_error| CronError::InvalidDate)?;
        let (month, day) = (part(civil.month())?, part(civil.day())?);
        let (hour, minute) = (part(civil.hour())?, part(civil.minute())?);
        DateTime::new(year, month, day, hour, minute, part(civil.second())?, 0)
            .map(|it| Resolution::Single(Self(it)))
            .map_err(|_error| CronError::InvalidDate)
    }

    fn checked_add_seconds(&self, seconds: i64) -> Option<Self> {
        let later = self.0.checked_add(SignedDuration::from_secs(seconds));
        later.ok().map(Self)
    }

    fn cmp_instant(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Millis {
        text.parse::<Timestamp>().unwrap().as_millisecond()
    }

    fn all(cron: &str, zone: &str, from: &str, many: usize) -> Vec<String> {
        let schedule = Schedule::parse(cron, zone).unwrap();
        let mut now = at(from);
        let mut found = Vec::new();
        for _ in 0..many {
            now = schedule.after(now).unwrap();
            found.push(Timestamp::from_millisecond(now).unwrap().to_string());
        }
        found
    }

    #[test]
    fn due_times_follow_the_clocks_of_their_place() {
        assert_eq!(
            all(
                "30 9 * * 1-5",
                "America/New_York",
                "2026-12-04T14:30:00Z",
                2
            ),
            ["2026-12-07T14:30:00Z", "2026-12-08T14:30:00Z"],
            "not itself, and not on a weekend"
        );
        // Left out: 02:30 on the day clocks are put on comes at 03:30.
        assert_eq!(
            all("30 2 * * *", "Europe/Berlin", "2026-03-28T02:00:00Z", 3),
            [
                "2026-03-29T01:30:00Z",
                "2026-03-30T00:30:00Z",
                "2026-03-31T00:30:00Z"
            ]
        );
        // Shown twice: once.
        assert_eq!(
            all("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2),
            ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
        );
        assert_eq!(
            all("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", 1),
            ["2028-02-29T00:00:00Z"]
        );
    }

    #[test]
    fn what_is_no_schedule_is_refused_and_what_never_comes_has_no_due_time() {
        for (cron, zone) in [
            ("", "UTC"),
            ("* * * *", "UTC"),
            ("* * * * * *", "UTC"),
            ("61 * * * *", "UTC"),
            ("* * * * *", "Nowhere/Here"),
        ] {
            assert!(Schedule::parse(cron, zone).is_err(), "{cron} {zone}");
        }
        let never = Schedule::parse("0 0 30 2 *", "UTC");
        assert!(never.is_err() || never.unwrap().after(0).is_none());
    }
}
