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
        noise in proptest::collection::vec("[ab%26]{0,12}", 0..12),
        whole: bool,
        which: prop::sample::Index,
        cut in 0..64_usize,
    ) {
        let value = [b"Bearer ".as_slice(), secret.as_bytes()].concat();
        let forms = Forms::of(secret.as_bytes(), &value).unwrap();
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
}

#[test]
fn there_are_no_more_forms_than_bits() {
    // All forms of both differ.
    let forms = Forms::of(b"a\"b/c~d\\e-f", b"Basic \"x/y~z\\w+v").unwrap();
    assert!(forms.places.len() > 17, "{}", forms.places.len());
    assert!(forms.places.len() <= 34, "{}", forms.places.len());
}
