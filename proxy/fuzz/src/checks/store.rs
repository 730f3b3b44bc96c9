//! Decrypted entries of a store.

use crate::store::entry::{Form, is_void, value};

/// What is taken for a value is one: something can be seen in it, and it stands in the entry.
pub(crate) fn check(text: &[u8]) {
    for whole in [false, true] {
        let Ok((found, form)) = value(text, whole) else {
            continue;
        };
        assert!(!found.is_empty() && !is_void(&found));
        match form {
            Form::FirstLine => {
                assert!(!whole && text.starts_with(&found) && !found.contains(&b'\n'));
            }
            Form::Whole => assert!(whole && *found == *text),
            Form::Attachment => assert!(found.len() < text.len(), "base64 is longer"),
        }
    }
    if is_void(text) {
        assert!(value(text, true).is_err() && value(text, false).is_err());
    }
}
