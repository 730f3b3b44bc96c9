//! Patterns of hosts, requests and refs. Compiled at load; matching allocates nothing.

use std::fmt;

use crate::authority::{DnsName, Host};
use crate::path::{self, Target};

/// A host, or `*.suffix` for one or more labels below a suffix and never the suffix itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostPattern {
    /// Exactly this host.
    Exact(Host),
    /// Every name below this one.
    Below(DnsName),
}

/// A method that the gate knows. TRACE, CONNECT and everything else have no value here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Options,
}

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
    /// The raw query that must stand there exactly; any query will do when `None`.
    query: Option<String>,
}

/// One segment of a path glob.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    /// `**`: any number of segments, also none.
    Many,
    /// Text in which `*` stands for any characters of this segment.
    One(String),
}

/// A ref, or a pattern with one `*` that spans slashes, as in git's refspecs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RefGlob(String);

/// How literally a deny or an allow entry is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    Exact,
    Ignore,
}

impl HostPattern {
    /// Parses `host` or `*.suffix`. Suffixes that strangers share (`*.com`, `*.co.uk`,
    /// `*.github.io`) are refused.
    ///
    /// # Errors
    /// The reason, as a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(suffix) = text.strip_prefix("*.") else {
            if text == "*" {
                return Err(String::from("`*` would cover every host there is"));
            }
            if text.contains('*') {
                return Err(format!(
                    "`{text}`: `*` may only stand as the whole first label"
                ));
            }
            return Host::parse(text)
                .map(Self::Exact)
                .map_err(|error| error.to_string());
        };
        if suffix.contains('*') {
            return Err(format!(
                "`{text}`: `*` may only stand as the whole first label"
            ));
        }
        let name = DnsName::parse(suffix).map_err(|error| error.to_string())?;
        if crate::suffix::is_shared(name.as_str()) {
            return Err(format!(
                "`{text}` covers names that belong to strangers: anybody can have one below `{name}`"
            ));
        }
        Ok(Self::Below(name))
    }

    /// Whether the host is covered.
    #[must_use]
    pub fn matches(&self, host: &Host) -> bool {
        match self {
            Self::Exact(exact) => exact == host,
            Self::Below(suffix) => host
                .as_name()
                .is_some_and(|name| is_below(name, suffix.as_str())),
        }
    }

    /// Whether every host of `other` is covered by this pattern.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Exact(host)) => self.matches(host),
            (Self::Exact(_), Self::Below(_)) => false,
            (Self::Below(wide), Self::Below(narrow)) => {
                wide == narrow || is_below(narrow.as_str(), wide.as_str())
            }
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) => host.fmt(f),
            Self::Below(suffix) => write!(f, "*.{suffix}"),
        }
    }
}

impl Method {
    const ALL: [(Self, &'static str); 7] = [
        (Self::Get, "GET"),
        (Self::Head, "HEAD"),
        (Self::Post, "POST"),
        (Self::Put, "PUT"),
        (Self::Patch, "PATCH"),
        (Self::Delete, "DELETE"),
        (Self::Options, "OPTIONS"),
    ];

    /// The method with exactly this name.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(_, name)| *name == text)
            .map(|(method, _)| *method)
    }

    /// All names, for messages and nearest-name hints.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|(_, name)| *name)
    }

    fn bit(self) -> u8 {
        match self {
            Self::Get => 1,
            Self::Head => 2,
            Self::Post => 4,
            Self::Put => 8,
            Self::Patch => 16,
            Self::Delete => 32,
            Self::Options => 64,
        }
    }
}

/// Every bit of [`Method::bit`].
const ALL_METHODS: u8 = 0x7f;

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
        let methods = parse_methods(methods_text)?;
        let (path_text, query) = match pattern_text.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (pattern_text, None),
        };
        let target = Target::parse(pattern_text)
            .map_err(|error| (format!("`{pattern_text}`: {error}"), form()))?;
        if target.path().matches('*').count() != path_text.matches('*').count() {
            let remedy =
                String::from("use `*` for the whole segment; a literal `*` cannot be written");
            return Err((format!("`{pattern_text}` has an encoded `*`"), remedy));
        }
        let segments = target
            .segments()
            .map(parse_segment)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            methods_text: methods_text.to_owned(),
            pattern_text: pattern_text.to_owned(),
            methods,
            segments,
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
        self.covers_method(method)
            && (match_segments(&self.segments, target.literal(), Case::Ignore)
                || match_segments(&self.segments, target.loose(), Case::Ignore))
    }

    /// The entry for a deny list: empty segments dropped, as [`Target::loose`] drops them.
    pub(crate) fn loosened(mut self) -> Self {
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

fn parse_methods(text: &str) -> Result<u8, (String, String)> {
    if text == "*" {
        return Ok(ALL_METHODS);
    }
    let mut bits = 0;
    for name in text.split(',') {
        let Some(method) = Method::parse(name) else {
            let known = Method::names().collect::<Vec<_>>().join(", ");
            let upper = name.to_ascii_uppercase();
            let remedy = if Method::parse(&upper).is_some() {
                format!("write `{upper}`")
            } else {
                format!("the gate knows {known}, and `*` for all of them")
            };
            return Err((
                format!("`{name}` is not a method the gate lets through"),
                remedy,
            ));
        };
        bits |= method.bit();
    }
    Ok(bits)
}

fn parse_segment(text: &str) -> Result<Segment, (String, String)> {
    if text == "**" {
        return Ok(Segment::Many);
    }
    if text.contains("**") {
        let remedy =
            String::from("`**` stands alone between slashes; `*` stands for a part of a segment");
        return Err((format!("`{text}` has `**` beside other characters"), remedy));
    }
    Ok(Segment::One(text.to_owned()))
}

/// Matches segments against segments; only the last `**` ever needs to be revisited, so the cost
/// is at most the product of both lengths.
fn match_segments(pattern: &[Segment], path: &[path::Piece<'_>], case: Case) -> bool {
    let (mut p, mut s) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        match (pattern.get(p), path.get(s)) {
            (Some(Segment::Many), _) => {
                retry = Some((p + 1, s));
                p += 1;
                continue;
            }
            (Some(Segment::One(glob)), Some(text)) if match_one(glob, text.as_ref(), case) => {
                p += 1;
                s += 1;
                continue;
            }
            (None, None) => return true,
            (Some(Segment::One(_)) | None, _) => {}
        }
        match retry {
            Some((after, from)) if from < path.len() => {
                retry = Some((after, from + 1));
                p = after;
                s = from + 1;
            }
            Some(_) | None => return false,
        }
    }
}

/// `*` within one segment, by the same method, byte by byte.
fn match_one(glob: &str, text: &str, case: Case) -> bool {
    let (glob, text) = (glob.as_bytes(), text.as_bytes());
    let same = |a: u8, b: u8| match case {
        Case::Exact => a == b,
        Case::Ignore => a.eq_ignore_ascii_case(&b),
    };
    let (mut g, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        match (glob.get(g), text.get(t)) {
            (Some(b'*'), _) => {
                retry = Some((g + 1, t));
                g += 1;
                continue;
            }
            (Some(&want), Some(&have)) if same(want, have) => {
                g += 1;
                t += 1;
                continue;
            }
            (None, None) => return true,
            (Some(_) | None, _) => {}
        }
        match retry {
            Some((after, from)) if from < text.len() => {
                retry = Some((after, from + 1));
                g = after;
                t = from + 1;
            }
            Some(_) | None => return false,
        }
    }
}

fn is_below(name: &str, suffix: &str) -> bool {
    name.strip_suffix(suffix)
        .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

#[cfg(test)]
mod tests;
