//! A program that a test starts on a lab's host and talks with.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin};

use tests::command::Program;
use tests::wait;

use super::Attempt;

/// A program that stays, is told lines and tells lines.
pub(in crate::boundary) struct Running {
    child: Child,
    input: Option<ChildStdin>,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Running {
    #[track_caller]
    pub(in crate::boundary) fn start(program: Program, ready: &str) -> Self {
        let running = Self::begin(program);
        running.until(ready);
        running
    }

    /// Whether it says this before it ends.
    pub(in crate::boundary) fn says(&self, text: &str) -> bool {
        let mut lines = std::iter::from_fn(|| self.lines.recv_timeout(wait::PATIENCE).ok());
        lines.any(|line| line.contains(text))
    }

    pub(in crate::boundary) fn begin(program: Program) -> Self {
        let mut child = program.spawn();
        let output = child.stdout.take().unwrap();
        let errors = child.stderr.take().unwrap();
        let (sender, lines) = std::sync::mpsc::channel();
        for stream in [
            Box::new(output) as Box<dyn std::io::Read + Send>,
            Box::new(errors),
        ] {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    // Nobody listens any more once the test is over.
                    let _over = sender.send(line);
                }
            });
        }
        let input = child.stdin.take();
        Self {
            child,
            input,
            lines,
        }
    }

    pub(in crate::boundary) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line that contains `text`.
    #[track_caller]
    pub(in crate::boundary) fn until(&self, text: &str) -> String {
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(wait::PATIENCE) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => seen.push(line),
                Err(error) => panic!("{error} waiting for {text:?}, saw {seen:#?}"),
            }
        }
    }

    pub(in crate::boundary) fn say(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{line}").unwrap();
        input.flush().unwrap();
    }

    /// Closes its input and reads how it ended.
    #[track_caller]
    pub(in crate::boundary) fn finish(mut self) -> Attempt {
        self.input = None;
        serde_json::from_str(&self.until("\"outcome\"")).unwrap()
    }

    /// Its exit code after SIGTERM.
    pub(in crate::boundary) fn terminate(mut self) -> Option<i32> {
        let pid = nix::unistd::Pid::from_raw(self.pid().try_into().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.input = None;
        // It may have ended by itself.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}
