//! Names of models, and patterns of them.

use std::fmt;

/// A pattern of model names: `*` stands for any characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelGlob(String);

/// The longest name of a model.
const MOST_NAME: usize = 256;

impl ModelGlob {
    /// Parses a pattern; the problem and its remedy otherwise.
    ///
    /// # Errors
    /// It is empty or long, has a character that no model's name has, or too many `*`.
    pub fn parse(text: &str) -> Result<Self, (String, String)> {
        let stars = text.bytes().filter(|byte| *byte == b'*').count();
        if text.is_empty()
            || text.len() > MOST_NAME
            || !text.bytes().all(|byte| byte.is_ascii_graphic())
            || stars > 4
        {
            let remedy =
                "write a name such as \"claude-sonnet-4-5*\"; `*` stands for any characters";
            return Err((format!("`{text}` names no model"), remedy.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it covers this name.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let (Some(first), Some(mut rest)) = (parts.next(), name.strip_prefix(self.head())) else {
            return false;
        };
        if first.len() == self.0.len() {
            return rest.is_empty();
        }
        let mut middle: Vec<&str> = parts.collect();
        let last = middle.pop().unwrap_or_default();
        for part in middle {
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }

    /// How much of a name it says.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.0.bytes().filter(|byte| *byte != b'*').count()
    }

    fn head(&self) -> &str {
        self.0.split('*').next().unwrap_or_default()
    }
}

impl fmt::Display for ModelGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::ModelGlob;

    #[test]
    fn a_pattern_covers_what_it_says_and_nothing_else() {
        let covers = |glob: &str, name: &str| ModelGlob::parse(glob).unwrap().matches(name);
        for (glob, name) in [
            ("gpt-5", "gpt-5"),
            ("*", ""),
            ("*", "x"),
            ("claude-*", "claude-x"),
            ("claude-*-4*", "claude-sonnet-4-5"),
            ("*:free", "a:free:free"),
            ("a*b*c", "abbc"),
        ] {
            assert!(covers(glob, name), "{glob} {name}");
        }
        for (glob, name) in [
            ("gpt-5", "gpt-5-mini"),
            ("gpt-5", "gpt"),
            ("gpt-5*", "GPT-5"),
            ("claude-*-4*", "claude-4"),
            ("ab*b", "ab"),
            ("a*b*c", "acb"),
        ] {
            assert!(!covers(glob, name), "{glob} {name}");
        }
        for text in ["", "a b", "ü", "*****"] {
            assert!(ModelGlob::parse(text).is_err(), "{text}");
        }
    }
}
