//! A network namespace without any rule: what an attempt does there, it does because nothing forbids it. That is the control
//! of what no other user of this machine may do either.

use std::io::{self, BufRead as _};

use nix::sched::{CloneFlags, unshare};

use crate::process::Call;

/// How much of a network there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Bare {
    /// Loopback alone
    Loopback,
    /// Loopback, and a wire that whoever started this lays to it
    Wired,
}

impl Bare {
    /// The word on the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Wired => "wired",
        }
    }

    /// Goes there, as root. With a wire it says `bare`, and is then told in one line what `ip` has to do.
    ///
    /// # Errors
    /// When there is no such namespace to be had, or `ip` fails.
    pub fn enter(self) -> io::Result<()> {
        unshare(CloneFlags::CLONE_NEWNET)?;
        let ip = |words: Vec<String>| {
            let done = Call::new("ip").args(words).run();
            done.map(drop).map_err(io::Error::other)
        };
        ip(["link", "set", "lo", "up"].map(str::to_owned).to_vec())?;
        if self == Self::Loopback {
            return Ok(());
        }
        crate::output::data("bare");
        // Nothing is said behind that line, so that what executes next misses nothing of what was read ahead.
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line)?;
        let commands: Vec<Vec<String>> = serde_json::from_str(&line)?;
        commands.into_iter().try_for_each(ip)
    }
}
