//! The store that a command works on, opened as its owner, and what its entries are for.

use std::path::Path;

use super::{SecretError, StoreArg};
use crate::config::{Config, CredentialConfig, SecretSource, StoreConfig};
use crate::credential::flaw_of;
use crate::harden;
use crate::store::{EntryName, Store, StoreError, value};

/// The configuration and the store it names, opened as the store's owner.
pub(super) struct Opened {
    pub(super) config: Config,
    pub(super) store: Store,
}

pub(super) fn configured(arg: &StoreArg) -> Result<(Config, StoreConfig), SecretError> {
    let config = Config::load(&arg.config.config)?;
    let store = config
        .store
        .clone()
        .ok_or_else(|| SecretError::NoStore(config.path.clone()))?;
    Ok((config, store))
}

/// As root, becomes the store's owner for good, so that what is written belongs to it and git runs
/// as nobody mightier.
pub(super) fn become_owner(directory: &Path) -> Result<(), SecretError> {
    use std::os::unix::fs::MetadataExt;
    if !nix::unistd::Uid::effective().is_root() {
        return Ok(());
    }
    let owner = std::fs::metadata(directory)
        .map_err(SecretError::Owner)?
        .uid();
    if owner != 0 {
        harden::drop_privileges(Some(&owner.to_string()))?;
    }
    Ok(())
}

pub(super) fn open(arg: &StoreArg) -> Result<Opened, SecretError> {
    let (config, store) = configured(arg)?;
    become_owner(&store.directory)?;
    let store = Store::open(&store.directory, &store.key)?;
    Ok(Opened { config, store })
}

impl Opened {
    /// The entry that `name` means, and the credential that uses it.
    pub(super) fn entry(
        &self,
        name: &str,
    ) -> Result<(EntryName, Option<&CredentialConfig>), SecretError> {
        let named = self
            .config
            .credentials
            .values()
            .find(|credential| credential.name.as_str() == name);
        if let Some(credential) = named {
            return match &credential.source {
                SecretSource::Entry(entry) => Ok((entry.clone(), Some(credential))),
                SecretSource::File(_) | SecretSource::Descriptor(_) => Err(SecretError::Elsewhere(
                    name.to_owned(),
                    credential.source.to_string(),
                )),
            };
        }
        let entry = EntryName::parse(name)
            .map_err(|problem| SecretError::Name(name.to_owned(), problem))?;
        let user = self.user(&entry);
        Ok((entry, user))
    }

    pub(super) fn user(&self, entry: &EntryName) -> Option<&CredentialConfig> {
        self.config.credentials.values().find(
            |credential| matches!(&credential.source, SecretSource::Entry(used) if used == entry),
        )
    }

    pub(super) fn whole(&self, entry: &EntryName) -> bool {
        self.user(entry)
            .is_some_and(|credential| credential.kind.is_whole())
    }

    /// Whether `text` would do as the value of `entry`.
    pub(super) fn judge(&self, entry: &EntryName, text: &[u8]) -> Result<(), SecretError> {
        let found = value(text, self.whole(entry)).map_err(|problem| StoreError::Void {
            name: entry.clone(),
            problem,
        })?;
        if let Some(credential) = self.user(entry)
            && let Some(flaw) = flaw_of(&credential.kind, &found.0)
        {
            return Err(SecretError::Flaw(entry.clone(), flaw));
        }
        Ok(())
    }
}
