//! A secret that exists to be looked for, in every form it could leak in.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// A long random secret.
#[derive(Clone, Debug)]
pub struct Canary {
    /// The secret itself.
    pub secret: String,
}

/// Where a canary was found, and in which form.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Sighting {
    /// File, or a name for a piece of text.
    pub place: String,
    /// `raw`, `base64 +1`, ...
    pub form: String,
}

impl Canary {
    /// A secret of the shape of a GitHub token: `ghp_` and 36 letters and digits.
    pub fn github() -> Self {
        Self {
            secret: format!("ghp_{}", letters(36)),
        }
    }

    /// A secret without a shape: 40 letters and digits.
    pub fn plain() -> Self {
        Self {
            secret: letters(40),
        }
    }

    /// Every form searched for, as (name, bytes).
    pub fn forms(&self) -> Vec<(String, Vec<u8>)> {
        let secret = self.secret.as_bytes();
        let each = |form: fn(u8) -> String| -> Vec<u8> {
            secret
                .iter()
                .map(|&byte| form(byte))
                .collect::<String>()
                .into_bytes()
        };
        let mut forms = vec![
            ("raw".to_owned(), secret.to_vec()),
            (
                "reversed".to_owned(),
                secret.iter().rev().copied().collect(),
            ),
            ("percent".to_owned(), each(|byte| format!("%{byte:02X}"))),
            (
                "percent, lower case".to_owned(),
                each(|byte| format!("%{byte:02x}")),
            ),
            (
                "JSON escapes".to_owned(),
                each(|byte| format!("\\u{byte:04x}")),
            ),
            (
                "JSON escapes, upper case".to_owned(),
                each(|byte| format!("\\u{byte:04X}")),
            ),
            ("hex".to_owned(), each(|byte| format!("{byte:02x}"))),
            (
                "hex, upper case".to_owned(),
                each(|byte| format!("{byte:02X}")),
            ),
        ];
        for offset in 0..3 {
            let mut padded = vec![0; offset];
            padded.extend_from_slice(secret);
            for (name, text) in [
                ("base64", STANDARD_NO_PAD.encode(&padded)),
                ("base64url", URL_SAFE_NO_PAD.encode(&padded)),
            ] {
                // Characters at either end also depend on neighbours that are not ours.
                let start = [0, 2, 3][offset];
                let end = text.len() - 2;
                let inner = text.as_bytes()[start..end].to_vec();
                forms.push((format!("{name} +{offset}"), inner));
            }
        }
        forms
    }

    /// The forms as `portcullis-probe search` reads them: a line each, hex, space, name.
    pub fn forms_in_hex(&self) -> String {
        let hex = |bytes: &[u8]| {
            bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        };
        self.forms()
            .iter()
            .map(|(name, bytes)| format!("{} {name}\n", hex(bytes)))
            .collect()
    }

    /// Every form of it in `bytes`.
    pub fn find(&self, place: &str, bytes: &[u8]) -> Vec<Sighting> {
        find(&self.forms(), place, bytes)
    }

    /// Panics if it is in `bytes`.
    #[track_caller]
    pub fn absent_from(&self, place: &str, bytes: impl AsRef<[u8]>) {
        let sightings = self.find(place, bytes.as_ref());
        assert!(
            sightings.is_empty(),
            "the credential was seen: {sightings:?}"
        );
    }

    /// Every form of it in any readable file under `root`, and in file names.
    pub fn search(&self, root: &Path) -> Vec<Sighting> {
        search(&self.forms(), root)
    }
}

/// Every form found in `bytes`.
pub fn find(forms: &[(String, Vec<u8>)], place: &str, bytes: &[u8]) -> Vec<Sighting> {
    forms
        .iter()
        .filter(|(_, form)| bytes.windows(form.len()).any(|window| window == form))
        .map(|(name, _)| Sighting {
            place: place.to_owned(),
            form: name.clone(),
        })
        .collect()
}

/// Every form found in any file under `root` that the caller may read; links are not followed.
/// Files are read up to 64 MiB; sockets, pipes and devices are left alone.
pub fn search(forms: &[(String, Vec<u8>)], root: &Path) -> Vec<Sighting> {
    let mut found = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(path) = open.pop() {
        let place = path.display().to_string();
        found.extend(find(forms, &place, place.as_bytes()));
        let Ok(meta) = fs::symlink_metadata(&path) else {
            continue;
        };
        if meta.is_dir() {
            open.extend(
                fs::read_dir(&path)
                    .into_iter()
                    .flatten()
                    .flatten()
                    .map(|it| it.path()),
            );
        } else if meta.is_symlink() {
            let target = fs::read_link(&path).unwrap_or_default();
            found.extend(find(forms, &place, target.as_os_str().as_encoded_bytes()));
        } else if meta.is_file()
            && let Ok(bytes) = read(&path)
        {
            found.extend(find(forms, &place, &bytes));
        }
    }
    found
}

/// What `/proc` shows the caller of every process: environment, command line and descriptors.
pub fn search_processes(forms: &[(String, Vec<u8>)]) -> Vec<Sighting> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let process = entry.path();
        if !entry
            .file_name()
            .to_string_lossy()
            .bytes()
            .all(|byte| byte.is_ascii_digit())
        {
            continue;
        }
        for file in [
            "environ",
            "cmdline",
            "comm",
            "maps",
            "mountinfo",
            "limits",
            "stack",
        ] {
            let path = process.join(file);
            if let Ok(bytes) = read(&path) {
                found.extend(find(forms, &path.display().to_string(), &bytes));
            }
        }
        for descriptor in fs::read_dir(process.join("fd"))
            .into_iter()
            .flatten()
            .flatten()
        {
            // Opening a pipe or a socket through /proc could block or steal; files only.
            let path: PathBuf = descriptor.path();
            if fs::metadata(&path).is_ok_and(|meta| meta.is_file())
                && let Ok(bytes) = read(&path)
            {
                found.extend(find(forms, &path.display().to_string(), &bytes));
            }
        }
    }
    found
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?
        .take(64 << 20)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn letters(count: usize) -> String {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut bytes = vec![0; count];
    fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .expect("the kernel gives random bytes");
    bytes
        .iter()
        .map(|&byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_found_in_base64_at_every_offset_and_in_escapes() {
        let canary = Canary::github();
        for before in ["", "a", "ab", "abc", "x-access-token:"] {
            for after in ["", "z", "zz", "zzz"] {
                let text = STANDARD_NO_PAD.encode(format!("{before}{}{after}", canary.secret));
                let found = canary.find("text", format!("Basic {text}").as_bytes());
                assert_eq!(
                    found.len(),
                    2,
                    "{before}…{after}: standard and url-safe: {found:?}"
                );
            }
        }
        let hex: String = canary
            .secret
            .bytes()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(canary.find("hex", hex.as_bytes())[0].form, "hex");
        assert!(
            canary
                .find("other", Canary::github().secret.as_bytes())
                .is_empty()
        );
    }

    #[test]
    fn is_found_in_files_and_in_names() {
        let dir = tempfile::tempdir().unwrap();
        let canary = Canary::plain();
        assert!(canary.search(dir.path()).is_empty());
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/file"), format!("a{}b", canary.secret)).unwrap();
        fs::write(dir.path().join(&canary.secret), "").unwrap();
        assert_eq!(canary.search(dir.path()).len(), 2);
    }
}
