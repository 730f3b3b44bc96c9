//! Who runs a model: whose prices count, and what the answers' counts mean.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A provider of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// api.anthropic.com
    Anthropic,
    /// api.openai.com
    Openai,
    /// generativelanguage.googleapis.com
    Google,
    /// openrouter.ai
    Openrouter,
    /// A server of one's own.
    Ollama,
    /// Any other that speaks one of their languages.
    Compatible,
}

impl Provider {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Anthropic,
        Self::Openai,
        Self::Google,
        Self::Openrouter,
        Self::Ollama,
        Self::Compatible,
    ];

    /// As policies and price tables write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Openai => "openai",
            Self::Google => "google",
            Self::Openrouter => "openrouter",
            Self::Ollama => "ollama",
            Self::Compatible => "compatible",
        }
    }

    /// The provider of this name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == text)
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
