//! Packs of a push, by which it is proven where it leads.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::history::graph::{Commits, Id};
use crate::history::pack::{Format, commits};

const COMMIT: u8 = 1;
const BLOB: u8 = 3;
const BY_PLACE: u8 = 6;
const BY_NAME: u8 = 7;

/// Bytes as they come are read or refused; of what is made of them as a pack exactly those commits are found that a
/// plain reading of its objects finds, or it is refused.
pub(crate) fn check(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else {
        return;
    };
    let format = match first & 1 {
        0 => Format::Sha1,
        _ => Format::Sha256,
    };
    let mut found = Commits::new();
    let read = commits(rest, format, &mut found);
    if read.is_ok() {
        let cut = rest.get(..rest.len() - 1).unwrap_or_default();
        assert!(commits(cut, format, &mut Commits::new()).is_err());
    }
    let objects = objects(rest, format);
    let pack = packed(&objects, format);
    let mut found = Commits::new();
    let read = commits(&pack, format, &mut found);
    let (expected, sound) = plainly(&objects, format);
    if read.is_ok() {
        assert!(sound, "a commit that is none, or a delta that is broken");
        let found: BTreeMap<String, Vec<String>> = found
            .iter()
            .map(|(id, of)| (id.to_string(), of.iter().map(Id::to_string).collect()))
            .collect();
        assert_eq!(found, expected);
    }
    if sound {
        assert_eq!(read, Ok(()));
    }
}

/// So many show what there is to show.
const MOST: usize = 40;

/// An object as it stands in a pack.
struct Object {
    kind: u8,
    /// How many objects before it the base is, for a delta by place.
    back: usize,
    /// Its base, for a delta by name.
    base: Vec<u8>,
    content: Vec<u8>,
}

/// Objects as the bytes say: for each one byte of what it is, one of how long, and what it holds.
fn objects(mut bytes: &[u8], format: Format) -> Vec<Object> {
    let mut objects: Vec<Object> = Vec::new();
    while let [what, length, rest @ ..] = bytes
        && objects.len() < MOST
    {
        let (text, after) = rest.split_at(rest.len().min(usize::from(*length)));
        bytes = after;
        let back = usize::from(what >> 4) + 1;
        let as_is = what & 8 != 0;
        let kind = [
            COMMIT, COMMIT, BLOB, BY_PLACE, BY_PLACE, BY_NAME, BY_NAME, 2,
        ][usize::from(what & 7)];
        let before = objects.len().checked_sub(back);
        // What a delta is against, where that is whole; it is enough to have some that fit.
        let of = before.and_then(|at| objects.get(at));
        let whole = of.filter(|of| of.kind < BY_PLACE);
        let (mut content, mut base) = (Vec::new(), Vec::new());
        match kind {
            COMMIT if !as_is => {
                content.extend_from_slice(b"tree ");
                content.extend_from_slice("4b".repeat(format.bytes()).as_bytes());
                content.push(b'\n');
            }
            BY_PLACE | BY_NAME if !as_is => {
                let from = whole.map_or(0, |of| of.content.len());
                let to = whole.and_then(|of| operated(&of.content, text));
                number(&mut content, from);
                number(&mut content, to.map_or(0, |to| to.len()));
            }
            _ => {}
        }
        if kind == BY_NAME {
            base = whole.map_or_else(|| vec![0; format.bytes()], |of| name(&of.content, format));
        }
        if kind == BY_PLACE && before.is_none() {
            continue;
        }
        content.extend_from_slice(text);
        objects.push(Object {
            kind,
            back,
            base,
            content,
        });
    }
    objects
}

fn packed(objects: &[Object], format: Format) -> Vec<u8> {
    let mut pack = b"PACK\0\0\0\x02".to_vec();
    let count = u32::try_from(objects.len()).expect("the input is short");
    pack.extend_from_slice(&count.to_be_bytes());
    let mut starts = Vec::new();
    for object in objects {
        starts.push(pack.len());
        let mut size = object.content.len();
        let mut head = vec![object.kind << 4 | low(size & 15)];
        size >>= 4;
        while size > 0 {
            *head.last_mut().expect("it has a first byte") |= 0x80;
            head.push(low(size & 0x7f));
            size >>= 7;
        }
        let start = pack.len();
        pack.extend_from_slice(&head);
        if object.kind == BY_PLACE {
            let mut back = start - starts[starts.len() - 1 - object.back];
            let mut digits = vec![low(back & 0x7f)];
            while back > 0x7f {
                back = (back >> 7) - 1;
                digits.insert(0, 0x80 | low(back & 0x7f));
            }
            pack.extend_from_slice(&digits);
        }
        pack.extend_from_slice(&object.base);
        stored(&mut pack, &object.content);
    }
    let sum = match format {
        Format::Sha1 => sha1(&[&pack]),
        Format::Sha256 => Sha256::digest(&pack).to_vec(),
    };
    pack.extend_from_slice(&sum);
    pack
}

/// Bytes as zlib stores them without packing them, which costs little (RFC 1950, RFC 1951).
fn stored(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&[0x78, 1]);
    let mut blocks = bytes.chunks(0xffff).peekable();
    if blocks.peek().is_none() {
        out.extend_from_slice(&[1, 0, 0, 0xff, 0xff]);
    }
    while let Some(block) = blocks.next() {
        let length = u16::try_from(block.len()).expect("a chunk is no longer");
        out.push(u8::from(blocks.peek().is_none()));
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&(!length).to_le_bytes());
        out.extend_from_slice(block);
    }
    let (mut low, mut high) = (1_u32, 0_u32);
    for byte in bytes {
        low = (low + u32::from(*byte)) % 65521;
        high = (high + low) % 65521;
    }
    out.extend_from_slice(&(high << 16 | low).to_be_bytes());
}

