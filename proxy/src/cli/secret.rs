//! `secret`: the entries of the store, for operators. Values come from stdin or a descriptor, never
//! from an argument, and are never shown.

mod input;
mod opened;
mod reload;
mod review;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use zeroize::Zeroizing;

use super::ConfigArg;
use super::output::{Exit, say, tell};
use crate::config::SecretSource;
use crate::credential::{Flaw, flaw_of, shape};
use crate::harden;
use crate::store::{EntryName, Form, ProofError, Store, StoreError, value};
use opened::{Opened, become_owner, configured, open};
use reload::{gate_of, take_up};

const EXAMPLES: &str = "\
Examples:
  portcullis secret list
  portcullis secret show-shape agents/github
  portcullis secret put agents/github < token            (or type it; it is not shown)
  pass show github | portcullis secret rotate agents/github
  portcullis secret import --into agents /etc/portcullis/credentials/github
  portcullis secret import --into agents --pointer /claudeAiOauth/refreshToken ~/.claude/.credentials.json
  portcullis secret check
  portcullis secret history agents/github
  portcullis secret restore agents/github

NAME is an entry of the store, or the name of a [credential.NAME] that has one.
As root, the command becomes the owner of the store first.
Exit status: 0 yes, 1 no, 2 could not tell";

/// Which store.
#[derive(Debug, Args)]
pub(super) struct StoreArg {
    #[command(flatten)]
    config: ConfigArg,
}

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum SecretCommand {
    /// List the entries, with what uses them
    #[command(after_help = EXAMPLES)]
    List {
        #[command(flatten)]
        store: StoreArg,
    },
    /// Say of what kind and form an entry is; never its value or its length
    #[command(after_help = EXAMPLES)]
    ShowShape {
        #[command(flatten)]
        store: StoreArg,
        /// The entry
        name: String,
    },
    /// Write an entry, a new one or over an old one, which stays in the history
    #[command(after_help = EXAMPLES)]
    Put(PutArgs),
    /// Write a new value over an entry that is there, and have the gate take it up
    #[command(after_help = EXAMPLES)]
    Rotate(PutArgs),
    /// Take secrets that lie in files into the store
    #[command(after_help = EXAMPLES)]
    Import {
        #[command(flatten)]
        store: StoreArg,
        /// Folder of the store to write into
        #[arg(long, value_name = "FOLDER")]
        into: Option<String>,
        /// The secret is this field of a JSON file
        #[arg(long, value_name = "/A/B")]
        pointer: Option<String>,
        /// Files with mode 0600 or 0400
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Try every entry: is there a value, and did it become another thing than it was?
    #[command(after_help = EXAMPLES)]
    Check {
        #[command(flatten)]
        store: StoreArg,
    },
    /// List the versions of an entry, newest first
    #[command(after_help = EXAMPLES)]
    History {
        #[command(flatten)]
        store: StoreArg,
        /// The entry
        name: String,
    },
    /// Bring back a former version: the one that is named, or the newest other one with a value
    #[command(after_help = EXAMPLES)]
    Restore {
        #[command(flatten)]
        store: StoreArg,
        /// The entry
        name: String,
        /// As `history` shows it, or its beginning
        version: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(super) struct PutArgs {
    #[command(flatten)]
    store: StoreArg,
    /// The entry
    name: String,
    /// Read the value from this descriptor instead of stdin
    #[arg(long, value_name = "N")]
    descriptor: Option<i32>,
}

pub(super) fn secret(command: &SecretCommand) -> Exit {
    let done = match command {
        SecretCommand::List { store } => list(store),
        SecretCommand::ShowShape { store, name } => show_shape(store, name),
        SecretCommand::Put(args) => put(args, false),
        SecretCommand::Rotate(args) => put(args, true),
        SecretCommand::Import {
            store,
            into,
            pointer,
            files,
        } => import(store, into.as_deref(), pointer.as_deref(), files),
        SecretCommand::Check { store } => check(store),
        SecretCommand::History { store, name } => history(store, name),
        SecretCommand::Restore {
            store,
            name,
            version,
        } => restore(store, name, version.as_deref()),
    };
    match done {
        Ok(exit) => exit,
        Err(SecretError::Store(
            problem @ (StoreError::Missing(_) | StoreError::NoVersion { .. }),
        )) => {
            tell(&format!("error: {problem}"));
            Exit::No
        }
        Err(SecretError::Scope(problem @ ProofError::Readable(_))) => {
            tell(&format!("error: {problem}"));
            Exit::No
        }
        Err(problem) => {
            tell(&format!("error: {}", crate::credential::chain(&problem)));
            Exit::CouldNotTell
        }
    }
}

/// Why a command could not be carried out.
#[derive(Debug, thiserror::Error)]
enum SecretError {
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    #[error(
        "{0} has no [store]\n  hint: add [store] with directory, key and operator_entries; docs/secrets.md shows how"
    )]
    NoStore(PathBuf),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Scope(#[from] ProofError),
    #[error(transparent)]
    Harden(#[from] harden::HardenError),
    #[error("the store's directory cannot be looked at")]
    Owner(#[source] std::io::Error),
    #[error("{0} {1}")]
    Name(String, crate::store::NotAName),
    #[error(
        "{0} is not in the store: its value lies in {1}\n  hint: write it there; the gate takes a changed file up by itself"
    )]
    Elsewhere(String, String),
    #[error("the value for {0} {1}\n  hint: {hint}", hint = .1.hint())]
    Flaw(EntryName, Flaw),
    #[error("the value could not be read")]
    Input(#[source] std::io::Error),
    #[error("{0} {1}\n  hint: {2}")]
    File(PathBuf, String, String),
    #[error("{0} has no text at {1}")]
    Pointer(PathBuf, String),
}

fn list(arg: &StoreArg) -> Result<Exit, SecretError> {
    let opened = open(arg)?;
    for entry in opened.store.list()? {
        match opened.user(&entry) {
            Some(credential) => say(&format!(
                "{entry}  used by credential {} ({})",
                credential.name,
                credential.kind.word()
            )),
            None => say(entry.as_str()),
        };
    }
    Ok(Exit::Yes)
}

fn show_shape(arg: &StoreArg, name: &str) -> Result<Exit, SecretError> {
    let opened = open(arg)?;
    let (entry, _) = opened.entry(name)?;
    let text = opened.store.text(&entry)?;
    let found = value(&text, opened.whole(&entry)).map_err(|problem| StoreError::Void {
        name: entry.clone(),
        problem,
    })?;
    say(&format!("entry  {entry}"));
    say(&format!("form   {}", found.1.word()));
    say(&format!("kind   {}", shape::recognise(&found.0)));
    say(&format!("lines  {}", review::lines(&text)));
    if let Some(credential) = opened.user(&entry) {
        let fits = match flaw_of(&credential.kind, &found.0) {
            None => "fits".to_owned(),
            Some(flaw) => format!("does not fit: it {flaw}"),
        };
        say(&format!(
            "used   by credential {} ({}): {fits}",
            credential.name,
            credential.kind.word()
        ));
    }
    Ok(Exit::Yes)
}

fn put(args: &PutArgs, rotate: bool) -> Result<Exit, SecretError> {
    // Before privileges go: a descriptor may be root's.
    let text = input::read(args.descriptor).map_err(SecretError::Input)?;
    let gate = gate_of(&args.store);
    let opened = open(&args.store)?;
    let (entry, user) = opened.entry(&args.name)?;
    if rotate {
        let text = opened.store.text(&entry)?;
        // An attachment that is replaced by a first line is a change that somebody should know of.
        if matches!(value(&text, false), Ok((_, Form::Attachment))) {
            tell("note: the entry was an attachment; the new value stands in its first line");
        }
    }
    opened.judge(&entry, &text)?;
    let verb = if rotate { "Rotate" } else { "Put" };
    opened
        .store
        .put(&entry, &text, &format!("{verb} {entry}"))?;
    say(&format!("{entry}: written"));
    if rotate && user.is_some() {
        return Ok(take_up(gate));
    }
    Ok(Exit::Yes)
}

fn import(
    arg: &StoreArg,
    into: Option<&str>,
    pointer: Option<&str>,
    files: &[PathBuf],
) -> Result<Exit, SecretError> {
    let mut read = Vec::new();
    for path in files {
        read.push((path, input::file(path, pointer)?));
    }
    let opened = open(arg)?;
    for (path, text) in read {
        let stem = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .trim_start_matches('.')
            .to_owned();
        let name = match into {
            Some(folder) => format!("{}/{stem}", folder.trim_end_matches('/')),
            None => stem,
        };
        let entry = EntryName::parse(&name).map_err(|problem| SecretError::Name(name, problem))?;
        opened.judge(&entry, &text)?;
        opened
            .store
            .put(&entry, &text, &format!("Import {entry}"))?;
        say(&format!("{entry}: written"));
        tell(&format!(
            "  hint: name it as entry = \"{entry}\", then remove {}",
            path.display()
        ));
    }
    Ok(Exit::Yes)
}

fn check(arg: &StoreArg) -> Result<Exit, SecretError> {
    let (config, store) = configured(arg)?;
    let foreign = store.collect_foreign()?;
    become_owner(&store.directory)?;
    let store = Store::open(&store.directory, &store.key)?;
    if let Some(foreign) = &foreign {
        let tried = store.prove_foreign(foreign)?;
        say(&format!(
            "scope: none of {tried} foreign entries can be read with the store's key"
        ));
    } else {
        tell("warning: nothing proves that the store's key reads no more than it should");
    }
    let opened = Opened { config, store };
    let mut sound = true;
    for entry in opened.store.list()? {
        let found = review::entry(&opened, &entry);
        for warning in &found.warnings {
            tell(&format!("warning: {entry} {warning}"));
        }
        match found.problem {
            Some(problem) => {
                sound = false;
                tell(&format!("error: {problem}"));
            }
            None => {
                say(&format!("{entry}: ok"));
            }
        }
    }
    let used = opened.config.credentials.values();
    for credential in used {
        if let SecretSource::Entry(entry) = &credential.source
            && !opened.store.list()?.contains(entry)
        {
            sound = false;
            tell(&format!(
                "error: credential {}: {}",
                credential.name,
                StoreError::Missing(entry.clone())
            ));
        }
    }
    Ok(if sound { Exit::Yes } else { Exit::No })
}

fn history(arg: &StoreArg, name: &str) -> Result<Exit, SecretError> {
    let opened = open(arg)?;
    let (entry, _) = opened.entry(name)?;
    let versions = opened.store.history(&entry)?;
    if versions.is_empty() {
        tell(&format!("{entry} has no former version"));
    }
    for version in versions {
        let state = review::version(&opened, &entry, &version.id);
        say(format!(
            "{}  {}  {state}  {}",
            version.id, version.time, version.subject
        )
        .trim_end());
    }
    Ok(Exit::Yes)
}

fn restore(arg: &StoreArg, name: &str, version: Option<&str>) -> Result<Exit, SecretError> {
    let gate = gate_of(arg);
    let opened = open(arg)?;
    let (entry, user) = opened.entry(name)?;
    let id = match version {
        Some(id) => id.to_owned(),
        None => review::newest_other(&opened, &entry)?.ok_or_else(|| StoreError::NoVersion {
            name: entry.clone(),
            version: "with another value".to_owned(),
        })?,
    };
    let text: Zeroizing<Vec<u8>> = opened.store.version(&entry, &id)?;
    opened.judge(&entry, &text)?;
    opened
        .store
        .put(&entry, &text, &format!("Restore {entry} as of {id}"))?;
    say(&format!("{entry}: restored as of {id}"));
    if user.is_some() {
        return Ok(take_up(gate));
    }
    Ok(Exit::Yes)
}
