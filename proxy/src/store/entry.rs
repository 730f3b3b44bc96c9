//! What stands in a decrypted entry: pass's first line, or gopass's attachment.
//!
//! An entry without a value is recognised in every form it can take. A store once lost all its
//! values and every read succeeded: an empty attachment decrypts to 86 bytes of headers.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

/// How the value stands in its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The first line, as pass and gopass write it; there may be notes below.
    FirstLine,
    /// The whole text, such as a key in PEM.
    Whole,
    /// gopass's attachment: headers and a base64 body.
    Attachment,
}

impl Form {
    /// For people.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::FirstLine => "first line",
            Self::Whole => "whole text",
            Self::Attachment => "attachment",
        }
    }
}

/// Why there is no value in an entry. Says nothing about its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message is its documentation")]
pub enum NoValue {
    #[error("is empty")]
    Empty,
    #[error("holds nothing but blanks, line ends, NULs or invisible characters")]
    Blank,
    #[error("is an attachment without a body")]
    NoBody,
    #[error("is an attachment whose body is not base64")]
    NotBase64,
    #[error("has an empty first line, where the value should be")]
    NoFirstLine,
    #[error("is an armoured block without anything in it")]
    HollowArmour,
}

/// The value of an entry and its form. `whole` asks for all of the text instead of the first line.
///
/// # Errors
/// [`NoValue`]
pub fn value(text: &[u8], whole: bool) -> Result<(Zeroizing<Vec<u8>>, Form), NoValue> {
    if text.is_empty() {
        return Err(NoValue::Empty);
    }
    if is_void(text) {
        return Err(NoValue::Blank);
    }
    let (found, form) = match attachment(text) {
        Some(body) => (body?, Form::Attachment),
        None if whole => (Zeroizing::new(text.to_vec()), Form::Whole),
        None => {
            let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                return Err(NoValue::NoFirstLine);
            }
            (Zeroizing::new(line.to_vec()), Form::FirstLine)
        }
    };
    if is_void(&found) {
        return Err(match form {
            Form::Attachment => NoValue::NoBody,
            Form::FirstLine | Form::Whole => NoValue::Blank,
        });
    }
    if is_hollow(text) || is_hollow(&found) {
        return Err(NoValue::HollowArmour);
    }
    Ok((found, form))
}

/// Whether there is nothing to be seen in these bytes.
#[must_use]
pub fn is_void(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    for mark in [b"\xef\xbb\xbf".as_slice(), b"\xff\xfe", b"\xfe\xff"] {
        rest = rest.strip_prefix(mark).unwrap_or(rest);
    }
    let seen: Zeroizing<Vec<u8>> =
        Zeroizing::new(rest.iter().copied().filter(|byte| *byte != 0).collect());
    match std::str::from_utf8(&seen) {
        Ok(text) => text.chars().all(is_invisible),
        Err(_) => false,
    }
}

