//! Names of credentials. This room knows no values: the gate holds those.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The name of a credential: `[a-z0-9][a-z0-9._-]{0,63}`. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CredentialName(Arc<str>);

/// A text that is no credential name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a credential's name is 1 to 64 of a-z, 0-9, `.`, `_` and `-`, and starts with a letter or digit"
)]
pub struct CredentialNameError;

impl CredentialName {
    /// Parses a name.
    ///
    /// # Errors
    /// [`CredentialNameError`]; the text is not repeated, since people paste secrets here.
    pub fn parse(text: &str) -> Result<Self, CredentialNameError> {
        let first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let rest = |byte: u8| first(byte) || matches!(byte, b'.' | b'_' | b'-');
        let good = (1..=64).contains(&text.len())
            && text.bytes().next().is_some_and(first)
            && text.bytes().all(rest);
        if good {
            Ok(Self(text.into()))
        } else {
            Err(CredentialNameError)
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CredentialName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for CredentialName {
    type Err = CredentialNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl Serialize for CredentialName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for CredentialName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}
