//! US dollars in whole numbers.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Billionths of a US dollar. In text it is a decimal number of dollars, such as `"1.25"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Usd(u64);

/// A text that is no amount of money.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "an amount is dollars as a decimal number in quotes, such as \"1.25\", of at most nine decimals and less than 10 billion"
)]
pub struct UsdError;

const NANO: u64 = 1_000_000_000;

impl Usd {
    /// So many billionths of a dollar.
    #[must_use]
    pub fn from_nano(nano: u64) -> Self {
        Self(nano)
    }

    /// In billionths of a dollar.
    #[must_use]
    pub fn nano(self) -> u64 {
        self.0
    }

    /// In millionths of a dollar, rounded up: what was spent is never shown as less.
    #[must_use]
    pub fn micro(self) -> u64 {
        self.0.div_ceil(1000)
    }

    /// Reads a decimal number of dollars.
    ///
    /// # Errors
    /// [`UsdError`].
    pub fn parse(text: &str) -> Result<Self, UsdError> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let dotted = text.contains('.');
        if whole.is_empty()
            || whole.len() > 10
            || decimals.len() > 9
            || dotted == decimals.is_empty()
            || !digits(whole)
            || !digits(decimals)
        {
            return Err(UsdError);
        }
        let whole: u64 = whole.parse().map_err(|_| UsdError)?;
        let nano: u64 = format!("{decimals:0<9}").parse().map_err(|_| UsdError)?;
        let all = whole
            .checked_mul(NANO)
            .and_then(|all| all.checked_add(nano));
        all.map(Self).ok_or(UsdError)
    }
}

impl fmt::Display for Usd {
    /// At least two decimals, and no more than are needed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = format!("{:09}", self.0 % NANO);
        let shown = decimals.trim_end_matches('0').len().max(2);
        write!(f, "{}.{}", self.0 / NANO, &decimals[..shown])
    }
}

impl Serialize for Usd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Usd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::Usd;

    #[test]
    fn amounts_are_exact_in_both_directions() {
        for (text, nano, shown) in [
            ("1.25", 1_250_000_000, "1.25"),
            ("0", 0, "0.00"),
            ("5", 5_000_000_000, "5.00"),
            ("0.000000001", 1, "0.000000001"),
            ("0.0375", 37_500_000, "0.0375"),
        ] {
            let usd = Usd::parse(text).unwrap();
            assert_eq!((usd.nano(), usd.to_string().as_str()), (nano, shown));
        }
        assert_eq!(Usd::from_nano(1).micro(), 1, "never shown as less");
        assert_eq!(Usd::from_nano(2_000).micro(), 2, "control");
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for text in [
            "",
            ".",
            "1.",
            ".5",
            "-1",
            "+1",
            "1e3",
            "1,5",
            " 1",
            "0.0000000001",
            "99999999999",
            "$1",
            "NaN",
        ] {
            assert!(Usd::parse(text).is_err(), "{text}");
        }
        assert!(Usd::parse("9999999999.999999999").is_ok(), "control");
    }
}
