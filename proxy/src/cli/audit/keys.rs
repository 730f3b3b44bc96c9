//! `audit keygen` and `audit checkpoint-export`: the key that vouches for the log, and what it
//! signed, for `gpg`.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use nix::unistd::{Gid, Uid, User};

use super::super::ConfigArg;
use super::super::output::{Exit, fail, say, tell};
use super::SourceArg;
use crate::audit::query::{Filter, Reader};
use crate::audit::signing;
use crate::config::Config;

#[derive(Debug, Args)]
pub(in crate::cli) struct KeygenArgs {
    #[command(flatten)]
    config: ConfigArg,
    /// Where the secret key shall lie, instead of where [audit] signing_key says
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Where the public key shall lie; beside the secret one, with .pub, unless given
    #[arg(long, value_name = "FILE")]
    public: Option<PathBuf>,
    /// The name in the key
    #[arg(long, default_value = "Portcullis audit")]
    name: String,
    /// Whose file the secret key shall be
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct ExportArgs {
    #[command(flatten)]
    source: SourceArg,
    /// The number of the checkpoint's line; the last signed one unless given
    seq: Option<u64>,
    /// Where to write checkpoint-SEQ.txt and checkpoint-SEQ.txt.asc
    #[arg(long, value_name = "DIR", default_value = ".")]
    to: PathBuf,
}

/// Makes a key unless there is one; never overwrites.
pub(super) fn keygen(args: &KeygenArgs) -> Exit {
    let path = match &args.key {
        Some(path) => path.clone(),
        None => match Config::load(&args.config.config) {
            Ok(Config { audit, .. }) => match audit.signing_key {
                Some(path) => path,
                None => {
                    tell("error: [audit] names no signing_key");
                    tell("  hint: add signing_key = \"/…/audit.key\" or say --key FILE");
                    return Exit::CouldNotTell;
                }
            },
            Err(problem) => return fail(&problem),
        },
    };
    let public = args.public.clone().unwrap_or_else(|| {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".pub");
        PathBuf::from(beside)
    });
    let owner = match args.user.as_deref().map(find).transpose() {
        Ok(owner) => owner,
        Err(problem) => return fail(&std::io::Error::other(problem)),
    };
    let made = signing::generate(&args.name).and_then(|(secret, shown, fingerprint)| {
        write(&path, &secret, 0o600, owner)?;
        write(&public, &shown, 0o644, None)?;
        Ok(fingerprint)
    });
    match made {
        Ok(fingerprint) => {
            say(&fingerprint);
            tell(&format!(
                "the secret key is {}, the public one {}: keep a copy of the public one elsewhere",
                path.display(),
                public.display()
            ));
            Exit::Yes
        }
        Err(problem) if problem.kind() == std::io::ErrorKind::AlreadyExists => {
            tell(&format!("nothing was made: {problem}"));
            Exit::No
        }
        Err(problem) => fail(&problem),
    }
}

fn find(name: &str) -> Result<(Uid, Gid), String> {
    match User::from_name(name) {
        Ok(Some(user)) => Ok((user.uid, user.gid)),
        Ok(None) => Err(format!("there is no user {name}")),
        Err(problem) => Err(problem.to_string()),
    }
}

/// Writes a new file, whole or not at all.
fn write(path: &Path, bytes: &[u8], mode: u32, owner: Option<(Uid, Gid)>) -> std::io::Result<()> {
    let named = |problem: std::io::Error| {
        std::io::Error::new(problem.kind(), format!("{}: {problem}", path.display()))
    };
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .map_err(named)?;
    if let Some((uid, gid)) = owner {
        std::os::unix::fs::fchown(&file, Some(uid.as_raw()), Some(gid.as_raw())).map_err(named)?;
    }
    file.write_all(bytes)
        .and_then(|()| file.sync_all())
        .map_err(named)
}

/// Writes a checkpoint's text and its signature as two files.
pub(super) fn export(args: &ExportArgs) -> Exit {
    let files = match args.source.files() {
        Ok(files) => files,
        Err(exit) => return exit,
    };
    let mut found = None;
    let everything = Filter::default();
    let mut reader = Reader::new(&files, &everything);
    let read = reader.each(|_, record| {
        if let Some(checkpoint) = &record.checkpoint
            && args.seq.is_none_or(|wanted| wanted == record.seq)
            && checkpoint.signature.is_some()
        {
            found = Some((record.seq, checkpoint.clone()));
        }
        std::ops::ControlFlow::Continue(())
    });
    let exit = super::remark(&reader, Exit::No);
    if let Err(problem) = read {
        return fail(&problem);
    }
    let Some((seq, checkpoint)) = found else {
        tell("there is no such signed checkpoint");
        return exit;
    };
    let text = args.to.join(format!("checkpoint-{seq}.txt"));
    let signature = args.to.join(format!("checkpoint-{seq}.txt.asc"));
    let written = std::fs::write(&text, &checkpoint.statement).and_then(|()| {
        std::fs::write(
            &signature,
            checkpoint.signature.as_deref().unwrap_or_default(),
        )
    });
    match written {
        Ok(()) => {
            say(&text.display().to_string());
            say(&signature.display().to_string());
            Exit::Yes
        }
        Err(problem) => fail(&problem),
    }
}
