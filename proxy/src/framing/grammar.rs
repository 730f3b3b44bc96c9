//! The grammar of a request's head, as strict as the gate is (RFC 9112, 2 to 7): what passes here is
//! read by hyper without a complaint, and by any server in one way.

use super::Fault;

/// What a head says about what follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Head {
    pub(super) length: u64,
    pub(super) chunked: bool,
    /// It asks to leave HTTP: a CONNECT, or a request for a WebSocket.
    pub(super) leaves: bool,
}

/// hyper's own bounds.
const LONGEST_TARGET: usize = 65_534;
const LONGEST_BODY: u64 = u64::MAX - 2;

/// A table of the bytes that fit a pattern.
macro_rules! bytes {
    ($pattern:pat) => {{
        let mut table = [false; 256];
        let mut byte = 0_u8;
        loop {
            table[byte as usize] = matches!(byte, $pattern);
            if byte == u8::MAX {
                break table;
            }
            byte += 1;
        }
    }};
}

/// Bytes of a token (RFC 9110, 5.6.2).
const TOKEN: [bool; 256] = bytes!(
    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*'
        | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
);
/// Bytes of a field's value.
const VALUE: [bool; 256] = bytes!(b'\t' | b' '..=0x7e | 0x80..=0xff);
/// Bytes of an origin-form target about which nobody can have doubts.
const TARGET: [bool; 256] = bytes!(
    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' | b'%' | b'?'
        | b'&' | b'=' | b'+' | b',' | b':' | b';' | b'@' | b'!' | b'$' | b'\'' | b'(' | b')' | b'*'
);
const DIGIT: [bool; 256] = bytes!(b'0'..=b'9');
const HEX: [bool; 256] = bytes!(b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F');

fn all(table: &[bool; 256], bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| table[usize::from(*byte)])
}

/// Whether a request may begin with this byte.
pub(super) fn begins_a_method(byte: u8) -> bool {
    byte == b'\r' || TOKEN[usize::from(byte)]
}

/// Whether a line, without its end, is a field.
pub(super) fn is_field(line: &[u8]) -> bool {
    field(line).is_some()
}

/// The size that begins a chunk. Extensions are passed over: they end with the line.
pub(super) fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next()?;
    let digits = digits.trim_ascii_end();
    if digits.is_empty() || !all(&HEX, digits) || !all(&VALUE, line) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Reads a head: from the method to the empty line, every line ended by CR LF.
pub(super) fn read(head: &[u8], most_fields: usize) -> Result<Head, Fault> {
    let mut lines = head.split(|byte| *byte == b'\n');
    let request = lines.next().and_then(|line| line.strip_suffix(b"\r"));
    let (connect, newer) = request_line(request.unwrap_or_default())?;
    let mut read = Head {
        leaves: connect,
        ..Head::default()
    };
    let mut length = None;
    let mut fields = 0;
    for line in lines {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            break;
        }
        fields += 1;
        if fields > most_fields {
            return Err(Fault::TooLarge("fields"));
        }
        let (name, value) = field(line).ok_or_else(|| bad_field(line))?;
        match name.len() {
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                if length.is_some() {
                    return Err(Fault::Ambiguous);
                }
                length = Some(body_length(value).ok_or(Fault::Ambiguous)?);
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                // In the one form that clients send: others have been read in two ways.
                if read.chunked || !newer || value != b"chunked" || line.contains(&b'\t') {
                    return Err(Fault::Ambiguous);
                }
                read.chunked = true;
            }
            7 if name.eq_ignore_ascii_case(b"upgrade") => {
                let websocket = value.get(..9).unwrap_or_default();
                read.leaves |= newer && websocket.eq_ignore_ascii_case(b"websocket");
            }
            _ => {}
        }
    }
    if read.chunked && length.is_some() {
        return Err(Fault::Ambiguous);
    }
    read.length = length.unwrap_or(0);
    Ok(read)
}

/// Whether it is a CONNECT, and whether it is HTTP/1.1.
fn request_line(line: &[u8]) -> Result<(bool, bool), Fault> {
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Fault::Malformed(
            "the first line is not a method, a target and a version",
        ));
    };
    if method.is_empty() || !all(&TOKEN, method) {
        return Err(Fault::Malformed("the method is not a word"));
    }
    let newer = match version {
        b"HTTP/1.1" => true,
        b"HTTP/1.0" => false,
        b"HTTP/2.0" => {
            return Err(Fault::Malformed(
                "HTTP/2 is spoken only where it was agreed on with the TLS handshake",
            ));
        }
        _ => return Err(Fault::Malformed("the version is not HTTP/1.1 or HTTP/1.0")),
    };
    if target.len() > LONGEST_TARGET {
        return Err(Fault::TooLarge("bytes in its target"));
    }
    let plain = target.first() == Some(&b'/') && all(&TARGET, target);
    // The library behind `Uri` cuts it off without a look.
    if !plain && target.contains(&b'#') {
        return Err(Fault::Malformed("the target has a fragment"));
    }
    if !plain && (target.is_empty() || http::Uri::try_from(target).is_err()) {
        return Err(Fault::Malformed("the target is not one"));
    }
    Ok((method == b"CONNECT", newer))
}

fn field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let good = !name.is_empty() && all(&TOKEN, name) && all(&VALUE, value);
    good.then(|| (name, value.trim_ascii()))
}

fn bad_field(line: &[u8]) -> Fault {
    Fault::Malformed(match line.first() {
        Some(b' ' | b'\t') => "a field is folded over two lines",
        _ => "a field is not a name, a colon and a value",
    })
}

fn body_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !all(&DIGIT, value) {
        return None;
    }
    let length: u64 = std::str::from_utf8(value).ok()?.parse().ok()?;
    Some(length).filter(|length| *length <= LONGEST_BODY)
}
