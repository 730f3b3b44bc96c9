//! Path globs: `*` within a segment, `**` for any number of segments.

use crate::path::Piece;

/// One segment of a path glob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Segment {
    /// `**`: any number of segments, also none.
    Many,
    /// Text in which `*` stands for any characters of this segment.
    One(String),
}

/// How literally a deny or an allow entry is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    Exact,
    Ignore,
}

impl Segment {
    /// Reads one segment of a pattern; the problem and its remedy otherwise.
    pub(super) fn parse(text: &str) -> Result<Segment, (String, String)> {
        if text == "**" {
            return Ok(Segment::Many);
        }
        if text.contains("**") {
            let remedy = String::from(
                "`**` stands alone between slashes; `*` stands for a part of a segment",
            );
            return Err((format!("`{text}` has `**` beside other characters"), remedy));
        }
        Ok(Segment::One(text.to_owned()))
    }
}

/// Matches segments against segments; only the last `**` ever needs to be revisited, so the cost
/// is at most the product of both lengths.
pub(super) fn match_segments(pattern: &[Segment], path: &[Piece<'_>], case: Case) -> bool {
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

/// `*` for any characters of a text.
pub(crate) fn text_matches(glob: &str, text: &str) -> bool {
    match_one(glob, text, Case::Exact)
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

/// Whether every path that `narrow` matches is matched by `wide`. Never true where it is not so; it may be
/// false where only several patterns together would cover `narrow`.
pub(super) fn covers(wide: &[Segment], narrow: &[Segment], case: Case) -> bool {
    match (wide.split_first(), narrow.split_first()) {
        (None, None) => true,
        (None, Some(_)) => false,
        (Some((Segment::Many, rest)), more) => {
            covers(rest, narrow, case) || more.is_some_and(|(_, more)| covers(wide, more, case))
        }
        (Some((Segment::One(wide), rest)), Some((Segment::One(narrow), more))) => {
            covers_text(wide.as_bytes(), narrow.as_bytes(), case) && covers(rest, more, case)
        }
        (Some((Segment::One(_), _)), Some((Segment::Many, _)) | None) => false,
    }
}

/// The same for texts in which `*` stands for any characters.
pub(super) fn covers_text(wide: &[u8], narrow: &[u8], case: Case) -> bool {
    let same = |a: u8, b: u8| match case {
        Case::Exact => a == b,
        Case::Ignore => a.eq_ignore_ascii_case(&b),
    };
    match (wide.split_first(), narrow.split_first()) {
        (None, None) => true,
        (None, Some(_)) => false,
        (Some((b'*', rest)), more) => {
            covers_text(rest, narrow, case)
                || more.is_some_and(|(_, more)| covers_text(wide, more, case))
        }
        (Some((want, rest)), Some((have, more))) => {
            *have != b'*' && same(*want, *have) && covers_text(rest, more, case)
        }
        (Some(_), None) => false,
    }
}
