//! Quiet hours: `22:00-06:00 Europe/Berlin`, every day, by the clocks of that place.

use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, ZonedDateTime};

use super::time::Millis;

/// When nothing starts.
#[derive(Debug, Clone)]
pub struct Quiet {
    from: Time,
    to: Time,
    zone: TimeZone,
}

impl Quiet {
    /// Reads `HH:MM-HH:MM ZONE`; UTC where there is no zone.
    ///
    /// # Errors
    /// A sentence about what does not fit.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (hours, zone) = match text.trim().split_once(' ') {
            Some((hours, zone)) => (hours, zone.trim()),
            None => (text.trim(), "UTC"),
        };
        let (from, to) = hours
            .split_once('-')
            .ok_or_else(|| format!("`{text}` is not HH:MM-HH:MM ZONE"))?;
        let time = |text: &str| {
            Time::strptime("%H:%M", text).map_err(|_error| format!("`{text}` is no time of day"))
        };
        let (from, to) = (time(from)?, time(to)?);
        if from == to {
            return Err("it begins when it ends".to_owned());
        }
        let zone = TimeZone::get(zone).map_err(|_error| format!("`{zone}` is no time zone"))?;
        Ok(Self { from, to, zone })
    }

    /// When the quiet that holds at this time ends; `None` outside it.
    #[must_use]
    pub fn until(&self, now: Millis) -> Option<Millis> {
        let now = Timestamp::from_millisecond(now)
            .ok()?
            .to_zoned_datetime(self.zone.clone());
        let time = now.time();
        let quiet = if self.from < self.to {
            self.from <= time && time < self.to
        } else {
            time >= self.from || time < self.to
        };
        if !quiet {
            return None;
        }
        let today = self.ends_on(&now)?;
        let end = if today > now {
            today
        } else {
            self.ends_on(&now.checked_add(1.day()).ok()?)?
        };
        Some(end.timestamp().as_millisecond())
    }

    fn ends_on(&self, day: &ZonedDateTime) -> Option<ZonedDateTime> {
        day.date()
            .to_datetime(self.to)
            .to_zoned_datetime(self.zone.clone())
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Millis {
        text.parse::<Timestamp>().unwrap().as_millisecond()
    }

    #[test]
    fn quiet_ends_by_the_clocks_of_its_place_over_midnight_and_over_a_change_of_clocks() {
        let berlin = Quiet::parse("22:00-06:00 Europe/Berlin").unwrap();
        for (now, end) in [
            ("2026-07-01T19:59:59Z", None),
            ("2026-07-01T20:00:00Z", Some("2026-07-02T04:00:00Z")),
            ("2026-07-02T03:59:59Z", Some("2026-07-02T04:00:00Z")),
            ("2026-07-02T04:00:00Z", None),
            // The night in which clocks go back.
            ("2026-10-24T21:00:00Z", Some("2026-10-25T05:00:00Z")),
        ] {
            assert_eq!(berlin.until(at(now)), end.map(at), "{now}");
        }
        let noon = Quiet::parse("12:00-13:00").unwrap();
        assert_eq!(
            noon.until(at("2026-07-01T12:30:00Z")),
            Some(at("2026-07-01T13:00:00Z"))
        );
        assert_eq!(noon.until(at("2026-07-01T13:00:00Z")), None);
    }

    #[test]
    fn what_is_no_quiet_is_refused() {
        for bad in [
            "",
            "22:00",
            "22:00-22:00",
            "25:00-06:00",
            "22:00-06:00 Nowhere/Here",
        ] {
            assert!(Quiet::parse(bad).is_err(), "{bad}");
        }
    }
}
