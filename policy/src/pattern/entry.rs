//! One line of `allow`, `deny` or `push`.

use std::fmt;

use super::glob::{self, Case, Segment, match_segments};
use super::method::{self, Method};
use crate::path::{ENCODED_SLASH, RECEIVE_PACK, Slashes, Target};

/// One line of `allow`, `deny` or `push`: `METHOD[,METHOD] /glob[?query]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The methods' part, as written.
    methods_text: String,
    /// The pattern's part, as written.
    pattern_text: String,
    /// A bit per [`Method`].
    methods: u8,
    segments: Vec<Segment>,
    /// For a deny list: the segments with every encoded slash taken for a slash, if there is one.
    split: Option<Vec<Segment>>,
    /// The raw query that must stand there exactly; any query will do when `None`.
    query: Option<String>,
}

impl Entry {
    /// Parses one line.
    ///
    /// # Errors
    /// The problem and its remedy.
    pub(crate) fn parse(text: &str) -> Result<Self, (String, String)> {
        let form =
            || String::from("write `METHOD /path` or `METHOD,METHOD /path`, such as `GET /v1/**`");
        let Some((methods_text, pattern_text)) = text.split_once(' ') else {
            let problem = if text.starts_with('/') {
                format!("`{text}` names no method")
            } else {
                format!("`{text}` is not a method and a path")
            };
            return Err((problem, form()));
        };
        if pattern_text.contains(' ') {
            return Err((format!("`{text}` has more than one space"), form()));
        }
        let methods = method::parse_set(methods_text)?;
        let (path_text, query) = match pattern_text.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (pattern_text, None),
        };
        let target = Target::parse_with(pattern_text, Slashes::Segment)
            .map_err(|error| (format!("`{pattern_text}`: {error}"), form()))?;
        if target.path().matches('*').count() != path_text.matches('*').count() {
            let remedy =
                String::from("use `*` for the whole segment; a literal `*` cannot be written");
            return Err((format!("`{pattern_text}` has an encoded `*`"), remedy));
        }
        let segments = target
            .segments()
            .map(Segment::parse)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            methods_text: methods_text.to_owned(),
            pattern_text: pattern_text.to_owned(),
            methods,
            segments,
            split: None,
            query,
        })
    }

    /// The pattern without its methods.
    pub(crate) fn pattern(&self) -> &str {
        &self.pattern_text
    }

    /// Whether the entry asks for an exact query.
    pub(crate) fn has_query(&self) -> bool {
        self.query.is_some()
    }

    /// The exact query that the entry asks for.
    pub(crate) fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    /// Whether the two entries share a method and have the same pattern.
    pub(crate) fn coincides(&self, other: &Self) -> bool {
        self.methods & other.methods != 0
            && self.segments == other.segments
            && self.query == other.query
    }

    /// Whether the path begins with these literal segments.
    pub(crate) fn starts_with(&self, literal: &[&str]) -> bool {
        self.segments.len() > literal.len()
            && literal
                .iter()
                .zip(&self.segments)
                .all(|(want, have)| match have {
                    Segment::Many => false,
                    Segment::One(text) => text == want,
                })
    }

    /// Whether the path is written out as one that git pushes to.
    pub(crate) fn names_a_push(&self) -> bool {
        match self.segments.last() {
            Some(Segment::One(text)) => text.eq_ignore_ascii_case(RECEIVE_PACK),
            Some(Segment::Many) | None => false,
        }
    }

    /// Whether an allow or push entry covers the method.
    pub(crate) fn covers_method(&self, method: Method) -> bool {
        self.methods & method.bit() != 0
    }

    /// Whether the path and the query are covered, whatever the method.
    pub(crate) fn covers_target(&self, target: &Target<'_>, case: Case) -> bool {
        self.query
            .as_deref()
            .is_none_or(|query| target.query() == Some(query))
            && match_segments(&self.segments, target.literal(), case)
    }

    /// Whether a deny entry hits. Denying reads a path as widely as an upstream might: letter case,
    /// repeated slashes and `;parameters` make no difference.
    pub(crate) fn denies(&self, method: Method, target: &Target<'_>) -> bool {
        self.covers_method(method) && self.denies_target(target)
    }

    /// The same whatever the method.
    pub(crate) fn denies_target(&self, target: &Target<'_>) -> bool {
        let hits = |segments: &[Segment]| {
            target
                .readings()
                .any(|reading| match_segments(segments, reading, Case::Ignore))
        };
        hits(&self.segments) || self.split.as_deref().is_some_and(hits)
    }

    /// The methods, a bit for each.
    pub(crate) fn methods(&self) -> u8 {
        self.methods
    }

    /// Whether every target that `other` covers is covered here, whatever the methods. Never true where it
    /// is not so.
    pub(crate) fn covers(&self, case: Case, other: &Self, other_case: Case) -> bool {
        let letters = || {
            other
                .pattern_text
                .bytes()
                .any(|byte| byte.is_ascii_alphabetic())
        };
        let narrower = case == Case::Exact && other_case == Case::Ignore && letters();
        !narrower
            && (self.query.is_none() || self.query == other.query)
            && glob::covers(&self.segments, &other.segments, case)
    }

    /// Whether the path is written with an encoded slash.
    pub(crate) fn has_encoded_slash(&self) -> bool {
        self.segments.iter().any(|segment| match segment {
            Segment::Many => false,
            Segment::One(text) => text.contains(ENCODED_SLASH),
        })
    }

    /// The entry for a deny list: empty segments dropped, as [`Target::readings`] drops them, and
    /// encoded slashes read in both ways.
    pub(crate) fn loosened(mut self) -> Self {
        self.split = self.has_encoded_slash().then(|| {
            let parts = |segment: &Segment| match segment {
                Segment::Many => vec![Segment::Many],
                Segment::One(text) => {
                    let part = |part: &str| Segment::One(part.to_owned());
                    text.split(ENCODED_SLASH).map(part).collect()
                }
            };
            self.segments.iter().flat_map(parts).collect()
        });
        self.segments.retain(|segment| match segment {
            Segment::Many => true,
            Segment::One(text) => !text.is_empty(),
        });
        self
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.methods_text, self.pattern_text)
    }
}
