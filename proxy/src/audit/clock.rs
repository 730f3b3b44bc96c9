//! The present time as the log writes it. A day and second are spelt out once and kept for as long as
//! the second lasts: each line has a time.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

/// `2026-11-30T08:00:00`
const SECOND_LEN: usize = 19;

thread_local! {
    /// The last second that this thread spelt out.
    static SECOND: Cell<(u64, [u8; SECOND_LEN])> = const { Cell::new((u64::MAX, [0; SECOND_LEN])) };
}

/// The present time as the log writes it.
#[must_use]
pub fn now() -> String {
    // Before 1970 no clock of ours stands.
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    written(since.as_secs(), since.subsec_micros())
}

fn written(second: u64, micros: u32) -> String {
    let (kept, mut text) = SECOND.get();
    if kept != second {
        let spelt = i64::try_from(second)
            .ok()
            .and_then(|second| jiff::Timestamp::from_second(second).ok())
            .map(|time| time.to_string());
        let spelt = spelt
            .as_ref()
            .and_then(|text| text.as_bytes().first_chunk());
        text = spelt.copied().unwrap_or(*b"9999-12-31T23:59:59");
        SECOND.set((second, text));
    }
    let mut line = String::with_capacity(SECOND_LEN + ".000000Z".len());
    line.push_str(std::str::from_utf8(&text).unwrap_or_default());
    line.push('.');
    let mut unit = 100_000;
    while unit > 0 {
        let digit = micros / unit % 10;
        line.push(char::from_digit(digit, 10).unwrap_or('0'));
        unit /= 10;
    }
    line.push('Z');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_spelt_as_the_library_does() {
        for (second, micros) in [
            (0, 0),
            (1_795_996_799, 999_999),
            (1_795_996_800, 1),
            (1_795_996_800, 120_000),
            (951_782_399, 10),
            (4_102_444_799, 123_456),
            (1_795_996_800, 2),
        ] {
            let nanos = i32::try_from(micros * 1000).unwrap();
            let time = jiff::Timestamp::new(i64::try_from(second).unwrap(), nanos).unwrap();
            assert_eq!(written(second, micros), format!("{time:.6}"));
        }
        let parsed: jiff::Timestamp = now().parse().unwrap();
        let apart = jiff::Timestamp::now().duration_since(parsed);
        assert!(apart.as_secs().abs() < 60, "{apart:?}");
    }
}
