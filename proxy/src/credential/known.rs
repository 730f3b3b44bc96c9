//! What is looked for in the answers to a credential, made once and kept for the next answer: in memory
//! that nothing else can read, or not at all.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::scrub::{Forms, Keeping};
use crate::vault::Secret;

/// A credential goes out in so many ways that are kept.
const MOST: usize = 4;

/// Each token, and its forms where it goes out in one way.
#[derive(Default)]
pub(super) struct Known(Mutex<Vec<(Weak<Secret>, Arc<Forms>)>>);

struct Sealed(Secret);

impl AsRef<[u8]> for Sealed {
    fn as_ref(&self) -> &[u8] {
        self.0.expose()
    }
}

impl Known {
    /// The forms of a token that goes out as `value`; nothing for one that is too short to look for.
    pub(super) fn forms(&self, token: &Arc<Secret>, value: &[u8]) -> Option<Arc<Forms>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.iter().find(|(of, forms)| {
            std::ptr::eq(of.as_ptr(), Arc::as_ptr(token)) && forms.are_of(value)
        });
        if let Some((_, forms)) = found {
            return Some(Arc::clone(forms));
        }
        // Nothing of a token stays that is not used any more.
        known.retain(|(of, _)| of.strong_count() > 0);
        let forms = || Forms::of(token.expose(), value);
        let Some(sealed) = forms()?.moved(seal) else {
            return forms().map(Arc::new);
        };
        let sealed = Arc::new(sealed);
        if known.len() >= MOST {
            known.remove(0);
        }
        known.push((Arc::downgrade(token), Arc::clone(&sealed)));
        Some(sealed)
    }
}

/// Puts them where even root does not read them, if the kernel has such memory.
fn seal(bytes: &mut Vec<u8>) -> Option<Keeping> {
    let secret = Secret::take(bytes).ok()?;
    secret
        .is_sealed()
        .then(|| Box::new(Sealed(secret)) as Keeping)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scrub::Scrubber;

    #[test]
    fn what_is_kept_is_of_one_token_and_one_value() {
        let token = |text: &str| Arc::new(Secret::take(&mut text.as_bytes().to_vec()).unwrap());
        let (first, second) = (token("first-token-of-all"), token("second-token-of-all"));
        let known = Known::default();
        let found = |of: &Arc<Secret>, value: &str, text: &'static str| {
            let forms = known.forms(of, value.as_bytes()).unwrap();
            let text = bytes::Bytes::from_static(text.as_bytes());
            Scrubber::with(forms).push(&text).is_err()
        };
        for _ in 0..2 {
            assert!(found(
                &first,
                "Bearer first-token-of-all",
                "<first-token-of-all>"
            ));
            assert!(!found(
                &first,
                "Bearer first-token-of-all",
                "<second-token-of-all>"
            ));
            assert!(found(
                &second,
                "Bearer second-token-of-all",
                "<second-token-of-all>"
            ));
            // The same token in another dress.
            assert!(found(&first, "Basic QUJDREVGRw", "<QUJDREVGRw>"));
            assert!(!found(&first, "Bearer first-token-of-all", "<QUJDREVGRw>"));
        }
        assert!(known.0.lock().unwrap().len() <= MOST);
        drop(first);
        let third = token("third-token-of-all");
        assert!(found(
            &third,
            "Bearer third-token-of-all",
            "<third-token-of-all>"
        ));
        let known = known.0.lock().unwrap();
        assert!(known.iter().all(|(of, _)| of.strong_count() > 0));
        assert!(
            Known::default()
                .forms(&token("short"), b"Bearer short")
                .is_none()
        );
    }
}
