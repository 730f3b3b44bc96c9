//! The file that what was reserved and taken is read back from: a line for each, appended, and synced
//! in groups by a thread of its own.
//!
//! A line that a crash left unfinished is the last one and counts as not written; any other that cannot
//! be read keeps the gate from starting, since what it said may have been spent. Now and then the file
//! is written anew, with what the lines have come to.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::amount::Amount;
use super::learnt::Learnt;
use super::ledger::{Counter, Ledger};

/// The file's name in its directory.
const NAME: &str = "journal.jsonl";
const FRESH: &str = "journal.new";
/// It is written anew when it has become longer than this.
pub(super) const LENGTH_MOST: u64 = 4 << 20;

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Line {
    /// A reservation.
    Reserve {
        id: u64,
        at: u64,
        keys: Vec<String>,
        amount: Amount,
    },
    /// More of it.
    Grow { id: u64, amount: Amount },
    /// Its end: what was taken; of which agent and model, if that is to be learnt from.
    Settle {
        id: u64,
        amount: Amount,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        learn: Option<String>,
    },
    /// What lines before came to.
    Counter {
        key: String,
        window: u64,
        since: u64,
        seen: u64,
        spent: Amount,
    },
    /// What was learnt from them.
    Learnt {
        key: String,
        samples: Vec<(u64, u64)>,
    },
}

/// Why there is no journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A file or directory cannot be used.
    #[error("allowances: {what} {path}")]
    File {
        /// What was to be done.
        what: &'static str,
        /// With what.
        path: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A line cannot be read.
    #[error(
        "{path}:{line}: this is no line of the journal of allowances\n  hint: repair or remove the \
         line, or move the file away: every allowance begins anew then"
    )]
    Broken {
        /// The file.
        path: String,
        /// From 1.
        line: usize,
    },
}

enum Message {
    Line(Vec<u8>),
    /// Instead of everything before.
    Anew(Vec<u8>),
    Sync(oneshot::Sender<bool>),
}

/// The way to the thread that writes.
#[derive(Debug)]
pub(super) struct Journal {
    sender: Sender<Message>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    failed: AtomicBool,
    length: AtomicU64,
}

impl Journal {
    /// Reads what is there into `ledger` and `learnt`, writes it anew, and begins to write.
    pub(super) fn open(
        directory: &Path,
        ledger: &mut Ledger,
        learnt: &mut Learnt,
    ) -> Result<Self, JournalError> {
        let path = directory.join(NAME);
        let failed = |what, path: &Path| {
            let path = path.display().to_string();
            move |source| JournalError::File { what, path, source }
        };
        std::fs::DirBuilder::new()
            .recursive(true)
            .create(directory)
            .map_err(failed("making", directory))?;
        match std::fs::read(&path) {
            Ok(bytes) => replay(&bytes, &path, ledger, learnt)?,
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => {}
            Err(problem) => return Err(failed("reading", &path)(problem)),
        }
        // Whatever was under way when the gate ended may have cost what it had reserved.
        let open: Vec<(u64, Amount)> = ledger
            .open
            .iter()
            .map(|(id, open)| (*id, open.amount))
            .collect();
        for (id, amount) in open {
            ledger.settle(id, amount);
        }
        let file = anew(directory, &snapshot(ledger, learnt)).map_err(failed("writing", &path))?;
        let shared = Arc::new(Shared::default());
        let (sender, receiver) = channel();
        let writer = Writer {
            directory: directory.to_owned(),
            file,
            shared: Arc::clone(&shared),
        };
        std::thread::Builder::new()
            .name("allowances".to_owned())
            .spawn(move || writer.run(&receiver))
            .map_err(failed("starting a thread for", &path))?;
        Ok(Self { sender, shared })
    }

    /// Appends a line. Call it in the order in which things happen.
    pub(super) fn write(&self, line: &Line) {
        let mut bytes = serde_json::to_vec(line).unwrap_or_default();
        bytes.push(b'\n');
        self.send(Message::Line(bytes));
    }

    /// Writes everything anew, in the place of all lines before.
    pub(super) fn renew(&self, ledger: &Ledger, learnt: &Learnt) {
        self.shared.length.store(0, Ordering::Relaxed);
        self.send(Message::Anew(snapshot(ledger, learnt)));
    }

    /// Ends when everything before is on the disk; `false` if it is not.
    pub(super) async fn synced(&self) -> bool {
        let (sender, receiver) = oneshot::channel();
        self.send(Message::Sync(sender));
        receiver.await.unwrap_or(false)
    }

    /// Whether the last write failed.
    pub(super) fn has_failed(&self) -> bool {
        self.shared.failed.load(Ordering::Acquire)
    }

    /// How much was appended since it was last written anew.
    pub(super) fn length(&self) -> u64 {
        self.shared.length.load(Ordering::Relaxed)
    }

