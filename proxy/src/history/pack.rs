//! The commits of a pack, each with its parents, as its own hash vouches for them.
//!
//! Source: gitformat-pack. Of everything but commits only the length is looked at. A delta whose base is not in the
//! pack is none of a commit: git deltifies commits against commits of the same pack alone, and one that is made
//! otherwise is not found, so that nothing is proven by it.

use std::collections::HashMap;
use std::io::Read;

use flate2::bufread::ZlibDecoder;
use sha2::{Digest, Sha256};

use super::graph::{Commits, Id};

/// The most objects of one pack.
const MOST_OBJECTS: u32 = 2_000_000;
/// A commit of more bytes is not looked at.
const COMMIT_BYTES: u64 = 256 * 1024;
/// All objects together unpack to no more.
const UNPACKED_BYTES: u64 = 2 << 30;

/// How objects are named in a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Sha1,
    Sha256,
}

impl Format {
    /// By the length of an id in hex.
    pub(super) fn of(hex: &str) -> Option<Self> {
        match hex.len() {
            40 => Some(Self::Sha1),
            64 => Some(Self::Sha256),
            _ => None,
        }
    }

    /// Bytes of an id.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// The id of a commit; none if somebody has prepared its bytes for a collision.
    fn commit(self, content: &[u8]) -> Option<Id> {
        let head = format!("commit {}\0", content.len());
        match self {
            Self::Sha1 => {
                let mut hash = sha1collisiondetection::Sha1CD::default();
                hash.update(head.as_bytes());
                hash.update(content);
                let mut out = sha1collisiondetection::Output::default();
                hash.finalize_into_dirty_cd(&mut out).ok()?;
                Id::of(&out)
            }
            Self::Sha256 => {
                let mut hash = Sha256::new();
                hash.update(head.as_bytes());
                hash.update(content);
                Id::of(&hash.finalize())
            }
        }
    }
}

/// One object.
enum Object {
    Commit(Vec<u8>),
    /// A delta, which may be of a commit, against what stands at this place or has this id.
    Delta(Base, Vec<u8>),
    Other,
}

#[derive(Clone, Copy)]
enum Base {
    At(usize),
    Named(Id),
}

/// Reads every commit of a pack.
///
/// # Errors
/// Why it is none, or cannot be read.
pub(super) fn commits(pack: &[u8], format: Format) -> Result<Commits, String> {
    let mut objects = objects(pack, format)?;
    let mut found = Commits::default();
    let mut texts: HashMap<usize, Vec<u8>> = HashMap::new();
    let mut places: HashMap<Id, usize> = HashMap::new();
    let mut add = |at: usize,
                   text: Vec<u8>,
                   places: &mut HashMap<Id, usize>,
                   texts: &mut HashMap<usize, Vec<u8>>| {
        let id = format
            .commit(&text)
            .ok_or("an object is made for a collision of SHA-1")?;
        let parents = parents(&text, format).ok_or("a commit has no proper head")?;
        found.insert(id, parents);
        places.insert(id, at);
        texts.insert(at, text);
        Ok::<(), &'static str>(())
    };
    let mut deltas = Vec::new();
    for (at, object) in objects.drain(..) {
        match object {
            Object::Commit(text) => add(at, text, &mut places, &mut texts)?,
            Object::Delta(base, delta) => deltas.push((at, base, delta)),
            Object::Other => {}
        }
    }
    // Whatever is found may be the base of another one.
    loop {
        let before = deltas.len();
        let mut left = Vec::new();
        for (at, base, delta) in deltas {
            let base_at = match base {
                Base::At(at) => Some(at),
                Base::Named(id) => places.get(&id).copied(),
            };
            let text = base_at
                .and_then(|at| texts.get(&at))
                .map(|base| applied(base, &delta));
            match text {
                Some(text) => add(at, text?, &mut places, &mut texts)?,
                None => left.push((at, base, delta)),
            }
        }
        if left.len() == before {
            return Ok(found);
        }
        deltas = left;
    }
}

/// Every object by its place.
fn objects(pack: &[u8], format: Format) -> Result<Vec<(usize, Object)>, String> {
    let word = |at: usize| -> Option<u32> {
        Some(u32::from_be_bytes(pack.get(at..at + 4)?.try_into().ok()?))
    };
    if pack.get(..4) != Some(b"PACK") || !matches!(word(4), Some(2 | 3)) {
        return Err("it does not begin like a pack".to_owned());
    }
    let count = word(8).filter(|count| *count <= MOST_OBJECTS);
    let count = count.ok_or("the pack has too many objects")?;
    let broken = || "the pack breaks off".to_owned();
    let mut at = 12;
    let mut left = UNPACKED_BYTES;
    let mut objects = Vec::new();
    for _ in 0..count {
        let start = at;
        let (kind, size) = head(pack, &mut at).ok_or_else(broken)?;
        let base = match kind {
            6 => {
                let back = offset(pack, &mut at).ok_or_else(broken)?;
                Some(Base::At(start.checked_sub(back).ok_or_else(broken)?))
            }
            7 => {
                let id = pack.get(at..at + format.bytes()).ok_or_else(broken)?;
                at += format.bytes();
                Some(Base::Named(Id::of(id).ok_or_else(broken)?))
            }
            1..=4 => None,
            _ => return Err("the pack has an object of no known kind".to_owned()),
        };
        left = left
            .checked_sub(size)
            .ok_or("the pack unpacks to more than is looked into")?;
        let wanted = (kind == 1 || base.is_some()) && size <= COMMIT_BYTES;
        let text = inflated(pack, &mut at, size, wanted)?;
        let object = match (base, wanted) {
            (_, false) if kind == 1 => return Err("a commit is too long".to_owned()),
            (_, false) => Object::Other,
            (Some(base), true) => Object::Delta(base, text),
            (None, true) => Object::Commit(text),
        };
        if !matches!(object, Object::Other) {
            objects.push((start, object));
        }
    }
    if pack.len() != at + format.bytes() {
        return Err("something stands behind the pack".to_owned());
    }
    Ok(objects)
}

