//! Targets that can be read in one way only.
//!
//! Whatever an upstream might read differently is refused, never normalised: dot segments, encoded
//! or not, encoded slashes and backslashes, control bytes, bytes outside ASCII, double encoding,
//! percent escapes that are not UTF-8. What is left is decoded exactly once for matching. One thing
//! can be opened: an encoded slash as an opaque character within a segment ([`Slashes::Segment`]),
//! as names of packages and projects have it (`/@scope%2fname`).

use std::borrow::Cow;

/// A target that can be read in one way only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target<'a> {
    decoded: Cow<'a, str>,
    literal: Vec<Piece<'a>>,
    loose: Vec<Piece<'a>>,
    /// The same two readings with every encoded slash taken for a slash; `None` without one.
    split: Option<[Vec<Piece<'a>>; 2]>,
    query: Option<&'a str>,
}

/// What an encoded slash in a path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slashes {
    /// A reason to refuse the target.
    Refused,
    /// A character of its segment that is no slash, stands between two others of it, and is never
    /// decoded. Denying looks at both readings.
    Segment,
}

/// What stands for an encoded slash in a piece: a character that no accepted path decodes to.
pub(crate) const ENCODED_SLASH: char = '\0';

/// One segment of a path, borrowed where the path had no escapes.
pub(crate) type Piece<'a> = Cow<'a, str>;

/// Why a target was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Not origin form.
    #[error("the target does not start with `/`")]
    NotOriginForm,
    /// `.` or `..` as a segment, encoded or not.
    #[error("the path has a `.` or `..` segment")]
    DotSegment,
    /// An encoded slash where none is opened.
    #[error("the path has an encoded slash")]
    Slash,
    /// An encoded slash at the edge of a segment or beside another one, whatever is opened.
    #[error("the path has an encoded slash that does not stand between two parts of a name")]
    EdgeSlash,
    /// A backslash, encoded or not.
    #[error("the path has a backslash")]
    Backslash,
    /// A control byte or a space, encoded (control only) or not.
    #[error("the path has a control character or a space")]
    Control,
    /// A raw byte outside ASCII, or escapes that do not decode to UTF-8.
    #[error("the path has bytes that are not ASCII or escapes that are not UTF-8")]
    NotUtf8,
    /// A `%` that is not followed by two hexadecimal digits.
    #[error("the path has a `%` that is no percent escape")]
    BadEscape,
    /// An escape that decodes to another escape.
    #[error("the path is percent-encoded twice")]
    DoubleEncoding,
    /// A fragment, which never travels in a request.
    #[error("the target has a `#`")]
    Fragment,
    /// The target is longer than the gate reads.
    #[error("the target is longer than 16384 bytes")]
    TooLong,
}

const MAX_TARGET: usize = 16_384;
/// Names of query parameters by which frameworks take a method other than the request's, in lower
/// case and with `-` for `_`.
const METHOD_OVERRIDES: &[&str] = &[
    "-method",
    "-httpmethod",
    "$httpmethod",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
];
/// The last segment of every path that git pushes to.
pub(crate) const RECEIVE_PACK: &str = "git-receive-pack";

impl<'a> Target<'a> {
    /// Checks and decodes an origin-form target, without encoded slashes.
    ///
    /// # Errors
    /// See [`PathError`].
    pub fn parse(raw: &'a str) -> Result<Self, PathError> {
        Self::parse_with(raw, Slashes::Refused)
    }

    /// Checks and decodes an origin-form target.
    ///
    /// # Errors
    /// See [`PathError`].
    pub fn parse_with(raw: &'a str, slashes: Slashes) -> Result<Self, PathError> {
        if raw.len() > MAX_TARGET {
            return Err(PathError::TooLong);
        }
        if !raw.starts_with('/') {
            return Err(PathError::NotOriginForm);
        }
        let (path, query) = match raw.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (raw, None),
        };
        if raw.contains('#') {
            return Err(PathError::Fragment);
        }
        if query.is_some_and(|query| query.bytes().any(|byte| !byte.is_ascii_graphic())) {
            return Err(PathError::Control);
        }
        let decoded = decode(path, slashes)?;
        let literal = pieces(&decoded, &['/']);
        let loose = loosened(&literal);
        let split = decoded.contains(ENCODED_SLASH).then(|| {
            let literal = pieces(&decoded, &['/', ENCODED_SLASH]);
            let loose = loosened(&literal);
            [literal, loose]
        });
        let decoded = match split {
            Some(_) => Cow::Owned(decoded.replace(ENCODED_SLASH, "%2F")),
            None => decoded,
        };
        Ok(Self {
            decoded,
            literal,
            loose,
            split,
            query,
        })
    }

    /// The path, decoded once. An encoded slash stays one, as `%2F`.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.decoded
    }

    /// Whether a segment has an encoded slash.
    #[must_use]
    pub fn has_encoded_slash(&self) -> bool {
        self.split.is_some()
    }

    /// The segments after the leading slash, decoded once. `/` has one empty segment. An encoded
    /// slash is U+0000, which nothing else decodes to.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.literal.iter().map(AsRef::as_ref)
    }

    /// The segments as they stand.
    pub(crate) fn literal(&self) -> &[Piece<'a>] {
        &self.literal
    }

    /// Every way in which a careless upstream might read the segments: as they stand, or with
    /// repeated slashes merged, a trailing slash dropped and `;parameters` removed; and both once
    /// more with encoded slashes taken for slashes. Only denying looks at these.
    pub(crate) fn readings(&self) -> impl Iterator<Item = &[Piece<'a>]> {
        [&self.literal, &self.loose]
            .into_iter()
            .chain(self.split.iter().flatten())
            .map(Vec::as_slice)
    }

    /// Whether the path is where git's smart protocol takes pushes, in any spelling that an upstream
    /// might read as that.
    pub(crate) fn takes_a_push(&self) -> bool {
        let split = self.split.as_ref().map(|[_, loose]| loose);
        [Some(&self.loose), split]
            .into_iter()
            .flatten()
            .filter_map(|reading| reading.last())
            .any(|last| last.eq_ignore_ascii_case(RECEIVE_PACK))
    }

    /// Whether the query asks a framework behind the gate to take the request for one of another
    /// method (`_method` and its kin).
    pub(crate) fn overrides_the_method(&self) -> bool {
        let name = |part: &str| {
            let name = part.split('=').next().unwrap_or(part);
            let name = unescaped(name).to_ascii_lowercase().replace('_', "-");
            METHOD_OVERRIDES.contains(&name.as_str())
        };
        self.query
            .is_some_and(|query| query.split(['&', ';']).any(name))
    }

    /// The raw query, without its `?`.
    #[must_use]
    pub fn query(&self) -> Option<&'a str> {
        self.query
    }
}

