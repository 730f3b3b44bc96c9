//! Commits by their parents: what a pack brings, and what is known of a repository.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// The most commits that are known of one repository, and that one push brings. It takes
/// memory: see what a proof takes, in the tests of this folder.
pub(super) const MOST_COMMITS: usize = 200_000;
/// Their parents, all together.
pub(super) const MOST_PARENTS: usize = 300_000;
/// What is missing is asked for, at most so much of it at once.
pub(super) const MOST_MISSING: usize = 64;

/// The id of an object: 20 or 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Id {
    bytes: [u8; 32],
    length: u8,
}

/// Commits, each with its parents.
pub(crate) type Commits = HashMap<Id, Box<[Id]>>;

impl Id {
    /// From its bytes.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let length = u8::try_from(bytes.len()).ok()?;
        let mut padded = [0; 32];
        padded.get_mut(..bytes.len())?.copy_from_slice(bytes);
        matches!(length, 20 | 32).then_some(Self {
            bytes: padded,
            length,
        })
    }

    /// From hexadecimal digits.
    pub(crate) fn parse(hex: &str) -> Option<Self> {
        let digit = |byte: u8| {
            char::from(byte)
                .to_digit(16)
                .and_then(|digit| u8::try_from(digit).ok())
        };
        let pair = |pair: &[u8]| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = hex.as_bytes().chunks(2).map(pair).collect();
        Self::of(&bytes?)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes.iter().take(usize::from(self.length));
        bytes
            .into_iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a walk from one commit to another comes to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Walk {
    /// The one descends from the other.
    Forward,
    /// It does not: all of its history is known.
    Apart,
    /// These are not known.
    Missing(Vec<Id>),
    /// It takes more steps than there are left.
    TooFar,
}

/// Whether `new` is `old` or descends from it, by what either knows, in no more than so many steps, which are taken
/// off.
pub(super) fn walk(
    old: Id,
    new: Id,
    brought: &Commits,
    known: &Commits,
    steps: &mut usize,
) -> Walk {
    let mut seen = HashSet::from([&new]);
    let mut next = VecDeque::from([&new]);
    let mut missing = Vec::new();
    while let Some(commit) = next.pop_front() {
        if *commit == old {
            return Walk::Forward;
        }
        // The push says how many walks there are: all of them share the steps.
        let Some(left) = steps.checked_sub(1) else {
            return Walk::TooFar;
        };
        *steps = left;
        match brought.get(commit).or_else(|| known.get(commit)) {
            Some(parents) => next.extend(parents.iter().filter(|parent| seen.insert(*parent))),
            None if missing.len() < MOST_MISSING => missing.push(*commit),
            None => {}
        }
    }
    if missing.is_empty() {
        Walk::Apart
    } else {
        Walk::Missing(missing)
    }
}

/// Commits that are nobody's parent: whoever has them has all.
pub(super) fn tips(known: &Commits, most: usize) -> Vec<Id> {
    let parents: HashSet<&Id> = known.values().flat_map(|parents| parents.iter()).collect();
    let mut tips: Vec<Id> = known
        .keys()
        .filter(|id| !parents.contains(id))
        .copied()
        .collect();
    tips.sort_unstable();
    tips.truncate(most);
    tips
}

/// Reads what is known of a repository; nothing where nothing is. What cannot be read is not known, nor is what is
/// more than is kept.
///
/// # Errors
/// Those of reading the file.
pub(super) fn load(file: &Path) -> io::Result<Commits> {
    use io::ErrorKind::{InvalidData, NotFound};
    let from = match fs::File::open(file) {
        Ok(from) => BufReader::new(from),
        Err(error) if error.kind() == NotFound => return Ok(Commits::new()),
        Err(error) => return Err(error),
    };
    let line = |line: &str| -> Option<(Id, Box<[Id]>)> {
        let mut ids = line.split(' ').map(Id::parse);
        Some((ids.next()??, ids.collect::<Option<_>>()?))
    };
    let mut known = Commits::new();
    let mut parents = 0;
    for text in from.lines() {
        let read = match text {
            Ok(text) => line(&text),
            Err(error) if error.kind() == InvalidData => None,
            Err(error) => return Err(error),
        };
        let Some((id, of)) = read else {
            return Ok(Commits::new());
        };
        parents += of.len();
        if known.len() >= MOST_COMMITS || parents > MOST_PARENTS {
            return Ok(Commits::new());
        }
        known.insert(id, of);
    }
    Ok(known)
}

/// Writes it anew, whole or not at all, in a directory that is the gate's alone.
///
/// # Errors
/// Those of writing.
pub(super) fn save(file: &Path, known: &Commits) -> io::Result<()> {
    if let Some(directory) = file.parent() {
        let mut make = fs::DirBuilder::new();
        make.recursive(true).mode(0o700).create(directory)?;
    }
    let beside = file.with_extension("new");
    {
        let mut open = fs::OpenOptions::new();
        open.write(true).create(true).truncate(true).mode(0o600);
        let mut to = io::BufWriter::new(open.open(&beside)?);
        for (id, parents) in known {
            write!(to, "{id}")?;
            for parent in parents.iter() {
                write!(to, " {parent}")?;
            }
            writeln!(to)?;
        }
        to.flush()?;
    }
    fs::rename(beside, file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn id(n: u8) -> Id {
        Id::of(&[n; 20]).unwrap()
    }

    fn commits(all: &[(u8, &[u8])]) -> Commits {
        let parents = |parents: &[u8]| parents.iter().map(|n| id(*n)).collect();
        all.iter().map(|(n, of)| (id(*n), parents(of))).collect()
    }

    #[test]
    fn one_descends_from_another_by_any_parent() {
        let brought = commits(&[(9, &[4, 3])]);
        let known = commits(&[(1, &[]), (2, &[1]), (3, &[2]), (4, &[1]), (7, &[])]);
        for (old, new, walked) in [
            (3, 9, Walk::Forward),
            (4, 9, Walk::Forward),
            (1, 9, Walk::Forward),
            (2, 2, Walk::Forward),
            (9, 3, Walk::Apart),
            (3, 4, Walk::Apart),
            (7, 9, Walk::Apart),
            (3, 8, Walk::Missing(vec![id(8)])),
        ] {
            assert_eq!(
                walk(id(old), id(new), &brought, &known, &mut 99),
                walked,
                "{old} {new}"
            );
        }
        let nothing = Commits::new();
        assert_eq!(
            walk(id(3), id(9), &brought, &nothing, &mut 99),
            Walk::Forward,
            "its parent is enough"
        );
        let missing = Walk::Missing(vec![id(4), id(3)]);
        assert_eq!(walk(id(2), id(9), &brought, &nothing, &mut 99), missing);
        assert_eq!(tips(&known, 9), [id(3), id(4), id(7)]);
    }

    #[test]
    fn all_walks_together_take_no_more_steps_than_there_are() {
        let known = commits(&[(1, &[]), (2, &[1]), (3, &[2])]);
        let nothing = Commits::new();
        let mut steps = 4;
        let mut walk = |old, new| walk(id(old), id(new), &nothing, &known, &mut steps);
        assert_eq!(walk(1, 3), Walk::Forward, "two steps");
        assert_eq!(walk(1, 3), Walk::Forward, "two more");
        assert_eq!(walk(1, 3), Walk::TooFar);
        assert_eq!(walk(3, 3), Walk::Forward, "none");
    }

    #[test]
    fn what_is_known_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("history/one");
        assert_eq!(load(&file).unwrap(), Commits::new());
        let known = commits(&[(1, &[]), (2, &[1]), (3, &[2, 1])]);
        save(&file, &known).unwrap();
        assert_eq!(load(&file).unwrap(), known);
        for (path, mode) in [(file.parent().unwrap(), 0o700), (file.as_path(), 0o600)] {
            let found = fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(found & 0o777, mode, "{}", path.display());
        }
        fs::write(&file, "zz\n").unwrap();
        assert_eq!(
            load(&file).unwrap(),
            Commits::new(),
            "what is broken is not known"
        );
        let many = format!(
            "{}{}\n",
            id(1),
            format!(" {}", id(2)).repeat(MOST_PARENTS + 1)
        );
        fs::write(&file, many).unwrap();
        assert_eq!(load(&file).unwrap(), Commits::new(), "nor what is too much");
        fs::write(&file, b"\xff\n").unwrap();
        assert_eq!(load(&file).unwrap(), Commits::new(), "nor what is no text");
        save(&file, &known).unwrap();
        assert_eq!(load(&file).unwrap(), known, "and does not stand in the way");
    }
}
