//! Webhooks: how a sender outside proves that it may start a routine.

use hmac::digest::CtOutput;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use super::time::Millis;
use super::words;

words! {
    /// How a delivery is proven.
    HookKind {
        /// `Authorization: Bearer SECRET`.
        Bearer = "bearer",
        /// `X-Paperclip-Signature`: `sha256=` and the HMAC of `TIMESTAMP.BODY`, the time being in
        /// `X-Paperclip-Timestamp`.
        Hmac = "hmac_sha256",
        /// `X-Hub-Signature-256`: `sha256=` and the HMAC of the body.
        Github = "github_hmac",
    }
}

/// A signed time may be so far from now.
pub const WINDOW_MS: i64 = 300_000;

/// What a sender sent.
#[derive(Debug, Clone, Copy, Default)]
pub struct Delivery<'a> {
    /// `Authorization`.
    pub authorization: Option<&'a str>,
    /// `X-Paperclip-Timestamp`: Unix seconds or milliseconds.
    pub timestamp: Option<&'a str>,
    /// `X-Paperclip-Signature`.
    pub signature: Option<&'a str>,
    /// `X-Hub-Signature-256`.
    pub hub_signature: Option<&'a str>,
    /// `Idempotency-Key`.
    pub idempotency_key: Option<&'a str>,
    /// The bytes as they came.
    pub body: &'a [u8],
}

/// What is kept of a secret: of a bearer's its hash, of one that signs itself.
#[must_use]
pub fn kept(kind: HookKind, secret: &str) -> Vec<u8> {
    match kind {
        HookKind::Bearer => Sha256::digest(secret.as_bytes()).to_vec(),
        HookKind::Hmac | HookKind::Github => secret.as_bytes().to_vec(),
    }
}

/// Whether a delivery is proven. `Some` tells it from every other: the same again is the same delivery.
///
/// # Errors
/// Why not, for the log alone: a sender learns only that it is not.
pub fn prove(
    kind: HookKind,
    key: &[u8],
    delivery: &Delivery<'_>,
    now: Millis,
) -> Result<Option<String>, &'static str> {
    match kind {
        HookKind::Bearer => {
            let value = delivery.authorization.unwrap_or_default();
            let (scheme, token) = value.split_once(' ').unwrap_or_default();
            let said = CtOutput::<Hmac<Sha256>>::new(Sha256::digest(token.trim().as_bytes()));
            let key: [u8; 32] = key.try_into().map_err(|_size| "what is kept is no hash")?;
            let same = said == CtOutput::new(key.into());
            if !same || !scheme.eq_ignore_ascii_case("bearer") {
                return Err("the bearer token is missing or another");
            }
            let key = delivery.idempotency_key.map(|key| format!("key {key}"));
            Ok(key)
        }
        HookKind::Hmac => {
            let stamp = delivery.timestamp.unwrap_or_default();
            let signed = [stamp.as_bytes(), b".", delivery.body];
            let proof = signature(key, delivery.signature, &signed)?;
            let at: i64 = stamp.parse().map_err(|_error| "the time is no number")?;
            // Seconds until the year 5138, milliseconds since 1973.
            let at = if at < 100_000_000_000 {
                at.saturating_mul(1000)
            } else {
                at
            };
            if now.abs_diff(at) > WINDOW_MS.unsigned_abs() {
                return Err("the signed time is too far from now");
            }
            Ok(Some(proof))
        }
        HookKind::Github => signature(key, delivery.hub_signature, &[delivery.body]).map(Some),
    }
}

/// Checks `sha256=HEX` in constant time; returns it in one spelling.
fn signature(key: &[u8], stated: Option<&str>, signed: &[&[u8]]) -> Result<String, &'static str> {
    let hex = stated.unwrap_or_default();
    let hex = hex
        .strip_prefix("sha256=")
        .unwrap_or(hex)
        .to_ascii_lowercase();
    let stated = bytes(&hex).ok_or("the signature is missing or no hexadecimal number")?;
    let mut mac = Hmac::<Sha256>::new_from_slice(key).map_err(|_size| "the key has no length")?;
    for part in signed {
        mac.update(part);
    }
    mac.verify_slice(&stated)
        .map_err(|_other| "the signature is another")?;
    Ok(hex)
}

fn bytes(hex: &str) -> Option<[u8; 32]> {
    if hex.len() != 64 || !hex.is_ascii() {
        return None;
    }
    let mut found = [0; 32];
    for (byte, at) in found.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()?;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_example_of_a_signature_is_proven_and_no_other() {
        // From the documentation of GitHub's webhooks.
        let key = kept(HookKind::Github, "It's a Secret to Everybody");
        let stated = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let good = Delivery {
            hub_signature: Some(stated),
            body: b"Hello, World!",
            ..Delivery::default()
        };
        let upper = stated.replace("757107ea", "757107EA");
        let prove = |it: &Delivery<'_>| prove(HookKind::Github, &key, it, 0);
        let proof = prove(&good).unwrap();
        let spelt = Delivery {
            hub_signature: Some(&upper),
            ..good
        };
        assert_eq!(
            prove(&spelt).unwrap(),
            proof,
            "one delivery, however it is spelt"
        );
        for bad in [
            None,
            Some(""),
            Some("sha256="),
            Some(&stated[..70]),
            Some("sha1=00"),
        ] {
            assert!(
                prove(&Delivery {
                    hub_signature: bad,
                    ..good
                })
                .is_err(),
                "{bad:?}"
            );
        }
        assert!(
            prove(&Delivery {
                body: b"Hello, World?",
                ..good
            })
            .is_err()
        );
        // A sign within a pair of digits is no digit, whatever a number may begin with.
        let signs = format!("sha256={}", "+1".repeat(32));
        assert!(
            prove(&Delivery {
                hub_signature: Some(&signs),
                ..good
            })
            .is_err()
        );
    }

    #[test]
    fn a_signed_time_is_near_and_a_bearer_is_the_very_one() {
        let key = kept(HookKind::Hmac, "k");
        let sign = |text: &str| {
            let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
            mac.update(text.as_bytes());
            let digits = mac.finalize().into_bytes();
            digits
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        };
        let now = 1_796_000_000_000;
        for (stamp, near) in [
            ("1796000000", true),
            ("1796000000123", true),
            ("1795999701", true),
            ("1795999699", false),
            ("1796000301", false),
            ("-1", false),
            ("soon", false),
            ("", false),
        ] {
            let signature = sign(&format!("{stamp}.{{}}"));
            let it = Delivery {
                timestamp: Some(stamp),
                signature: Some(&signature),
                body: b"{}",
                ..Delivery::default()
            };
            assert_eq!(
                prove(HookKind::Hmac, &key, &it, now).is_ok(),
                near,
                "{stamp}"
            );
        }
        let key = kept(HookKind::Bearer, "token");
        for (value, good) in [
            ("Bearer token", true),
            ("bearer token", true),
            ("Bearer tokem", false),
            ("Basic token", false),
            ("token", false),
            ("", false),
        ] {
            let it = Delivery {
                authorization: Some(value),
                ..Delivery::default()
            };
            assert_eq!(
                prove(HookKind::Bearer, &key, &it, now).is_ok(),
                good,
                "{value}"
            );
        }
    }
}
