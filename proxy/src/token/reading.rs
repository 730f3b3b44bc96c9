//! What a request shows of who it is, from the bytes of its `Proxy-Authorization` fields.

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use policy::grant::TokenDigest;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// The user's name of Basic.
const USER: &[u8] = b"run";
/// Shorter ones could be guessed, and longer ones are something else.
pub(super) const LENGTHS: std::ops::RangeInclusive<usize> = 32..=128;
/// Some clients pad and some do not.
const BASIC: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What a request shows of who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// No field at all.
    Nothing,
    /// Something that cannot be a token.
    Unreadable,
    /// What looks like one digests to this.
    Token(TokenDigest),
}

/// Reads the values of all `Proxy-Authorization` fields of a request.
pub fn shown<'v>(mut values: impl Iterator<Item = &'v [u8]>) -> Shown {
    match (values.next(), values.next()) {
        (None, _) => Shown::Nothing,
        (Some(value), None) => digest_of(value).map_or(Shown::Unreadable, Shown::Token),
        (Some(_), Some(_)) => Shown::Unreadable,
    }
}

fn digest_of(value: &[u8]) -> Option<TokenDigest> {
    let value = value.trim_ascii();
    let end = value.iter().position(|byte| *byte == b' ')?;
    let (scheme, rest) = value.split_at(end);
    let rest = rest.trim_ascii_start();
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return digest(rest);
    }
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let pair = Zeroizing::new(BASIC.decode(rest).ok()?);
    let token = pair.strip_prefix(USER)?.strip_prefix(b":")?;
    digest(token)
}

/// What a token digests to; `None` for what is none.
pub(super) fn digest(token: &[u8]) -> Option<TokenDigest> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    let good = LENGTHS.contains(&token.len()) && token.iter().all(plain);
    good.then(|| TokenDigest::new(Sha256::digest(token).into()))
}
