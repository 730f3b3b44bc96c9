//! Answers of models, in any pieces: what they say that they took does not depend on where they are cut,
//! and what is kept of them is bounded.

use crate::inspect::usage::Reader;

/// What is kept of an answer, as it is printed.
const HELD_MOST: usize = 8192;

/// The first byte chooses the pieces; the rest is the answer.
pub(crate) fn check(bytes: &[u8]) {
    let [size, answer @ ..] = bytes else {
        return;
    };
    let whole = read(answer, answer.len().max(1));
    let pieces = read(answer, usize::from(*size % 16) + 1);
    assert_eq!(whole.stated(), pieces.stated());
    assert_eq!(whole.guess(), pieces.guess());
    assert_eq!(whole.model(), pieces.model());
    assert_eq!(whole.is_final(true), pieces.is_final(true));
    assert_eq!(whole.is_final(false), pieces.is_final(false));
    if let Some(usage) = whole.stated() {
        assert!(whole.guess().output >= usage.output);
        assert!(usage.total() >= usage.read());
    }
    let held = format!("{pieces:?}").len();
    assert!(held < HELD_MOST, "{held} bytes are held");
}

fn read(answer: &[u8], size: usize) -> Reader {
    let mut reader = Reader::default();
    for piece in answer.chunks(size) {
        reader.push(piece);
    }
    reader.end();
    reader
}
