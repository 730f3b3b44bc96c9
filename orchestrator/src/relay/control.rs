//! What the engine tells the relay over the one descriptor they share, and what it hears back.
//!
//! Engine to relay: a [`Spec`], then one byte per signal to hand to the command. Relay to engine:
//! `S` once the command runs, then `E` and a code or `K` and a signal, as four bytes each. The
//! command itself never sees the descriptor. A spec travels here and not in LXC's configuration,
//! whose lines could not carry every argument and value.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use super::Ended;

/// Largest spec accepted, in bytes; the kernel's own limit on arguments and environment is 6 MiB.
const LARGEST: u32 = 6 * 1024 * 1024;

/// The command to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// Program and arguments; never empty.
    pub argv: Vec<String>,
    /// The complete environment.
    pub env: Vec<(String, String)>,
    /// Working directory.
    pub directory: String,
}

/// Why a spec cannot be sent or understood.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// There is no program.
    #[error("the command is empty")]
    Empty,
    /// A NUL byte cannot be part of an argument or a variable.
    #[error("{0} contains a NUL byte")]
    Nul(&'static str),
    /// A variable's name is empty or contains `=`.
    #[error("the environment has a variable with an impossible name")]
    Name,
    /// More than the kernel takes.
    #[error("arguments and environment are too long together")]
    TooLong,
    /// What arrived is not a spec.
    #[error("the command's description is damaged")]
    Damaged,
    /// The engine is gone.
    #[error("the command's description could not be read")]
    Io(#[from] io::Error),
}

impl Spec {
    /// The spec as NUL-terminated fields behind a length.
    ///
    /// # Errors
    /// It could not be carried faithfully.
    pub fn encode(&self) -> Result<Vec<u8>, SpecError> {
        if self.argv.first().is_none_or(String::is_empty) {
            return Err(SpecError::Empty);
        }
        let mut body = Vec::new();
        let mut field = |what: &'static str, text: &str| {
            if text.contains('\0') {
                return Err(SpecError::Nul(what));
            }
            body.extend_from_slice(text.as_bytes());
            body.push(0);
            Ok(())
        };
        field("the directory", &self.directory)?;
        field("a count", &self.argv.len().to_string())?;
        for argument in &self.argv {
            field("an argument", argument)?;
        }
        for (name, value) in &self.env {
            if name.is_empty() || name.contains('=') {
                return Err(SpecError::Name);
            }
            field("a variable", &format!("{name}={value}"))?;
        }
        let length = u32::try_from(body.len()).map_err(|_long| SpecError::TooLong)?;
        if length > LARGEST {
            return Err(SpecError::TooLong);
        }
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.append(&mut body);
        Ok(bytes)
    }

    /// Reads one spec.
    ///
    /// # Errors
    /// The other side is gone or sent something else.
    pub fn read(from: &mut impl Read) -> Result<Self, SpecError> {
        let mut length = [0; 4];
        from.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length);
        if length > LARGEST {
            return Err(SpecError::TooLong);
        }
        let mut body = vec![0; usize::try_from(length).map_err(|_wide| SpecError::TooLong)?];
        from.read_exact(&mut body)?;
        let text = String::from_utf8(body).map_err(|_bytes| SpecError::Damaged)?;
        let text = text.strip_suffix('\0').ok_or(SpecError::Damaged)?;
        let mut fields = text.split('\0');
        let directory = fields.next().ok_or(SpecError::Damaged)?.to_owned();
        let count: usize = fields
            .next()
            .and_then(|text| text.parse().ok())
            .ok_or(SpecError::Damaged)?;
        let argv: Vec<String> = fields.by_ref().take(count).map(str::to_owned).collect();
        if argv.len() != count || count == 0 {
            return Err(SpecError::Damaged);
        }
        let env = fields
            .map(|field| {
                field
                    .split_once('=')
                    .map(|(k, v)| (k.to_owned(), v.to_owned()))
            })
            .collect::<Option<_>>()
            .ok_or(SpecError::Damaged)?;
        Ok(Self {
            argv,
            env,
            directory,
        })
    }
}

/// The shared descriptor, from either side.
#[derive(Debug)]
pub struct Control(pub UnixStream);

impl Control {
    /// Relay: the command runs.
    ///
    /// # Errors
    /// The engine is gone.
    pub fn say_started(&mut self) -> io::Result<()> {
        self.0.write_all(b"S")
    }

    /// Relay: the command has ended.
    ///
    /// # Errors
    /// The engine is gone.
    pub fn say_ended(&mut self, ended: Ended) -> io::Result<()> {
        let (kind, number) = match ended {
            Ended::Code(code) => (b'E', code),
            Ended::Signal(signal) => (b'K', signal),
        };
        let mut message = vec![kind];
        message.extend_from_slice(&number.to_le_bytes());
        self.0.write_all(&message)
    }

    /// Engine: waits until the command runs. `false` when the relay ended before that.
    ///
    /// # Errors
    /// Reading failed or timed out.
    pub fn hear_started(&mut self) -> io::Result<bool> {
        let mut byte = [0; 1];
        Ok(self.0.read(&mut byte)? == 1 && byte == *b"S")
    }

    /// Engine: waits for the end. `None` when the relay died without a word.
    pub fn hear_ended(&mut self) -> Option<Ended> {
        let mut message = [0; 5];
        self.0.read_exact(&mut message).ok()?;
        let [kind, number @ ..] = message;
        let number = i32::from_le_bytes(number);
        match kind {
            b'E' => Some(Ended::Code(number)),
            b'K' => Some(Ended::Signal(number)),
            _ => None,
        }
    }
}
