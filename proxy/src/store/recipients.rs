//! Who an entry is encrypted to: the nearest `.gpg-id` above it, as with `pass`.
//!
//! Certificates come from the store's own key and from `.public-keys/`, where gopass exports them;
//! there is no keyring. An id names a certificate by fingerprint, by long key id or by address.

use std::path::Path;

use sequoia_openpgp::{Cert, KeyHandle};

use super::StoreError;
use super::files::Files;
use super::name::EntryName;
use crate::openpgp::PublicKey;

const IDS: &str = ".gpg-id";
const KEYS: &str = ".public-keys";

/// The folder of an entry, for people.
pub(super) fn shown(name: &EntryName) -> String {
    match name.folder() {
        "" => "the store".to_owned(),
        folder => format!("the folder {folder}"),
    }
}

/// Every recipient of `name`. The store's own key must be one of them: a gate that cannot read
/// what was written would find out only when it needs it.
pub(super) fn of(files: &Files, name: &EntryName, own: &Cert) -> Result<Vec<Cert>, StoreError> {
    let wrong = |problem: String, hint: &str| StoreError::Recipients {
        folder: shown(name),
        problem,
        hint: hint.to_owned(),
    };
    let ids = ids(files, name).map_err(|source| StoreError::Directory {
        path: files.path().to_owned(),
        source,
    })?;
    let ids = ids.ok_or_else(|| {
        wrong(
            "no .gpg-id says whom it is for".to_owned(),
            "make one with pass init, or write the key's fingerprint into .gpg-id",
        )
    })?;
    if ids.is_empty() {
        return Err(wrong(
            "the nearest .gpg-id is empty".to_owned(),
            "write one fingerprint per line",
        ));
    }
    let own = own.clone().strip_secret_key_material();
    let mut known = vec![own.clone()];
    known.extend(exported(files.path()));
    let mut recipients: Vec<Cert> = Vec::new();
    for id in &ids {
        let mut fitting = known.iter().filter(|cert| fits(cert, id));
        let cert = fitting.next().ok_or_else(|| {
            wrong(
                format!("the key of the recipient {id} is not at hand"),
                "export it into the store: gpg --export --armor KEY > STORE/.public-keys/KEY",
            )
        })?;
        if fitting.any(|other| other.fingerprint() != cert.fingerprint()) {
            return Err(wrong(
                format!("several keys answer to {id}"),
                "write the fingerprint instead",
            ));
        }
        if !recipients
            .iter()
            .any(|known| known.fingerprint() == cert.fingerprint())
        {
            recipients.push(cert.clone());
        }
    }
    if !recipients
        .iter()
        .any(|cert| cert.fingerprint() == own.fingerprint())
    {
        return Err(wrong(
            "the store's own key is not among the recipients, so the gate could not read it"
                .to_owned(),
            "add the key's fingerprint to .gpg-id, or choose another folder",
        ));
    }
    Ok(recipients)
}

/// The ids of the nearest `.gpg-id`; nothing if there is none.
fn ids(files: &Files, name: &EntryName) -> std::io::Result<Option<Vec<String>>> {
    let mut folder = name.folder();
    loop {
        let file = match folder {
            "" => IDS.to_owned(),
            inner => format!("{inner}/{IDS}"),
        };
        if let Some(bytes) = files.read(&file)? {
            let text = String::from_utf8_lossy(&bytes);
            let id = |line: &str| {
                let bare = line.split('#').next().unwrap_or_default().trim();
                (!bare.is_empty()).then(|| bare.to_owned())
            };
            return Ok(Some(text.lines().filter_map(id).collect()));
        }
        if folder.is_empty() {
            return Ok(None);
        }
        folder = folder.rsplit_once('/').map_or("", |(above, _)| above);
    }
}

/// Certificates in `.public-keys/`; what cannot be read is as if it were not there.
fn exported(store: &Path) -> Vec<Cert> {
    let Ok(found) = std::fs::read_dir(store.join(KEYS)) else {
        return Vec::new();
    };
    let mut paths: Vec<_> = found.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
        .iter()
        .filter_map(|path| PublicKey::load(path).ok())
        .map(|key| key.cert().clone())
        .collect()
}

fn fits(cert: &Cert, id: &str) -> bool {
    let bare = id.trim_end_matches('!');
    let bare = bare.strip_prefix("0x").unwrap_or(bare);
    let hex = bare.len() >= 16 && bare.bytes().all(|byte| byte.is_ascii_hexdigit());
    if hex {
        return bare.parse::<KeyHandle>().is_ok_and(|handle| {
            cert.keys()
                .any(|key| key.key().key_handle().aliases(&handle))
        });
    }
    cert.userids().any(|user| {
        let address = user.userid().email().ok().flatten();
        let whole = String::from_utf8_lossy(user.userid().value());
        let wanted = bare.trim_start_matches('<').trim_end_matches('>');
        address.is_some_and(|address| address.eq_ignore_ascii_case(wanted)) || whole == bare
    })
}
