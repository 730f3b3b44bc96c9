//! Real programs run by a test: with a clean environment, a uid, a namespace and a time limit.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::netns::Netns;

/// Seconds after which a client is killed: a hang is a failure with output, never a stuck suite.
const LIMIT: u32 = 90;

/// A program to run, built up like [`Command`].
#[derive(Clone, Debug)]
pub struct Program {
    words: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    directory: PathBuf,
    input: Option<String>,
    limit: u32,
}

/// What a finished program left.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its exit status.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Program {
    /// `program` with nothing but a `PATH` in its environment.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            words: vec![program.as_ref().to_owned()],
            environment: vec![(
                "PATH".into(),
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into(),
            )],
            directory: "/".into(),
            input: None,
            limit: LIMIT,
        }
    }

    /// Lets it run for `seconds` instead of the usual limit.
    pub fn limit(mut self, seconds: u32) -> Self {
        self.limit = seconds;
        self
    }

    /// Adds one argument.
    pub fn arg(mut self, word: impl AsRef<OsStr>) -> Self {
        self.words.push(word.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args<I: IntoIterator<Item = W>, W: AsRef<OsStr>>(mut self, words: I) -> Self {
        self.words
            .extend(words.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// Sets one environment variable.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Runs in `directory`.
    pub fn in_directory(mut self, directory: &Path) -> Self {
        self.directory = directory.to_path_buf();
        self
    }

    /// Gives `text` on standard input; without it the input is empty.
    pub fn input(mut self, text: &str) -> Self {
        self.input = Some(text.to_owned());
        self
    }

    /// Runs as `uid`, without groups and without a way to gain privilege.
    pub fn as_uid(self, uid: u32) -> Self {
        let uid = uid.to_string();
        self.behind(&[
            "setpriv",
            "--reuid",
            &uid,
            "--regid",
            &uid,
            "--clear-groups",
        ])
    }

    /// Runs in a network namespace, with that namespace's `/etc/resolv.conf`.
    pub fn in_netns(self, netns: &Netns) -> Self {
        let name = netns.name().to_owned();
        self.behind(&["ip", "netns", "exec", &name])
    }

    /// Runs to its end and collects the output.
    pub fn run(self) -> Finished {
        let input = self.input.clone();
        let shown = format!("{:?}", self.words);
        let limit = self.limit.to_string();
        let mut child = self.behind(&["timeout", "--kill-after=5", &limit]).spawn();
        let stdin = child.stdin.take();
        let writer = std::thread::spawn(move || {
            if let (Some(mut stdin), Some(input)) = (stdin, input) {
                // A program that does not read its input is judged by its output.
                let _unread = std::io::Write::write_all(&mut stdin, input.as_bytes());
            }
        });
        let output = child
            .wait_with_output()
            .unwrap_or_else(|error| panic!("{shown}: {error}"));
        writer.join().expect("the writer does not panic");
        Finished {
            status: output.status,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Starts it with piped input and output, for programs that stay.
    pub fn spawn(self) -> Child {
        let mut command = self.command();
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
            .spawn()
            .unwrap_or_else(|error| panic!("{:?}: {error}", self.words))
    }

    /// Starts it with input closed and all output appended to `log`.
    pub fn spawn_logging(self, log: &Path) -> Child {
        let open = || {
            std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(log)
        };
        let (out, err) = (
            open().expect("a writable log"),
            open().expect("a writable log"),
        );
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        command
            .spawn()
            .unwrap_or_else(|error| panic!("{:?}: {error}", self.words))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command
            .args(&self.words[1..])
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.directory);
        command
    }

    fn behind(mut self, words: &[&str]) -> Self {
        let front: Vec<OsString> = words.iter().map(OsString::from).collect();
        self.words.splice(0..0, front);
        self
    }
}

impl Finished {
    /// The exit code; a signal counts as 128 plus its number, as in a shell.
    pub fn code(&self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        self.status
            .code()
            .unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// Panics with all output unless the program succeeded.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert!(self.status.success(), "{}", self.shown());
        self
    }

    /// Panics with all output if the program succeeded.
    #[track_caller]
    pub fn refused(self) -> Self {
        assert!(
            !self.status.success(),
            "succeeded, and should not have: {}",
            self.shown()
        );
        self
    }

    /// Both streams, one after the other.
    pub fn output(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    /// Everything, for a message.
    pub fn shown(&self) -> String {
        format!(
            "{}\nstdout: {}\nstderr: {}",
            self.status, self.stdout, self.stderr
        )
    }
}
