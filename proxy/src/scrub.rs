//! Answers that repeat the injected secret: found while they stream, and cut before it leaves.
//!
//! What is looked for are the secret and the value as it was sent, raw, in base64 at any alignment,
//! percent-encoded, escaped for JSON, and in hex. A form that is spread over chunks is found too: the
//! end of a chunk that may be the beginning of a form (four bytes of it at least) is held back until
//! the next one comes or the body ends. No form begins with a line's end, so that an event or a line
//! of a stream is never held. A compressed body is decoded on the side; what the client gets are the
//! original bytes.
//!
//! A [`Scrubber`] lives as long as one answer, and its forms with it; only where they lie in memory
//! that nothing else can read are they kept for the next one.

mod decode;
pub mod forms;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderValue, RANGE};

pub use decode::Decoder;
pub use forms::Forms;
use forms::{SUSPICIOUS, Window};

/// The answer repeats the secret, or cannot be looked into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Reflected {
    /// A form was found.
    #[error("the answer repeats the injected credential ({0})")]
    Found(&'static str),
    /// The body is encoded in a way that the gate cannot undo.
    #[error("the answer is encoded in a way that cannot be looked into")]
    Opaque,
    /// The body unpacks to more than is looked into.
    #[error("the answer unpacks to more than is looked into")]
    Bomb,
}

/// The encodings that can be looked into.
const READABLE: [&str; 6] = ["gzip", "x-gzip", "deflate", "br", "zstd", "identity"];

/// Leaves of `Accept-Encoding` what can be looked into. A part of a body cannot be decoded, so that
/// whoever asks for a range gets it as it is.
pub fn limit_encodings(headers: &mut HeaderMap) {
    if !headers.contains_key(ACCEPT_ENCODING) {
        return;
    }
    let mut left = String::new();
    if !headers.contains_key(RANGE) {
        for field in headers.get_all(ACCEPT_ENCODING) {
            let words = field.to_str().unwrap_or_default().split(',').map(str::trim);
            for word in words {
                let name = word.split(';').next().unwrap_or_default().trim();
                if READABLE
                    .iter()
                    .any(|known| known.eq_ignore_ascii_case(name))
                {
                    left.push_str(if left.is_empty() { "" } else { ", " });
                    left.push_str(word);
                }
            }
        }
    }
    let value = HeaderValue::try_from(left).ok();
    let value = value.filter(|value| !value.is_empty());
    headers.insert(
        ACCEPT_ENCODING,
        value.unwrap_or(HeaderValue::from_static("identity")),
    );
}

/// What undoes the encoding of a body that the fields describe; nothing where there is none.
///
/// # Errors
/// [`Reflected::Opaque`] for an unknown or manifold encoding.
pub fn decoder(fields: &HeaderMap) -> Result<Option<Decoder>, Reflected> {
    let mut encodings = Vec::new();
    for field in fields.get_all(CONTENT_ENCODING) {
        let words = field.as_bytes().split(|byte| *byte == b',');
        encodings.extend(
            words
                .map(|word| word.trim_ascii().to_ascii_lowercase())
                .filter(|word| !word.is_empty() && word != b"identity"),
        );
    }
    match encodings.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(Decoder::of(one).ok_or(Reflected::Opaque)?)),
        [_, ..] => Err(Reflected::Opaque),
    }
}

/// Of chunks held back for their decoded ends, at most this much.
const HELD_BYTES_MAX: usize = 256 * 1024;

/// Looks through one answer.
pub struct Scrubber {
    forms: Arc<Forms>,
    raw: Window,
    decoder: Option<Decoder>,
    /// Of what is decoded.
    unpacked: Window,
    held: BytesMut,
}

impl Scrubber {
    /// For the answer to a request that carried `secret` in the field or parameter `value`. Nothing
    /// to look for in a secret shorter than eight bytes: it would be found everywhere.
    #[must_use]
    pub fn new(secret: &[u8], value: &[u8]) -> Option<Self> {
        Forms::of(secret, value).map(|forms| Self::with(Arc::new(forms)))
    }

    /// The same for forms that are at hand.
    #[must_use]
    pub fn with(forms: Arc<Forms>) -> Self {
        Self {
            forms,
            raw: Window::default(),
            decoder: None,
            unpacked: Window::default(),
            held: BytesMut::new(),
        }
    }

    /// Looks through the answer's fields, or those behind its body.
    ///
    /// # Errors
    /// [`Reflected::Found`] if one repeats the secret.
    pub fn fields(&self, fields: &HeaderMap) -> Result<(), Reflected> {
        for (name, value) in fields {
            for bytes in [name.as_str().as_bytes(), value.as_bytes()] {
                if let Some(form) = self.forms.find(bytes) {
                    return Err(Reflected::Found(form));
                }
            }
        }
        Ok(())
    }

    /// Prepares for a body that the answer's fields describe.
    ///
    /// # Errors
    /// [`Reflected::Opaque`] for an unknown or manifold encoding.
    pub fn expect_body(&mut self, fields: &HeaderMap) -> Result<(), Reflected> {
        self.decoder = decoder(fields)?;
        Ok(())
    }

    /// Takes the next bytes of the body; gives what may leave, which may be nothing for now.
    ///
    /// # Errors
    /// [`Reflected`]: nothing more may leave.
    pub fn push(&mut self, chunk: &Bytes) -> Result<Bytes, Reflected> {
        self.push_heard(chunk, &mut |_| {})
    }

    /// The same where somebody else reads along: `hear` is given the text, decoded.
    ///
    /// # Errors
    /// [`Reflected`]: nothing more may leave.
    pub fn push_heard(
        &mut self,
        chunk: &Bytes,
        hear: &mut dyn FnMut(&[u8]),
    ) -> Result<Bytes, Reflected> {
        let passed = self.raw.push(&self.forms, chunk)?;
        let Some(decoder) = &mut self.decoder else {
            hear(chunk);
            return Ok(passed);
        };
        let (forms, unpacked) = (&self.forms, &mut self.unpacked);
        decoder.push(chunk, &mut |text| {
            unpacked.look(forms, text)?;
            hear(text);
            Ok(())
        })?;
        self.held.extend_from_slice(&passed);
        if self.unpacked.pending() >= SUSPICIOUS && self.held.len() <= HELD_BYTES_MAX {
            return Ok(Bytes::new());
        }
        Ok(self.held.split().freeze())
    }

    /// How much is held back.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len() + self.raw.held()
    }

    /// The body has ended; gives what is left.
    pub fn finish(&mut self) -> Bytes {
        let mut rest = self.held.split();
        rest.extend_from_slice(&self.raw.finish());
        rest.freeze()
    }
}

impl std::fmt::Debug for Scrubber {
    /// Nothing of the forms.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Scrubber").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
