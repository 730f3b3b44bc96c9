//! The authority's two files: making them once, reading them back with suspicion.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::unistd::Uid;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PublicKeyData,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use zeroize::Zeroizing;

use super::rotation::{self, AuthorityView};
use super::{CERTIFICATE, CaError, KEY};
use crate::digest::sha256;

const LIFE: Duration = Duration::from_secs(5 * 366 * 24 * 3600);
const BACKDATED: Duration = Duration::from_secs(24 * 3600);
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// What [`create`] found or did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// There was none; now there is one.
    New,
    /// There was one; it was left alone.
    Kept,
}

/// Makes an authority unless there is one; never overwrites. New files belong to `owner` (uid and
/// gid), or to whoever owns the directory.
///
/// # Errors
/// [`CaError`]; when only one of the two files exists, nothing is made.
pub fn create(directory: &Path, owner: Option<(u32, u32)>) -> Result<Created, CaError> {
    let (key_path, certificate_path) = (directory.join(KEY), directory.join(CERTIFICATE));
    let fail = |path: &Path, problem: std::io::Error| {
        file_error(
            path,
            problem.to_string(),
            "check the directory's owner and mode",
        )
    };
    match (exists(&key_path)?, exists(&certificate_path)?) {
        (true, true) => return Ok(Created::Kept),
        (true, false) => return Err(half(&certificate_path, &key_path)),
        (false, true) => return Err(half(&key_path, &certificate_path)),
        (false, false) => {}
    }
    let fresh = !exists(directory)?;
    if fresh {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|problem| fail(directory, problem))?;
    }
    let found = std::fs::metadata(directory).map_err(|problem| fail(directory, problem))?;
    let (uid, gid) = owner.unwrap_or((found.uid(), found.gid()));
    if fresh && owner.is_some() {
        std::os::unix::fs::chown(directory, Some(uid), Some(gid))
            .map_err(|problem| fail(directory, problem))?;
    }

    make(directory, (KEY, CERTIFICATE), None, (uid, gid))?;
    Ok(Created::New)
}

/// Makes a key and a certificate of its own under these names, with one more file if given. The
/// certificate comes last: one without a key, or without that file, is never published.
pub(super) fn make(
    directory: &Path,
    (key_name, certificate_name): (&str, &str),
    more: Option<(&str, &str)>,
    (uid, gid): (u32, u32),
) -> Result<(), CaError> {
    let write = |name: &str, bytes: &[u8], mode| {
        let path = directory.join(name);
        write_new(&path, bytes, mode, uid, gid).map_err(|problem| {
            let hint = "check the directory's owner and mode";
            file_error(&path, problem.to_string(), hint)
        })
    };
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(CaError::Mint)?;
    let certificate = parameters().self_signed(&key).map_err(CaError::Mint)?;
    let key_text = Zeroizing::new(key.serialize_pem());
    write(key_name, key_text.as_bytes(), 0o600)?;
    if let Some((name, text)) = more {
        write(name, text.as_bytes(), 0o644)?;
    }
    write(certificate_name, certificate.pem().as_bytes(), 0o644)?;
    File::open(directory)
        .and_then(|open| open.sync_all())
        .map_err(|problem| unreadable(directory, &problem))
}

/// What clients must trust, as PEM: the authority's certificate, and its successor's during an
/// overlap.
///
/// # Errors
/// [`CaError::File`]
pub fn export(directory: &Path) -> Result<String, CaError> {
    let mut text = String::new();
    for name in [CERTIFICATE, rotation::NEXT_CERTIFICATE] {
        let path = directory.join(name);
        if name != CERTIFICATE && !exists(&path)? {
            continue;
        }
        read_certificate(&path)?;
        let more = std::fs::read_to_string(&path).map_err(|problem| unreadable(&path, &problem))?;
        text.push_str(more.trim_end());
        text.push('\n');
    }
    Ok(text)
}

pub(super) fn read_certificate(path: &Path) -> Result<CertificateDer<'static>, CaError> {
    let text = std::fs::read_to_string(path).map_err(|problem| unreadable(path, &problem))?;
    CertificateDer::from_pem_slice(text.as_bytes())
        .map_err(|problem| file_error(path, problem.to_string(), REMAKE))
}

pub(super) fn read_key_pair(path: &Path) -> Result<KeyPair, CaError> {
    let text = read_key(path)?;
    KeyPair::from_pem(&text).map_err(|problem| file_error(path, problem.to_string(), REMAKE))
}

/// The public key of a certificate, as it stands in it.
pub(super) fn key_of(path: &Path, certificate: &CertificateDer<'_>) -> Result<Vec<u8>, CaError> {
    let facts = webpki::EndEntityCert::try_from(certificate)
        .map_err(|problem| file_error(path, problem.to_string(), REMAKE))?;
    Ok(facts.subject_public_key_info().to_vec())
}

