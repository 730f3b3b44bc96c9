//! The forms in which a secret may come back, and a window that finds them across chunks.

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use zeroize::Zeroizing;

use super::Reflected;

/// Shorter secrets are not looked for.
const SECRET_BYTES_MIN: usize = 8;

type Form = (&'static str, Zeroizing<Vec<u8>>);

/// Everything that is looked for.
pub(super) struct Forms {
    forms: Vec<Form>,
    search: AhoCorasick,
    longest: usize,
}

impl Forms {
    pub(super) fn of(secret: &[u8], value: &[u8]) -> Option<Self> {
        // The scheme's word in front of a field's value is no secret.
        let bare = match value.iter().position(|byte| *byte == b' ') {
            Some(space) => &value[space + 1..],
            None => value,
        };
        let mut forms: Vec<Form> = Vec::new();
        for one in [secret, bare] {
            if one.len() >= SECRET_BYTES_MIN {
                add(&mut forms, one);
            }
        }
        if forms.is_empty() {
            return None;
        }
        let search = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::NoncontiguousNFA))
            .match_kind(MatchKind::Standard)
            .build(forms.iter().map(|(_, bytes)| bytes.as_slice()))
            .ok()?;
        let longest = forms.iter().map(|(_, bytes)| bytes.len()).max()?;
        Some(Self {
            forms,
            search,
            longest,
        })
    }

    /// The name of a form that stands in `bytes`.
    pub(super) fn find(&self, bytes: &[u8]) -> Option<&'static str> {
        self.search
            .find(bytes)
            .map(|found| self.forms[found.pattern().as_usize()].0)
    }

    /// How many of the last bytes may be the beginning of a form.
    fn begun(&self, bytes: &[u8]) -> usize {
        let most = bytes.len().min(self.longest.saturating_sub(1));
        (1..=most)
            .rev()
            .find(|count| {
                let tail = &bytes[bytes.len() - count..];
                self.forms
                    .iter()
                    .any(|(_, form)| form.len() > *count && form.starts_with(tail))
            })
            .unwrap_or(0)
    }
}

fn add(forms: &mut Vec<Form>, secret: &[u8]) {
    let mut put = |name, bytes: Vec<u8>| {
        let bytes = Zeroizing::new(bytes);
        if bytes.len() >= SECRET_BYTES_MIN && !forms.iter().any(|(_, known)| *known == bytes) {
            forms.push((name, bytes));
        }
    };
    put("raw", secret.to_vec());
    for shift in 0..3 {
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            put("base64", aligned(secret, shift, engine));
        }
    }
    let all = |digits: &str| percent(secret, digits, |_| true);
    let some = |digits: &str| percent(secret, digits, |byte| !unreserved(byte));
    for digits in ["0123456789ABCDEF", "0123456789abcdef"] {
        put("percent-encoded", some(digits));
        put("percent-encoded", all(digits));
        put("hex", hex(secret, digits));
        put("escaped", escaped(secret, digits));
    }
    if let Ok(text) = std::str::from_utf8(secret) {
        let quoted = serde_json::Value::from(text).to_string();
        let inner = quoted[1..quoted.len() - 1].to_owned();
        put("escaped", inner.replace('/', "\\/").into_bytes());
        put("escaped", inner.into_bytes());
    }
}

/// The characters of base64 that do not depend on what stands around the secret, when it begins
/// `shift` bytes into a group of three.
fn aligned(
    secret: &[u8],
    shift: usize,
    engine: &base64::engine::general_purpose::GeneralPurpose,
) -> Vec<u8> {
    let mut padded = Zeroizing::new(vec![0; shift]);
    padded.extend_from_slice(secret);
    let encoded = Zeroizing::new(engine.encode(padded.as_slice()));
    // Each byte before it spoils what shares its six bits.
    let front = [0, 2, 3][shift];
    let back = usize::from(padded.len() % 3 != 0);
    encoded.as_bytes()[front..encoded.len() - back].to_vec()
}

fn unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn percent(secret: &[u8], digits: &str, encode: impl Fn(u8) -> bool) -> Vec<u8> {
    let mut text = Vec::with_capacity(secret.len() * 3);
    for byte in secret {
        if encode(*byte) {
            text.push(b'%');
            text.extend(pair(*byte, digits));
        } else {
            text.push(*byte);
        }
    }
    text
}

fn hex(secret: &[u8], digits: &str) -> Vec<u8> {
    secret.iter().flat_map(|byte| pair(*byte, digits)).collect()
}

/// Every character as `\u00XX`.
fn escaped(secret: &[u8], digits: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(secret.len() * 6);
    for byte in secret {
        text.extend_from_slice(b"\\u00");
        text.extend(pair(*byte, digits));
    }
    text
}

fn pair(byte: u8, digits: &str) -> [u8; 2] {
    let digits = digits.as_bytes();
    [
        digits[usize::from(byte >> 4)],
        digits[usize::from(byte & 15)],
    ]
}

/// Finds forms in a stream and holds back what may become one.
#[derive(Default)]
pub(super) struct Window {
    tail: Zeroizing<Vec<u8>>,
}

impl Window {
    /// What may leave of everything so far.
    pub(super) fn push(&mut self, forms: &Forms, chunk: &Bytes) -> Result<Bytes, Reflected> {
        if self.tail.is_empty() {
            if let Some(form) = forms.find(chunk) {
                return Err(Reflected::Found(form));
            }
            let begun = forms.begun(chunk);
            let pass = chunk.len() - begun;
            self.tail.extend_from_slice(&chunk[pass..]);
            return Ok(chunk.slice(..pass));
        }
        let mut whole = Zeroizing::new(Vec::with_capacity(self.tail.len() + chunk.len()));
        whole.extend_from_slice(&self.tail);
        whole.extend_from_slice(chunk);
        if let Some(form) = forms.find(&whole) {
            return Err(Reflected::Found(form));
        }
        let pass = whole.len() - forms.begun(&whole);
        self.tail = Zeroizing::new(whole[pass..].to_vec());
        Ok(Bytes::copy_from_slice(&whole[..pass]))
    }

    /// As [`Window::push`] for bytes that go nowhere.
    pub(super) fn look(&mut self, forms: &Forms, bytes: &[u8]) -> Result<(), Reflected> {
        self.tail.extend_from_slice(bytes);
        if let Some(form) = forms.find(&self.tail) {
            return Err(Reflected::Found(form));
        }
        let begun = forms.begun(&self.tail);
        let gone = self.tail.len() - begun;
        self.tail.drain(..gone);
        Ok(())
    }

    /// How much is held back.
    pub(super) fn pending(&self) -> usize {
        self.tail.len()
    }

    /// What is left at the end, which has become nothing.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut *self.tail)
    }
}