/// The pieces of a decoded path after its first slash.
fn pieces<'a>(decoded: &Cow<'a, str>, at: &[char]) -> Vec<Piece<'a>> {
    match decoded {
        Cow::Borrowed(text) => text[1..].split(at).map(Cow::Borrowed).collect(),
        Cow::Owned(text) => {
            let owned = |piece: &str| Cow::Owned(piece.to_owned());
            text[1..].split(at).map(owned).collect()
        }
    }
}

fn loosened<'a>(literal: &[Piece<'a>]) -> Vec<Piece<'a>> {
    literal
        .iter()
        .map(without_parameters)
        .filter(|piece| !piece.is_empty())
        .collect()
}

/// Decodes every escape of a path once, refusing whatever could be read in two ways. An encoded
/// slash that is opened becomes [`ENCODED_SLASH`].
fn decode(path: &str, slashes: Slashes) -> Result<Cow<'_, str>, PathError> {
    let mut bytes = Vec::with_capacity(path.len());
    let raw = path.as_bytes();
    let mut at = 0;
    while let Some(&byte) = raw.get(at) {
        at += 1;
        match byte {
            b'%' => {
                let escape = raw.get(at..at + 2).ok_or(PathError::BadEscape)?;
                let value = hex(escape).ok_or(PathError::BadEscape)?;
                at += 2;
                match value {
                    b'/' => match slashes {
                        Slashes::Refused => return Err(PathError::Slash),
                        Slashes::Segment => bytes.push(b'\0'),
                    },
                    b'\\' => return Err(PathError::Backslash),
                    0..=0x1f | 0x7f => return Err(PathError::Control),
                    other => bytes.push(other),
                }
            }
            b'\\' => return Err(PathError::Backslash),
            0..=0x20 | 0x7f => return Err(PathError::Control),
            0x80.. => return Err(PathError::NotUtf8),
            other => bytes.push(other),
        }
    }
    let decoded = if path.contains('%') {
        Cow::Owned(String::from_utf8(bytes).map_err(|_| PathError::NotUtf8)?)
    } else {
        Cow::Borrowed(path)
    };
    // An escape of an escape may be spelt by escapes throughout: `%25%32%65`.
    if decoded != path && holds_an_escape(decoded.as_bytes()) {
        return Err(PathError::DoubleEncoding);
    }
    // Only U+0080 to U+009F can be left here: the rest was refused byte by byte.
    if decoded
        .chars()
        .any(|c| c.is_control() && c != ENCODED_SLASH)
    {
        return Err(PathError::Control);
    }
    // `;` starts a path parameter, which some servers drop before they resolve dot segments.
    let dots = |segment: &str| matches!(segment.split(';').next(), Some("." | ".."));
    if decoded.split(['/', ENCODED_SLASH]).any(dots) {
        return Err(PathError::DotSegment);
    }
    let at_an_edge = |segment: &str| {
        segment.contains(ENCODED_SLASH) && segment.split(ENCODED_SLASH).any(str::is_empty)
    };
    if decoded.split('/').any(at_an_edge) {
        return Err(PathError::EdgeSlash);
    }
    Ok(decoded)
}

fn holds_an_escape(bytes: &[u8]) -> bool {
    bytes
        .windows(3)
        .any(|three| three.starts_with(b"%") && three.get(1..).and_then(hex).is_some())
}

fn without_parameters<'a>(piece: &Piece<'a>) -> Piece<'a> {
    match piece {
        Cow::Borrowed(text) => Cow::Borrowed(text.split(';').next().unwrap_or(text)),
        Cow::Owned(text) => Cow::Owned(text.split(';').next().unwrap_or(text).to_owned()),
    }
}

/// Escapes of a query's name decoded once; what is no escape stays as it is.
fn unescaped(text: &str) -> String {
    let raw = text.as_bytes();
    let mut bytes = Vec::with_capacity(raw.len());
    let mut at = 0;
    while let Some(&byte) = raw.get(at) {
        at += 1;
        match raw.get(at..at + 2).and_then(hex) {
            Some(value) if byte == b'%' => {
                bytes.push(value);
                at += 2;
            }
            Some(_) | None => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digits: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(digits).ok()?;
    if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u8::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests;
