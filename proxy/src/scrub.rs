//! Answers that repeat the injected secret: found while they stream, and cut before it leaves.
//!
//! What is looked for are the secret and the value as it was sent, raw, in base64 at any alignment,
//! percent-encoded, escaped for JSON, and in hex. A form that is spread over chunks is found too: the
//! end of a chunk that may be the beginning of a form is held back until the next one. A compressed
//! body is decoded on the side; what the client gets are the original bytes.
//!
//! A [`Scrubber`] lives as long as one answer, and its forms with it.

mod decode;
mod forms;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

use decode::Decoder;
use forms::{Forms, Window};

/// The answer repeats the secret, or cannot be looked into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Reflected {
    /// A form was found.
    #[error("the answer repeats the injected credential ({0})")]
    Found(&'static str),
    /// The body is encoded in a way that the gate cannot undo.
    #[error("the answer is encoded in a way that cannot be looked into")]
    Opaque,
}

/// What may be asked for in `Accept-Encoding` where a credential is injected.
pub const READABLE: &str = "gzip, deflate, br, zstd";

/// Decoded bytes that look like the beginning of a form hold their chunk back from this length on.
const SUSPICIOUS: usize = 4;
/// Of chunks held back for their decoded ends, at most this much.
const HELD_BYTES_MAX: usize = 256 * 1024;

/// Looks through one answer.
#[allow(
    missing_debug_implementations,
    reason = "holds forms of a secret, which are never printed"
)]
pub struct Scrubber {
    forms: Forms,
    raw: Window,
    decoder: Option<Decoder>,
    held: BytesMut,
}

impl Scrubber {
    /// For the body of an answer with these fields to a request that carried `secret` in the field
    /// or parameter `value`. Nothing to look for in a secret shorter than eight bytes: it would be
    /// found everywhere.
    ///
    /// # Errors
    /// [`Reflected::Found`] if a field of the answer repeats it, [`Reflected::Opaque`] for an
    /// unknown or manifold encoding.
    pub fn new(secret: &[u8], value: &[u8], answer: &HeaderMap) -> Result<Option<Self>, Reflected> {
        let Some(forms) = Forms::of(secret, value) else {
            return Ok(None);
        };
        for field in answer.values() {
            if let Some(form) = forms.find(field.as_bytes()) {
                return Err(Reflected::Found(form));
            }
        }
        let mut encodings = Vec::new();
        for field in answer.get_all(CONTENT_ENCODING) {
            let words = field.as_bytes().split(|byte| *byte == b',');
            encodings.extend(
                words
                    .map(|word| word.trim_ascii().to_ascii_lowercase())
                    .filter(|word| !word.is_empty() && word != b"identity"),
            );
        }
        let decoder = match encodings.as_slice() {
            [] => None,
            [one] => Some(Decoder::of(one).ok_or(Reflected::Opaque)?),
            [_, ..] => return Err(Reflected::Opaque),
        };
        Ok(Some(Self {
            forms,
            raw: Window::default(),
            decoder,
            held: BytesMut::new(),
        }))
    }

    /// Takes the next bytes of the body; gives what may leave, which may be nothing for now.
    ///
    /// # Errors
    /// [`Reflected`]: nothing more may leave.
    pub fn push(&mut self, chunk: &Bytes) -> Result<Bytes, Reflected> {
        let passed = self.raw.push(&self.forms, chunk)?;
        let Some(decoder) = &mut self.decoder else {
            return Ok(passed);
        };
        decoder.push(&self.forms, chunk)?;
        self.held.extend_from_slice(&passed);
        if decoder.pending() >= SUSPICIOUS && self.held.len() <= HELD_BYTES_MAX {
            return Ok(Bytes::new());
        }
        Ok(self.held.split().freeze())
    }

    /// The body has ended; gives what is left.
    ///
    /// # Errors
    /// [`Reflected`]
    pub fn finish(&mut self) -> Result<Bytes, Reflected> {
        let mut rest = self.held.split();
        rest.extend_from_slice(&self.raw.finish());
        Ok(rest.freeze())
    }
}

#[cfg(test)]
mod tests;
