//! What is counted.

use policy::grant::Limit;
use policy::money::Usd;
use serde::{Deserialize, Serialize};

/// So much of everything that can be limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Amount {
    /// Billionths of a US dollar.
    #[serde(rename = "n", default)]
    pub nano: u64,
    /// Tokens that models read and wrote.
    #[serde(rename = "t", default)]
    pub tokens: u64,
    /// Requests.
    #[serde(rename = "r", default)]
    pub requests: u64,
    /// Bytes of bodies, both ways.
    #[serde(rename = "b", default)]
    pub bytes: u64,
}

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    Money,
    Tokens,
    Requests,
    Bytes,
    Seconds,
}

impl Amount {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            nano: self.nano.saturating_add(other.nano),
            tokens: self.tokens.saturating_add(other.tokens),
            requests: self.requests.saturating_add(other.requests),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    /// What is left of it without `other`.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self {
            nano: self.nano.saturating_sub(other.nano),
            tokens: self.tokens.saturating_sub(other.tokens),
            requests: self.requests.saturating_sub(other.requests),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    /// The larger of each two.
    #[must_use]
    pub fn or_more(self, other: Self) -> Self {
        Self {
            nano: self.nano.max(other.nano),
            tokens: self.tokens.max(other.tokens),
            requests: self.requests.max(other.requests),
            bytes: self.bytes.max(other.bytes),
        }
    }

    /// Which of the limits is reached by this, of those that `wanted` takes anything of: the one with
    /// what it says.
    #[must_use]
    pub fn reaches(&self, limit: &Limit, wanted: &Self) -> Option<(Measure, u64, u64)> {
        let nano = limit.usd.map(Usd::nano);
        let all = [
            (Measure::Money, self.nano, nano, wanted.nano),
            (Measure::Tokens, self.tokens, limit.tokens, wanted.tokens),
            (
                Measure::Requests,
                self.requests,
                limit.requests,
                wanted.requests,
            ),
            (Measure::Bytes, self.bytes, limit.bytes, wanted.bytes),
        ];
        all.into_iter().find_map(|(measure, taken, limit, wanted)| {
            let limit = limit.filter(|limit| wanted > 0 && taken >= *limit)?;
            Some((measure, taken, limit))
        })
    }
}

impl Measure {
    /// So much of it, for people.
    #[must_use]
    pub fn shown(self, amount: u64) -> String {
        match self {
            Self::Money => format!("{} US dollars", Usd::from_nano(amount)),
            Self::Tokens => format!("{amount} tokens"),
            Self::Requests => format!("{amount} requests"),
            Self::Bytes => format!("{amount} bytes"),
            Self::Seconds => format!("{amount} s"),
        }
    }
}
