//! How often one asker may use a service.

use std::fmt;

/// So many requests in so many seconds, of each asker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Requests, at least one.
    pub requests: u32,
    /// Seconds: one of those that a word stands for.
    pub seconds: u32,
}

const SPANS: [(&str, u32); 4] = [
    ("second", 1),
    ("minute", 60),
    ("hour", 3600),
    ("day", 86_400),
];

impl Rate {
    /// Reads `60/minute` and its kin; the problem and its remedy otherwise.
    pub(crate) fn parse(text: &str) -> Result<Self, (String, String)> {
        let remedy = || String::from("write it as in \"60/minute\"; of: second, minute, hour, day");
        let bad = || (format!("`{text}` is no rate"), remedy());
        let (requests, span) = text.split_once('/').ok_or_else(bad)?;
        let plain = !requests.is_empty() && requests.bytes().all(|byte| byte.is_ascii_digit());
        let requests = requests
            .parse::<u32>()
            .ok()
            .filter(|count| plain && *count > 0);
        let seconds = SPANS.iter().find(|(word, _)| *word == span);
        match (requests, seconds) {
            (Some(requests), Some((_, seconds))) => Ok(Self {
                requests,
                seconds: *seconds,
            }),
            (_, _) => Err(bad()),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = SPANS.iter().find(|(_, seconds)| *seconds == self.seconds);
        write!(
            f,
            "{}/{}",
            self.requests,
            word.map_or("?", |(word, _)| word)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Rate;

    #[test]
    fn rates_are_read_and_shown_alike() {
        for text in ["1/second", "60/minute", "1000/hour", "5/day"] {
            assert_eq!(Rate::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "60",
            "60/m",
            "0/minute",
            "-1/minute",
            "+1/minute",
            "1/minute ",
            "99999999999/day",
        ] {
            assert!(Rate::parse(text).is_err(), "{text}");
        }
    }
}
