//! One question over the system's D-Bus (the D-Bus specification, little-endian, protocol version 1).

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;

use crate::prove::task::{Outcome, Report};

const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;
/// A message is a name and a few numbers; an answer longer than that is not read.
const MOST: usize = 1 << 20;

/// Asks `org.freedesktop.resolve1` for the addresses of a name. Granted when it took the question, whatever it answers;
/// absent where no such service is on the bus.
pub(super) fn resolve(stream: &mut UnixStream, name: &str, uid: u32) -> io::Result<Report> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let digits: String = uid
        .to_string()
        .bytes()
        .map(|digit| format!("{digit:02x}"))
        .collect();
    stream.write_all(format!("\0AUTH EXTERNAL {digits}\r\n").as_bytes())?;
    let mut line = String::new();
    reader.read_line(&mut line)?;
    if !line.starts_with("OK") {
        return Ok(Report::new(Outcome::Refused, line.trim()));
    }
    stream.write_all(b"BEGIN\r\n")?;
    let bus = "org.freedesktop.DBus";
    let hello = call(1, bus, "/org/freedesktop/DBus", bus, "Hello", "", &[]);
    stream.write_all(&hello)?;
    let resolver = "org.freedesktop.resolve1";
    let mut body = Vec::new();
    body.extend(0_i32.to_le_bytes());
    text(&mut body, name);
    align(&mut body, 4);
    body.extend(0_i32.to_le_bytes());
    align(&mut body, 8);
    body.extend(0_u64.to_le_bytes());
    let manager = "org.freedesktop.resolve1.Manager";
    let path = "/org/freedesktop/resolve1";
    let question = call(2, resolver, path, manager, "ResolveHostname", "isit", &body);
    stream.write_all(&question)?;
    loop {
        let answer = Message::read(&mut reader)?;
        match (answer.reply_to, answer.kind) {
            (Some(1), ERROR) => return Ok(Report::new(Outcome::Refused, answer.error)),
            (Some(2), METHOD_RETURN) => {
                return Ok(Report::new(Outcome::Granted, "it resolved the name"));
            }
            (Some(2), ERROR) => return Ok(judge(&answer.error)),
            _ => {}
        }
    }
}

fn judge(error: &str) -> Report {
    let last = error.rsplit('.').next().unwrap_or_default();
    match last {
        "ServiceUnknown" | "NameHasNoOwner" | "UnknownObject" | "UnknownMethod" => Report::new(
            Outcome::Absent,
            format!("no resolver is on the bus ({last})"),
        ),
        _ if error.contains(".Spawn.") => Report::new(
            Outcome::Absent,
            format!("the resolver does not start ({last})"),
        ),
        "AccessDenied" | "AuthFailed" | "InteractiveAuthorizationRequired" => {
            Report::new(Outcome::Refused, error)
        }
        _ => Report::new(Outcome::Granted, format!("it took the question ({error})")),
    }
}

/// A method call.
fn call(
    serial: u32,
    destination: &str,
    path: &str,
    interface: &str,
    member: &str,
    signature: &str,
    body: &[u8],
) -> Vec<u8> {
    let mut fields = Vec::new();
    for (code, kind, value) in [
        (1, "o", path),
        (2, "s", interface),
        (3, "s", member),
        (6, "s", destination),
        (8, "g", signature),
    ] {
        if value.is_empty() {
            continue;
        }
        align(&mut fields, 8);
        fields.push(code);
        short(&mut fields, kind);
        if kind == "g" {
            short(&mut fields, value);
        } else {
            text(&mut fields, value);
        }
    }
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(0).to_le_bytes();
    let mut message = vec![b'l', METHOD_CALL, 0, 1];
    message.extend(length(body));
    message.extend(serial.to_le_bytes());
    message.extend(length(&fields));
    message.extend(&fields);
    align(&mut message, 8);
    message.extend(body);
    message
}

fn align(bytes: &mut Vec<u8>, to: usize) {
    bytes.resize(bytes.len().next_multiple_of(to), 0);
}

