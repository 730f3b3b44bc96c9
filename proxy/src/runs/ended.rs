//! Epochs that have ended, remembered over restarts of the gate.
//!
//! A line `RUN EPOCH` is appended to `.ended` in the runs' directory for each; that directory lives
//! as long as the machine is up, and so do the containers that could still want an old epoch.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use policy::grant::RunId;

const FILE: &str = ".ended";
/// Runs remembered; the oldest are forgotten first. At most about 6 MiB.
const REMEMBERED: usize = 65_536;

#[derive(Debug)]
pub(super) struct Ended {
    /// The highest epoch of each run that has ended.
    highest: HashMap<RunId, u64>,
    order: VecDeque<RunId>,
    path: PathBuf,
    file: File,
    /// Lines of the file.
    lines: usize,
}

impl Ended {
    pub(super) fn load(directory: &Path) -> std::io::Result<Self> {
        let path = directory.join(FILE);
        let mut highest = HashMap::new();
        let mut order = VecDeque::new();
        match File::open(&path) {
            Ok(file) => {
                for line in BufReader::new(file).lines() {
                    if let Some((id, epoch)) = parse(&line?) {
                        remember(&mut highest, &mut order, &id, epoch);
                    }
                }
            }
            Err(problem) if problem.kind() == ErrorKind::NotFound => {}
            Err(problem) => return Err(problem),
        }
        let file = rewrite(&path, &highest, &order)?;
        Ok(Self {
            lines: order.len(),
            highest,
            order,
            path,
            file,
        })
    }

    /// The lowest epoch that may still open, if this one may not.
    pub(super) fn refuses(&self, id: &RunId, epoch: u64) -> Option<u64> {
        let highest = *self.highest.get(id)?;
        (epoch <= highest).then(|| highest.saturating_add(1))
    }

    pub(super) fn add(&mut self, id: &RunId, epoch: u64) {
        if self.refuses(id, epoch).is_some() {
            return;
        }
        remember(&mut self.highest, &mut self.order, id, epoch);
        if self.lines >= 2 * REMEMBERED {
            self.shorten();
        }
        self.lines += 1;
        // Within this process the memory above decides; the file is for the next one.
        if let Err(problem) = writeln!(self.file, "{id} {epoch}") {
            tracing::error!("cannot remember over a restart that run {id} has ended: {problem}");
        }
    }

    /// Begins the file anew: what is in it twice, or is remembered no more, must not fill the disk.
    fn shorten(&mut self) {
        match rewrite(&self.path, &self.highest, &self.order) {
            Ok(file) => {
                self.file = file;
                self.lines = self.order.len();
            }
            Err(problem) => tracing::error!(
                "cannot shorten {}, which grows meanwhile: {problem}",
                self.path.display()
            ),
        }
    }
}

fn remember(
    highest: &mut HashMap<RunId, u64>,
    order: &mut VecDeque<RunId>,
    id: &RunId,
    epoch: u64,
) {
    match highest.get_mut(id) {
        Some(known) => *known = epoch.max(*known),
        None => {
            highest.insert(id.clone(), epoch);
            order.push_back(id.clone());
            if order.len() > REMEMBERED
                && let Some(oldest) = order.pop_front()
            {
                highest.remove(&oldest);
            }
        }
    }
}

/// A line that was cut short by a crash names nothing.
fn parse(line: &str) -> Option<(RunId, u64)> {
    let (id, epoch) = line.split_once(' ')?;
    Some((RunId::parse(id).ok()?, epoch.parse().ok()?))
}

/// Writes what is remembered into a fresh file in one step, and leaves it open for more.
fn rewrite(
    path: &Path,
    highest: &HashMap<RunId, u64>,
    order: &VecDeque<RunId>,
) -> std::io::Result<File> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    let fresh = PathBuf::from(fresh);
    match std::fs::remove_file(&fresh) {
        Ok(()) => {}
        Err(problem) if problem.kind() == ErrorKind::NotFound => {}
        Err(problem) => return Err(problem),
    }
    let mut file = OpenOptions::new()
        .append(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)?;
    let mut text = String::new();
    for id in order {
        use std::fmt::Write as _;
        let epoch = highest.get(id).copied().unwrap_or(0);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{id} {epoch}");
    }
    file.write_all(text.as_bytes())?;
    std::fs::rename(&fresh, path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_stays_bounded_and_keeps_the_highest_epochs() {
        let directory = tempfile::tempdir().unwrap();
        let mut ended = Ended::load(directory.path()).unwrap();
        let (often, once) = (
            RunId::parse("often").unwrap(),
            RunId::parse("once").unwrap(),
        );
        ended.add(&once, 7);
        let last = u64::try_from(2 * REMEMBERED + 10).unwrap();
        for epoch in 1..=last {
            ended.add(&often, epoch);
        }
        let text = std::fs::read_to_string(directory.path().join(FILE)).unwrap();
        assert!(text.lines().count() < 100, "{}", text.lines().count());
        let again = Ended::load(directory.path()).unwrap();
        assert_eq!(again.refuses(&often, last), Some(last + 1));
        assert_eq!(again.refuses(&once, 7), Some(8));
        assert_eq!(again.refuses(&often, last + 1), None, "control");
    }
}
