//! The key that signs the audit log's checkpoints, made by the gate itself, so that it is never in another process; its
//! public half lies with what clients may read.

use std::path::{Path, PathBuf};

use super::{State, Step, StepError, doing};
use crate::control;
use crate::file::{self, Access};
use crate::site::Site;

/// The largest public key.
const KEY_BYTES_MAX: u64 = 64 * 1024;

/// `portcullis-proxy audit keygen`.
#[derive(Debug)]
pub struct AuditKey;

/// The secret key, the public one beside it, and the public one for everybody.
fn files(site: &Site) -> (PathBuf, PathBuf, PathBuf) {
    let layout = &site.instance.layout;
    let secret = layout.audit_key();
    let mut beside = secret.clone().into_os_string();
    beside.push(".pub");
    (
        secret,
        PathBuf::from(beside),
        layout.trust().join("audit.asc"),
    )
}

/// The public key that the gate's user left beside the secret one. That user may have put anything there, and root
/// shows it to everybody: it must be a file of that user's own and nothing but a public key.
fn public(beside: &Path, owner: u32) -> Result<String, StepError> {
    let text = file::read_of(beside, owner, KEY_BYTES_MAX)?;
    if is_public_key(&text) {
        Ok(text)
    } else {
        Err(StepError::Said(format!(
            "{} is not a public key in armour\n  hint: remove it and the key beside it, then have both made again",
            beside.display()
        )))
    }
}

/// Whether a text is one armoured public key, alone.
fn is_public_key(text: &str) -> bool {
    const BEGIN: &str = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n";
    const END: &str = "-----END PGP PUBLIC KEY BLOCK-----";
    let inner = text
        .strip_prefix(BEGIN)
        .and_then(|rest| rest.trim_end().strip_suffix(END));
    let Some((fields, body)) = inner.and_then(|inner| {
        inner
            .split_once("\n\n")
            .or_else(|| Some(("", inner.strip_prefix('\n')?)))
    }) else {
        return false;
    };
    let printable =
        |line: &str| line.contains(": ") && line.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let base64 = |line: &str| {
        line.len() <= 76
            && line
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='))
    };
    // The first byte of a public key packet is 0x98, 0x99 or 0xc6.
    let begins = body.starts_with(['m', 'x']);
    fields.lines().all(printable) && begins && body.lines().all(base64)
}

impl Step for AuditKey {
    fn name(&self) -> String {
        "audit key".to_owned()
    }

    fn check(&self, site: &Site) -> Result<State, StepError> {
        let (secret, beside, shown) = files(site);
        let access = site
            .access("proxy", 0o600)
            .ok_or(StepError::NoAccount("proxy"))?;
        let mut problems = Vec::new();
        for path in [&secret, &beside] {
            if !path.exists() {
                problems.push(format!("{} is missing", path.display()));
            }
        }
        if problems.is_empty() {
            problems.extend(access.difference(&secret));
            let public = public(&beside, access.uid)?;
            if std::fs::read_to_string(&shown).ok().as_deref() != Some(public.as_str()) {
                problems.push(format!("{} is not current", shown.display()));
            }
        }
        Ok(State::from_problems(problems))
    }

    fn apply(&self, site: &Site) -> Result<(), StepError> {
        let (secret, beside, shown) = files(site);
        if !secret.exists() {
            doing("make a key that signs the audit log, as the gate's own user");
            let key = secret.display().to_string();
            control::gate(&site.instance, &["audit", "keygen", "--key", &key])
                .as_user(&site.instance.layout.user("proxy"))?
                .run()?;
        }
        doing(&format!("write {}", shown.display()));
        let owner = site
            .access("proxy", 0o600)
            .ok_or(StepError::NoAccount("proxy"))?;
        let public = public(&beside, owner.uid)?;
        file::write(&shown, public.as_bytes(), Access::root(0o644))?;
        Ok(())
    }

    fn repair(&self, site: &Site) -> String {
        format!("ls -l {}", site.instance.layout.audit_key().display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "-----BEGIN PGP PUBLIC KEY BLOCK-----\nComment: ABCD 0123\n\nxjMEZ0sAABYJKwYBBAHaRw8BAQdA\n=AbCd\n-----END PGP PUBLIC KEY BLOCK-----\n";

    #[test]
    fn root_copies_a_public_key_and_nothing_that_a_link_leads_to() {
        let folder = tempfile::tempdir().unwrap();
        let owner = nix::unistd::geteuid().as_raw();
        let beside = folder.path().join("audit.key.pub");
        std::fs::write(&beside, KEY).unwrap();
        assert_eq!(public(&beside, owner).unwrap(), KEY, "the control");

        let elsewhere = folder.path().join("elsewhere");
        std::fs::rename(&beside, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &beside).unwrap();
        assert!(public(&beside, owner).is_err(), "a symbolic link");
        std::fs::remove_file(&beside).unwrap();
        std::fs::hard_link(&elsewhere, &beside).unwrap();
        assert!(public(&beside, owner).is_err(), "a second name");
        std::fs::remove_file(&beside).unwrap();
        std::fs::create_dir(&beside).unwrap();
        assert!(public(&beside, owner).is_err(), "a directory");
        std::fs::remove_dir(&beside).unwrap();
        nix::unistd::mkfifo(&beside, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(
            public(&beside, owner).is_err(),
            "a pipe, and it does not wait"
        );
    }

    #[test]
    fn only_a_public_key_alone_is_one() {
        assert!(is_public_key(KEY));
        assert!(is_public_key(&KEY.replace("Comment: ABCD 0123\n", "")));
        for other in [
            "root:$y$j9T$x:19000:0:99999:7:::\n".to_owned(),
            String::new(),
            KEY.replace("PUBLIC", "PRIVATE"),
            format!("{KEY}root:x\n"),
            format!("root:x\n{KEY}"),
            KEY.replace("=AbCd", "root:x:0:0"),
            KEY.replace("Comment: ABCD", "root:x"),
            KEY.replace("xjME", "lQdG"),
        ] {
            assert!(!is_public_key(&other), "{other}");
        }
    }
}
