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

pub(super) use self::format::Format;
use self::reading::{Left, Objects, Spot};
use super::graph::{Commits, Id};

/// What reading a pack may take.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// A commit of more bytes is not looked at.
    commit: u64,
    /// All that is unpacked, each time that it is, comes to no more bytes.
    unpacked: u64,
    /// Bytes of commits that are unpacked at the same time, each being the base of the next.
    live: usize,
    /// Parents of all commits together.
    parents: usize,
}

const BOUNDS: Bounds = Bounds {
    commit: 256 * 1024,
    unpacked: 1 << 30,
    live: 32 << 20,
    parents: 2_000_000,
};

/// Reads every commit of a pack.
///
/// # Errors
/// Why it is none, or cannot be read.
pub(super) fn commits(pack: &[u8], format: Format) -> Result<Commits, String> {
    within(BOUNDS, pack, format)
}

fn within(bounds: Bounds, pack: &[u8], format: Format) -> Result<Commits, String> {
    let mut left = Left(bounds.unpacked);
    let objects = reading::objects(pack, format, bounds.commit, &mut left)?;
    let mut finding = Finding {
        pack,
        format,
        bounds,
        objects: &objects,
        left,
        parents: 0,
        found: Commits::new(),
    };
    for commit in &objects.commits {
        finding.family(*commit)?;
    }
    Ok(finding.found)
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
    found: Commits,
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
        // Once for each id, however often a pack has it: each delta is applied once.
        if !self.found.contains_key(&id) {
            self.parents += parents.len();
            if self.parents > self.bounds.parents {
                return Err("the commits of the pack have too many parents".to_owned());
            }
            deltas.extend(self.objects.against_name(id));
            self.found.insert(id, parents);
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