fn is_invisible(c: char) -> bool {
    c.is_whitespace()
        || c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// A PEM or OpenPGP armour with a head, a foot and no data between.
fn is_hollow(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    if !lines
        .next()
        .is_some_and(|line| line.starts_with("-----BEGIN "))
    {
        return false;
    }
    let data = lines
        .take_while(|line| !line.starts_with("-----END "))
        // Armour headers and its checksum are no data.
        .any(|line| !line.contains(": ") && !line.starts_with('='));
    !data
}

/// The decoded body if the text is an attachment in one of gopass's forms: an empty first line or
/// `GOPASS-SECRET-1.0`, headers, and a base64 body with or without a blank line before it.
fn attachment(text: &[u8]) -> Option<Result<Zeroizing<Vec<u8>>, NoValue>> {
    let mut lines = text.split(|byte| *byte == b'\n').map(trimmed);
    let first = lines.next()?;
    let mime = first.starts_with(b"GOPASS-SECRET-");
    let (mut attached, mut base64, mut password) = (false, false, None);
    // Headers may begin at once; then the first line is one of them.
    let mut pending = (!first.is_empty() && !mime).then_some(first);
    let mut body: Zeroizing<Vec<u8>> = Zeroizing::new(Vec::with_capacity(text.len()));
    let mut in_body = false;
    while let Some(line) = pending.take().or_else(|| lines.next()) {
        if !in_body {
            match header(line) {
                Some((name, content)) => {
                    attached |= name.eq_ignore_ascii_case(b"content-disposition");
                    if name.eq_ignore_ascii_case(b"content-transfer-encoding") {
                        attached = true;
                        base64 = content.eq_ignore_ascii_case(b"base64");
                    }
                    if mime && name.eq_ignore_ascii_case(b"password") {
                        password = Some(Zeroizing::new(content.to_vec()));
                    }
                    continue;
                }
                None if line.is_empty() => {
                    in_body = attached || mime;
                    continue;
                }
                None if attached || mime => in_body = true,
                None => return None,
            }
        }
        body.extend_from_slice(line);
        if !base64 {
            body.push(b'\n');
        }
    }
    if let Some(password) = password.filter(|password| !is_void(password)) {
        return Some(Ok(password));
    }
    if !attached && !mime {
        return None;
    }
    if is_void(&body) {
        return Some(Err(NoValue::NoBody));
    }
    if !base64 {
        return Some(Ok(body));
    }
    let lenient =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let decoder = GeneralPurpose::new(&alphabet::STANDARD, lenient);
    Some(match decoder.decode(body.as_slice()) {
        Ok(decoded) => Ok(Zeroizing::new(decoded)),
        Err(_) => Err(NoValue::NotBase64),
    })
}

fn trimmed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// `Name: content`, where the name is one of MIME's or gopass's own.
fn header(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, content) = (&line[..colon], line[colon + 1..].trim_ascii());
    let known = name.len() >= 8 && name[..8].eq_ignore_ascii_case(b"content-")
        || name.eq_ignore_ascii_case(b"mime-version")
        || name.eq_ignore_ascii_case(b"password");
    known.then_some((name, content))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &[u8]) -> Result<(Vec<u8>, Form), NoValue> {
        value(text, false).map(|(value, form)| (value.to_vec(), form))
    }

    /// CRD-27: every form in which an entry can be without a value.
    /// Attack: CRD-27
    #[test]
    fn crd_27_an_entry_without_a_value_is_recognised_in_every_form() {
        let head = "\nContent-Disposition: attachment; filename=\"token\"\n\
                    Content-Transfer-Encoding: Base64\n";
        let cases: &[(&[u8], NoValue)] = &[
            (b"", NoValue::Empty),
            (b"\n", NoValue::Blank),
            (b"\r\n", NoValue::Blank),
            (b" \t \n\n", NoValue::Blank),
            (b"\0\0\0", NoValue::Blank),
            (b"\xef\xbb\xbf", NoValue::Blank),
            (b"\xef\xbb\xbf\n", NoValue::Blank),
            (b"\xff\xfe\n\0", NoValue::Blank),
            (b"\xfe\xff\0\n", NoValue::Blank),
            ("\u{a0}\u{200b}\u{2060}\n".as_bytes(), NoValue::Blank),
            (b"\x1b\x07\n", NoValue::Blank),
            (b"\nuser: robot\nurl: example.com\n", NoValue::NoFirstLine),
            (b"   \nuser: robot\n", NoValue::Blank),
            (head.as_bytes(), NoValue::NoBody),
            (
                b"GOPASS-SECRET-1.0\nContent-Disposition: attachment\n\n",
                NoValue::NoBody,
            ),
            (b"GOPASS-SECRET-1.0\n", NoValue::NoBody),
            (b"Content-Transfer-Encoding: base64\n\n", NoValue::NoBody),
            (
                b"-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n",
                NoValue::HollowArmour,
            ),
            (
                b"-----BEGIN PGP MESSAGE-----\nVersion: x\n\n=AAAA\n-----END PGP MESSAGE-----\n",
                NoValue::HollowArmour,
            ),
        ];
        for (text, wanted) in cases {
            let shown = String::from_utf8_lossy(text);
            assert_eq!(line(text).unwrap_err(), *wanted, "{shown:?}");
        }
        for blank in ["\n", "\n\n", "\nIA==\n", "\nCg==\n", "\nAAAA\n", "\n77u/\n"] {
            let text = format!("{head}{blank}");
            assert_eq!(
                line(text.as_bytes()).unwrap_err(),
                NoValue::NoBody,
                "{blank:?}"
            );
            assert_eq!(
                value(text.as_bytes(), true).map(drop).unwrap_err(),
                NoValue::NoBody
            );
        }
        assert_eq!(
            line(format!("{head}\n!!!\n").as_bytes()).unwrap_err(),
            NoValue::NotBase64
        );
        // The control: the same head with a body is a value.
        assert_eq!(
            line(format!("{head}\nZ2hwX3g=\n").as_bytes()).unwrap(),
            (b"ghp_x".to_vec(), Form::Attachment)
        );
    }

    #[test]
    fn values_are_found_in_the_forms_that_pass_and_gopass_write() {
        let first = |text: &str| (text.as_bytes().to_vec(), Form::FirstLine);
        assert_eq!(line(b"ghp_x").unwrap(), first("ghp_x"));
        assert_eq!(line(b"ghp_x\n").unwrap(), first("ghp_x"));
        assert_eq!(line(b"ghp_x\r\nuser: a\r\n").unwrap(), first("ghp_x"));
        assert_eq!(line(b"pa:ss\n---\nkey: value\n").unwrap(), first("pa:ss"));
        let attached =
            |text: &[u8]| assert_eq!(line(text).unwrap(), (b"ghp_x".to_vec(), Form::Attachment));
        attached(b"\nContent-Disposition: attachment; filename=\"a\"\nContent-Transfer-Encoding: Base64\nZ2hwX3g=");
        attached(
            b"\ncontent-disposition: attachment\ncontent-transfer-encoding: base64\n\nZ2hw\nX3g\n",
        );
        attached(b"GOPASS-SECRET-1.0\nContent-Disposition: attachment\nContent-Transfer-Encoding: Base64\n\nZ2hwX3g=\n");
        attached(b"GOPASS-SECRET-1.0\nPassword: ghp_x\nUser: a\n\nnotes\n");
        let pem = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        assert_eq!(value(pem, true).unwrap().0.as_slice(), pem);
        assert_eq!(value(pem, true).unwrap().1, Form::Whole);
    }
}