/// Every commit with its parents, and whether all that are commits are sound.
fn plainly(objects: &[Object], format: Format) -> (BTreeMap<String, Vec<String>>, bool) {
    // Each object that is a commit, once it is known to be one; nothing where it is broken.
    let mut made: BTreeMap<usize, Option<Vec<u8>>> = BTreeMap::new();
    let mut names: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    loop {
        let before = made.len();
        for (at, object) in objects.iter().enumerate() {
            if made.contains_key(&at) {
                continue;
            }
            let of = match object.kind {
                COMMIT => None,
                BY_PLACE => Some(at - object.back),
                BY_NAME => names.get(&object.base).copied(),
                _ => continue,
            };
            let content = match (object.kind, of.and_then(|of| made.get(&of))) {
                (COMMIT, _) => Some(object.content.clone()),
                (_, Some(Some(base))) => against(base, &object.content),
                _ => continue,
            };
            if let Some(content) = &content {
                names.insert(name(content, format), at);
            }
            made.insert(at, content);
        }
        if made.len() == before {
            break;
        }
    }
    let mut sound = true;
    let mut all = BTreeMap::new();
    for content in made.into_values() {
        match content.as_deref().and_then(|text| parents(text, format)) {
            Some(parents) => {
                let id = name(content.as_deref().unwrap_or_default(), format);
                all.insert(hex(&id), parents);
            }
            None => sound = false,
        }
    }
    (all, sound)
}

fn against(base: &[u8], delta: &[u8]) -> Option<Vec<u8>> {
    let (from, delta) = numbered(delta)?;
    let (to, delta) = numbered(delta)?;
    if from != base.len() {
        return None;
    }
    operated(base, delta).filter(|made| made.len() == to)
}

/// What the operations of a delta make.
fn operated(base: &[u8], mut delta: &[u8]) -> Option<Vec<u8>> {
    let mut made = Vec::new();
    while let Some((&operation, rest)) = delta.split_first() {
        delta = rest;
        if operation == 0 {
            return None;
        }
        if operation < 0x80 {
            let (new, rest) = delta.split_at_checked(usize::from(operation))?;
            made.extend_from_slice(new);
            delta = rest;
            continue;
        }
        let mut take = |bits: std::ops::Range<u32>| -> Option<usize> {
            let mut sum = 0;
            for (place, bit) in bits.enumerate() {
                if operation & (1 << bit) != 0 {
                    let (&byte, rest) = delta.split_first()?;
                    delta = rest;
                    sum += usize::from(byte) << (8 * place);
                }
            }
            Some(sum)
        };
        let offset = take(0..4)?;
        let size = Some(take(4..7)?).filter(|size| *size > 0).unwrap_or(65536);
        made.extend(base.get(offset..offset + size)?);
        if made.len() > 1 << 20 {
            return None;
        }
    }
    Some(made)
}

fn low(number: usize) -> u8 {
    number.to_le_bytes()[0]
}

fn number(out: &mut Vec<u8>, mut number: usize) {
    while number > 0x7f {
        out.push(0x80 | low(number & 0x7f));
        number >>= 7;
    }
    out.push(low(number));
}

fn numbered(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let end = bytes.iter().position(|byte| byte & 0x80 == 0)?;
    let (digits, rest) = bytes.split_at(end + 1);
    if digits.len() > 9 {
        return None;
    }
    let number = digits
        .iter()
        .rev()
        .fold(0_u64, |sum, digit| sum << 7 | u64::from(digit & 0x7f));
    Some((usize::try_from(number).ok()?, rest))
}

/// Parents as `git cat-file -p` would list them.
fn parents(commit: &[u8], format: Format) -> Option<Vec<String>> {
    let digits = format.bytes() * 2;
    let is_id = |id: &str| id.len() == digits && id.bytes().all(|digit| digit.is_ascii_hexdigit());
    let mut lines = commit.split_inclusive(|byte| *byte == b'\n');
    let mut next = |word: &str| -> Option<Option<String>> {
        let line = lines.next().unwrap_or_default();
        let Some(id) = line.strip_prefix(word.as_bytes()) else {
            return Some(None);
        };
        let id = std::str::from_utf8(id).ok()?.strip_suffix('\n')?;
        is_id(id).then(|| Some(id.to_ascii_lowercase()))
    };
    next("tree ")??;
    let mut parents = Vec::new();
    while let Some(parent) = next("parent ")? {
        parents.push(parent);
    }
    Some(parents)
}

fn name(commit: &[u8], format: Format) -> Vec<u8> {
    let head = format!("commit {}\0", commit.len());
    match format {
        Format::Sha1 => sha1(&[head.as_bytes(), commit]),
        Format::Sha256 => {
            let mut hash = Sha256::new();
            hash.update(&head);
            hash.update(commit);
            hash.finalize().to_vec()
        }
    }
}

fn sha1(parts: &[&[u8]]) -> Vec<u8> {
    let mut hash = sha1collisiondetection::Sha1CD::default();
    parts.iter().for_each(|part| hash.update(part));
    let mut out = sha1collisiondetection::Output::default();
    hash.finalize_into_dirty_cd(&mut out)
        .expect("nobody finds a collision here");
    out.to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
