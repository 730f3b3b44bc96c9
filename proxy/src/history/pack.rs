//! The commits of a pack, each with its parents, as its own hash vouches for them.
//!
//! Source: gitformat-pack. Of everything but commits only the length is looked at. A delta whose base is not in the
//! pack is none of a commit: git deltifies commits against commits of the same pack alone, and one that is made
//! otherwise is not found, so that nothing is proven by it.

mod delta;
mod format;
mod reading;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

pub(crate) use self::format::Format;
use self::reading::{Left, Objects, Spot};
use super::graph::{Commits, Id, MOST_COMMITS, MOST_PARENTS};

/// What reading a pack may take.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// A commit of more bytes is not looked at.
    commit: u64,
    /// All that is unpacked, each time that it is, comes to no more bytes.
    unpacked: u64,
    /// Bytes of commits that are unpacked at the same time, each being the base of the next.
    live: usize,
    /// Commits and deltas that may be some.
    candidates: usize,
    /// Commits that are known when it is read.
    commits: usize,
    /// Parents of all of them together.
    parents: usize,
}

const BOUNDS: Bounds = Bounds {
    commit: 256 * 1024,
    unpacked: 1 << 30,
    live: 8 << 20,
    candidates: MOST_COMMITS,
    commits: MOST_COMMITS,
    parents: MOST_PARENTS,
};

/// Reads every commit of a pack, and takes down those that are not known yet. Each is true by itself, also where the
/// pack turns out not to be whole.
///
/// # Errors
/// Why it is none, cannot be read, or has more than is kept.
pub(crate) fn commits(pack: &[u8], format: Format, known: &mut Commits) -> Result<(), String> {
    within(BOUNDS, pack, format, known)
}

/// What reading a pack takes at most beside the pack and what it makes known, in bytes.
#[cfg(test)]
pub(super) fn memory() -> usize {
    let most = BOUNDS.candidates.next_power_of_two();
    // A list has twice as many places when it grows, and then both are there.
    let listed = most * size_of::<(Id, Spot)>() * 3 / 2;
    let met = most * (size_of::<Id>() + 1);
    let texts = usize::try_from(3 * BOUNDS.commit).unwrap_or(usize::MAX);
    listed + met + BOUNDS.live + texts
}

fn within(bounds: Bounds, pack: &[u8], format: Format, known: &mut Commits) -> Result<(), String> {
    let mut left = Left(bounds.unpacked);
    let objects = reading::objects(pack, format, &bounds, &mut left)?;
    let parents = known.values().map(|parents| parents.len()).sum();
    let mut finding = Finding {
        pack,
        format,
        bounds,
        objects: &objects,
        left,
        parents,
        met: HashSet::new(),
        found: known,
    };
    for commit in &objects.commits {
        finding.family(*commit)?;
    }
    Ok(())
}

/// Commits as they are found.
struct Finding<'p> {
    pack: &'p [u8],
    format: Format,
    bounds: Bounds,
    objects: &'p Objects,
    left: Left,
    /// How many there are in `found`.
    parents: usize,
    /// Commits of this pack that deltas by name are against.
    met: HashSet<Id>,
    found: &'p mut Commits,
}

/// A commit that deltas are against, and those that were not looked at yet.
struct Branch {
    text: Vec<u8>,
    deltas: Vec<Spot>,
}

impl Finding<'_> {
    /// A commit, and whatever is a delta against it, and so on: one line of descent at a time.
    fn family(&mut self, commit: Spot) -> Result<(), String> {
        let text = reading::unpacked(self.pack, commit, &mut self.left)?;
        let mut live = text.len();
        let mut line: Vec<Branch> = self.add(commit, text)?.into_iter().collect();
        while let Some(branch) = line.last_mut() {
            let Some(spot) = branch.deltas.pop() else {
                live = live.saturating_sub(branch.text.len());
                line.pop();
                continue;
            };
            let delta = reading::unpacked(self.pack, spot, &mut self.left)?;
            let text = delta::applied(&branch.text, &delta, self.bounds.commit)?;
            self.left
                .take(u64::try_from(text.len()).unwrap_or(u64::MAX))?;
            if let Some(branch) = self.add(spot, text)? {
                live += branch.text.len();
                line.push(branch);
            }
            if live > self.bounds.live {
                return Err("too many deltas of the pack build on each other".to_owned());
            }
        }
        Ok(())
    }

    /// Takes a commit down; gives it back where deltas are against it.
    fn add(&mut self, spot: Spot, text: Vec<u8>) -> Result<Option<Branch>, String> {
        let id = self.format.commit(&text);
        let id = id.ok_or("an object is made for a collision of SHA-1")?;
        let parents = parents(&text, self.format).ok_or("a commit has no proper head")?;
        let mut deltas: Vec<Spot> = self.objects.against_place(spot.start).collect();
        if !self.found.contains_key(&id) {
            self.parents += parents.len();
            if self.found.len() >= self.bounds.commits || self.parents > self.bounds.parents {
                return Err("the repository has more commits than are kept".to_owned());
            }
            self.found.insert(id, parents.into_boxed_slice());
        }
        // Once for each id, however often a pack has it: each delta is applied once.
        let mut named = self.objects.against_name(id).peekable();
        if named.peek().is_some() && self.met.insert(id) {
            deltas.extend(named);
        }
        Ok((!deltas.is_empty()).then_some(Branch { text, deltas }))
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
