//! Patterns of git refs.

use super::glob::Case;

/// A ref, or a pattern with one `*` that spans slashes, as in git's refspecs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RefGlob(String);

impl RefGlob {
    /// Parses a full ref name or a pattern below `refs/heads/`, `refs/tags/` or another namespace.
    ///
    /// # Errors
    /// The problem and its remedy.
    pub(crate) fn parse(text: &str) -> Result<Self, (String, String)> {
        let full = || {
            format!(
                "write the full name, such as `refs/heads/{}`",
                text.trim_matches('/')
            )
        };
        let Some(below) = text.strip_prefix("refs/") else {
            return Err((format!("`{text}` is not a full ref name"), full()));
        };
        let (space, rest) = below.split_once('/').unwrap_or((below, ""));
        if space.contains('*') {
            let remedy = "name branches and tags separately: `refs/heads/...`, `refs/tags/...`";
            let problem = format!("`{text}` would cover branches, tags and everything else");
            return Err((problem, remedy.to_owned()));
        }
        if rest.is_empty() {
            let remedy = format!("write a name below it, such as `refs/{space}/agent/*`");
            return Err((format!("`{text}` names no ref"), remedy));
        }
        if rest.matches('*').count() > 1 {
            let remedy = String::from("one `*` spans slashes already, as in git's refspecs");
            return Err((format!("`{text}` has more than one `*`"), remedy));
        }
        if !is_ref_name(&text.replace('*', "x")) {
            let remedy = String::from("see git-check-ref-format(1)");
            return Err((format!("`{text}` is no ref name that git accepts"), remedy));
        }
        Ok(Self(text.to_owned()))
    }

    /// Whether the ref is covered. Names are compared byte by byte.
    pub(crate) fn matches(&self, name: &str) -> bool {
        match self.0.split_once('*') {
            None => self.0 == name,
            Some((before, after)) => name
                .strip_prefix(before)
                .and_then(|rest| rest.strip_suffix(after))
                .is_some_and(|middle| !middle.is_empty()),
        }
    }

    /// Whether every ref that `other` covers is covered here.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        // A `*` stands for something, so a ref that lacks it there is none of the pattern's.
        other.0.contains('*')
            && super::glob::covers_text(self.0.as_bytes(), other.0.as_bytes(), Case::Exact)
            || !other.0.contains('*') && self.matches(&other.0)
    }

    /// The pattern as written.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether git accepts this as a full ref name (git-check-ref-format, without its options).
pub(crate) fn is_ref_name(name: &str) -> bool {
    let bad = |byte: u8| byte <= b' ' || byte == 0x7f || b"~^:?*[\\".contains(&byte);
    name.starts_with("refs/")
        && !name.bytes().any(bad)
        && !name.contains("..")
        && !name.contains("@{")
        && !name.ends_with('.')
        && name
            .split('/')
            .all(|part| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock"))
}
