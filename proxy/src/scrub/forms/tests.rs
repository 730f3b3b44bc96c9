use proptest::prelude::*;

use super::*;

/// What the search must agree with.
fn plainly(forms: &Forms, bytes: &[u8]) -> bool {
    (0..forms.places.len()).any(|at| {
        let form = forms.form(at);
        bytes.windows(form.len()).any(|window| window == form)
    })
}

fn begun_plainly(forms: &Forms, bytes: &[u8]) -> usize {
    let begins = |count: &usize| {
        let tail = &bytes[bytes.len() - count..];
        (0..forms.places.len())
            .any(|at| forms.form(at).len() > *count && forms.form(at).starts_with(tail))
    };
    (1..=bytes.len()).rev().find(begins).unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Secrets and texts of few letters, so that parts of forms stand everywhere.
    #[test]
    fn the_search_finds_what_a_plain_one_does(
        secret in "[ab%]{8,24}",
        other in proptest::option::of("[ab%]{8,24}"),
        noise in proptest::collection::vec("[ab%26]{0,12}", 0..12),
        whole: bool,
        which: prop::sample::Index,
        cut in 0..64_usize,
    ) {
        let sent = other.as_ref().unwrap_or(&secret);
        let value = [b"Bearer ".as_slice(), sent.as_bytes()].concat();
        let forms = Forms::of(secret.as_bytes(), &value).unwrap();
        prop_assert!(forms.are_of(&value));
        let form = forms.form(which.index(forms.places.len())).to_vec();
        let part = if whole { &form[..] } else { &form[..form.len().min(cut)] };
        let mut text = Vec::new();
        for (at, piece) in noise.iter().enumerate() {
            text.extend_from_slice(piece.as_bytes());
            if at == noise.len() / 2 {
                text.extend_from_slice(part);
            }
        }
        prop_assert_eq!(forms.find(&text).is_some(), plainly(&forms, &text));
        prop_assert_eq!(forms.begun(&text), begun_plainly(&forms, &text));
        text.extend_from_slice(part);
        prop_assert_eq!(forms.find(&text).is_some(), plainly(&forms, &text));
        prop_assert_eq!(forms.begun(&text), begun_plainly(&forms, &text));
    }

    /// Both secrets are found, and what holds neither leaves unchanged, wherever a chunk ends.
    #[test]
    fn a_window_finds_at_every_split_what_a_plain_search_does(
        secret in "[ab%]{8,16}",
        other in "[ab%]{8,16}",
        noise in proptest::collection::vec("[ab%26]{0,12}", 2),
        which: prop::sample::Index,
        whole: bool,
        cut in 0..64_usize,
    ) {
        let forms = Forms::of(secret.as_bytes(), other.as_bytes()).unwrap();
        let form = forms.form(which.index(forms.places.len()));
        let part = if whole { form } else { &form[..form.len().min(cut)] };
        let text = Bytes::from([noise[0].as_bytes(), part, noise[1].as_bytes()].concat());
        let stands = plainly(&forms, &text);
        for at in 0..=text.len() {
            let chunks = [text.slice(..at), text.slice(at..)];
            prop_assert_eq!(passed(&forms, &chunks), (!stands).then(|| text.to_vec()), "{}", at);
            let mut window = Window::default();
            let looked = chunks.iter().try_for_each(|chunk| window.look(&forms, chunk));
            prop_assert_eq!(looked.is_err(), stands, "{}", at);
        }
        let single: Vec<_> = (0..text.len()).map(|at| text.slice(at..=at)).collect();
        prop_assert_eq!(passed(&forms, &single), (!stands).then(|| text.to_vec()));
    }
}

/// What leaves of these chunks, unless a form is found.
fn passed(forms: &Forms, chunks: &[Bytes]) -> Option<Vec<u8>> {
    let (mut window, mut left) = (Window::default(), Vec::new());
    for chunk in chunks {
        left.extend_from_slice(&window.push(forms, chunk).ok()?);
    }
    left.extend_from_slice(&window.finish());
    Some(left)
}

#[test]
fn memory_of_another_length_is_not_taken() {
    let forms = || Forms::of(b"a-secret", b"Bearer a-secret").unwrap();
    let put = |more: usize| {
        move |bytes: &mut Vec<u8>| {
            let mut taken = std::mem::take(bytes);
            taken.resize(taken.len() + more, 0);
            Some(Box::new(taken) as Keeping)
        }
    };
    let moved = forms().moved(put(0)).unwrap();
    assert!(moved.find(b"<a-secret>").is_some(), "control");
    assert!(forms().moved(put(1)).is_none());
}

#[test]
fn there_are_no_more_forms_than_bits() {
    // All forms of both differ.
    let forms = Forms::of(b"a\"b/c~d\\e-f", b"Basic \"x/y~z\\w+v").unwrap();
    assert!(forms.places.len() > 17, "{}", forms.places.len());
    assert!(forms.places.len() <= 34, "{}", forms.places.len());
}