    fn send(&self, message: Message) {
        // The thread lives as long as this does, or has failed and is not waited for.
        if self.sender.send(message).is_err() {
            self.shared.failed.store(true, Ordering::Release);
        }
    }
}

struct Writer {
    directory: PathBuf,
    file: File,
    shared: Arc<Shared>,
}

impl Writer {
    fn run(mut self, receiver: &Receiver<Message>) {
        while let Ok(first) = receiver.recv() {
            let mut waiting = Vec::new();
            let mut lines = Vec::new();
            let mut whole = true;
            let mut next = Some(first);
            while let Some(message) = next {
                match message {
                    Message::Line(line) => lines.extend_from_slice(&line),
                    Message::Anew(bytes) => {
                        lines.clear();
                        match anew(&self.directory, &bytes) {
                            Ok(file) => {
                                self.file = file;
                                self.shared.failed.store(false, Ordering::Release);
                                whole = true;
                            }
                            Err(problem) => {
                                tracing::error!(%problem, "allowances cannot be written");
                                whole = false;
                            }
                        }
                    }
                    Message::Sync(sender) => waiting.push(sender),
                }
                next = receiver.try_recv().ok();
            }
            let length = u64::try_from(lines.len()).unwrap_or(u64::MAX);
            self.shared.length.fetch_add(length, Ordering::Relaxed);
            // Behind a write that failed a line may stand in halves: nothing more is appended.
            whole &= !self.shared.failed.load(Ordering::Acquire);
            if whole && !lines.is_empty() {
                let written = self.file.write_all(&lines);
                if let Err(problem) = written.and_then(|()| self.file.sync_data()) {
                    tracing::error!(%problem, "allowances cannot be written");
                    whole = false;
                }
            }
            if !whole {
                self.shared.failed.store(true, Ordering::Release);
            }
            for sender in waiting {
                // Whoever has gone does not want to know.
                let _ = sender.send(whole);
            }
        }
    }
}

fn anew(directory: &Path, bytes: &[u8]) -> io::Result<File> {
    let (fresh, path) = (directory.join(FRESH), directory.join(NAME));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&fresh, &path)?;
    File::open(directory)?.sync_all()?;
    OpenOptions::new().append(true).open(&path)
}

fn replay(
    bytes: &[u8],
    path: &Path,
    ledger: &mut Ledger,
    learnt: &mut Learnt,
) -> Result<(), JournalError> {
    // What stands behind the last line's end was never finished.
    let end = bytes
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    for (at, line) in bytes[..end]
        .split_inclusive(|byte| *byte == b'\n')
        .enumerate()
    {
        let line: Line = serde_json::from_slice(line).map_err(|_| JournalError::Broken {
            path: path.display().to_string(),
            line: at + 1,
        })?;
        match line {
            Line::Reserve {
                id,
                at,
                keys,
                amount,
            } => {
                let keys = keys.into_iter().map(Arc::from).collect();
                ledger.put(id, keys, amount, at);
            }
            Line::Grow { id, amount } => ledger.add(id, amount),
            Line::Settle { id, amount, learn } => {
                ledger.settle(id, amount);
                if let Some(key) = learn {
                    learnt.note(&key, amount);
                }
            }
            Line::Counter {
                key,
                window,
                since,
                seen,
                spent,
            } => {
                let counter = Counter {
                    window,
                    since,
                    seen,
                    spent,
                    reserved: Amount::default(),
                };
                ledger.counters.insert(key.into(), counter);
            }
            Line::Learnt { key, samples } => {
                learnt.0.insert(key, samples.into());
            }
        }
    }
    Ok(())
}

fn snapshot(ledger: &Ledger, learnt: &Learnt) -> Vec<u8> {
    let counters = ledger.counters.iter().map(|(key, counter)| Line::Counter {
        key: key.to_string(),
        window: counter.window,
        since: counter.since,
        seen: counter.seen,
        spent: counter.spent,
    });
    let learnt = learnt.0.iter().map(|(key, samples)| Line::Learnt {
        key: key.clone(),
        samples: samples.iter().copied().collect(),
    });
    let open = ledger.open.iter().map(|(id, open)| {
        let first = open.keys.first().and_then(|key| ledger.counters.get(key));
        Line::Reserve {
            id: *id,
            at: first.map_or(0, |counter| counter.seen),
            keys: open.keys.iter().map(ToString::to_string).collect(),
            amount: open.amount,
        }
    });
    let mut bytes = Vec::new();
    for line in counters.chain(learnt).chain(open) {
        // Numbers and texts: there is nothing that JSON cannot hold.
        bytes.extend(serde_json::to_vec(&line).unwrap_or_default());
        bytes.push(b'\n');
    }
    bytes
}
