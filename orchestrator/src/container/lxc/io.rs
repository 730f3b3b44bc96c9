//! A run's three streams: where its input comes from and where its output goes.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use nix::sys::stat::{Mode, fchmod};

use crate::container::RunSpec;
use crate::container::runlog::{Decoder, RunLog, Stream};

/// Takes chunks of output as they come; called from two threads, one per stream.
type Sink = Arc<dyn Fn(Stream, &[u8]) + Send + Sync>;

/// What a run reads and who hears it.
pub struct Io {
    input: Box<dyn Read + Send>,
    output: Sink,
}

impl std::fmt::Debug for Io {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Io").finish_non_exhaustive()
    }
}

impl Io {
    /// The bytes of the spec in, the run log out.
    ///
    /// # Errors
    /// The log cannot be opened.
    pub fn logged(spec: &RunSpec) -> io::Result<Self> {
        let log = RunLog::open(&spec.log)?;
        let decoders = [
            Mutex::new(Decoder::default()),
            Mutex::new(Decoder::default()),
        ];
        let output = move |stream, bytes: &[u8]| {
            let decoder = &decoders[usize::from(stream == Stream::Stderr)];
            let mut decoder = decoder.lock().unwrap_or_else(PoisonError::into_inner);
            // An empty chunk is the end of the stream.
            let text = if bytes.is_empty() {
                decoder.finish()
            } else {
                decoder.push(bytes)
            };
            if !text.is_empty()
                && let Err(error) = log.write(stream, &text)
            {
                tracing::error!(%error, "the run log cannot be written");
            }
        };
        Ok(Self {
            input: Box::new(io::Cursor::new(spec.stdin.clone())),
            output: Arc::new(output),
        })
    }

    /// The caller's own streams, copied: the container never holds a descriptor of the caller's
    /// terminal.
    pub fn through() -> Self {
        let output = |stream, bytes: &[u8]| {
            // A reader that went away ends nothing: the run's result still counts.
            let _gone = match stream {
                Stream::Stdout => io::stdout()
                    .write_all(bytes)
                    .and_then(|()| io::stdout().flush()),
                Stream::Stderr | Stream::System => io::stderr().write_all(bytes),
            };
        };
        Self {
            input: Box::new(io::stdin()),
            output: Arc::new(output),
        }
    }

    /// Gives `command` pipes, and keeps the other ends.
    pub(super) fn connect(self, command: &mut Command) -> io::Result<Streams> {
        let (stdin, input) = io::pipe()?;
        let (stdout, out_end) = io::pipe()?;
        let (stderr, err_end) = io::pipe()?;
        let (stdin, out_end, err_end) = (
            OwnedFd::from(stdin),
            OwnedFd::from(out_end),
            OwnedFd::from(err_end),
        );
        // The run's uid is not ours, and programs open /dev/stdin, /dev/stdout and /dev/stderr
        // by name. Only holders of the pipes can reach them.
        for end in [&stdin, &out_end, &err_end] {
            fchmod(end, Mode::from_bits_truncate(0o666))?;
        }
        command
            .stdin(Stdio::from(stdin))
            .stdout(out_end)
            .stderr(err_end);
        Ok(Streams {
            input: Some((self.input, OwnedFd::from(input))),
            output: self.output,
            stdout: Some(OwnedFd::from(stdout)),
            stderr: Some(OwnedFd::from(stderr)),
        })
    }
}

/// Our ends of the pipes of a run.
pub(super) struct Streams {
    input: Option<(Box<dyn Read + Send>, OwnedFd)>,
    output: Sink,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
}

impl Streams {
    /// Starts copying. Returns the threads that end when the outputs do; input is copied by a
    /// thread that nobody waits for, because its source may never end.
    pub(super) fn pump(mut self) -> Vec<JoinHandle<()>> {
        if let Some((mut source, pipe)) = self.input.take() {
            thread::spawn(move || {
                let _reader_gone = io::copy(&mut source, &mut File::from(pipe));
            });
        }
        let ends = [
            (Stream::Stdout, self.stdout.take()),
            (Stream::Stderr, self.stderr.take()),
        ];
        let mut threads = Vec::new();
        for (stream, end) in ends {
            let Some(end) = end else { continue };
            let sink = Arc::clone(&self.output);
            threads.push(thread::spawn(move || drain(File::from(end), stream, &sink)));
        }
        threads
    }

    /// What the monitor said on standard error before it failed to start, at most 4 KiB.
    pub(super) fn first_words(&mut self) -> String {
        let mut text = Vec::new();
        if let Some(end) = self.stderr.take() {
            let _best_effort = File::from(end).take(4096).read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

fn drain(mut from: File, stream: Stream, sink: &Sink) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => sink(stream, &buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_broken) => break,
        }
    }
    sink(stream, &[]);
}