/// Kind and size of an object.
fn head(pack: &[u8], at: &mut usize) -> Option<(u8, u64)> {
    let mut byte = *pack.get(*at)?;
    *at += 1;
    let kind = (byte >> 4) & 7;
    let mut size = u64::from(byte & 15);
    let mut shift = 4;
    while byte & 0x80 != 0 {
        byte = *pack.get(*at)?;
        *at += 1;
        if shift > 56 {
            return None;
        }
        size |= u64::from(byte & 0x7f) << shift;
        shift += 7;
    }
    Some((kind, size))
}

/// How far back the base of a delta stands.
fn offset(pack: &[u8], at: &mut usize) -> Option<usize> {
    let mut byte = *pack.get(*at)?;
    *at += 1;
    let mut back = usize::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        byte = *pack.get(*at)?;
        *at += 1;
        back = back.checked_add(1)?.checked_mul(128)? | usize::from(byte & 0x7f);
    }
    (back > 0).then_some(back)
}

/// Unpacks one object of exactly this size; its bytes where they are wanted.
fn inflated(pack: &[u8], at: &mut usize, size: u64, wanted: bool) -> Result<Vec<u8>, String> {
    let broken = || "an object of the pack is not packed as it says".to_owned();
    let rest = pack.get(*at..).ok_or_else(broken)?;
    let mut from = ZlibDecoder::new(rest);
    let mut text = Vec::new();
    // One byte more than is stated would be read, and told.
    let mut bounded = (&mut from).take(size.saturating_add(1));
    let read = if wanted {
        bounded
            .read_to_end(&mut text)
            .ok()
            .and_then(|read| u64::try_from(read).ok())
    } else {
        std::io::copy(&mut bounded, &mut std::io::sink()).ok()
    };
    if read != Some(size) {
        return Err(broken());
    }
    *at = pack.len() - from.into_inner().len();
    Ok(text)
}

/// The base with the delta applied.
fn applied(base: &[u8], delta: &[u8]) -> Result<Vec<u8>, String> {
    let broken = || "a delta of the pack is broken".to_owned();
    let mut at = 0;
    let number = |at: &mut usize| -> Option<u64> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = *delta.get(*at)?;
            *at += 1;
            if shift > 56 {
                return None;
            }
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
    };
    let from = number(&mut at).ok_or_else(broken)?;
    let size = number(&mut at)
        .filter(|size| *size <= COMMIT_BYTES)
        .ok_or_else(broken)?;
    if u64::try_from(base.len()) != Ok(from) {
        return Err(broken());
    }
    let mut text = Vec::new();
    while let Some(&op) = delta.get(at) {
        at += 1;
        if op & 0x80 == 0 {
            let more = delta
                .get(at..at + usize::from(op))
                .filter(|more| !more.is_empty());
            text.extend_from_slice(more.ok_or_else(broken)?);
            at += usize::from(op);
        } else {
            let mut numbers = [0_usize; 7];
            for (bit, number) in numbers.iter_mut().enumerate() {
                if op & (1 << bit) != 0 {
                    *number = usize::from(*delta.get(at).ok_or_else(broken)?);
                    at += 1;
                }
            }
            let [a, b, c, d, x, y, z] = numbers;
            let start = a | b << 8 | c << 16 | d << 24;
            let length = match x | y << 8 | z << 16 {
                0 => 0x1_0000,
                length => length,
            };
            text.extend_from_slice(base.get(start..start + length).ok_or_else(broken)?);
        }
        if u64::try_from(text.len()).is_ok_and(|length| length > size) {
            return Err(broken());
        }
    }
    if u64::try_from(text.len()) == Ok(size) {
        Ok(text)
    } else {
        Err(broken())
    }
}

/// The parents that a commit's head names: right behind its tree, as git reads them.
fn parents(text: &[u8], format: Format) -> Option<Vec<Id>> {
    let digits = format.bytes() * 2;
    let mut lines = text.split(|byte| *byte == b'\n');
    let id = |line: &[u8], word: &[u8]| -> Option<Id> {
        let hex = line.strip_prefix(word)?;
        (hex.len() == digits).then(|| Id::parse(std::str::from_utf8(hex).ok()?))?
    };
    id(lines.next()?, b"tree ")?;
    let mut parents = Vec::new();
    for line in lines {
        if !line.starts_with(b"parent ") {
            return Some(parents);
        }
        parents.push(id(line, b"parent ")?);
    }
    None
}
