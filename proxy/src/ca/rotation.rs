//! Replacing the authority without a moment in which clients trust the wrong one.
//!
//! [`begin`] makes the successor beside the authority: `next.key`, `next.pem`, and `next.from`, the
//! time from which it signs. From then on [`super::export`] gives both certificates, so that
//! clients learn to trust the successor while the old one still signs. At that time, or when
//! [`finish`] says so, the successor's files take the place of the old ones, whose key is gone with
//! that. A crash in between is healed when the directory is next read.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use rcgen::PublicKeyData;
use serde::Serialize;

use super::authority::{self, file_error};
use super::{CERTIFICATE, CaError, KEY};

/// The successor's certificate, key, and the time from which it signs.
pub(super) const NEXT_CERTIFICATE: &str = "next.pem";
pub(super) const NEXT_KEY: &str = "next.key";
pub(super) const NEXT_FROM: &str = "next.from";

/// The longest overlap: one in which clients surely renew what they trust.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// What people want to know of an authority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuthorityView {
    /// Its common name.
    pub name: String,
    /// SHA-256 of the certificate, in hex.
    pub sha256: String,
    /// The end of its time, RFC 3339.
    pub expires: String,
    /// Whole days until then, negative when it is over.
    pub days_left: i64,
}

/// What people want to know of a successor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NextView {
    /// The authority itself.
    #[serde(flatten)]
    pub authority: AuthorityView,
    /// From when it signs, RFC 3339.
    pub from: String,
}

/// The authority, and its successor during an overlap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CaView {
    /// Who signs.
    pub current: AuthorityView,
    /// Who will.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<NextView>,
}

/// Makes a successor that signs after `overlap`. Its files belong to whoever owns the directory.
///
/// # Errors
/// [`CaError`]; there is a successor already, or no authority to succeed.
pub fn begin(directory: &Path, overlap: Duration) -> Result<CaView, CaError> {
    if overlap > LONGEST {
        return Err(file_error(
            directory,
            "an overlap of more than a year is none".to_owned(),
            "the old key is in use for as long",
        ));
    }
    authority::load(directory)?;
    let key = directory.join(NEXT_KEY);
    for name in [NEXT_KEY, NEXT_CERTIFICATE, NEXT_FROM] {
        if authority::exists(&directory.join(name))? {
            return Err(file_error(
                &directory.join(name),
                "a rotation is under way".to_owned(),
                "portcullis-proxy ca rotate --finish ends it now",
            ));
        }
    }
    let found = std::fs::metadata(directory)
        .map_err(|problem| authority::unreadable(directory, &problem))?;
    let owner = (
        std::os::unix::fs::MetadataExt::uid(&found),
        std::os::unix::fs::MetadataExt::gid(&found),
    );
    let from = Timestamp::try_from(SystemTime::now() + overlap)
        .map_err(|problem| file_error(&key, problem.to_string(), "set the machine's clock"))?;
    authority::make(
        directory,
        (NEXT_KEY, NEXT_CERTIFICATE),
        Some((NEXT_FROM, &format!("{from:.0}\n"))),
        owner,
    )?;
    view(directory)
}

/// Puts the successor in the authority's place now.
///
/// # Errors
/// [`CaError`]; there is no successor.
pub fn finish(directory: &Path) -> Result<CaView, CaError> {
    heal(directory)?;
    if !authority::exists(&directory.join(NEXT_CERTIFICATE))? {
        return Err(file_error(
            &directory.join(NEXT_CERTIFICATE),
            "no rotation is under way".to_owned(),
            "portcullis-proxy ca rotate begins one",
        ));
    }
    // Read with suspicion before it takes anybody's place.
    authority::load_pair(directory, NEXT_KEY, NEXT_CERTIFICATE)?;
    promote(directory)?;
    view(directory)
}

/// The time from which the successor signs, if there is one.
pub(super) fn switch_at(directory: &Path) -> Result<Option<SystemTime>, CaError> {
    let path = directory.join(NEXT_FROM);
    if !authority::exists(&path)? || !authority::exists(&directory.join(NEXT_CERTIFICATE))? {
        return Ok(None);
    }
    let text =
        std::fs::read_to_string(&path).map_err(|problem| authority::unreadable(&path, &problem))?;
    let time: Timestamp = text.trim().parse().map_err(|problem: jiff::Error| {
        file_error(
            &path,
            problem.to_string(),
            "write a time as RFC 3339, or finish the rotation",
        )
    })?;
    // A time before 1970 is as good as 1970.
    let seconds = u64::try_from(time.as_second()).unwrap_or(0);
    Ok(Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)))
}

/// Moves the successor's files into place. The key first: [`heal`] knows the state in between by it.
pub(super) fn promote(directory: &Path) -> Result<(), CaError> {
    let step = |from: &str, to: &str| {
        std::fs::rename(directory.join(from), directory.join(to))
            .map_err(|problem| authority::unreadable(&directory.join(from), &problem))
    };
    step(NEXT_KEY, KEY)?;
    step(NEXT_CERTIFICATE, CERTIFICATE)?;
    clear(directory)
}

/// Completes a promotion that was cut short: the key has moved, the certificate has not.
pub(super) fn heal(directory: &Path) -> Result<(), CaError> {
    let next = directory.join(NEXT_CERTIFICATE);
    if !authority::exists(&next)? || authority::exists(&directory.join(NEXT_KEY))? {
        return Ok(());
    }
    let key = authority::read_key_pair(&directory.join(KEY))?;
    let certificate = authority::read_certificate(&next)?;
    if authority::key_of(&next, &certificate)? == *key.subject_public_key_info() {
        std::fs::rename(&next, directory.join(CERTIFICATE))
            .map_err(|problem| authority::unreadable(&next, &problem))?;
        clear(directory)?;
    }
    Ok(())
}

fn clear(directory: &Path) -> Result<(), CaError> {
    let from = directory.join(NEXT_FROM);
    match std::fs::remove_file(&from) {
        Ok(()) => {}
        Err(problem) if problem.kind() == std::io::ErrorKind::NotFound => {}
        Err(problem) => return Err(authority::unreadable(&from, &problem)),
    }
    File::open(directory)
        .and_then(|open| open.sync_all())
        .map_err(|problem| authority::unreadable(directory, &problem))
}

/// The authority and its successor as their certificates tell it; no key is read.
///
/// # Errors
/// [`CaError::File`]
pub fn view(directory: &Path) -> Result<CaView, CaError> {
    let of = |name: &str| {
        let path = directory.join(name);
        let certificate = authority::read_certificate(&path)?;
        authority::describe(&path, &certificate)
    };
    let next = match switch_at(directory)? {
        None => None,
        Some(from) => Some(NextView {
            authority: of(NEXT_CERTIFICATE)?,
            from: authority::time_text(from),
        }),
    };
    Ok(CaView {
        current: of(CERTIFICATE)?,
        next,
    })
}
