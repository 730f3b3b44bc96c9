//! The name of an entry: a path inside the store, without `.gpg`.

use std::fmt;

/// Why a text names no entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "is not the name of an entry: write a path inside the store such as agents/github, \
     without .gpg, dots at the start or control characters"
)]
pub struct NotAName;

/// Words joined by `/`. None is empty, begins with a dot, or holds a control character, so that the
/// path stays inside the store and out of `.git`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryName(String);

impl EntryName {
    /// # Errors
    /// [`NotAName`]
    pub fn parse(text: &str) -> Result<Self, NotAName> {
        let word = |word: &str| {
            !word.is_empty()
                && !word.starts_with('.')
                && word.len() <= 200
                && !word.contains(|c: char| c.is_control() || c == '\\')
        };
        let fits = text.len() <= 1024 && !text.ends_with(".gpg") && text.split('/').all(word);
        fits.then(|| Self(text.to_owned())).ok_or(NotAName)
    }

    /// The name as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The file inside the store.
    #[must_use]
    pub fn file(&self) -> String {
        format!("{}.gpg", self.0)
    }

    /// The folder it lies in; empty for the store itself.
    #[must_use]
    pub fn folder(&self) -> &str {
        self.0.rsplit_once('/').map_or("", |(folder, _)| folder)
    }
}

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_inside_the_store() {
        for good in ["github", "agents/github", "a b/c@d", "agents/pve.example"] {
            assert_eq!(
                EntryName::parse(good).unwrap().file(),
                format!("{good}.gpg")
            );
        }
        for bad in [
            "",
            "/etc/passwd",
            "a//b",
            "a/",
            "../up",
            "a/../b",
            ".git/config",
            "a/.gpg-id",
            "a.gpg",
            "a\nb",
            "a\\b",
            "a\0b",
        ] {
            assert!(EntryName::parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(EntryName::parse("a/b/c").unwrap().folder(), "a/b");
        assert_eq!(EntryName::parse("c").unwrap().folder(), "");
    }
}
