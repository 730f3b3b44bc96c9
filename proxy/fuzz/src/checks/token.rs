//! What clients show of who they are: Basic and Bearer in `Proxy-Authorization`.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use policy::grant::TokenDigest;
use sha2::{Digest as _, Sha256};

use crate::token::reading::{Shown, shown};

/// The lines of an input are fields. One that is taken is a token in the plain, and is taken in every
/// spelling of it; several fields are never one.
pub(crate) fn check(bytes: &[u8]) {
    let fields: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').take(3).collect();
    let all = shown(fields.iter().copied());
    assert!(all == Shown::Unreadable || fields.len() == 1);
    for field in fields {
        assert_ne!(shown([field].into_iter()), Shown::Nothing);
        if let Shown::Token(digest) = shown([field].into_iter()) {
            taken(field, digest);
        }
    }
    // The whole input as a token of its own. The blanks around a field are none of its value, and those
    // that base64 holds are.
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    let [bearer, basic @ ..] = spelt(bytes);
    let each = basic.into_iter().map(|field| (field, bytes));
    for (field, token) in std::iter::once((bearer, bytes.trim_ascii())).chain(each) {
        let is_one = (32..=128).contains(&token.len()) && token.iter().all(plain);
        match shown([field.as_slice()].into_iter()) {
            Shown::Token(digest) => assert!(is_one && digest == digest_of(token)),
            Shown::Unreadable => assert!(!is_one, "{:?}", String::from_utf8_lossy(&field)),
            Shown::Nothing => panic!("there is a field"),
        }
    }
}

/// Every spelling that clients have.
fn spelt(token: &[u8]) -> [Vec<u8>; 4] {
    let pair = [b"run:", token].concat();
    [
        [b"Bearer ", token].concat(),
        format!("Basic {}", STANDARD.encode(&pair)).into_bytes(),
        format!("basic {}", STANDARD_NO_PAD.encode(&pair)).into_bytes(),
        format!("BASIC   {} ", STANDARD.encode(&pair)).into_bytes(),
    ]
}

fn taken(field: &[u8], digest: TokenDigest) {
    let field = field.trim_ascii();
    let end = field
        .iter()
        .position(|byte| *byte == b' ')
        .unwrap_or_default();
    let (scheme, rest) = field.split_at(end);
    let (scheme, rest) = (scheme.to_ascii_lowercase(), rest.trim_ascii());
    let token = match scheme.as_slice() {
        b"bearer" => rest.to_vec(),
        b"basic" => {
            let unpadded: Vec<u8> = rest.iter().copied().filter(|byte| *byte != b'=').collect();
            let pair = STANDARD_NO_PAD.decode(&unpadded);
            let pair = pair.unwrap_or_else(|problem| panic!("{problem}"));
            pair.strip_prefix(b"run:").unwrap_or_default().to_vec()
        }
        other => panic!("{:?} was taken", String::from_utf8_lossy(other)),
    };
    assert_eq!(digest, digest_of(&token));
    for field in spelt(&token) {
        assert_eq!(shown([field.as_slice()].into_iter()), Shown::Token(digest));
    }
}

fn digest_of(token: &[u8]) -> TokenDigest {
    TokenDigest::new(Sha256::digest(token).into())
}
