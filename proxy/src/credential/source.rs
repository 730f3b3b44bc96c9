//! Where a secret is read from: a file, an inherited descriptor, an entry of the store.

use std::cell::OnceCell;

use zeroize::Zeroizing;

use super::CredentialError;
use crate::config::{CredentialConfig, CredentialKind, SecretSource, StoreConfig};
use crate::guarded;
use crate::store::{Files, NoValue, Stamp, Store, StoreError};

/// More than any secret may have: what is between is told by name as too long.
const FILE_BYTES_MAX: usize = 128 * 1024;

/// Reads secrets; the store is opened when the first entry is asked for, and its key is forgotten
/// with the reader.
#[allow(
    missing_debug_implementations,
    reason = "holds the store's key while it is open"
)]
pub struct Reader<'c> {
    config: Option<&'c StoreConfig>,
    store: OnceCell<Result<Store, String>>,
}

impl<'c> Reader<'c> {
    /// Nothing is opened yet.
    #[must_use]
    pub fn new(config: Option<&'c StoreConfig>) -> Self {
        Self {
            config,
            store: OnceCell::new(),
        }
    }

    pub(super) fn config(&self) -> Option<&'c StoreConfig> {
        self.config
    }

    /// The store.
    pub(super) fn store(&self) -> Result<&Store, String> {
        let opened = self.store.get_or_init(|| {
            let config = self.config.ok_or("there is no [store]")?;
            Store::open(&config.directory, &config.key).map_err(|problem| chain(&problem))
        });
        opened.as_ref().map_err(Clone::clone)
    }

    pub(super) fn read(
        &self,
        config: &CredentialConfig,
    ) -> Result<Zeroizing<Vec<u8>>, CredentialError> {
        let unfit = |unfit: guarded::Unfit| CredentialError::File {
            name: config.name.clone(),
            place: config.source.to_string(),
            problem: unfit.problem,
            hint: unfit.hint,
        };
        match &config.source {
            SecretSource::File(path) => guarded::read(path, FILE_BYTES_MAX).map_err(unfit),
            SecretSource::Descriptor(number) => {
                let opened = crate::vault::inherited(*number).map_err(|problem| {
                    unfit(guarded::Unfit {
                        problem: format!("cannot be used: {problem}"),
                        hint: "pass a file or a memfd, which can be read again; a pipe cannot"
                            .to_owned(),
                    })
                })?;
                guarded::fill(opened, FILE_BYTES_MAX).map_err(unfit)
            }
            SecretSource::Entry(entry) => {
                let failed = |problem: String| CredentialError::Store {
                    name: config.name.clone(),
                    problem,
                };
                let store = self.store().map_err(failed)?;
                let text = store
                    .text(entry)
                    .map_err(|problem| failed(chain(&problem)))?;
                match crate::store::value(&text, config.kind.is_whole()) {
                    Ok((value, _)) => Ok(with_proxmox_id(&config.kind, &text, value)),
                    Err(
                        problem @ (NoValue::Empty
                        | NoValue::Blank
                        | NoValue::NoBody
                        | NoValue::NotBase64
                        | NoValue::NoFirstLine
                        | NoValue::HollowArmour),
                    ) => {
                        let name = entry.clone();
                        Err(failed(StoreError::Void { name, problem }.to_string()))
                    }
                }
            }
        }
    }

    /// What tells that a source has changed; nothing where that cannot be told.
    pub(super) fn stamp(&self, config: &CredentialConfig) -> Option<Vec<Option<Stamp>>> {
        let file =
            |path: &std::path::Path| std::fs::metadata(path).ok().map(|found| Stamp::of(&found));
        match &config.source {
            SecretSource::File(path) => Some(vec![file(path)]),
            SecretSource::Descriptor(_) => None,
            SecretSource::Entry(entry) => {
                let store = self.config?;
                let files = Files::open(&store.directory).ok();
                let entry = files.and_then(|files| files.stamp(&entry.file()));
                Some(vec![entry, file(&store.key)])
            }
        }
    }
}

/// An entry may hold the secret in its first line and the id in a field below.
fn with_proxmox_id(
    kind: &CredentialKind,
    text: &[u8],
    value: Zeroizing<Vec<u8>>,
) -> Zeroizing<Vec<u8>> {
    if !matches!(kind, CredentialKind::ProxmoxToken { id: None }) || value.contains(&b'=') {
        return value;
    }
    let field = text.split(|byte| *byte == b'\n').skip(1).find_map(|line| {
        let line = std::str::from_utf8(line).ok()?;
        let (name, content) = line.split_once(':')?;
        let known = [
            "id", "tokenid", "token-id", "token_id", "user", "login", "username",
        ];
        let content = content.trim();
        (known.contains(&name.trim().to_ascii_lowercase().as_str())
            && super::is_proxmox_id(content))
        .then(|| content.to_owned())
    });
    match field {
        Some(id) => Zeroizing::new([id.as_bytes(), b"=", value.as_slice()].concat()),
        None => value,
    }
}

/// An error with everything that caused it, before its hint.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    let (mut head, hint) = match text.split_once("\n  hint: ") {
        Some((head, hint)) => (head.to_owned(), Some(hint.to_owned())),
        None => (text, None),
    };
    let mut cause = error.source();
    while let Some(inner) = cause {
        head.push_str(": ");
        head.push_str(&inner.to_string());
        cause = inner.source();
    }
    match hint {
        Some(hint) => format!("{head}\n  hint: {hint}"),
        None => head,
    }
}

#[cfg(test)]
mod tests;
