//! `multipart/form-data`: the one file of a form. Bounded by the body, linear in its length.

use crate::model::Refusal;

/// Bytes of a part's head.
const HEAD: usize = 8 * 1024;
/// Parts of a form.
const PARTS: usize = 16;

/// A file of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part<'b> {
    /// What the client calls it.
    pub(super) filename: Option<String>,
    /// What the client says it is.
    pub(super) content_type: Option<String>,
    /// The bytes.
    pub(super) bytes: &'b [u8],
}

/// The part named `field` of a form with this `Content-Type`.
///
/// # Errors
/// 400 saying what is wrong with the form.
pub(super) fn part<'b>(
    content_type: &str,
    body: &'b [u8],
    field: &str,
) -> Result<Part<'b>, Refusal> {
    let boundary = boundary(content_type)?;
    let delimiter = [b"\r\n--", boundary.as_bytes()].concat();
    // The first one has no line before it.
    let mut rest = body
        .strip_prefix(&delimiter[2..])
        .or_else(|| after(body, &delimiter).map(|(_, rest)| rest))
        .ok_or_else(|| Refusal::invalid("the form has no part with its boundary"))?;
    for _ in 0..PARTS {
        if rest.starts_with(b"--") {
            return Err(Refusal::invalid(format!("the form has no field `{field}`")));
        }
        let start = rest
            .strip_prefix(b"\r\n")
            .ok_or_else(|| Refusal::invalid("the form's boundary does not end its line"))?;
        let (content, next) = after(start, &delimiter)
            .ok_or_else(|| Refusal::invalid("the form ends in the middle of a part"))?;
        let (head, bytes) = after(content, b"\r\n\r\n")
            .filter(|(head, _)| head.len() <= HEAD)
            .ok_or_else(|| Refusal::invalid("a part of the form has no head"))?;
        let head = String::from_utf8_lossy(head);
        let disposition = header(&head, "content-disposition").unwrap_or_default();
        if parameter(disposition, "name").as_deref() == Some(field) {
            return Ok(Part {
                filename: parameter(disposition, "filename"),
                content_type: header(&head, "content-type").map(|it| it.trim().to_owned()),
                bytes,
            });
        }
        rest = next;
    }
    Err(Refusal::invalid(format!(
        "the form has more than {PARTS} parts"
    )))
}

fn boundary(content_type: &str) -> Result<String, Refusal> {
    let form = content_type
        .get(..20)
        .is_some_and(|start| start.eq_ignore_ascii_case("multipart/form-data;"));
    let boundary = parameter(content_type, "boundary");
    match boundary {
        Some(boundary)
            if form
                && (1..=70).contains(&boundary.len())
                && boundary.bytes().all(|b| b.is_ascii_graphic() || b == b' ') =>
        {
            Ok(boundary)
        }
        Some(_) | None => Err(Refusal::invalid(
            "the body must be multipart/form-data with a boundary",
        )),
    }
}

/// What is before a needle, and what is after it.
fn after<'b>(bytes: &'b [u8], needle: &[u8]) -> Option<(&'b [u8], &'b [u8])> {
    let first = *needle.first()?;
    let mut from = 0;
    loop {
        let at = from + bytes[from..].iter().position(|byte| *byte == first)?;
        if bytes[at..].starts_with(needle) {
            return Some((&bytes[..at], &bytes[at + needle.len()..]));
        }
        from = at + 1;
    }
}

fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.split("\r\n").find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.trim().eq_ignore_ascii_case(name).then_some(value)
    })
}

/// A parameter of a header's value, quoted or not.
fn parameter(value: &str, name: &str) -> Option<String> {
    let mut rest = value.split_once(';')?.1;
    loop {
        let (key, after) = rest.split_once('=')?;
        let (found, next) = match after.trim_start().strip_prefix('"') {
            Some(quoted) => {
                let (found, end) = unquoted(quoted)?;
                (
                    found,
                    quoted.get(end..)?.split_once(';').map(|(_, next)| next),
                )
            }
            None => match after.split_once(';') {
                Some((found, next)) => (found.trim().to_owned(), Some(next)),
                None => (after.trim().to_owned(), None),
            },
        };
        if key.trim().eq_ignore_ascii_case(name) {
            return Some(found);
        }
        rest = next?;
    }
}

/// The text up to the closing quote, and where it ends.
fn unquoted(quoted: &str) -> Option<(String, usize)> {
    let mut text = String::new();
    let mut escaped = false;
    for (at, c) in quoted.char_indices() {
        match c {
            '"' if !escaped => return Some((text, at + 1)),
            '\\' if !escaped => escaped = true,
            c => {
                text.push(c);
                escaped = false;
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: &str = "multipart/form-data; boundary=\"b b\"";

    fn form(parts: &[(&str, &str)]) -> Vec<u8> {
        let mut body = Vec::new();
        for (head, content) in parts {
            body.extend(format!("--b b\r\n{head}\r\n\r\n{content}\r\n").bytes());
        }
        body.extend(b"--b b--\r\n");
        body
    }

    #[test]
    fn the_file_is_found_among_other_fields() {
        let file = "Content-Disposition: form-data; name=\"file\"; filename=\"a\\\"b;c.txt\"\r\n\
                    Content-Type: text/plain";
        let body = form(&[
            ("content-disposition: form-data; name=note", "x"),
            (file, "he\r\n--b\0"),
        ]);
        let found = part(TYPE, &body, "file").unwrap();
        assert_eq!(found.filename.as_deref(), Some("a\"b;c.txt"));
        assert_eq!(found.content_type.as_deref(), Some("text/plain"));
        assert_eq!(found.bytes, b"he\r\n--b\0");
        let mut preamble = b"preamble\r\n".to_vec();
        preamble.extend(&body);
        assert_eq!(part(TYPE, &preamble, "file").unwrap(), found);
    }

    #[test]
    fn what_is_no_form_is_refused() {
        let good = form(&[("Content-Disposition: form-data; name=\"file\"", "x")]);
        assert!(part(TYPE, &good, "file").is_ok());
        assert!(part(TYPE, &good, "other").is_err());
        for other in [
            "",
            "application/json",
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary=other",
            "multipart/mixed; boundary=\"b b\"",
            "multipart/form-data; boundary=\"b b",
            "multipart/form-d\u{e4}ta; boundary=\"b b\"",
        ] {
            assert!(part(other, &good, "file").is_err(), "{other}");
        }
        for cut in 0..good.len() - 4 {
            assert!(part(TYPE, &good[..cut], "file").is_err(), "{cut}");
        }
        let headless = form(&[("", "x")]);
        assert!(part(TYPE, &headless, "file").is_err());
        assert!(part(TYPE, &form(&[("x: y", "x"); 20]), "file").is_err());
    }
}
