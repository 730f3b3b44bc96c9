//! The objects of a pack by their places: what is needed of them is unpacked when it is looked at, so that a pack
//! takes no more memory than itself and a few words for each of its objects.

use std::io::Read;

use flate2::bufread::ZlibDecoder;

use super::Bounds;
use super::format::Format;
use crate::history::graph::Id;

/// The most objects of one pack.
const MOST_OBJECTS: u32 = 1_000_000;

/// Where an object is, and how long it is unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot {
    /// Where its head begins, by which deltas name it.
    pub(super) start: u32,
    /// Where its packed bytes begin.
    data: u32,
    /// How many bytes they unpack to.
    size: u32,
}

/// What of a pack may be commits.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) commits: Vec<Spot>,
    /// Deltas by where their base begins, in this order.
    at: Vec<(u32, Spot)>,
    /// Deltas by the id of their base, in this order.
    named: Vec<(Id, Spot)>,
}

impl Objects {
    /// Whether a commit begins here, or what may be one. Asked as long as all are in the order of the pack.
    fn may_be_commit(&self, start: u32) -> bool {
        let among = |spots: &[Spot]| {
            spots
                .binary_search_by_key(&start, |spot| spot.start)
                .is_ok()
        };
        let delta = |delta: &(u32, Spot)| delta.1.start;
        let named = |delta: &(Id, Spot)| delta.1.start;
        among(&self.commits)
            || self.at.binary_search_by_key(&start, delta).is_ok()
            || self.named.binary_search_by_key(&start, named).is_ok()
    }

    /// The deltas against what begins here.
    pub(super) fn against_place(&self, start: u32) -> impl Iterator<Item = Spot> {
        let first = self.at.partition_point(|(base, _)| *base < start);
        let rest = self.at.iter().skip(first);
        rest.take_while(move |(base, _)| *base == start)
            .map(|(_, spot)| *spot)
    }

    /// The deltas against what has this id.
    pub(super) fn against_name(&self, id: Id) -> impl Iterator<Item = Spot> {
        let first = self.named.partition_point(|(base, _)| *base < id);
        let rest = self.named.iter().skip(first);
        rest.take_while(move |(base, _)| *base == id)
            .map(|(_, spot)| *spot)
    }
}

/// How many bytes may still be unpacked.
#[derive(Debug)]
pub(super) struct Left(pub(super) u64);

impl Left {
    /// # Errors
    /// There are not so many.
    pub(super) fn take(&mut self, bytes: u64) -> Result<(), String> {
        let left = self.0.checked_sub(bytes);
        self.0 = left.ok_or("the pack unpacks to more than is looked into")?;
        Ok(())
    }
}

/// Finds every object, and that the pack is whole. Deltas that are longer than a commit may be are left out, and
/// those against something of the pack that is no commit.
///
/// # Errors
/// Why it is no pack, or a commit of it is too long.
pub(super) fn objects(
    pack: &[u8],
    format: Format,
    bounds: &Bounds,
    left: &mut Left,
) -> Result<Objects, String> {
    let most = bounds.commit;
    let word = |at: usize| -> Option<u32> {
        Some(u32::from_be_bytes(pack.get(at..at + 4)?.try_into().ok()?))
    };
    if pack.get(..4) != Some(b"PACK") || !matches!(word(4), Some(2 | 3)) {
        return Err("it does not begin like a pack".to_owned());
    }
    let broken = || "the pack breaks off".to_owned();
    let count = word(8).ok_or_else(broken)?;
    if count > MOST_OBJECTS {
        return Err("the pack has too many objects".to_owned());
    }
    let mut at = 12;
    let mut objects = Objects::default();
    for _ in 0..count {
        let start = at;
        let (kind, size) = head(pack, &mut at).ok_or_else(broken)?;
        let base = match kind {
            1..=4 => None,
            6 => {
                let back = offset(pack, &mut at).ok_or_else(broken)?;
                let base = start.checked_sub(back).ok_or_else(broken)?;
                Some(Base::At(short(base)?))
            }
            7 => {
                let id = pack.get(at..at + format.bytes()).ok_or_else(broken)?;
                at += format.bytes();
                Some(Base::Named(Id::of(id).ok_or_else(broken)?))
            }
            _ => return Err("the pack has an object of no known kind".to_owned()),
        };
        left.take(size)?;
        let data = at;
        at += passed(pack, data, size)?;
        if size > most && kind == 1 {
            return Err("a commit is too long".to_owned());
        }
        if size > most {
            continue;
        }
        let spot = Spot {
            start: short(start)?,
            data: short(data)?,
            size: u32::try_from(size).map_err(|_| broken())?,
        };
        match base {
            // What it is against stands before it: whether that may be a commit is known.
            Some(Base::At(base)) if objects.may_be_commit(base) => objects.at.push((base, spot)),
            Some(Base::At(_)) => {}
            Some(Base::Named(id)) => objects.named.push((id, spot)),
            None if kind == 1 => objects.commits.push(spot),
            None => {}
        }
        if objects.commits.len() + objects.at.len() + objects.named.len() > bounds.candidates {
            return Err("the pack has too many commits and deltas".to_owned());
        }
    }
    let sum = pack.get(at..).and_then(Id::of);
    if pack.len() - at != format.bytes() {
        return Err("the pack does not end where it should".to_owned());
    }
    if sum != format.hash(&[pack.get(..at).unwrap_or_default()]) {
        return Err("the pack's own checksum is another".to_owned());
    }
    objects.at.sort_unstable_by_key(|(base, _)| *base);
    objects.named.sort_unstable_by_key(|(base, _)| *base);
    Ok(objects)
}

/// Unpacks what is at a spot.
///
/// # Errors
/// It is not packed as it says, or too much has been unpacked.
pub(super) fn unpacked(pack: &[u8], spot: Spot, left: &mut Left) -> Result<Vec<u8>, String> {
    left.take(u64::from(spot.size))?;
    let data = usize::try_from(spot.data).ok();
    let rest = data.and_then(|data| pack.get(data..)).ok_or_else(wrong)?;
    let mut text = Vec::new();
    let mut from = ZlibDecoder::new(rest).take(u64::from(spot.size));
    from.read_to_end(&mut text).map_err(|_| wrong())?;
    if u32::try_from(text.len()) == Ok(spot.size) {
        Ok(text)
    } else {
        Err(wrong())
    }
}

/// What a delta is against.
#[derive(Clone, Copy)]
enum Base {
    At(u32),
    Named(Id),
}

fn short(at: usize) -> Result<u32, String> {
    u32::try_from(at).map_err(|_| "the pack is too long".to_owned())
}

fn wrong() -> String {
    "an object of the pack is not packed as it says".to_owned()
}

/// How many packed bytes unpack to exactly this many.
fn passed(pack: &[u8], data: usize, size: u64) -> Result<usize, String> {
    let rest = pack.get(data..).ok_or_else(wrong)?;
    let mut from = ZlibDecoder::new(rest);
    // One byte more than is stated would be read, and told.
    let mut bounded = (&mut from).take(size.saturating_add(1));
    if std::io::copy(&mut bounded, &mut std::io::sink()).ok() != Some(size) {
        return Err(wrong());
    }
    Ok(rest.len() - from.into_inner().len())
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
