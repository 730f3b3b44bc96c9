//! Says what the watcher does, from a thread of its own: whoever reads standard error may take its time, a terminal that was
//! stopped or a log daemon that hangs, and rules are put back meanwhile.

use std::cell::Cell;
use std::io;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::Duration;

use crate::output;

/// Lines that wait to be read; what comes beyond them is counted.
const WAITING: usize = 256;
/// How long the end of the program waits for a reader.
const FAREWELL: Duration = Duration::from_secs(2);

pub(crate) struct Talker {
    lines: SyncSender<Line>,
    done: Receiver<()>,
    /// Lines since the last one that was taken.
    missed: Cell<u64>,
}

struct Line {
    text: String,
    /// How many before it were not said.
    missed: u64,
}

impl Talker {
    pub(crate) fn start() -> io::Result<Self> {
        let (lines, said) = mpsc::sync_channel::<Line>(WAITING);
        let (over, done) = mpsc::channel();
        thread::Builder::new().spawn(move || {
            for Line { text, missed } in said {
                if missed > 0 {
                    output::talk(&format!(
                        "boundary: {missed} lines before this were lost, nobody read them"
                    ));
                }
                output::talk(&text);
            }
            // Nobody waits for it any more.
            let _ = over.send(());
        })?;
        Ok(Self {
            lines,
            done,
            missed: Cell::new(0),
        })
    }

    /// Never waits.
    pub(crate) fn say(&self, text: String) {
        let missed = self.missed.get();
        match self.lines.try_send(Line { text, missed }) {
            Ok(()) => self.missed.set(0),
            Err(_) => self.missed.set(missed + 1),
        }
    }

    /// Waits a moment until all is said.
    pub(crate) fn finish(self) {
        drop(self.lines);
        // A reader that does not read has had its chance.
        let _ = self.done.recv_timeout(FAREWELL);
    }
}
