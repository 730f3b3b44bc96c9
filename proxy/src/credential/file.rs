//! Reading a secret's file: see [`crate::guarded`] for what is asked of it.

use zeroize::Zeroizing;

use super::CredentialError;
use crate::config::CredentialConfig;
use crate::guarded;

/// More than any secret may have: what is between is told by name as too long.
const FILE_BYTES_MAX: usize = 128 * 1024;

pub(super) fn read(config: &CredentialConfig) -> Result<Zeroizing<Vec<u8>>, CredentialError> {
    guarded::read(&config.file, FILE_BYTES_MAX).map_err(|unfit| CredentialError::File {
        name: config.name.clone(),
        file: config.file.clone(),
        problem: unfit.problem,
        hint: unfit.hint,
    })
}
