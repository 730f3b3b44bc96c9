//! How lines hang together: each ends with the hash of the line before (`prev`) and its own
//! (`hash`), which is SHA-256 over the line's bytes before that last member.
//!
//! ```text
//! {"v":1,"seq":7, … ,"prev":"<64 hex digits>","hash":"<64 hex digits>"}
//! ```
//! The two members have one form only, so no byte of a line lies outside of a hash.

use std::fmt;

use sha2::{Digest, Sha256};

const PREV: &[u8] = b",\"prev\":\"";
const HASH: &[u8] = b",\"hash\":\"";
/// Hex digits of a hash.
const DIGITS: usize = 64;
/// `,"hash":"…"}`
const HASH_LEN: usize = HASH.len() + DIGITS + 2;
/// `,"prev":"…"`
const PREV_LEN: usize = PREV.len() + DIGITS + 1;

/// The hash of a line.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LineHash([u8; 32]);

impl LineHash {
    /// What the first line names as the one before it.
    pub const NONE: Self = Self([0; 32]);

    /// From 64 lower-case hex digits.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() != DIGITS {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_chunks::<2>().0) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(bytes))
    }

    fn write_to(self, line: &mut Vec<u8>) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut digits = [0; DIGITS];
        for (pair, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(self.0) {
            *pair = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
        }
        line.extend_from_slice(&digits);
    }
}

impl fmt::Display for LineHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for LineHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

/// Chains the JSON object that begins at `start` and ends the line.
pub(crate) fn seal(lines: &mut Vec<u8>, start: usize, prev: LineHash) -> LineHash {
    // The object's closing brace moves behind the two members.
    lines.pop();
    lines.extend_from_slice(PREV);
    prev.write_to(lines);
    lines.push(b'"');
    let hash = LineHash(Sha256::digest(&lines[start..]).into());
    lines.extend_from_slice(HASH);
    hash.write_to(lines);
    lines.extend_from_slice(b"\"}\n");
    hash
}

/// A line whose own hash is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    /// The hash of the line that it says comes before it.
    pub prev: LineHash,
    /// Its own.
    pub hash: LineHash,
}

/// Why a line is not what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It does not end as every line does.
    #[error("does not end in its two hashes")]
    Form,
    /// Its bytes are others than those that were hashed.
    #[error("is not what was written: its hash is another")]
    Changed,
}

/// Checks one line, given without its line end, against its own hash.
///
/// # Errors
/// [`Fault`]
pub fn open(line: &[u8]) -> Result<Sealed, Fault> {
    let (hashed, hash) = split(line, HASH_LEN, HASH, b"\"}").ok_or(Fault::Form)?;
    let (_, prev) = split(hashed, PREV_LEN, PREV, b"\"").ok_or(Fault::Form)?;
    if LineHash(Sha256::digest(hashed).into()) != hash {
        return Err(Fault::Changed);
    }
    Ok(Sealed { prev, hash })
}

/// What lies before a member of fixed length at the end, and the hash in it.
fn split<'l>(line: &'l [u8], len: usize, head: &[u8], tail: &[u8]) -> Option<(&'l [u8], LineHash)> {
    let (before, member) = line.split_at(line.len().checked_sub(len)?);
    let digits = member.strip_prefix(head)?.strip_suffix(tail)?;
    Some((before, LineHash::parse(digits)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_line_opens_and_any_changed_byte_of_it_does_not() {
        let mut lines = b"before\n{\"v\":1,\"seq\":3}".to_vec();
        let hash = seal(&mut lines, 7, LineHash::NONE);
        let line = lines[7..].strip_suffix(b"\n").unwrap();
        let sealed = open(line).unwrap();
        assert_eq!(
            sealed,
            Sealed {
                prev: LineHash::NONE,
                hash
            }
        );
        assert!(serde_json::from_slice::<serde_json::Value>(line).is_ok());
        for at in 0..line.len() {
            for bit in 0..8 {
                let mut other = line.to_vec();
                other[at] ^= 1 << bit;
                assert!(open(&other).is_err(), "byte {at}, bit {bit}");
            }
            let mut shorter = line.to_vec();
            shorter.remove(at);
            assert!(open(&shorter).is_err(), "without byte {at}");
        }
    }

    #[test]
    fn a_hash_has_one_spelling() {
        let text = format!("{}{}", "0".repeat(62), "ab");
        assert_eq!(LineHash::parse(text.as_bytes()).unwrap().to_string(), text);
        for other in [&text[1..], &text.to_uppercase(), &format!("{text}0"), ""] {
            assert_eq!(LineHash::parse(other.as_bytes()), None, "{other}");
        }
    }
}
