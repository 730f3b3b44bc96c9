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

use super::{CERTIFICATE, CaError, KEY};

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

    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(CaError::Mint)?;
    let certificate = parameters().self_signed(&key).map_err(CaError::Mint)?;
    let key_text = Zeroizing::new(key.serialize_pem());
    // The key first: a certificate without a key is never published.
    write_new(&key_path, key_text.as_bytes(), 0o600, uid, gid)
        .map_err(|problem| fail(&key_path, problem))?;
    write_new(
        &certificate_path,
        certificate.pem().as_bytes(),
        0o644,
        uid,
        gid,
    )
    .map_err(|problem| fail(&certificate_path, problem))?;
    File::open(directory)
        .and_then(|open| open.sync_all())
        .map_err(|problem| fail(directory, problem))?;
    Ok(Created::New)
}

/// The authority's certificate as PEM.
///
/// # Errors
/// [`CaError::File`]
pub fn export(directory: &Path) -> Result<String, CaError> {
    let path = directory.join(CERTIFICATE);
    let text = std::fs::read_to_string(&path).map_err(|problem| unreadable(&path, &problem))?;
    CertificateDer::from_pem_slice(text.as_bytes())
        .map_err(|problem| file_error(&path, problem.to_string(), REMAKE))?;
    Ok(text)
}

pub(super) fn load(
    directory: &Path,
) -> Result<(Issuer<'static, KeyPair>, CertificateDer<'static>), CaError> {
    let (key_path, certificate_path) = (directory.join(KEY), directory.join(CERTIFICATE));
    let key_text = read_key(&key_path)?;
    let text = export(directory)?;
    let key = KeyPair::from_pem(&key_text)
        .map_err(|problem| file_error(&key_path, problem.to_string(), REMAKE))?;
    let certificate = CertificateDer::from_pem_slice(text.as_bytes())
        .map_err(|problem| file_error(&certificate_path, problem.to_string(), REMAKE))?;
    let facts = webpki::EndEntityCert::try_from(&certificate)
        .map_err(|problem| file_error(&certificate_path, problem.to_string(), REMAKE))?;
    if *facts.subject_public_key_info() != *key.subject_public_key_info() {
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

fn exists(path: &Path) -> Result<bool, CaError> {
    match std::fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(problem) if problem.kind() == ErrorKind::NotFound => Ok(false),
        Err(problem) => Err(unreadable(path, &problem)),
    }
}

fn unreadable(path: &Path, problem: &std::io::Error) -> CaError {
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

fn file_error(path: &Path, problem: String, hint: &str) -> CaError {
    CaError::File {
        path: path.display().to_string(),
        problem,
        hint: hint.to_owned(),
    }
}