/// What people want to know of a certificate.
pub(super) fn describe(
    path: &Path,
    certificate: &CertificateDer<'_>,
) -> Result<AuthorityView, CaError> {
    let odd = |problem: String| file_error(path, problem, REMAKE);
    let (_, facts) =
        x509_parser::parse_x509_certificate(certificate).map_err(|error| odd(error.to_string()))?;
    let name = facts.subject().iter_common_name().next();
    let name = name.and_then(|name| name.as_str().ok()).unwrap_or("?");
    let expires = facts.validity().not_after.timestamp();
    let now = jiff::Timestamp::now().as_second();
    let expires_text = jiff::Timestamp::from_second(expires)
        .map_err(|error| odd(error.to_string()))?
        .to_string();
    Ok(AuthorityView {
        name: name.to_owned(),
        sha256: sha256(certificate),
        expires: expires_text,
        days_left: (expires - now).div_euclid(24 * 3600),
    })
}

pub(super) fn time_text(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).map_or_else(|_| "?".to_owned(), |time| format!("{time:.0}"))
}

pub(super) type Loaded = (Issuer<'static, KeyPair>, CertificateDer<'static>);

pub(super) fn load(directory: &Path) -> Result<Loaded, CaError> {
    load_pair(directory, KEY, CERTIFICATE)
}

/// A key and its certificate, of which neither is used unless both are in order.
pub(super) fn load_pair(
    directory: &Path,
    key_name: &str,
    certificate_name: &str,
) -> Result<Loaded, CaError> {
    let (key_path, certificate_path) = (directory.join(key_name), directory.join(certificate_name));
    let key = read_key_pair(&key_path)?;
    let certificate = read_certificate(&certificate_path)?;
    let view = describe(&certificate_path, &certificate)?;
    if view.days_left < 0 {
        return Err(file_error(
            &certificate_path,
            format!("has ended on {}", view.expires),
            "portcullis-proxy ca rotate --finish puts a successor in its place; without one, REMAKE"
                .replace("REMAKE", REMAKE)
                .as_str(),
        ));
    }
    if key_of(&certificate_path, &certificate)? != *key.subject_public_key_info() {
        return Err(file_error(
            &key_path,
            format!("is not the key of {}", certificate_path.display()),
            REMAKE,
        ));
    }
    let issuer = Issuer::from_ca_cert_der(&certificate, key)
        .map_err(|problem| file_error(&certificate_path, problem.to_string(), REMAKE))?;
    Ok((issuer, certificate))
}

const REMAKE: &str = "restore both files from a backup, or remove both, run portcullis-proxy ca \
                      init and hand the new certificate to the clients";

fn parameters() -> CertificateParams {
    let now = SystemTime::now();
    let mut params = CertificateParams::default();
    params.not_before = (now - BACKDATED).into();
    params.not_after = (now + LIFE).into();
    params.serial_number = Some(super::serial());
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let random = uuid::Uuid::new_v4().simple().to_string();
    let name = format!("Portcullis CA {}", random.get(..8).unwrap_or(&random));
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn read_key(path: &Path) -> Result<Zeroizing<String>, CaError> {
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)
        .map_err(|problem| unreadable(path, &problem))?;
    let found = file
        .metadata()
        .map_err(|problem| unreadable(path, &problem))?;
    if !found.is_file() || found.mode() & 0o077 != 0 {
        let hint = format!("chmod 600 {}", path.display());
        return Err(file_error(
            path,
            "others may read the key".to_owned(),
            &hint,
        ));
    }
    let own = Uid::effective().as_raw();
    if found.uid() != own && found.uid() != 0 {
        let hint = format!("chown {own} {}", path.display());
        return Err(file_error(
            path,
            format!("belongs to uid {}", found.uid()),
            &hint,
        ));
    }
    let mut text = Zeroizing::new(String::with_capacity(4096));
    Read::by_ref(&mut file)
        .take(FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|problem| unreadable(path, &problem))?;
    Ok(text)
}

fn write_new(path: &Path, bytes: &[u8], mode: u32, uid: u32, gid: u32) -> std::io::Result<()> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    let fresh = PathBuf::from(fresh);
    match std::fs::remove_file(&fresh) {
        Ok(()) => {}
        Err(problem) if problem.kind() == ErrorKind::NotFound => {}
        Err(problem) => return Err(problem),
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&fresh)?;
    file.write_all(bytes)?;
    if uid != Uid::effective().as_raw() {
        std::os::unix::fs::fchown(&file, Some(uid), Some(gid))?;
    }
    file.sync_all()?;
    // A link, unlike a rename, does not replace what somebody else made meanwhile.
    std::fs::hard_link(&fresh, path)?;
    std::fs::remove_file(&fresh)
}

pub(super) fn exists(path: &Path) -> Result<bool, CaError> {
    match std::fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(problem) if problem.kind() == ErrorKind::NotFound => Ok(false),
        Err(problem) => Err(unreadable(path, &problem)),
    }
}

pub(super) fn unreadable(path: &Path, problem: &std::io::Error) -> CaError {
    let hint = if problem.kind() == ErrorKind::NotFound {
        "make it with portcullis-proxy ca init --config FILE"
    } else {
        "the gate's user must be able to read it"
    };
    file_error(path, problem.to_string(), hint)
}

fn half(missing: &Path, present: &Path) -> CaError {
    let problem = format!("is missing while {} is there", present.display());
    file_error(missing, problem, REMAKE)
}

pub(super) fn file_error(path: &Path, problem: String, hint: &str) -> CaError {
    CaError::File {
        path: path.display().to_string(),
        problem,
        hint: hint.to_owned(),
    }
}
