//! Is this text a secret of the kind it claims to be?
//!
//! Found out at load, so that a wrong value is an error with a name and a remedy, not a 401 from
//! somebody else's server. A Proxmox value that already contains its id is recognised and never
//! doubled: a token that contained the token once cost a day.

use super::shape;
use crate::config::CredentialKind;

/// The longest secret, without its line end.
pub(super) const SECRET_BYTES_MAX: usize = 8 * 1024;

/// What is wrong with a value. Says nothing about the value itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message is its documentation")]
pub enum Flaw {
    #[error("is empty")]
    Empty,
    #[error("is only blanks")]
    Blank,
    #[error("starts with a byte order mark")]
    ByteOrderMark,
    #[error("holds a NUL byte")]
    Nul,
    #[error("has more than one line")]
    Lines,
    #[error("holds a control character")]
    Control,
    #[error("holds a character outside ASCII")]
    NonAscii,
    #[error("is longer than 8 KiB")]
    TooLong,
    #[error("has quotes around it")]
    Quoted,
    #[error("starts or ends with a blank")]
    Padded,
    #[error("starts with the word of an authentication scheme")]
    Scheme,
    #[error("holds a blank inside")]
    Spaced,
    #[error("is not a Proxmox token secret, which is a UUID")]
    NotUuid,
    #[error("names no token id, and the configuration has none either")]
    NoId,
    #[error("names another token id than the configuration")]
    OtherId,
    #[error("holds only the beginning that all tokens of its kind have")]
    PrefixOnly,
    #[error("is a word that programs print where there is no value")]
    Placeholder,
    #[error("is a row of asterisks, copied from where the value was hidden")]
    Masked,
    #[error("is the head of an armoured file")]
    Armour,
    #[error("is a refresh token, which no API takes")]
    RefreshToken,
    #[error("looks like {0}, not like what this kind of credential needs")]
    LooksLike(&'static str),
    #[error("is not an Anthropic key or token, which begin with sk-ant-")]
    NotAnthropic,
    #[error("is not an OpenAI key, which begins with sk-")]
    NotOpenai,
    #[error("is not a private key in PEM")]
    NotPem,
    #[error("is not an RSA key, which is what GitHub Apps sign with")]
    NotRsa,
}

impl Flaw {
    /// What to do about it.
    #[must_use]
    pub fn hint(self) -> &'static str {
        match self {
            Self::Empty | Self::Blank => {
                "it may have been lost: `portcullis secret history` shows a store's former versions; \
                 otherwise write the secret again"
            }
            Self::ByteOrderMark => "save the file without a byte order mark",
            Self::Nul | Self::Control | Self::NonAscii => {
                "write the secret as plain printable ASCII on one line"
            }
            Self::Lines => "keep the secret alone in the file, on one line",
            Self::TooLong => "this is probably another file",
            Self::Quoted => "remove the quotes: the file holds the bare secret",
            Self::Padded | Self::Spaced => "remove the blanks",
            Self::Scheme => "remove the scheme's word: the kind of the credential adds it",
            Self::NotUuid => {
                "write the secret that Proxmox showed once, such as \
                 xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx, or user@realm!name=SECRET"
            }
            Self::NoId => "add id = \"user@realm!name\" to the credential, or write id=secret",
            Self::PrefixOnly | Self::Placeholder | Self::Masked => {
                "it was lost on the way: copy the secret itself again and write it with \
                 `portcullis secret rotate`"
            }
            Self::Armour => "decrypt it first, or choose kind = \"github-app\" for a private key",
            Self::RefreshToken => {
                "choose kind = \"oauth-refresh\": the gate fetches tokens with it"
            }
            Self::LooksLike(_) => {
                "choose the kind that fits the value, or the value that fits the kind"
            }
            Self::NotAnthropic | Self::NotOpenai => {
                "copy the key from the provider's console; for a compatible service choose \
                 kind = \"bearer\" or \"header\""
            }
            Self::NotPem | Self::NotRsa => {
                "use the .pem file that GitHub gave when the app's private key was made"
            }
            Self::OtherId => "make the id in the configuration and in the file the same",
        }
    }
}

/// A value that passed, with what was noticed on the way.
pub(super) struct Checked<'v> {
    pub(super) secret: &'v [u8],
    /// Set for kind `proxmox-token` only.
    pub(super) proxmox_id: Option<String>,
    pub(super) notes: Vec<&'static str>,
}

pub(super) fn check<'v>(kind: &CredentialKind, raw: &'v [u8]) -> Result<Checked<'v>, Flaw> {
    let mut notes = Vec::new();
    let passed = |secret, notes| Checked {
        secret,
        proxmox_id: None,
        notes,
    };
    if matches!(kind, CredentialKind::GithubApp(_)) {
        private_key(raw)?;
        return Ok(passed(raw, notes));
    }
    let secret = match raw.strip_suffix(b"\n") {
        Some(rest) => {
            notes.push("one line end after the value was removed");
            rest.strip_suffix(b"\r").unwrap_or(rest)
        }
        None => raw,
    };
    common(secret)?;
    match kind {
        CredentialKind::Basic { .. } | CredentialKind::Header { .. } => {
            return Ok(passed(secret, notes));
        }
        CredentialKind::ProxmoxToken { id } => {
            one_word(secret)?;
            let (found, secret) = proxmox(id.as_deref(), secret, &mut notes)?;
            return Ok(Checked {
                secret,
                proxmox_id: Some(found),
                notes,
            });
        }
        CredentialKind::GithubToken => {
            one_word(secret)?;
            shape::github(secret, &mut notes)?;
        }
        CredentialKind::Anthropic => {
            one_word(secret)?;
            shape::anthropic(secret)?;
        }
        CredentialKind::Openai => {
            one_word(secret)?;
            shape::openai(secret)?;
        }
        CredentialKind::Bearer
        | CredentialKind::OauthRefresh(_)
        | CredentialKind::Query { .. }
        | CredentialKind::GithubApp(_) => one_word(secret)?,
    }
    Ok(passed(secret, notes))
}

