//! Times: Unix milliseconds inside, ISO-8601 with `Z` outside.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970-01-01T00:00:00Z.
pub type Millis = i64;

/// The wall clock.
#[must_use]
pub fn now() -> Millis {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// `2026-11-30T08:00:00.000Z`.
#[must_use]
pub fn iso(at: Millis) -> String {
    jiff::Timestamp::from_millisecond(at).map_or_else(|_| at.to_string(), |t| format!("{t:.3}"))
}

/// The inverse of [`iso`]; accepts any RFC 3339 time.
#[must_use]
pub fn parse(text: &str) -> Option<Millis> {
    text.parse::<jiff::Timestamp>()
        .ok()
        .map(jiff::Timestamp::as_millisecond)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iso_has_milliseconds_and_z() {
        assert_eq!(iso(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso(1_796_025_600_123), "2026-11-30T08:00:00.123Z");
        assert_eq!(parse(&iso(1_796_025_600_123)), Some(1_796_025_600_123));
    }
}
