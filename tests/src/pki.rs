//! A private certificate authority with one leaf, for upstreams that only tests and demos talk to.
//!
//! A directory holds `ca.pem`, `ca.key`, `leaf.pem`, `leaf.key` and `hosts`, the list of names and
//! addresses the leaf speaks for. Making the same directory again with the same hosts changes
//! nothing.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// Where the four files of a private authority lie.
#[derive(Clone, Debug)]
pub struct Pki {
    /// The directory all of them share.
    pub dir: PathBuf,
}

/// Whether [`Pki::make`] wrote anything.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Made {
    /// A leaf, and where none existed also an authority, was written.
    Written,
    /// Everything was there already.
    Unchanged,
}

impl Pki {
    /// Makes an authority and a leaf for `hosts` (names or addresses) in `dir`.
    ///
    /// An existing authority is kept; the leaf is made anew only when `hosts` differ from the ones
    /// it was made for. Errors are those of the file system; a host that cannot stand in a
    /// certificate is [`io::ErrorKind::InvalidInput`].
    pub fn make(dir: &Path, hosts: &[String]) -> io::Result<(Self, Made)> {
        let pki = Self {
            dir: dir.to_path_buf(),
        };
        fs::create_dir_all(dir)?;
        let wanted = hosts.join("\n") + "\n";
        let present = [pki.ca(), pki.ca_key(), pki.leaf(), pki.leaf_key()];
        if present.iter().all(|path| path.exists())
            && fs::read_to_string(dir.join("hosts")).is_ok_and(|found| found == wanted)
        {
            return Ok((pki, Made::Unchanged));
        }
        let issuer = pki.issuer()?;
        let key = KeyPair::generate().map_err(invalid)?;
        let mut params = CertificateParams::new(hosts.to_vec()).map_err(invalid)?;
        let first = hosts.first().map_or("leaf", String::as_str);
        params.distinguished_name.push(DnType::CommonName, first);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let leaf = params.signed_by(&key, &issuer).map_err(invalid)?;
        write(&pki.leaf(), &leaf.pem(), 0o644)?;
        write(&pki.leaf_key(), &key.serialize_pem(), 0o600)?;
        write(&dir.join("hosts"), &wanted, 0o644)?;
        Ok((pki, Made::Written))
    }

    /// The authority's certificate, PEM.
    pub fn ca(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    /// The authority's private key, PEM, mode 0600.
    pub fn ca_key(&self) -> PathBuf {
        self.dir.join("ca.key")
    }

    /// The leaf certificate, PEM.
    pub fn leaf(&self) -> PathBuf {
        self.dir.join("leaf.pem")
    }

    /// The leaf's private key, PEM, mode 0600.
    pub fn leaf_key(&self) -> PathBuf {
        self.dir.join("leaf.key")
    }

    fn issuer(&self) -> io::Result<Issuer<'static, KeyPair>> {
        if self.ca().exists() && self.ca_key().exists() {
            let key = KeyPair::from_pem(&fs::read_to_string(self.ca_key())?).map_err(invalid)?;
            return Issuer::from_ca_cert_pem(&fs::read_to_string(self.ca())?, key).map_err(invalid);
        }
        let key = KeyPair::generate().map_err(invalid)?;
        let mut params = CertificateParams::new(Vec::<String>::new()).map_err(invalid)?;
        params
            .distinguished_name
            .push(DnType::CommonName, "Portcullis stand-in authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(invalid)?;
        write(&self.ca(), &certificate.pem(), 0o644)?;
        write(&self.ca_key(), &key.serialize_pem(), 0o600)?;
        Ok(Issuer::new(params, key))
    }
}

fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    match fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    io::Write::write_all(&mut file, text.as_bytes())
}

fn invalid(error: rcgen::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_hosts_change_nothing_and_other_hosts_keep_the_authority() {
        let dir = tempfile::tempdir().unwrap();
        let hosts = vec!["git.portcullis.test".to_owned(), "127.0.0.1".to_owned()];
        let (pki, made) = Pki::make(dir.path(), &hosts).unwrap();
        assert_eq!(made, Made::Written);
        let before = (fs::read(pki.ca()).unwrap(), fs::read(pki.leaf()).unwrap());
        assert_eq!(Pki::make(dir.path(), &hosts).unwrap().1, Made::Unchanged);
        assert_eq!(
            before,
            (fs::read(pki.ca()).unwrap(), fs::read(pki.leaf()).unwrap())
        );

        let (_, made) = Pki::make(dir.path(), &["other.portcullis.test".to_owned()]).unwrap();
        assert_eq!(made, Made::Written);
        assert_eq!(before.0, fs::read(pki.ca()).unwrap());
        assert_ne!(before.1, fs::read(pki.leaf()).unwrap());
    }
}
