//! A run's token: what an agent shows that the kernel cannot vouch for, because it is on another
//! machine. It comes in `Proxy-Authorization`, as Basic (`run:TOKEN`, which every client makes of
//! `http://run:TOKEN@gate:port`) or as Bearer. The gate keeps what it digests to and nothing else.

pub(crate) mod reading;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use policy::grant::TokenDigest;
use policy::{Code, Refusal};
use zeroize::Zeroizing;

use self::reading::digest;
pub use self::reading::{Shown, shown};

/// Random bytes of a new token.
const RANDOM: usize = 32;

/// Why a request that showed nothing goes no further.
#[must_use]
pub fn missing() -> Refusal {
    Refusal::new(
        Code::TokenMissing,
        "this entrance of the gate wants the token of a run, and none was shown",
        "write the proxy as http://run:TOKEN@ADDRESS:PORT, with the token that this agent was given",
    )
}

/// Why one that showed something else goes no further.
#[must_use]
pub fn unknown() -> Refusal {
    Refusal::new(
        Code::TokenUnknown,
        "what was shown is not the token of a run that is open",
        "use the token that this run was given; it ends with the run",
    )
}

/// A new token and what it digests to; `None` when the system has no random bytes.
#[must_use]
pub fn generate() -> Option<(Zeroizing<String>, TokenDigest)> {
    let mut random = Zeroizing::new([0; RANDOM]);
    let source = rustls::crypto::aws_lc_rs::default_provider().secure_random;
    source.fill(random.as_mut_slice()).ok()?;
    let token = Zeroizing::new(URL_SAFE_NO_PAD.encode(random.as_slice()));
    let digest = digest(token.as_bytes())?;
    Some((token, digest))
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;
    use sha2::{Digest as _, Sha256};

    use super::reading::LENGTHS;
    use super::*;

    fn one(value: &str) -> Shown {
        shown([value.as_bytes()].into_iter())
    }

    #[test]
    fn a_token_is_read_from_basic_and_bearer_in_every_spelling_of_clients() {
        let (token, digest) = generate().unwrap();
        let token = token.as_str();
        let pair = STANDARD.encode(format!("run:{token}"));
        for value in [
            format!("Basic {pair}"),
            format!("basic {}", pair.trim_end_matches('=')),
            format!("BASIC   {pair} "),
            format!("Bearer {token}"),
            format!("bearer {token}"),
        ] {
            assert_eq!(one(&value), Shown::Token(digest), "{value}");
        }
        let (other, _) = generate().unwrap();
        let other = one(&format!("Bearer {}", other.as_str()));
        assert!(matches!(other, Shown::Token(other) if !other.is(&digest)));
    }

    #[test]
    fn what_is_no_token_is_none() {
        let (token, _) = generate().unwrap();
        let token = token.as_str();
        let basic = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
        for value in [
            String::new(),
            token.to_owned(),
            format!("Digest {token}"),
            "Basic".to_owned(),
            "Basic ****".to_owned(),
            basic(token),
            basic(&format!("admin:{token}")),
            basic(&format!("run:{}", &token[..31])),
            basic(&format!("run:{}", "a".repeat(129))),
            basic(&format!("run:{token} ")),
            format!("Bearer {token}, Bearer {token}"),
        ] {
            assert_eq!(one(&value), Shown::Unreadable, "{value}");
        }
        let twice = [format!("Bearer {token}"), format!("Bearer {token}")];
        let twice = twice.iter().map(String::as_bytes);
        assert_eq!(shown(twice), Shown::Unreadable);
        assert_eq!(shown(std::iter::empty()), Shown::Nothing);
    }

    proptest::proptest! {
        /// Whatever is sent: nothing but a token of that length behind `run:` or Bearer is one.
        #[test]
        fn no_other_bytes_are_a_token(
            scheme in "(?i)(basic|bearer|digest)? {0,2}",
            user in "(run|Run|ru|run:)?:?",
            secret in "[A-Za-z0-9_.~:=+/ -]{0,140}",
            encoded: bool,
            noise: Vec<u8>,
        ) {
            let pair = format!("{user}{secret}");
            let rest = if encoded { STANDARD.encode(&pair) } else { pair.clone() };
            let value = format!("{scheme}{rest}");
            if let Shown::Token(digest) = one(&value) {
                let lower = scheme.to_ascii_lowercase();
                let text = if lower.trim() == "basic" {
                    assert!(encoded && pair.starts_with("run:"), "{value}");
                    pair["run:".len()..].to_owned()
                } else {
                    assert_eq!(lower.trim(), "bearer");
                    rest.trim().to_owned()
                };
                assert!(LENGTHS.contains(&text.len()), "{value}");
                assert_eq!(digest, TokenDigest::new(Sha256::digest(&text).into()));
            }
            let read = shown([noise.as_slice()].into_iter());
            assert!(read != Shown::Nothing);
        }
    }
}