fn text(bytes: &mut Vec<u8>, value: &str) {
    align(bytes, 4);
    bytes.extend(u32::try_from(value.len()).unwrap_or(0).to_le_bytes());
    bytes.extend(value.as_bytes());
    bytes.push(0);
}

fn short(bytes: &mut Vec<u8>, value: &str) {
    bytes.push(u8::try_from(value.len()).unwrap_or(0));
    bytes.extend(value.as_bytes());
    bytes.push(0);
}

/// What is needed of an answer.
#[derive(Debug, PartialEq, Eq)]
struct Message {
    kind: u8,
    reply_to: Option<u32>,
    error: String,
}

impl Message {
    fn read(reader: &mut impl io::Read) -> io::Result<Self> {
        let mut head = [0; 16];
        reader.read_exact(&mut head)?;
        let number = |at: usize| {
            let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
            // The bus answers in our byte order, which is the sender's to choose.
            usize::try_from(u32::from_le_bytes(bytes)).unwrap_or(MOST)
        };
        let (body, fields) = (number(4), number(12));
        if head[0] != b'l' || body > MOST || fields > MOST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut rest = vec![0; fields.next_multiple_of(8) + body];
        reader.read_exact(&mut rest)?;
        let fields = &rest[..fields];
        Ok(Self {
            kind: head[1],
            reply_to: field(fields, 5, b"u").and_then(|at| word(fields, at)),
            error: field(fields, 4, b"s")
                .and_then(|at| string(fields, at))
                .unwrap_or_default(),
        })
    }
}

/// Where the value of a header field begins, each field being a code, a signature of one letter and a value.
fn field(fields: &[u8], wanted: u8, signature: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at + 4 <= fields.len() {
        let (code, kind) = (fields[at], fields[at + 2]);
        let value = at + 4;
        if code == wanted && signature == [kind] {
            return Some(value);
        }
        let end = match kind {
            b'u' => value + 4,
            b's' | b'o' => {
                let start = value.next_multiple_of(4);
                start + 5 + usize::try_from(word(fields, start)?).ok()?
            }
            b'g' => value + 2 + usize::from(*fields.get(value)?),
            _ => return None,
        };
        at = end.next_multiple_of(8);
    }
    None
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(four.try_into().ok()?))
}

fn string(bytes: &[u8], at: usize) -> Option<String> {
    let length = usize::try_from(word(bytes, at)?).ok()?;
    let text = bytes.get(at + 4..at + 4 + length)?;
    Some(String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_is_written() {
        // Our own call, read back: its fields are found where they were put.
        let message = call(7, "a.b", "/a", "a.c", "Do", "s", b"xyzz");
        let length = usize::try_from(word(&message, 12).unwrap()).unwrap();
        let fields = &message[16..16 + length];
        let at = field(fields, 6, b"s").unwrap();
        assert_eq!(string(fields, at).as_deref(), Some("a.b"));
        let at = field(fields, 3, b"s").unwrap();
        assert_eq!(string(fields, at).as_deref(), Some("Do"));
        assert_eq!(field(fields, 5, b"u"), None);
        let read = Message::read(&mut message.as_slice()).unwrap();
        assert_eq!((read.kind, read.reply_to), (METHOD_CALL, None));
        assert!(Message::read(&mut &message[..20]).is_err());
    }

    #[test]
    fn who_is_not_there_is_told_from_who_says_no_and_from_who_answers() {
        let of = |error: &str| judge(error).outcome;
        assert_eq!(
            of("org.freedesktop.DBus.Error.ServiceUnknown"),
            Outcome::Absent
        );
        assert_eq!(
            of("org.freedesktop.DBus.Error.Spawn.ChildExited"),
            Outcome::Absent
        );
        assert_eq!(
            of("org.freedesktop.DBus.Error.AccessDenied"),
            Outcome::Refused
        );
        assert_eq!(
            of("org.freedesktop.resolve1.NoNameServers"),
            Outcome::Granted
        );
        assert_eq!(of("org.freedesktop.DBus.Error.Timeout"), Outcome::Granted);
    }
}