/// A token that somebody else's server gave: it goes into a field or a body like any other.
pub(super) fn minted(token: &[u8]) -> Result<(), Flaw> {
    common(token)
}

/// A private key in PEM that signs as GitHub wants it.
fn private_key(raw: &[u8]) -> Result<(), Flaw> {
    use rustls_pki_types::PrivateKeyDer;
    use rustls_pki_types::pem::PemObject;
    if raw.is_empty() {
        return Err(Flaw::Empty);
    }
    if crate::store::is_void(raw) {
        return Err(Flaw::Blank);
    }
    if raw.starts_with(b"\xef\xbb\xbf") {
        return Err(Flaw::ByteOrderMark);
    }
    let key = PrivateKeyDer::from_pem_slice(raw).map_err(|_| Flaw::NotPem)?;
    let key =
        rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).map_err(|_| Flaw::NotPem)?;
    if key.algorithm() == rustls::SignatureAlgorithm::RSA {
        Ok(())
    } else {
        Err(Flaw::NotRsa)
    }
}

fn common(secret: &[u8]) -> Result<(), Flaw> {
    if secret.is_empty() {
        return Err(Flaw::Empty);
    }
    if secret.len() > SECRET_BYTES_MAX {
        return Err(Flaw::TooLong);
    }
    if secret.starts_with(b"\xef\xbb\xbf") {
        return Err(Flaw::ByteOrderMark);
    }
    if secret.iter().all(u8::is_ascii_whitespace) {
        return Err(Flaw::Blank);
    }
    for byte in secret {
        match byte {
            0 => return Err(Flaw::Nul),
            b'\n' | b'\r' => return Err(Flaw::Lines),
            byte if byte.is_ascii_control() => return Err(Flaw::Control),
            byte if !byte.is_ascii() => return Err(Flaw::NonAscii),
            _ => {}
        }
    }
    if secret.starts_with(b"-----BEGIN ") {
        return Err(Flaw::Armour);
    }
    shape::hollow(secret)?;
    if secret.starts_with(b" ") || secret.ends_with(b" ") {
        return Err(Flaw::Padded);
    }
    let quoted =
        |quote: &[u8]| secret.len() > 1 && secret.starts_with(quote) && secret.ends_with(quote);
    if quoted(b"\"") || quoted(b"'") || quoted(b"`") {
        return Err(Flaw::Quoted);
    }
    let lower = |word: &str| {
        secret
            .get(..word.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()))
    };
    if ["bearer ", "basic ", "token ", "authorization:"]
        .into_iter()
        .any(lower)
    {
        return Err(Flaw::Scheme);
    }
    Ok(())
}

fn one_word(secret: &[u8]) -> Result<(), Flaw> {
    if secret.contains(&b' ') {
        Err(Flaw::Spaced)
    } else {
        Ok(())
    }
}

/// Takes `secret`, `id=secret`, `id=id=secret` and the same behind `PVEAPIToken=`.
fn proxmox<'v>(
    configured: Option<&str>,
    value: &'v [u8],
    notes: &mut Vec<&'static str>,
) -> Result<(String, &'v [u8]), Flaw> {
    let mut rest = value;
    if let Some(bare) = rest.strip_prefix(b"PVEAPIToken=".as_slice()) {
        notes
            .push("the value starts with PVEAPIToken=, which the gate adds itself; it was removed");
        rest = bare;
    }
    let mut found: Option<&str> = None;
    while let Some(split) = rest.iter().position(|byte| *byte == b'=') {
        let (id, tail) = (&rest[..split], &rest[split + 1..]);
        let id = std::str::from_utf8(id).map_err(|_| Flaw::NotUuid)?;
        if !is_proxmox_id(id) {
            return Err(Flaw::NotUuid);
        }
        match found {
            Some(former) if former != id => return Err(Flaw::OtherId),
            Some(_) => notes.push("the value contains its token id twice; it is used once"),
            None => {}
        }
        found = Some(id);
        rest = tail;
    }
    if !is_uuid(rest) {
        return Err(Flaw::NotUuid);
    }
    match (configured, found) {
        (Some(configured), Some(found)) if configured != found => Err(Flaw::OtherId),
        (Some(configured), Some(_)) => {
            notes.push("the value already contains its token id; it is used once");
            Ok((configured.to_owned(), rest))
        }
        (Some(id), None) | (None, Some(id)) => Ok((id.to_owned(), rest)),
        (None, None) => Err(Flaw::NoId),
    }
}

/// `user@realm!name`, as Proxmox shows a token's id.
#[must_use]
pub fn is_proxmox_id(text: &str) -> bool {
    let word = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| {
                byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'+')
            })
    };
    let Some((user, name)) = text.split_once('!') else {
        return false;
    };
    // A user name may itself hold an @; the realm is behind the last one.
    let Some((user, realm)) = user.rsplit_once('@') else {
        return false;
    };
    user.split('@').all(word) && word(realm) && word(name)
}

fn is_uuid(text: &[u8]) -> bool {
    text.len() == 36
        && text.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}
