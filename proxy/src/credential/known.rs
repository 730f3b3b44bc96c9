//! What is looked for in the answers to a credential, made once and kept for the next answer: in memory
//! that nothing else can read, or not at all.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::scrub::Forms;
use crate::scrub::forms::Keeping;
use crate::vault::Secret;

/// A credential goes out in so many ways that are kept.
const MOST: usize = 4;
/// What is longer is made anew for each answer: sealed memory counts as locked, of which there is
/// little.
const SEALED_BYTES_MAX: usize = 64 * 1024;

/// Each token, and its forms where it goes out in one way.
#[derive(Default)]
pub(super) struct Known(Mutex<Vec<Entry>>);

type Entry = (Weak<Secret>, Arc<Forms>);

struct Sealed(Secret);

impl AsRef<[u8]> for Sealed {
    fn as_ref(&self) -> &[u8] {
        self.0.expose()
    }
}

impl Known {
    /// The forms of a token that goes out as `value`; nothing for one that is too short to look for.
    /// Where the token itself is not in sealed memory its forms are made anew each time.
    pub(super) fn forms(&self, token: &Arc<Secret>, value: &[u8]) -> Option<Arc<Forms>> {
        let make = || Forms::of(token.expose(), value);
        if !token.is_sealed() {
            return make().map(Arc::new);
        }
        if let Some(forms) = found(&self.entries(), token, value) {
            return Some(forms);
        }
        // Others that look for something meanwhile do not wait for this.
        let forms = make()?;
        if forms.bytes_len() > SEALED_BYTES_MAX {
            return Some(Arc::new(forms));
        }
        let Some(sealed) = forms.moved(seal) else {
            return make().map(Arc::new);
        };
        let mut entries = self.entries();
        if let Some(forms) = found(&entries, token, value) {
            return Some(forms);
        }
        tidy(&mut entries);
        if entries.len() >= MOST {
            entries.remove(0);
        }
        let sealed = Arc::new(sealed);
        entries.push((Arc::downgrade(token), Arc::clone(&sealed)));
        Some(sealed)
    }

    /// Nothing of `token` stays.
    pub(super) fn forget(&self, token: &Arc<Secret>) {
        self.entries().retain(|(of, _)| !is_of(of, token));
    }

    /// Nothing of a token stays that is not used any more.
    pub(super) fn tidy(&self) {
        tidy(&mut self.entries());
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn found(entries: &[Entry], token: &Arc<Secret>, value: &[u8]) -> Option<Arc<Forms>> {
    let meant = |(of, forms): &&Entry| is_of(of, token) && forms.are_of(value);
    entries
        .iter()
        .find(meant)
        .map(|(_, forms)| Arc::clone(forms))
}

fn is_of(of: &Weak<Secret>, token: &Arc<Secret>) -> bool {
    std::ptr::eq(of.as_ptr(), Arc::as_ptr(token))
}

fn tidy(entries: &mut Vec<Entry>) {
    entries.retain(|(of, _)| of.strong_count() > 0);
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
    use policy::authority::Host;

    use super::super::place::{Form, Placed};
    use super::*;
    use crate::scrub::Scrubber;

    fn token(text: &str) -> Arc<Secret> {
        Arc::new(Secret::take(&mut text.as_bytes().to_vec()).unwrap())
    }

    /// Whether the second answer is looked through with what the first one was.
    fn is_kept(known: &Known, token: &Arc<Secret>, value: &[u8]) -> bool {
        let first = known.forms(token, value).unwrap();
        Arc::ptr_eq(&first, &known.forms(token, value).unwrap())
    }

    /// What each kind sends is made once, where there is memory to keep it in.
    #[test]
    fn the_second_answer_makes_nothing_whatever_the_kind() {
        let secret = token("ab+cd/ef==");
        let host = Host::parse("api.example.com").unwrap();
        let parameter = "key".to_owned();
        let username = "x".to_owned();
        let name = http::HeaderName::from_static("x-api-key");
        for form in [
            Form::Query { parameter },
            Form::Basic { username },
            Form::Header { name },
            Form::Bearer,
            Form::Github,
        ] {
            let known = Known::default();
            let value = match form.place(&host, "/v1", secret.expose()) {
                Placed::Query { value, .. } => value.as_bytes().to_vec(),
                Placed::Field { value, .. } => value.as_bytes().to_vec(),
                Placed::Nowhere => panic!("it goes there"),
            };
            assert_eq!(
                is_kept(&known, &secret, &value),
                secret.is_sealed(),
                "{}",
                String::from_utf8_lossy(&value)
            );
        }
    }

    #[test]
    fn what_is_long_is_not_kept() {
        let known = Known::default();
        let (short, long) = (token(&"s".repeat(512)), token(&"l".repeat(8192)));
        assert!(!is_kept(&known, &long, long.expose()));
        assert!(known.entries().is_empty());
        assert_eq!(is_kept(&known, &short, short.expose()), short.is_sealed());
    }

    #[test]
    fn nothing_stays_of_a_token_that_is_refused_or_gone() {
        let known = Known::default();
        let kept = || known.entries().len();
        let (first, second) = (token("first-token-of-all"), token("second-token-of-all"));
        for token in [&first, &second] {
            known.forms(token, token.expose()).unwrap();
        }
        let sealed = usize::from(first.is_sealed());
        assert_eq!(kept(), 2 * sealed);
        known.forget(&first);
        assert_eq!(kept(), sealed);
        known.tidy();
        assert_eq!(kept(), sealed, "control: the second is in use");
        drop(second);
        known.tidy();
        assert_eq!(kept(), 0);
    }

    #[test]
    fn what_is_kept_is_of_one_token_and_one_value() {
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
