//! What a guest or its volume is called: a name that every driver, a host name and a path take as it is.

use std::fmt;
use std::str::FromStr;

/// Host names have 63 characters, and the volume's name adds five.
const LONGEST: usize = 40;

/// A lower-case letter, then letters, digits and inner dashes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(String);

/// Why a text is no name.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} cannot name a guest or a volume\n  hint: a lower-case letter, then up to 39 letters, digits or inner dashes; it becomes the host name"
)]
pub struct NameError(String);

impl Name {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The data volume of a guest of this name, unless another one is asked for.
    #[must_use]
    pub fn volume(&self) -> Self {
        Self(format!("{}-data", self.0))
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let plain = text.starts_with(|c: char| c.is_ascii_lowercase())
            && !text.ends_with('-')
            && text.len() <= LONGEST
            && text
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        if plain {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError(text.to_owned()))
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_mean_something_else_in_a_path_or_a_host_name_is_no_name() {
        let of = |text: &str| text.parse::<Name>();
        assert_eq!(of("agents-2").unwrap().volume().as_str(), "agents-2-data");
        let long = "a".repeat(41);
        for text in [
            "", "Agents", "2a", "a-", "a_b", "a/b", "../a", "a b", "a?b", "a.b", &long,
        ] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
